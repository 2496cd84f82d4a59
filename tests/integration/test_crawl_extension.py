"""A compiled extension that is installed but cannot be used is named, once, and the crawl goes on without it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.crawling import gossamer, records_of, resolving

ANOTHER_VERSION = "it is of another version (interface 99, not "
PAGES = 5


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=1, pages=PAGES)) as running:
        yield running


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("gossamer_native/__init__.py", "INTERFACE = 99", ANOTHER_VERSION),
        ("gossamer_native/__init__.py", "", "it is of another version (interface 1, not "),
        ("gossamer_native/__init__.py", "def (", "it cannot be loaded (invalid syntax"),
        ("gossamer_native/__init__.py", "import gossamer_native.gone", "it cannot be loaded (No module named "),
        ("gossamer_native.abi3.so", "damaged", "it cannot be loaded ("),
    ],
)
def test_a_crawl_names_an_extension_that_it_cannot_use(
    file: str, text: str, reason: str, web: FakeWeb, tmp_path: Path
) -> None:
    path = tmp_path / "packages" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    done = crawl(web, tmp_path, {"PYTHONPATH": str(tmp_path / "packages")})
    assert done.count("The compiled extension is left out") == 1
    assert f"gossamer: The compiled extension is left out, because {reason}" in done


@pytest.mark.parametrize("processes", ["1", "2"])
def test_one_that_is_switched_off_is_not_mentioned(processes: str, web: FakeWeb, tmp_path: Path) -> None:
    (tmp_path / "gossamer_native").mkdir()
    off = {"PYTHONPATH": str(tmp_path), "GOSSAMER_NATIVE": "0"}
    assert "extension" not in crawl(web, tmp_path, off, "--processes", processes)


def test_two_worker_processes_do_not_repeat_it(web: FakeWeb, tmp_path: Path) -> None:
    (tmp_path / "gossamer_native.py").write_text("INTERFACE = 99")
    done = crawl(web, tmp_path, {"PYTHONPATH": str(tmp_path)}, "--processes", "2")
    assert done.count(ANOTHER_VERSION) == 1


def crawl(web: FakeWeb, folder: Path, env: dict[str, str], *more: str) -> str:
    """Crawl the whole web, and return what the command said."""
    options = ("--rate", "1000/1", "-o", "pages.jsonl", *more)
    done = gossamer("crawl", *web.seeds(), *resolving(web.resolve_overrides()), *options, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    files = sorted(folder.glob("pages*.jsonl"))
    assert sum(len(records_of(file)) for file in files) == PAGES
    return done.stderr
