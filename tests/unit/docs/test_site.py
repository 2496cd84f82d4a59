"""The documentation site (`make docs`) has every page."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from tools.docs_site import on_page_markdown

ROOT = Path(__file__).parents[3]

OUTSIDE = ("CONTRIBUTING.md", "SECURITY.md", "bench/README.md")


def _pages(node: Any) -> list[str]:
    if isinstance(node, str):
        return [node]
    children = node.values() if isinstance(node, dict) else node
    return [page for child in children for page in _pages(child)]


def test_every_page_has_its_place_in_the_menu() -> None:
    menu = _pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(menu) == sorted([*OUTSIDE, *(page for page in pages if not page.startswith("adr/0"))])


def test_links_of_the_repository_to_pages_from_outside_of_docs_and_back_are_links_of_the_site() -> None:
    """Each page has one text, whose links also lead somewhere where the repository shows it."""
    for name in (*OUTSIDE, "index.md"):
        place = ROOT / name if name in OUTSIDE else ROOT / "docs" / name
        page = SimpleNamespace(file=SimpleNamespace(src_uri=name))
        text = place.read_text()
        links, of_site = (
            re.findall(r"\]\((?!https?:)([^)#\s]+)", each) for each in (text, on_page_markdown(text, page))
        )
        assert len(links) == len(of_site) > 0
        for link, site_link in zip(links, of_site, strict=True):
            path = (place.parent / link).resolve().relative_to(ROOT).as_posix().removeprefix("docs/")
            assert (ROOT / name).parent.joinpath(site_link).resolve().relative_to(ROOT).as_posix() == path


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
    assert [page for page in OUTSIDE if f"](../{page})" not in first] == []


def test_the_pages_stay_short() -> None:
    """A page that grows says what another page says, or what the reader does not need."""
    words = sum(len(page.read_text().split()) for page in (ROOT / "docs").rglob("*.md"))
    assert words < 68_000, f"{words} words; a rule stands once, so cut where it stands twice"
