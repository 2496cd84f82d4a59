"""The real API on a real server, a client over HTTP, and all that it asks behind it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gossamer.api.app import create_app
from gossamer.api.context import ApiContext
from gossamer.api.server import serve_api
from gossamer.bus.base import Topics
from gossamer.bus.streams import StreamsBus
from gossamer.control.admission import RequestValidator
from gossamer.control.dispatcher import Handler, RequestDispatcher, built_in_handlers
from gossamer.control.stats import Counters
from gossamer.dashboard.app import with_dashboard
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.messages.reader import MessageReader, RequestKind
from gossamer.telemetry.metrics import ServiceMetrics
from gossamer.valkey.shards import Shards
from tests.servers.valkey import Server, standalone

_prefixes = count()


@dataclass
class Service:
    """A running API with its parts."""

    app: FastAPI
    context: ApiContext
    http: httpx.AsyncClient
    told: list[dict[str, Any]] = field(default_factory=list)
    """What went to the bus as answers."""

    @property
    def frontier(self) -> ValkeyFrontier:
        assert isinstance(self.context.frontier, ValkeyFrontier)
        return self.context.frontier

    async def feed(self, request: object) -> dict[str, Any]:
        """The answer of /feed, which must be a success."""
        answer = await self.http.post("/feed", json=request)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        assert (body["status"], body["error"]) == ("SUCCESS", None)
        return body


Start = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture(scope="session")
def one_server() -> Iterator[Server]:
    with standalone() as server:
        yield server


def make_parts(
    shards: Shards,
    frontier: ValkeyFrontier,
    *,
    prefix: str,
    told: list[dict[str, Any]],
    kinds: list[RequestKind],
    handlers: Mapping[str, Handler],
    **changes: Any,
) -> ApiContext:
    """All that an API needs, over one server."""
    counters = Counters(shards, prefix=prefix)
    topics = Topics("demo")

    async def answered(messages: list[dict[str, Any]]) -> None:
        told.extend(messages)

    parts = ApiContext(
        shards=shards,
        frontier=frontier,
        bus=StreamsBus(shards, prefix=prefix, keep_until_acknowledged=topics.requests),
        topics=topics,
        counters=counters,
        dispatcher=RequestDispatcher(
            frontier,
            MessageReader(kinds),
            RequestValidator(now=time.time),
            {**handlers, **built_in_handlers(frontier, counters, now=time.time)},
            now=time.time,
        ),
        metrics=ServiceMetrics(),
        publish_answers=answered,
        prefix=prefix,
    )
    return replace(parts, **changes)


@asynccontextmanager
async def running(
    address: str,
    *,
    prefix: str,
    kinds: list[RequestKind] | None = None,
    handlers: Mapping[str, Handler] | None = None,
    headers: Mapping[str, str | bytes] | None = None,
    **changes: Any,
) -> AsyncIterator[Service]:
    """An API on a free port; `changes`: of its parts."""
    shards = await Shards.connect(address)
    frontier = await ValkeyFrontier.from_connection(shards, prefix=prefix)
    told: list[dict[str, Any]] = []
    parts = make_parts(
        shards, frontier, prefix=prefix, told=told, kinds=kinds or [], handlers=handlers or {}, **changes
    )
    app = create_app(parts)
    stopping, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_api(
            app,
            host="127.0.0.1",
            port=0,
            stopping=stopping,
            ready=ready.set_result,
            drain_seconds=5,
            front=with_dashboard(app, token=parts.token, guesses=parts.guesses),
        )
    )
    try:
        async with httpx.AsyncClient(base_url=await ready, headers=headers, timeout=30, verify=False) as http:
            yield Service(app, parts, http, told)
    finally:
        stopping.set()
        await serving
        await shards.close()


@pytest.fixture
def prefix() -> str:
    """Of the keys of one test."""
    return f"t{next(_prefixes)}"


@pytest.fixture
def start(one_server: Server, prefix: str) -> Start:
    """Starts APIs of one cluster."""

    def started(**changes: Any) -> AbstractAsyncContextManager[Service]:
        return running(one_server.address, prefix=prefix, **changes)

    return started


@pytest.fixture
async def service(start: Start) -> AsyncIterator[Service]:
    """One API with its defaults."""
    async with start() as one:
        yield one


in_session = pytest.mark.asyncio(loop_scope="session")
"""Of tests that use `shared`."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(one_server: Server) -> AsyncIterator[Service]:
    """One API for all tests whose requests leave nothing behind that another would see."""
    async with running(one_server.address, prefix="shared", max_requests_per_second=1e6) as one:
        yield one
