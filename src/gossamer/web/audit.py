"""Requests that change something, for the audit: each has its entry before the change is made, its outcome afterwards.

`AuditedRequests` is the ASGI middleware of an API. An endpoint, or what checks who may use it, begins the entry of a
request when it is known who sends it and what it is to change (`audit_of`); the middleware completes the entry before
the answer is sent. Fixed: this order. A process that is killed between the two leaves the entry.
"""

from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gossamer.storage.audit import AuditedChange, AuditOutcome, AuditTrail, reason_of, shown, shown_address
from gossamer.web.access import SAFE_METHODS

_STATE: Final = "audit"
"""Name in the state of a request under which its entry is."""
_GONE: Final = 499
"""Status of a request whose client did not wait for the answer."""


class RequestAudit:
    """Entry of one request. It has none until `begin`."""

    def __init__(self, trail: AuditTrail | None) -> None:
        """`trail`: None: there is no audit."""
        self._trail = trail
        self._number = 0
        self._change: AuditedChange | None = None
        self.is_open = False
        """True: the entry has begun, and has no outcome yet."""
        self.is_late = False
        """True: the change goes on while the answer is sent, and completes the entry by itself."""
        self.refusal = ""
        """Reason why nothing was changed, of an answer whose status does not say so."""

    async def begin(self, change: AuditedChange) -> None:
        """Add the entry, before the change. May be called again with more facts: then they are in the entry when it is
        completed. An error that the audit raises keeps the change from being made."""
        if not self.is_open and self._trail is not None:
            self._number = await self._trail.begin(change)
            self.is_open = True
        self._change = change

    def note(self, *, action: str = "", subject: str = "", **details: Any) -> None:
        """Add what is known after the change. Without an entry, nothing happens."""
        change = self._change
        if change is not None:
            facts = {"action": action or change.action, "subject": subject or change.subject}
            self._change = msgspec.structs.replace(change, **facts, details={**change.details, **details})

    async def end(self, status: int, reason: str = "") -> None:
        """Complete the entry."""
        if self.refusal and status < 400:
            status, reason = 400, self.refusal
        if self.is_open and self._trail is not None and self._change is not None:
            self.is_open = False
            await self._trail.end(self._number, self._change, AuditOutcome(status, reason))


def audit_of(request: Request) -> RequestAudit:
    """Return the entry of a request, which the middleware has put into its state."""
    found: RequestAudit = getattr(request.state, _STATE)
    return found


def origin_of(request: Request) -> str:
    """Return the address from which a request comes. Empty: from a Unix socket."""
    return request.client.host if request.client else ""


def operation_action(name: str) -> str:
    """Return the action of an operation whose name is a verb and a noun: `crawl.stop` for `stop_crawl`."""
    verb, _, noun = name.partition("_")
    return f"{noun}.{verb}" if noun else name


def query_details(request: Request) -> dict[str, Any]:
    """Return the parameters of a request's query, as an entry has them."""
    given = {name: value for name, value in request.query_params.items() if value}
    return {name: shown_address(value) if name == "url" else shown(value) for name, value in given.items()}


class AuditedRequests:
    """ASGI middleware that completes the entries of requests."""

    def __init__(self, app: ASGIApp, *, trail: AuditTrail | None) -> None:
        """`trail`: None: there is no audit."""
        self._app = app
        self._trail = trail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        entry = RequestAudit(self._trail if scope["method"] not in SAFE_METHODS else None)
        scope["state"] = {**scope.get("state", {}), _STATE: entry}
        refused: Message | None = None
        """Beginning of a refusal, which waits for its body: that has the reason."""

        async def end_and_send(message: Message) -> None:
            nonlocal refused
            if entry.is_open and not entry.is_late and message["type"] == "http.response.start":
                if message["status"] >= 400:
                    refused = message
                    return
                await entry.end(message["status"])
            elif refused is not None:
                await entry.end(refused["status"], reason_of(message.get("body", b"")))
                await send(refused)
                refused = None
            await send(message)

        try:
            await self._app(scope, receive, end_and_send)
        except ClientDisconnect:
            await entry.end(_GONE)
            raise
        except Exception:
            await entry.end(500)
            raise
