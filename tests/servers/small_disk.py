"""A file system with hardly any room. Import the fixture to use it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

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
