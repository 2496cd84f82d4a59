"""Wheels, isolated environments, and the default version of a project, on a running server."""

import contextlib
import sysconfig
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.servers.scrapyd import Scrapyd, project_wheel, scrapyd, spider, until, wheel

_TELLS = spider("tells", "import coloured\nyield {'colour': coloured.COLOUR, 'python': sys.prefix}")
"""A spider that needs a package which the server does not have."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels. The one of Scrapy is a bridge to the Scrapy of the tests, so nothing is downloaded."""
    folder = tmp_path_factory.mktemp("index")
    scrapy = version("scrapy")
    bridge = wheel("scrapy", {"bridge.pth": sysconfig.get_path("purelib") + "\n"}, version=scrapy)
    (folder / f"scrapy-{scrapy}-py3-none-any.whl").write_bytes(bridge)
    for number, colour in (("1.0", "red"), ("2.0", "blue")):
        content = wheel("coloured", {"coloured.py": f"COLOUR = {colour!r}\n"}, version=number)
        (folder / f"coloured-{number}-py3-none-any.whl").write_bytes(content)
    return folder


@contextlib.contextmanager
def _server(folder: Path, index: Path, *, builder: str = "", conf: str = "") -> Iterator[Scrapyd]:
    variables = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "GOSSAMER_PLATFORM_BUILDER": builder}
    with scrapyd(folder, environment=variables, conf=conf) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, index: Path) -> Iterator[Scrapyd]:
    with _server(tmp_path_factory.mktemp("environments"), index) as running:
        yield running


def _deploy(server: Scrapyd, content: bytes, **parameters: Any) -> Any:
    chosen = {"project": "shop", "version": "1", "environment": "isolated", **parameters}
    return server.client.post("/v1/versions", params=chosen, content=content)


def _run(server: Scrapyd, spider_name: str, **fields: Any) -> Any:
    """The job once it has ended, and its items."""
    answer = server.client.post("/v1/jobs", json={"project": "shop", "spider": spider_name, **fields})
    assert answer.status_code == 201, answer.text
    address, found = f"/v1/jobs/{answer.json()['id']}", []

    def has_ended() -> bool:
        found[:] = [server.client.get(address).json()]
        return found[0]["state"] in ("finished", "failed", "cancelled")

    until(has_ended, what=server.said)
    return found[0], server.client.get(f"{address}/items").json()["items"]


def test_a_wheel_runs_in_an_environment_of_its_requirements(server: Scrapyd) -> None:
    for number, colour in (("1", "red"), ("2", "blue")):
        answer = _deploy(
            server, project_wheel(_TELLS, requires=[f"coloured=={number}.0"]), project="shop", version=number
        )
        assert answer.status_code == 201, answer.text
        assert answer.json()["spiders"] == ["tells"]
        job, items = _run(server, "tells", project="shop")
        assert job["state"] == "finished", server.said()
        assert items[0]["colour"] == colour
        assert "/environments/" in items[0]["python"]
