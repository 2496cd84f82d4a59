"""The wheel that `make versions` installs for the last release: the released file, where it can be had."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.versions.installation import released_wheel

_NAME = "gossamer_crawl-1.2.3-py3-none-any.whl"


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    """Address of a repository with one release."""
    release = tmp_path / "served/releases/download/v1.2.3"
    release.mkdir(parents=True)
    (release / _NAME).write_bytes(b"released")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(tmp_path / "served"))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_released_wheel_is_taken(repository: str, tmp_path: Path) -> None:
    wheel = released_wheel("v1.2.3", repository, tmp_path / "old")
    assert wheel == tmp_path / "old" / _NAME
    assert wheel.read_bytes() == b"released"


@pytest.mark.parametrize("has_address", [True, False])
def test_a_release_without_that_file_is_built_and_says_why(
    has_address: bool, repository: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert released_wheel("v1.2.4", repository if has_address else "", tmp_path / "old") is None
    assert ("404" if has_address else "no address") in capsys.readouterr().out
    assert not (tmp_path / "old").exists()
