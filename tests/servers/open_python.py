"""A Python that every user of the machine can run, with the packages of this one.

Where the tests run as root, their Python is often in a folder that only root may enter. Then the interpreter and the
standard library are copied.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

_LEFT_OUT = shutil.ignore_patterns("site-packages", "test", "tests", "idlelib", "ensurepip", "config-*", "*.a")


class OpenPython(NamedTuple):
    """An interpreter."""

    path: str
    environment: dict[str, str]
    """Environment variables that it needs."""


def open_python(folder: Path, *, uid: int) -> OpenPython:
    """An interpreter that the user with this number can run; copied into the folder if need be."""
    try:
        subprocess.run(
            [sys.executable, "-c", "import scrapy"], user=uid, group=uid, extra_groups=[], cwd="/", check=True
        )
        return OpenPython(sys.executable, {})
    except (PermissionError, subprocess.CalledProcessError):
        pass
    base, name = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    copied = folder / "python"
    (copied / "bin").mkdir(parents=True)
    shutil.copy(base / "bin" / name, copied / "bin" / name)
    shutil.copytree(base / "lib" / name, copied / "lib" / name, ignore=_LEFT_OUT, symlinks=True)
    for library in (base / "lib").glob("libpython*.so*"):
        shutil.copy(library, copied / "lib")
    paths = [str(Path(__file__).parents[2] / "src"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    environment = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "LD_LIBRARY_PATH": str(copied / "lib")}
    return OpenPython(str(copied / "bin" / name), environment)
