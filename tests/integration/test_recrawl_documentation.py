"""A documentation site in two releases, served one after the other: what a crawl tells is how the folders
differ.

Each change of the bytes is asked for: else the other template of a new release would be told once for many pages. The
releases are those of the documentation that Rust's toolchains bring along, where two of them are installed.
"""

import filecmp
import os
import shutil
from pathlib import Path

import pytest

from tests.integration.test_recrawl import changes, recrawl, serving, told

_BOOK = "share/doc/rust/html/unstable-book"
"""A book with a page for each feature of the language that is being tried out: pages come and go with each release."""


def releases() -> list[Path]:
    """The folders of two releases that differ, the older one first. Empty: they are not installed."""
    toolchains = sorted(Path(os.environ.get("RUSTUP_HOME", Path.home() / ".rustup")).glob("toolchains/[0-9]*"))
    nightly = sorted(toolchains[0].parent.glob("nightly*")) if toolchains else []
    return [path / _BOOK for path in (*toolchains[:1], *nightly[:1]) if (path / _BOOK).is_dir()]


def pages_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.html")}


def publish(release: Path, folder: Path, root: str) -> None:
    """Replace the content of a served folder, and list its pages in a sitemap."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(release, folder, dirs_exist_ok=True)
    urls = "".join(f"<url><loc>{root}/{page}</loc></url>" for page in sorted(pages_of(release)))
    (folder / "sitemap.xml").write_text(f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>')
    (folder / "robots.txt").write_text(f"User-agent: *\nSitemap: {root}/sitemap.xml\n")


@pytest.mark.timeout(300)
def test_what_is_told_is_the_difference_of_two_releases(tmp_path: Path) -> None:
    found = releases()
    if len(found) < 2:
        pytest.skip("two releases of Rust's documentation are not installed")
    old, new = found
    common = pages_of(old) & pages_of(new)
    differing = {page for page in common if not filecmp.cmp(old / page, new / page, shallow=False)}
    assert differing
    assert pages_of(new) - pages_of(old)
    assert pages_of(old) - pages_of(new)
    with serving(tmp_path / "site") as site:
        publish(old, site.folder, site.url)
        recrawl(tmp_path, site, "--sitemaps", "--recrawl-rule", "/ level=bytes", obeys=True)
        first = changes(tmp_path, site)
        assert set(told(first)) - {""} == pages_of(old)

        publish(new, site.folder, site.url)
        recrawl(tmp_path, site, "--sitemaps", "--recrawl-rule", "/ level=bytes", obeys=True)
        expected = (
            dict.fromkeys(pages_of(new) - pages_of(old), "new")
            | dict.fromkeys(pages_of(old) - pages_of(new), "gone")
            | dict.fromkeys(differing, "changed")
        )
        if "index.html" in differing:
            expected[""] = "changed"
        assert told(changes(tmp_path, site, first[-1]["cursor"])) == expected
