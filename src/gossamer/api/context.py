"""Inputs of endpoints: the API's context, the crawl that a path names, and the parsed request body.

Ids in paths may contain any printable character, even an encoded slash, so a path must be split before it is decoded.
Most fields of `ApiContext` have a setting `service.*`, whose own default applies in a running service.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from time import monotonic, time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, unquote_to_bytes

from fastapi import Depends, Path, Request
from starlette.convertors import Convertor, register_url_convertor

from gossamer.api.problems import bad_request
from gossamer.bus.base import Bus, Topics
from gossamer.control.dispatcher import RequestDispatcher
from gossamer.control.stats import Counters
from gossamer.errors import RequestRejected
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId
from gossamer.model.messages.reader import decode_json
from gossamer.net.paths import path_of
from gossamer.storage.audit import AuditTrail
from gossamer.telemetry.metrics import ServiceMetrics
from gossamer.valkey.shards import Shards
from gossamer.web.connections import ConnectionLimits
from gossamer.web.rates import GuessLimit

if TYPE_CHECKING:
    from gossamer.fresh.store import IndexStore
    from gossamer.history.store import HistoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """Dependencies and settings of the API. The caller that made the connections closes them."""

    shards: Shards
    """The servers of the frontier, which also store late answers."""
    frontier: ValkeyFrontier
    """The queue of all crawls, shared by all processes of the cluster."""
    bus: Bus
    """The message bus, from which pages and items are read."""
    topics: Topics
    """Names of the bus's topics."""
    counters: Counters
    """Statistics of the cluster."""
    dispatcher: RequestDispatcher
    """Checks, submits and answers requests of every kind."""
    metrics: ServiceMetrics
    publish_answers: Callable[[list[dict[str, Any]]], Awaitable[object]]
    """Publishes answers on the bus, in addition to the HTTP response. Raises errors of the bus and SinkError."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """Troubles of this process: messages by name. They change."""
    prefix: str
    """Prefix of the keys of late answers. All processes of a cluster have the same: any of them returns an answer."""
    token: str = ""
    """Bearer token that clients must send. Empty: none, and the API accepts only programs on this machine."""
    max_body_bytes: int = 1024 * 1024
    """Largest body of a request. It is held in memory while the request runs."""
    max_requests_per_second: float = 1000.0
    """Limit for one client address. `access` allows bursts of twice as many."""
    feed_wait_seconds: float = 5.0
    """Seconds that /feed waits for an answer before it returns the id to poll for."""
    answer_retention_seconds: float = 3600.0
    """Seconds that a late answer can be polled for."""
    owner_timeout_seconds: float = 5.0
    """Seconds without a sign of life after which another process takes over the requests that a process answers. Signs
    come three times in this period. A longer time delays answers when a process dies; with a shorter one a busy process
    may lose its requests, which are then answered twice."""
    history: "HistoryStore | None" = None
    """Memory of crawls. None: the service keeps no history."""
    audit: AuditTrail | None = None
    """Takes an entry of each change. None: the service keeps no history."""
    public_url: str = ""
    """Address at which hubs reach the API. Empty: none calls back."""
    indexes: "IndexStore | None" = None
    """Page indexes of crawls that are kept up to date. None: the service keeps none."""
    per_app: bool = True
    """True if pages are on the topics of their applications; else only on the common topic."""
    body_timeout_seconds: float = 60.0
    """Seconds for a request's body to arrive; then the answer is 408."""
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    clock: Callable[[], float] = time
    """Returns epoch seconds."""
    monotonic: Callable[[], float] = monotonic
    """Clock for durations."""
    guesses: GuessLimit = field(default_factory=lambda: GuessLimit(monotonic=monotonic))
    """Limit of wrong tokens of a client, at the API and at the dashboard together."""
    id: str = field(default_factory=lambda: token_hex(6))
    """12 hex digits, as in Scrapy Cluster, that name this process in `/` and in the statistics."""


async def _context(request: Request) -> ApiContext:  # async, because FastAPI runs other functions in threads
    context: ApiContext = request.app.state.context
    return context


Context = Annotated[ApiContext, Depends(_context)]
"""Type of an endpoint's parameter that gets the API's context."""


# --- paths ------------------------------------------------------------------------------------------------------------


def normalized_path(raw: bytes) -> str:
    """Return a request's path, as received, with each segment encoded in one way, which the routes expect. Raises
    Problem for a path that is not UTF-8."""
    segments = [unquote_to_bytes(segment) for segment in raw.partition(b"?")[0].split(b"/")]
    try:
        return path_of(*(segment.decode() for segment in segments))
    except UnicodeDecodeError:
        raise bad_request("the path is not UTF-8") from None


class _Name(Convertor[str]):
    """Converter of one path segment, which endpoints get decoded: `{appid:name}`."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return path_of(value)


register_url_convertor("name", _Name())

CRAWL_PATH = "/v1/crawls/{appid:name}/{crawlid:name}"
"""Path of one crawl. Clients build it, so it must not change; `submit` returns it as Location."""


async def _crawl_id(
    appid: Annotated[str, Path(description="The application that owns the crawl", examples=["shop"])],
    crawlid: Annotated[str, Path(description="The crawl's name in this application", examples=["prices"])],
) -> CrawlId:
    return CrawlId(appid, crawlid)


PathCrawl = Annotated[CrawlId, Depends(_crawl_id)]
"""Type of the parameter that gets the crawl of an endpoint under CRAWL_PATH."""


# --- bodies -----------------------------------------------------------------------------------------------------------

_JSON_LINES_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/jsonlines")
"""Media types that mean JSON Lines: one JSON value a line. More may be added; clients send those that are here."""
JSON_LINES = _JSON_LINES_TYPES[0]
"""The media type that the description of the API names."""


def media_type(request: Request) -> str:
    """Return the media type of the body, in lower case and without parameters; empty if the request has none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json_lines(request: Request) -> bool:
    """Return whether the body is JSON Lines."""
    return media_type(request) in _JSON_LINES_TYPES


def split_lines(body: bytes) -> Sequence[bytes]:
    """Return the lines of a body without the blank ones."""
    return [line for line in body.splitlines() if line.strip()]


def parse_json(body: bytes) -> Any:
    """Return the JSON value of a body. Raises RequestRejected with the reason."""
    if not body.strip():
        raise RequestRejected("the body is empty")
    return decode_json(body)


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request's body. Raises RequestRejected."""
    value = parse_json(await request.body())
    if not isinstance(value, dict):
        raise RequestRejected("the body must be a JSON object")
    return value


def check_fields(given: dict[str, Any], known: Sequence[str]) -> None:
    """Raise Problem that names a field which is not known."""
    for name in given:
        if name not in known:
            raise bad_request(f"unknown field; the fields are {', '.join(known)}", where=name)
