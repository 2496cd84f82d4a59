"""What the API is given. It reads no settings and makes no connections of its own."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from secrets import token_hex
from time import monotonic, time
from typing import Annotated, Any

from fastapi import Depends, Request

from gossamer.api.connections import ConnectionLimits
from gossamer.bus.base import Bus, Topics
from gossamer.control.dispatcher import RequestDispatcher
from gossamer.control.stats import Counters
from gossamer.frontier.base import Frontier
from gossamer.telemetry.metrics import Metrics
from gossamer.valkey.shards import Shards


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """Closed by whoever made them."""

    shards: Shards
    """The frontier's server, where answers wait to be polled."""
    frontier: Frontier
    bus: Bus
    topics: Topics
    counters: Counters
    desk: RequestDispatcher
    metrics: Metrics
    answered: Callable[[list[dict[str, Any]]], Awaitable[None]]
    """Sends answers to the bus, too; raises BusError."""
    prefix: str = "gossamer"
    """Of the keys of answers that wait."""
    token: str = ""
    """Who sends it as a Bearer token may use the API. Empty: whoever reaches it, and that from this machine only."""
    max_body: int = 1024 * 1024
    """Bytes of a request's body."""
    max_requests: float = 1000.0
    """Requests a second that one client address may send, in bursts of up to twice as many."""
    wait_seconds: float = 5.0
    """So long /feed waits for an answer before it says where to poll for it."""
    polled_seconds: float = 3600.0
    """So long an answer waits to be polled for."""
    silent_seconds: float = 5.0
    """A process of the API that said nothing for so long has died: another takes over what it was asked."""
    per_app: bool = True
    """Pages are on their application's topic; else on the firehose only."""
    body_seconds: float = 60.0
    """So long a request's body may take to arrive."""
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    """How many connections there may be, how long parts of a request may take, and which proxies are trusted."""
    clock: Callable[[], float] = time
    """Epoch seconds."""
    monotonic: Callable[[], float] = monotonic
    """For durations."""
    id: str = field(default_factory=lambda: token_hex(6))
    """12 hex digits: this process, as `/` and the statistics name it."""


async def _given(request: Request) -> ApiContext:
    parts: ApiContext = request.app.state.parts
    return parts


Given = Annotated[ApiContext, Depends(_given)]
"""What an endpoint says to get the parts."""
