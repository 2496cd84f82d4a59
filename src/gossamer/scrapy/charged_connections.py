"""Connections of Twisted's HTTP/1.1 client whose repeated requests are charged to the site's budget.

Twisted, under Scrapy, sends a request again when the server closes a kept connection before it answers, and no signal
or middleware notices.

The names with an underscore that are used on Twisted's objects change only with Twisted.
"""

from collections.abc import Callable, Coroutine
from typing import Any, cast

from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.client import HTTPConnectionPool, _RetryingHTTP11ClientProtocol

from gossamer.fetch.pool import LostConnections


class _ChargedConnection(_RetryingHTTP11ClientProtocol):
    """Kept connection. If the server closes it before it answers, the request is sent once more on a new one, after
    `may_repeat` has allowed that: it is charged to the site's budget like any other request."""

    def __init__(
        self,
        kept: _RetryingHTTP11ClientProtocol,
        may_repeat: Callable[[str], Coroutine[Any, Any, bool]],
        on_loss: Callable[[], None],
    ) -> None:
        super().__init__(kept._clientProtocol, kept._newConnection)  # type: ignore[no-untyped-call]
        self._may_repeat = may_repeat
        self._on_loss = on_loss

    def request(self, request: Any) -> "Deferred[Any]":
        """Send the request; return its response."""
        sent: Deferred[Any] = self._clientProtocol.request(request)
        return sent.addErrback(self._on_failure, request)

    def _on_failure(self, failure: Failure, request: Any) -> "Failure | Deferred[Any]":
        """Send the request again if the server closed the connection before it answered, and `may_repeat` allows it."""
        if not self._shouldRetry(request.method, failure.value, request.bodyProducer):  # type: ignore[no-untyped-call]
            return failure
        self._on_loss()

        # Callbacks and no coroutine from here on: the body must be read in the same turn of the event loop in which the
        # response's head has come.
        def repeat(allowed: bool) -> Any:
            if not allowed:
                return failure
            return self._newConnection().addCallback(lambda connection: connection.request(request))

        decision = deferred_from_coro(self._may_repeat(request.absoluteURI.decode("ascii")))
        repeated: Deferred[Any] = decision.addCallback(repeat)
        return repeated


def charge_repeated_requests(pool: Any, may_repeat: Callable[[str], Coroutine[Any, Any, bool]]) -> None:
    """Make a pool hand out its kept connections as `_ChargedConnection`, or new ones where kept ones are lost too
    often. Pools of other clients stay as they are."""
    if not isinstance(pool, HTTPConnectionPool):
        return
    original = pool.getConnection
    losses = LostConnections()

    def get_connection(key: Any, endpoint: Any) -> "Deferred[Any]":
        if not losses.may_reuse(key):
            return cast("Deferred[Any]", pool._newConnection(key, endpoint))

        def charged(connection: Any) -> Any:
            if isinstance(connection, _RetryingHTTP11ClientProtocol):
                return _ChargedConnection(connection, may_repeat, lambda: losses.record(key))
            return connection  # a new one, which is not lost in this way

        return original(key, endpoint).addCallback(charged)

    pool.getConnection = get_connection  # type: ignore[method-assign]
