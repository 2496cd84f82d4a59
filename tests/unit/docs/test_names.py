"""Files and classes that the documentation names exist."""

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "bench" / "README.md",
        ROOT / "fakeweb" / "README.md",
        *ROOT.glob("examples/*/README.md"),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
"""Not CHANGELOG.md: it may name what was removed."""
FOLDERS = ("bench", "deploy", "docs", "examples", "fakeweb", "src", "tests", "tools")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?:[\w.-]+/)*\w+\.(?:py|lua)")
CLASS = re.compile(r"(?<![.\w])[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|\bgossamer(?:\.\w+)*\.[A-Z]\w+")
IN_TUTORIALS = {"tutorial/spiders/quotes.py", "tutorial/settings.py", "shop.py", "prices.py"}
"""Files that a page tells the reader to write."""
OF_OTHERS = {
    "CloseSpider",
    "HtmlResponse",
    "RedisSpider",
    "LinkExtractor",
    "RFPDupeFilter",
    "LinkSpider",
    "WanderingSpider",
}
"""Classes of Scrapy, scrapy-redis and Scrapy Cluster."""


def _sources() -> Iterator[Path]:
    yield from ROOT.glob("*.py")
    for folder in FOLDERS:
        for ending in ("py", "lua"):
            yield from (ROOT / folder).rglob(f"*.{ending}")


@cache
def _files() -> frozenset[str]:
    return frozenset("/" + path.relative_to(ROOT).as_posix() for path in _sources())


@cache
def _classes() -> frozenset[str]:
    trees = (ast.parse(path.read_text()) for path in _sources() if path.suffix == ".py")
    return frozenset((*(name for tree in trees for name in _classes_in(tree)), *dir(builtins), *OF_OTHERS))


def _classes_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names of classes. Only statements are walked: an expression contains none."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            if isinstance(node, ast.ClassDef):
                yield node.name
            yield from _classes_in(node)


def _code(page: Path) -> list[str]:
    """Return the inline code of the page, without its blocks."""
    return INLINE.findall(FENCE.sub("", page.read_text()))


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@every_page
def test_every_source_file_exists(page: Path) -> None:
    for code in _code(page):
        if FILE.fullmatch(code) and code not in IN_TUTORIALS:
            assert any(path.endswith("/" + code) for path in _files()), f"{code}: no such file"


@every_page
def test_every_class_exists(page: Path) -> None:
    for code in _code(page):
        for name in CLASS.findall(code):
            assert name.rpartition(".")[2] in _classes(), f"{name}: no such class"


def test_the_architecture_names_every_package() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    package = ROOT / "src" / "gossamer"
    named = set(re.findall(r"^([a-z]\w*(?:/|\.py)) ", page, re.MULTILINE))
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    assert named == folders | files
