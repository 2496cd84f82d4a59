"""The recorder of the network, with a web that stands still."""

import asyncio
import os
import signal
import time

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.fetch.client import HttpClient
from gossamer.fetch.exchange import FetchRequest
from gossamer.net.resolve import Resolver
from tests.politeness.wire import Wire
from tests.servers.program import until


async def test_a_request_arrives_when_it_was_sent_however_long_the_web_stands_still() -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=5)) as web, Wire(web.port) as wire:
        if wire.arrivals is None:
            pytest.skip("only root may record packets")
        client = HttpClient(Resolver(overrides={"*": "127.0.0.1"}))
        os.kill(web.pid, signal.SIGSTOP)
        before = time.monotonic()
        fetching = asyncio.create_task(client.fetch(FetchRequest(f"http://site0.test:{web.port}/p/1")))
        await asyncio.to_thread(until, lambda: ("site0.test", "/p/1") in (wire.arrivals or {}), "the request")
        seen = time.monotonic()
        os.kill(web.pid, signal.SIGCONT)
        await fetching
        await client.close()
        [noted] = [record.started for record in await asyncio.to_thread(web.log) if record.path == "/p/1"]
        [arrived] = wire.arrivals["site0.test", "/p/1"]
        assert before < arrived <= seen < noted
