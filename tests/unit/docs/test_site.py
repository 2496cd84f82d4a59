"""The documentation site (`make docs`) has every page."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]


def _pages(node: Any) -> list[str]:
    if isinstance(node, str):
        return [node]
    children = node.values() if isinstance(node, dict) else node
    return [page for child in children for page in _pages(child)]


def test_every_page_has_its_place_in_the_menu() -> None:
    menu = _pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(menu) == sorted(page for page in pages if not page.startswith("adr/0"))


def test_every_decision_is_listed_with_its_title() -> None:
    """The menu has only the list."""
    decisions = ROOT / "docs" / "adr"
    titles = {page.name: page.read_text().splitlines()[0].removeprefix("# ") for page in decisions.glob("0*.md")}
    lines = [f"- {title.replace('. ', ': [', 1)}]({name})" for name, title in sorted(titles.items())]
    assert [line for line in (decisions / "index.md").read_text().splitlines() if line.startswith("- ")] == lines


def test_the_first_page_names_every_page_that_a_reader_may_want() -> None:
    first = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs").as_posix()
        assert path == "index.md" or path.startswith("adr/0") or f"]({path})" in first, path
