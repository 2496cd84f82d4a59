"""Client of the crawl service's API, which runs in the same process.

A call passes through the API's own checks and limits, but no socket.
"""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.types import ASGIApp, Message


class ApiRefused(Exception):
    """The API answered with an error, which `detail` words for people."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def crawl_path(appid: str, crawlid: str, *rest: str) -> str:
    """Return the path of a crawl, or of what is below it, in the API."""
    return "/".join(["/v1/crawls", *(quote(name, safe="") for name in (appid, crawlid, *rest))])


class ServiceClient:
    """Calls the API as one client, whose address counts for the limits of the API."""

    def __init__(self, api: ASGIApp, *, token: str, client: tuple[str, int]) -> None:
        """`token`: the API's; empty: it has none. `client`: address and port of the browser."""
        self._api = api
        self._headers = [(b"host", b"localhost"), (b"accept", b"application/json")]
        if token:
            self._headers.append((b"authorization", f"Bearer {token}".encode()))
        self._client = client

    async def get(self, path: str, **query: Any) -> Any:
        """Return the answer to GET. Values of `query` that are None are left out. Raises ApiRefused."""
        return await self.call("GET", path, query=query)

    async def call(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Return the answer to a request with this JSON body, if one is given. Raises ApiRefused for statuses of 400
        and above."""
        content = b"" if body is None else msgspec.json.encode(body)
        headers = list(self._headers)
        if content:
            headers += [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        raw = path.encode("ascii")
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": path, "raw_path": raw, "query_string": urlencode(asked).encode("ascii"),
            "root_path": "", "headers": headers, "client": self._client, "server": ("localhost", 80), "state": {},
        }  # fmt: skip
        status, answer = await _answer(self._api, scope, content)
        value = msgspec.json.decode(answer) if answer else None
        if status >= 400:
            problem = value if isinstance(value, dict) else {}
            raise ApiRefused(status, str(problem.get("detail") or problem.get("title") or f"status {status}"))
        return value


async def _answer(api: ASGIApp, scope: dict[str, Any], content: bytes) -> tuple[int, bytes]:
    """Return status and body of the API's answer to one request."""
    status, parts = 500, []
    bodies: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
    never = asyncio.Event()

    async def receive() -> Message:
        if not bodies:
            await never.wait()  # the client stays connected until it has the answer
        return bodies.pop()

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await api(scope, receive, send)
    return status, b"".join(parts)
