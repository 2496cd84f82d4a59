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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(mounted(tmp_path / "small", SMALL))
        except CannotMount as error:
            pytest.skip(str(error)) if os.geteuid() else missing(str(error))
        yield folder
