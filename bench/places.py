"""Folders and programs of the bench."""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
"""The project."""
BUILT = ROOT / ".cache" / "bench"
"""Folder that `bench/install` fills."""
PEERS_PYTHON = BUILT / "scrapy" / "bin" / "python"
"""The interpreter that has Scrapy and scrapy-redis."""


def program(name: str) -> str | None:
    """The path of an installed program; servers are often outside a user's PATH. None: it is not there."""
    return shutil.which(
        name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    )
