"""Clients of an API: what pages show and change goes through one.

The API may run in the same process (`InProcessClient`: a call passes through the API's own checks and limits, but no
socket), or in another one.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlencode

import msgspec
from starlette.types import ASGIApp, Message

from gossamer.net.paths import path_of
from gossamer.telemetry import logs
from gossamer.web.problems import PROBLEM_TYPE_PREFIX

log = logging.getLogger("gossamer.dashboard")

_PARTS: Final = 2
"""Parts of an answer that wait for a slow browser. More need more memory for each download."""


_READ_SECONDS: Final = 3.0
"""Longest time for which a page waits for an answer. Must exceed those of the API for what it can do without: the
history (`_READ_SECONDS` in `history/store.py`), and the frontier (`FRONTIER_SECONDS` in `api/crawls.py`)."""
BUS_SECONDS: Final = 6.0
"""Longest time for which a page waits for records of the bus, which a remote broker may be slow to read. Of pages, the
API reads for 3 seconds at most (`_MAX_SECONDS` in `api/pages.py`)."""
_CHANGE_SECONDS: Final = 5.0
"""Longest time for which a page waits for a change. Then the change goes on, and the page says that its outcome is not
known."""
_MOST_CHANGES: Final = 100
"""Changes of this process without an answer, beyond which no further one is begun. More need more memory."""
_changes: set[asyncio.Task[tuple[int, bytes]]] = set()
"""Changes that wait for their answers, also those that no page waits for any more."""


class ApiRefused(Exception):
    """The API answered with an error, which `detail` words for people."""

    def __init__(self, status: int, detail: str, kind: str = "", errors: Sequence[tuple[str, str]] = ()) -> None:
        """`kind`: name of the problem, with which `detail` is in the API's language. Empty: it is in the page's.
        `errors`: names of invalid fields, each with the reason; an empty name: the whole request."""
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind
        self.errors = errors


class ApiSilent(ApiRefused):
    """The API did not answer in time: what it asks, perhaps the frontier's server, does not answer."""

    def __init__(self, seconds: float) -> None:
        super().__init__(503, f"no answer within {seconds:g} seconds")
        self.seconds = seconds


class ChangeUnknown(Exception):
    """A change got no answer: it may have been made, or may still be. No ApiRefused, so that no view takes it for a
    refusal."""


class StreamedAnswer(NamedTuple):
    """An answer whose body is passed on in parts."""

    headers: Mapping[str, str]
    """Names are in lower case."""
    parts: AsyncIterator[bytes]


class ApiCall(NamedTuple):
    """A request to an API."""

    method: str
    path: str
    """Percent-encoded."""
    query: Mapping[str, Any] = {}
    """Parameters; those that are None are left out, and lists are repeated."""
    content: bytes = b""
    content_type: str = "application/json"

    @property
    def target(self) -> str:
        """The query as it stands in an address."""
        given = {name: value for name, value in self.query.items() if value is not None}
        return urlencode(given, doseq=True)


def crawl_path(appid: str, crawlid: str, *rest: str) -> str:
    """Return the path of a crawl, or of what is below it, in the API."""
    return f"/v1/crawls/{path_of(appid, crawlid, *rest)}"


class ApiClient(ABC):
    """Calls an API on behalf of one visitor."""

    server: str = ""
    """Address of the API's own server. Empty: it is the one of the dashboard."""
    dashboard: str = ""
    """Address of the dashboard of the API's own server, where people log in with its tokens. Empty: it is this one."""

    async def get(self, path: str, **query: Any) -> Any:
        """Return the answer to GET. Values of `query` that are None are left out. Raises ApiRefused."""
        return await self.call("GET", path, query=query)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        seconds: float | None = None,
    ) -> Any:
        """Return the answer to a request with this JSON body, if one is given, as `send` does."""
        content = b"" if body is None else msgspec.json.encode(body)
        return await self.send(ApiCall(method, path, query or {}, content), seconds=seconds)

    async def send(self, call: ApiCall, *, seconds: float | None = None) -> Any:
        """Return the answer to a request. Raises ApiRefused for statuses of 400 and above. `seconds`: longest time for
        which it is waited for. After that, a GET ends and raises ApiSilent; a change goes on, and ChangeUnknown is
        raised."""
        if call.method == "GET":
            status, answer = await self._read(call, seconds or _READ_SECONDS)
        else:
            status, answer = await self._change(call, seconds or _CHANGE_SECONDS)
        if status >= 400:
            raise refusal(status, answer)
        return msgspec.json.decode(answer) if answer else None

    async def _read(self, call: ApiCall, seconds: float) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(call)
        except TimeoutError:
            raise ApiSilent(seconds) from None

    async def _change(self, call: ApiCall, seconds: float) -> tuple[int, bytes]:
        if len(_changes) >= _MOST_CHANGES:
            raise ApiRefused(503, "nothing was changed, because too many changes wait for an answer", "any")
        change = asyncio.create_task(self._exchange(call))
        _changes.add(change)
        change.add_done_callback(_changes.discard)
        # Not cancelled: that would undo nothing, and the audit would lack the outcome.
        done, _ = await asyncio.wait((change,), timeout=seconds)
        if not done:
            change.add_done_callback(_log_late)
            raise ChangeUnknown
        return change.result()

    @abstractmethod
    async def _exchange(self, call: ApiCall) -> tuple[int, bytes]:
        """Return status and body of the answer. Raises ApiRefused if there is none."""

    @abstractmethod
    async def stream(self, call: ApiCall) -> StreamedAnswer:
        """Return the answer to a request, whose body is read as the browser takes it. Raises ApiRefused."""


