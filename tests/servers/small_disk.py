"""A file system with hardly any room. Import the fixture to use it."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.program import missing

SMALL = "512k"


class CannotMount(Exception):
    """No file system of one's own can be had here."""


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A file system of so many bytes (`512k`) in this folder, which is made. Raises CannotMount."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True)
    if done.returncode:
        raise CannotMount("mounting a file system is for root only" if os.geteuid() else "tmpfs cannot be mounted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def a_disk(folder: Path, size: str) -> Iterator[Path]:
    """The same for a test, which is skipped where there can be none."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(mounted(folder, size))
        except CannotMount as error:
            pytest.skip(str(error)) if os.geteuid() else missing(str(error))
        yield folder


@contextlib.contextmanager
def full(place: Path) -> Iterator[None]:
    """Somebody else has taken all room of the file system that `place` is in. Only for one made for this."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 * 1024))
    yield
    ballast.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    with a_disk(tmp_path / "small", SMALL) as folder:
        yield folder
