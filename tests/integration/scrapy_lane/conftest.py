from collections.abc import Iterator

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.valkey import Server, standalone


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with standalone(options={"appendfsync": "everysec"}) as running:
        yield running


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=3, pages=40, page_bytes=3000, out_degree=10)) as running:
        yield running
