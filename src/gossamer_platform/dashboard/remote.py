"""Client of an API in another process: a crawl service's for a manager's dashboard, a manager's for a crawl service's.

Each call is made with the token that the operator has configured. Fixed: redirects are not followed, because a token
must not go elsewhere.
"""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import httpx
from sqlalchemy.exc import SQLAlchemyError

from gossamer.dashboard import dashboard_address
from gossamer.dashboard.service import ApiCall, ApiClient, ApiRefused, ChangeUnknown, StreamedAnswer, refusal
from gossamer.storage.audit import AuditedChange, AuditTrail, reason_of
from gossamer.web.audit import RequestAudit

_SECONDS: Final = httpx.Timeout(30.0, connect=5.0)
_AFTER_SENDING: Final = (httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError)
_CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


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


class RemoteAudit(NamedTuple):
    """The audit of this server, for changes that one visitor makes in the other one."""

    trail: AuditTrail
    actor: str
    origin: str

    async def begin(self, call: ApiCall) -> RequestAudit:
        """Begin the entry of a change. Raises ApiRefused; then the change must not follow."""
        entry = RequestAudit(self.trail)
        change = AuditedChange(
            actor=self.actor, origin=self.origin, action=f"crawl.{call.method.lower()}", subject=call.path
        )
        try:
            await entry.begin(change)
        except SQLAlchemyError as error:
            raise ApiRefused(503, f"nothing was changed, because the audit cannot be written: {error}", "any") from None
        return entry


class RemoteClient(ApiClient):
    """Calls the API for one visitor."""

    def __init__(self, api: RemoteApi, audit: RemoteAudit | None = None) -> None:
        """`audit`: gets an entry before each change. None: the API itself records its changes."""
        self.server = api.url
        self.dashboard = dashboard_address(api.url)
        self._api = api
        self._audit = audit

    async def _exchange(self, call: ApiCall) -> tuple[int, bytes]:
        if call.method not in _CHANGING or self._audit is None:
            return await self._answer(call)
        entry = await self._audit.begin(call)
        try:
            status, content = await self._answer(call)
        except ApiRefused as error:
            await entry.end(error.status, error.detail)
            raise
        await entry.end(status, reason_of(content) if status >= 400 else "")
        return status, content

    async def _answer(self, call: ApiCall) -> tuple[int, bytes]:
        response = await self._response(call)
        try:
            content = await response.aread()
        except httpx.HTTPError as error:
            raise self._away(call, error) from None
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
            raise self._away(call, error) from None

    def _away(self, call: ApiCall, error: Exception) -> ApiRefused | ChangeUnknown:
        """Return the error for a call without an answer. A change whose connection was lost may have been made."""
        if call.method in _CHANGING and isinstance(error, _AFTER_SENDING):
            return ChangeUnknown()
        api = self._api
        return ApiRefused(502, f"the {api.what} at {api.url} cannot be reached: {error or type(error).__name__}", "any")
