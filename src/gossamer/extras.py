"""Advice for what is not installed: extras of Gossamer, other packages of its checkout, and packages of other projects.

Imports only the standard library, because programs without Gossamer run this file, too (`node/runner.py`).
"""

import json
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

_NAME = "gossamer-crawl"
_UNKNOWN_PLACE = "/path/to/the/checkout"
_UV_TOOL = "uv tool install"


def install_advice(extra: str) -> str:
    """Return the command that installs an extra.

    It names the checkout or the wheel that this installation came from. The name of the distribution is advised only
    where a release is installed: before, it is on no package index, so a stranger could register it there.
    """
    place, is_editable = _origin()
    command = f"{_installer()} {'-e ' if is_editable else ''}{shlex.quote(f'{place}[{extra}]')}"
    # uv makes the environment of a tool anew, without what was added to it: the extension of a checkout.
    if command.startswith(_UV_TOOL) and Path(place).is_dir() and find_spec("gossamer_native") is not None:
        command += f" --with {shlex.quote(f'{place}/native')}"
    return command


def extension_advice(version: str) -> str:
    """Return the command that installs the compiled extension: from the folder native of a checkout, or the release
    `version` of it."""
    place, _ = _origin()
    return package_advice(f"gossamer-native=={version}") if place == _NAME else checkout_advice("native")


def checkout_advice(folder: str) -> str:
    """Return the command that adds the package in a folder of the checkout."""
    place, _ = _origin()
    if not Path(place).is_dir():
        place = _UNKNOWN_PLACE
    return f"{_installer(tool=place)} {shlex.quote(f'{place}/{folder}')}"


def package_advice(package: str) -> str:
    """Return the command that adds a package of the index, such as a driver."""
    place, _ = _origin()
    return f"{_installer(tool=place)} {shlex.quote(package)}"


def _origin() -> tuple[str, bool]:
    """Return the checkout, the archive or the name that Gossamer was installed from, and whether it is used in place
    (editable installation)."""
    from importlib.metadata import PackageNotFoundError, distribution  # here, because most commands need no advice

    try:
        installed = distribution(_NAME)
        origin = json.loads(installed.read_text("direct_url.json") or "{}")  # PEP 610
    except (PackageNotFoundError, ValueError):
        return _UNKNOWN_PLACE, False
    url = urlsplit(str(origin.get("url", "")))
    place = Path(unquote(url.path))
    if url.scheme == "file" and (place.is_file() or (place / "pyproject.toml").is_file()):
        return str(place), bool(origin.get("dir_info", {}).get("editable"))
    if not origin and installed.metadata.get_all("Project-URL"):  # only a release has addresses (hatch_build.py)
        return _NAME, False
    return _UNKNOWN_PLACE, False


def _installer(tool: str = "") -> str:
    """Return the command that adds packages to this environment. uv and pipx manage environments of their own; one that
    uv made has no pip. `tool` is what Gossamer is installed from, if the command adds another package to it."""
    prefix = Path(sys.prefix)
    if (prefix / "uv-receipt.toml").is_file():
        return f"{_UV_TOOL} {shlex.quote(tool)} --with" if tool else _UV_TOOL
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx runpip {_NAME} install"
    if find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(str(prefix))}"
    return "pip install"
