"""Advice for what is not installed: the optional packages of Gossamer (extras)."""

import json
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

_UNKNOWN_PLACE = "/path/to/the/checkout"


def install_advice(extra: str) -> str:
    """Return the command that installs an extra.

    It names the checkout that this installation came from. The name of the distribution is on no package index, so a
    stranger could register it there.
    """
    place, is_editable = _checkout()
    return f"pip install {'-e ' if is_editable else ''}{shlex.quote(f'{place}[{extra}]')}"


def _checkout() -> tuple[str, bool]:
    """Return the folder that Gossamer was installed from, and whether it is used in place (editable installation)."""
    from importlib.metadata import PackageNotFoundError, distribution  # here, because most commands need no advice

    try:
        origin = json.loads(distribution("gossamer-crawl").read_text("direct_url.json") or "{}")  # PEP 610
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = urlsplit(str(origin.get("url", "")))
    folder = Path(unquote(url.path))
    if url.scheme != "file" or not (folder / "pyproject.toml").is_file():
        return _UNKNOWN_PLACE, False
    return str(folder), bool(origin.get("dir_info", {}).get("editable"))
