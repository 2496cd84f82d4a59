"""Builds the artefact of a Scrapy project: an egg or a wheel, whose content a server runs.

A project whose pyproject.toml has a `[build-system]` becomes a wheel, built by pip or uv; one with a setup.py an egg,
built by setuptools; any other is packed here, without further packages. Builds run in a copy of the folder: they leave
nothing in it, and what earlier builds have left there is not packed again.

Fixed: the layout of eggs (`EGG-INFO/entry_points.txt` names the settings module), which Scrapyd reads.
"""

import io
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from gossamer.errors import BadInput
from gossamer.extras import package_advice
from gossamer.platform_client.targets import ScrapyProject

_BUILD_SECONDS: Final = 900.0
"""Time limit of a build, which may install what it needs."""
_LEFT_BY_BUILDS: Final = frozenset({"build", "dist", "venv", "httpcache", ".scrapy", ".tox", ".mypy_cache"})
"""Names in the project's folder that no build needs."""
_SKIPPED: Final = frozenset({"__pycache__", "node_modules"})
"""Folders that are never packed, besides hidden ones."""
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""Time of files in an egg: the earliest one that the format knows, so that equal projects make equal eggs. Fixed."""
_SHOWN_LINES: Final = 15
"""Last lines of a failed build that are shown."""


class BuiltArtefact(NamedTuple):
    """An artefact that can be sent."""

    content: bytes
    kind: str
    """`egg` or `wheel`."""
    how: str
    """Origin for a person, such as `by setup.py`. Empty: the project's files, packed."""


class BuildFailed(BadInput):
    """The artefact cannot be built."""


def build_artefact(project: ScrapyProject, version: str, *, as_egg: bool = False) -> BuiltArtefact:
    """Return the artefact of a project. `as_egg`: never a wheel, which Scrapyd does not know. Raises BuildFailed."""
    if not project.settings_module:
        raise BuildFailed(
            f"{project.folder / 'scrapy.cfg'} names no settings module. It needs a section [settings] with "
            "default = PROJECT.settings"
        )
    try:
        if not as_egg and "build-system" in _pyproject(project.folder):
            return BuiltArtefact(_wheel(project.folder), "wheel", "by pyproject.toml")
        if (project.folder / "setup.py").is_file():
            return BuiltArtefact(_setup_py_egg(project.folder), "egg", "by setup.py")
        return BuiltArtefact(_packed_egg(project, version), "egg", "")
    except shutil.Error as error:  # of a copied folder: all its faults
        raise BuildFailed(f"the project cannot be built: {error.args[0][0][2]}") from None
    except OSError as error:
        raise BuildFailed(f"the project cannot be built: {error}") from None


def _pyproject(folder: Path) -> dict[str, Any]:
    """Return the content of pyproject.toml. Empty: there is none."""
    path = folder / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BuildFailed(f"{path} cannot be read: {error}") from None


def _requirements(folder: Path) -> bytes:
    """Return requirements for an isolated environment: requirements.txt, else the dependencies in pyproject.toml."""
    path = folder / "requirements.txt"
    if path.is_file():
        return path.read_bytes()
    own = _pyproject(folder).get("project", {}).get("dependencies", [])
    return "".join(f"{line}\n" for line in own).encode()


def _wheel(folder: Path) -> bytes:
    if find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir"]
        return _built([*command, "{out}", "."], folder, "*.whl")
    if uv := shutil.which("uv"):
        return _built([uv, "build", "--wheel", "--quiet", "--out-dir", "{out}", "."], folder, "*.whl")
    raise BuildFailed("a wheel is built by pip or uv, and there is neither. Install one: python -m ensurepip")


def _setup_py_egg(folder: Path) -> bytes:
    if find_spec("setuptools") is None:
        raise BuildFailed(f"setup.py needs setuptools. Install it with: {package_advice('setuptools<81')}")
    return _built([sys.executable, "setup.py", "-q", "bdist_egg", "--dist-dir", "{out}"], folder, "*.egg")


