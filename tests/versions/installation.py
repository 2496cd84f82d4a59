"""Installed versions: a wheel, built from a revision or given as a file, in an environment of its own."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from io import BytesIO
from pathlib import Path

from packaging.requirements import Requirement

from tests import proof

_EXTRAS = ("", "service", "platform")


class Installation:
    """A version in a virtual environment. `name`: for messages, such as `old`."""

    def __init__(self, name: str, wheel: Path, folder: Path) -> None:
        self.name, self.wheel = name, wheel
        self.folder = folder
        self.version, self._needs = _metadata(wheel)
        self.python = str(folder / "bin" / "python")

    def install(self) -> None:
        """Make the environment. The compiled extension is left out: it changes nothing that is shared."""
        uv = _uv()
        subprocess.run([sys.executable, "-m", "venv", *(["--without-pip"] if uv else []), self.folder], check=True)
        command = [uv, "pip", "install", "--quiet", "--python", self.python] if uv else self._pip()
        subprocess.run([*command, *self._needs], check=True)
        subprocess.run([*command, "--no-deps", str(self.wheel)], check=True)

    def _pip(self) -> Sequence[str]:
        return [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]

    def frontier_format(self) -> str:
        """Return the number of the format of its frontiers."""
        program = "from gossamer.frontier.valkey.identity import FORMAT; print(FORMAT)"
        return subprocess.run([self.python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()

    def has_minor_version_of(self, other: "Installation") -> bool:
        """Return whether both have one minor version, such as 1.2. Then they must share a frontier."""
        return self.version.split(".")[:2] == other.version.split(".")[:2]

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that runs `gossamer` of this version."""
        return [self.python, "-m", "gossamer", *arguments]


def wheel_of(what: str, folder: Path) -> Path:
    """Return the wheel at the path `what`, or that of the revision `what` of this repository, in the folder.

    The wheel of a release's tag is the one that was released, where it can be had; others are built. An empty `what`
    means this checkout, with what is not committed.
    """
    if what.endswith(".whl"):
        if not Path(what).is_file():
            raise FileNotFoundError(f"OLD={what}: there is no such file")
        return Path(what).resolve()
    if re.fullmatch(r"v\d+\.\d+\.\d+", what) and (released := released_wheel(what, _repository(), folder)):
        return released
    source = folder / "source" if what else proof.ROOT
    if what:
        packed = subprocess.run(["git", "archive", what], cwd=proof.ROOT, capture_output=True, check=False)
        if packed.returncode:
            raise OSError(f"OLD={what} is neither a wheel nor a revision: {packed.stderr.decode().strip()}")
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as files:
            files.extractall(source, filter="data")
    out = folder / "wheel"
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", out],
        cwd=source, env={**os.environ, "GOSSAMER_NATIVE": "0"}, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = out.glob("*.whl")
    return wheel


def released_wheel(tag: str, repository: str, folder: Path) -> Path | None:
    """Return the wheel of a release, from the files that it has at the repository's address. None: it could not be had;
    the reason is printed."""
    wheel = folder / f"gossamer_crawl-{tag.removeprefix('v')}-py3-none-any.whl"
    address = f"{repository}/releases/download/{tag}/{wheel.name}"
    try:
        if not repository:
            raise OSError("the repository has no address in pyproject.toml")
        with urllib.request.urlopen(address, timeout=60) as answer:
            folder.mkdir(parents=True, exist_ok=True)
            wheel.write_bytes(answer.read())
    except OSError as error:
        print(f"The wheel of {tag} is built again, because the released one could not be had: {error}", flush=True)
        return None
    return wheel


def last_release() -> str:
    """Return the tag of the last release before this commit. Empty: there was none."""
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*.*.*"]
    return subprocess.run(command, cwd=proof.ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _repository() -> str:
    project = tomllib.loads((proof.ROOT / "pyproject.toml").read_text())
    address: str = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    return address.rstrip("/")


def _metadata(wheel: Path) -> tuple[str, list[str]]:
    """Return the version of a wheel, and what it requires besides its own packages."""
    with zipfile.ZipFile(wheel) as content:
        [name] = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
        told = Parser().parsestr(content.read(name).decode())
    needed = []
    for text in told.get_all("Requires-Dist") or []:
        one = Requirement(text)
        wanted = one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in _EXTRAS)
        if wanted and not one.name.startswith("gossamer"):
            extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
            needed.append(f"{one.name}{extras}{one.specifier}")
    return str(told["Version"]), sorted(set(needed))


def _uv() -> str:
    """Return the program uv: from PATH, or the one of `make setup`. Empty: there is none."""
    own = proof.ROOT / ".cache" / "uv" / "bin" / "uv"
    return shutil.which("uv") or (str(own) if own.exists() else "")