def _log_late(change: "asyncio.Task[tuple[int, bytes]]") -> None:
    """Log how a change ended that no page waits for any more."""
    if change.cancelled():
        return
    error = change.exception()
    outcome = str(error) or type(error).__name__ if error else f"status {change.result()[0]}"
    log.warning("%s %s", logs.REQUEST_LATE, outcome)


def refusal(status: int, answer: bytes) -> ApiRefused:
    """Return the error for an answer that is a problem (RFC 9457), or anything else."""
    try:
        problem = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        problem = {}
    given = problem if isinstance(problem, dict) else {}
    kind = str(given.get("type", "")).removeprefix(PROBLEM_TYPE_PREFIX)
    detail = str(given.get("detail") or given.get("title") or f"status {status}")
    errors = [(str(each["field"]), str(each["reason"])) for each in given.get("errors", ())]
    return ApiRefused(status, detail, kind or "any", errors)


class InProcessClient(ApiClient):
    """Calls an API that runs in this process."""

    def __init__(
        self,
        api: ASGIApp,
        *,
        client: tuple[str, int] | None,
        token: str = "",
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """`client`: address and port of the browser, which count for the API's limits. `token`: the API's; empty: it
        has none. `state`: what the API may know of the sender, such as who it is, without asking for a token."""
        self._api = api
        self._headers = [(b"host", b"localhost"), (b"accept", b"application/json")]
        if token:
            self._headers.append((b"authorization", f"Bearer {token}".encode()))
        self._client = client
        self._state = state or {}

    def _scope(self, call: ApiCall) -> dict[str, Any]:
        headers = list(self._headers)
        if call.content:
            length = str(len(call.content)).encode()
            headers += [(b"content-type", call.content_type.encode()), (b"content-length", length)]
        raw = call.path.encode("ascii")
        return {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
            "method": call.method, "scheme": "http", "path": unquote(call.path), "raw_path": raw,
            "query_string": call.target.encode("ascii"), "root_path": "", "headers": headers, "client": self._client,
            "server": ("localhost", 80), "state": dict(self._state),
        }  # fmt: skip

    async def _exchange(self, call: ApiCall) -> tuple[int, bytes]:
        status, parts = 500, []

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._api(self._scope(call), _SentBody(call.content).receive, send)
        return status, b"".join(parts)

    async def stream(self, call: ApiCall) -> StreamedAnswer:
        """Return the answer to a request, whose body is read as the browser takes it. Raises ApiRefused."""
        messages: asyncio.Queue[Message] = asyncio.Queue(_PARTS)
        running = asyncio.create_task(self._run(call, messages))
        try:
            start = await messages.get()
            if start["status"] >= 400:
                raise refusal(start["status"], b"".join([part async for part in _parts(messages)]))
        except BaseException:
            running.cancel()
            raise
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}

        async def parts() -> AsyncIterator[bytes]:
            try:
                async for part in _parts(messages):
                    yield part
            finally:
                running.cancel()  # the browser may be gone before the end

        return StreamedAnswer(headers, parts())

    async def _run(self, call: ApiCall, messages: "asyncio.Queue[Message]") -> None:
        begun = False

        async def send(message: Message) -> None:
            nonlocal begun
            begun = True
            await messages.put(message)

        try:
            await self._api(self._scope(call), _SentBody(call.content).receive, send)
        except Exception:
            if not begun:
                await messages.put({"type": "http.response.start", "status": 500, "headers": []})
            await messages.put({"type": "http.response.body", "more_body": False, "broken": True})


class _SentBody:
    """Body of a request, sent at once. Its client stays connected until it has the answer."""

    def __init__(self, content: bytes) -> None:
        self._messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive(self) -> Message:
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop()


async def _parts(messages: "asyncio.Queue[Message]") -> AsyncIterator[bytes]:
    """Yield the parts of a body. Raises ApiRefused if it ends before it is complete."""
    while True:
        message = await messages.get()
        if message.get("broken"):
            raise ApiRefused(500, "the answer broke off", "any")
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body", False):
            return
