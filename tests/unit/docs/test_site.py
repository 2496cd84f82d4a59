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
    assert sorted(menu) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md"))
