"""A folder of wheels in place of a package index, so that environments are built without downloads."""

import os
import sysconfig
from importlib.metadata import version
from pathlib import Path

import gossamer
from tests.servers.pip_programs import program
from tests.servers.scrapyd import wheel


def package_index(folder: Path) -> Path:
    """Fill a folder with wheels, and return it: two of a package `coloured`, and one of Scrapy, which leads to the
    Scrapy of the tests."""
    scrapy = version("scrapy")
    # The tests' own Gossamer, which has a command for Scrapy, is not in that folder: it is installed to be edited.
    paths = f"{sysconfig.get_path('purelib')}\n{Path(gossamer.__file__).parents[1]}\n"
    bridge = wheel("scrapy", {"bridge.pth": paths}, version=scrapy)
    (folder / f"scrapy-{scrapy}-py3-none-any.whl").write_bytes(bridge)
    for number, colour in (("1.0", "red"), ("2.0", "blue")):
        content = wheel("coloured", {"coloured.py": f"COLOUR = {colour!r}\n"}, version=number)
        (folder / f"coloured-{number}-py3-none-any.whl").write_bytes(content)
    return folder


def with_uv(index: Path) -> dict[str, str]:
    """Environment variables of a server that builds with uv and finds packages in this folder only."""
    path = f"{program('uv', 'uv').parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
