"""Client of an API in another process: a crawl service's for a manager's dashboard, a manager's for a crawl service's.

Each call is made with the token that the operator has configured. Fixed: redirects are not followed, because a token
must not go elsewhere.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import httpx

from gossamer.dashboard import dashboard_address
from gossamer.dashboard.service import ApiCall, ApiClient, ApiRefused, StreamedAnswer, refusal

_SECONDS: Final = httpx.Timeout(30.0, connect=5.0)
_AUDITED: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})

Record = Callable[[str, str], Awaitable[None]]
"""Adds an action and its subject to the audit."""


class RemoteApi:
    """Connections to one API."""

    def __init__(self, url: str, token: str, *, what: str) -> None:
        """`url`: without a slash at the end. `token`: empty: it needs none. `what`: noun for messages."""
        self.url = url
        self.what = what
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._http: httpx.AsyncClient | None = None

    @property
    def http(self) -> httpx.AsyncClient:
        """The client, made when it is first needed."""
        if self._http is None:
            self._http = httpx.AsyncClient(headers=self._headers, timeout=_SECONDS, trust_env=False)
        return self._http

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()


class RemoteClient(ApiClient):
    """Calls the API for one visitor."""

    def __init__(self, api: RemoteApi, *, announce: Record | None = None, record: Record | None = None) -> None:
        """`announce`: is called before each change, and may raise ApiRefused; then the change is not made. `record`: is
        called after a change that was not made, or perhaps not. None: the API itself records its changes."""
        self.dashboard = dashboard_address(api.url)
        self._api = api
        self._announce = announce
        self._record = record

    async def _exchange(self, call: ApiCall) -> tuple[int, bytes]:
        if call.method not in _AUDITED or self._announce is None:
            return await self._answer(call)
        action = f"crawl.{call.method.lower()}"
        await self._announce(action, call.path)  # before the change: this process may be killed right after it
        try:
            status, content = await self._answer(call)
        except ApiRefused as error:
            await self._failed(action, call, error.detail)
            raise
        if status >= 400:
            await self._failed(action, call, refusal(status, content).detail)
        return status, content

    async def _failed(self, action: str, call: ApiCall, reason: str) -> None:
        if self._record is not None:
            await self._record(f"{action}.failed", f"{call.path} {reason}")

    async def _answer(self, call: ApiCall) -> tuple[int, bytes]:
        response = await self._response(call)
        try:
            content = await response.aread()
        except httpx.HTTPError as error:
            raise self._away(error) from None
        finally:
            await response.aclose()
        return response.status_code, content

    async def stream(self, call: ApiCall) -> StreamedAnswer:
        """Return the answer to a request, whose body is read as the browser takes it. Raises ApiRefused."""
        response = await self._response(call)
        if response.status_code >= 400:
            content = await response.aread()
            await response.aclose()
            raise refusal(response.status_code, content)

        async def parts() -> AsyncIterator[bytes]:
            try:
                async for part in response.aiter_bytes():
                    yield part
            finally:
                await response.aclose()

        # Their length is that of compressed bytes where there are such.
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        return StreamedAnswer(headers, parts())

    async def _response(self, call: ApiCall) -> httpx.Response:
        headers = {"Content-Type": call.content_type} if call.content else {}
        http = self._api.http
        try:
            address = f"{self._api.url}{call.path}" + (f"?{call.target}" if call.target else "")
            request = http.build_request(call.method, address, content=call.content, headers=headers)
            return await http.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._away(error) from None

    def _away(self, error: Exception) -> ApiRefused:
        api = self._api
        return ApiRefused(502, f"the {api.what} at {api.url} cannot be reached: {error or type(error).__name__}")
