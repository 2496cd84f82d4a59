"""An output without room: the crawl pauses, says so, loses nothing, and goes on when there is room."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec, fetches
from tests.servers.crawling import FAST_FLAGS, command, records_of, resolving
from tests.servers.program import missing

SMALL = "512k"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is for root only") if os.geteuid() else missing("tmpfs cannot be mounted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_pauses_the_crawl(small_disk: Path, tmp_path: Path) -> None:
    output = small_disk / "pages.jsonl"
    with FakeWeb.start(WebSpec(hosts=1, pages=150)) as web:
        process = subprocess.Popen(
            [
                *command("crawl", web.url(), "-o", str(output), "--json"),
                *resolving(web.resolve_overrides()),
                *FAST_FLAGS,
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr
        said = process.stderr.readline()
        assert "no room" in said
        assert "nothing is lost" in said
        assert process.poll() is None
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        _, rest = process.communicate(timeout=60)
        assert process.returncode == 0, rest
        assert "going on" in rest
        urls = [record.url for record in records_of(output)]
        assert len(urls) == len(set(urls))
        assert set(urls) == web.graph()
        assert max(fetches(web.log()).values()) == 1