def _built(command: list[str], folder: Path, pattern: str) -> bytes:
    """Run a build in a copy of the folder. It writes one file of this pattern into `{out}`; return its content."""
    with tempfile.TemporaryDirectory(prefix="gossamer-build-") as place:
        out = f"{place}/out"
        copy = shutil.copytree(folder, Path(place) / folder.name, symlinks=True, ignore=_unneeded(folder))
        arguments = [part.replace("{out}", out) for part in command]
        try:
            done = subprocess.run(
                arguments, cwd=copy, capture_output=True, text=True, errors="replace", timeout=_BUILD_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise BuildFailed(f"the build took longer than {_BUILD_SECONDS:.0f} seconds") from None
        found = sorted(Path(out).glob(pattern))
        if done.returncode or not found:
            lines = (done.stdout + done.stderr).strip().splitlines()[-_SHOWN_LINES:]
            raise BuildFailed("the project cannot be built:\n" + "\n".join(lines))
        return found[-1].read_bytes()


def _unneeded(top: Path) -> Callable[[str, list[str]], set[str]]:
    """Return a function for shutil.copytree that leaves out what no build needs."""

    def choose(folder: str, names: list[str]) -> set[str]:
        chosen = {name for name in names if name in _SKIPPED or (Path(folder) / name / "pyvenv.cfg").exists()}
        if Path(folder) == top:
            chosen |= {name for name in names if name in _LEFT_BY_BUILDS or name.endswith(".egg-info")}
        return chosen

    return choose


def _packed_egg(project: ScrapyProject, version: str) -> bytes:
    package = project.settings_module.partition(".")[0]
    module = project.folder / Path(*project.settings_module.split("."))
    if not module.with_suffix(".py").is_file() and not (module / "__init__.py").is_file():
        raise BuildFailed(
            f"the settings module {project.settings_module} of scrapy.cfg is not in {project.folder}: there is no "
            f"{module.relative_to(project.folder)}.py"
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as egg:
        for path in _files(project.folder, package):
            _add(egg, str(path.relative_to(project.folder)), path.read_bytes())
        if requirements := _requirements(project.folder):
            _add(egg, "requirements.txt", requirements)
        _add(egg, "EGG-INFO/PKG-INFO", f"Metadata-Version: 1.1\nName: {package}\nVersion: {version}\n".encode())
        # Python cannot open a data file inside a zip by its path: a server unpacks an egg with this mark.
        _add(egg, "EGG-INFO/not-zip-safe", b"\n")
        _add(egg, "EGG-INFO/entry_points.txt", f"[scrapy]\nsettings = {project.settings_module}\n".encode())
    return buffer.getvalue()


def _files(folder: Path, package: str) -> Iterator[Path]:
    """Yield the modules beside scrapy.cfg, and all files of the project's packages, with their data files: what
    `scrapy crawl` can import in this folder."""
    yield from sorted(path for path in folder.glob("*.py") if path.is_file() and not path.name.startswith("."))
    for top in sorted(folder.iterdir()):
        if top.name.startswith(".") or not ((top / "__init__.py").is_file() or top == folder / package):
            continue
        for path in sorted(top.rglob("*")):
            parts = path.relative_to(folder).parts
            hidden = any(part.startswith(".") or part in _SKIPPED for part in parts)
            if path.is_file() and not hidden and path.suffix not in (".pyc", ".pyo"):
                yield path


def _add(egg: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _ZIP_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    egg.writestr(info, content)


def version_name(wanted: str, folder: Path) -> str:
    """Return the name of a version: GIT and HG stand for what the repository says, as in scrapyd-client; nothing for
    the time now. Raises BadInput."""
    if wanted == "GIT":
        described = _said(["git", "describe"], folder) or _said(["git", "rev-list", "--count", "HEAD"], folder, "r")
        if not described:
            raise BadInput(
                f"version GIT: {folder} is in no git repository with a commit. Commit, or give --version NAME."
            )
        branch = _said(["git", "rev-parse", "--abbrev-ref", "HEAD"], folder)
        return f"{described}-{branch}".replace("/", "-").rstrip("-")
    if wanted == "HG":
        described = _said(["hg", "tip", "--template", "{rev}"], folder, "r")
        if not described:
            raise BadInput(f"version HG: {folder} is in no Mercurial repository. Give --version NAME.")
        return f"{described}-{_said(['hg', 'branch'], folder)}".replace("/", "-").rstrip("-")
    return wanted or str(int(time.time()))


def _said(command: list[str], folder: Path, before: str = "") -> str:
    """Return what a program prints, with a text before it. Empty: it failed, or is not installed."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = done.stdout.strip()
    return f"{before}{text}" if done.returncode == 0 and text else ""
