"""Addresses at which the API and its probes are served.

Fixed: without a token the API listens on this machine only (the probes may be reached by others).
"""

import asyncio
from collections.abc import Callable

from fastapi import FastAPI
from starlette.types import ASGIApp

from gossamer.api.access import UNLIMITED_PATHS
from gossamer.api.app import close_app, stop_streams
from gossamer.api.context import ApiContext
from gossamer.api.problems import problem_response
from gossamer.errors import BadInput
from gossamer.net.listening import listen_tcp, url_of
from gossamer.net.loopback import is_loopback
from gossamer.telemetry.metrics import parse_listen_address
from gossamer.web.server import ServerOptions, serve


async def serve_api(
    app: FastAPI,
    *,
    host: str,
    port: int,
    stopping: asyncio.Event,
    ready: Callable[[str], None],
    front: ASGIApp | None = None,
    drain_seconds: float = 10.0,
) -> None:
    """Serve at host and port (0: a free one) until `stopping` is set. Running requests then get `drain_seconds` to end.

    `front`: application that gets the requests, and passes those for the API on to `app`; None: `app` itself.

    `ready` is called once with the URL for this machine, when the server accepts connections. Raises BadInput if the
    address is not available, or if other machines can reach it and the application has no token.
    """
    if not app.state.context.token and not is_loopback(host):
        raise BadInput(
            f"the API would listen at {host or 'every address'}, where others reach it: "
            "set service.token (GOSSAMER_SERVICE__TOKEN), or listen at 127.0.0.1"
        )
    listening = await listen_tcp(host, port, option="--port")
    ready(url_of(host, listening[0]))
    options = _options(app, drain_seconds=drain_seconds, on_stopping=lambda: stop_streams(app))
    try:
        await serve(front or app, listening, stopping, options)
    finally:
        await close_app(app)


async def serve_probes(app: FastAPI, *, address: str, stopping: asyncio.Event, ready: Callable[[str], None]) -> None:
    """Serve the application of the probes at `ADDRESS:PORT`. Other machines may reach it although it has no token."""
    host, port = parse_listen_address(address)
    listening = await listen_tcp(host, port, option="the setting service.metrics")
    ready(url_of(host, listening[0]))
    await serve(app, listening, stopping, _options(app, drain_seconds=0, on_stopping=lambda: None))


def _options(app: FastAPI, *, drain_seconds: float, on_stopping: Callable[[], None]) -> ServerOptions:
    context: ApiContext = app.state.context
    return ServerOptions(
        limits=context.connections,
        drain_seconds=drain_seconds,
        on_stopping=on_stopping,
        on_limit=lambda reason: context.metrics.http_closed.labels(reason).inc(),
        answer=problem_response,
        unlimited_paths=UNLIMITED_PATHS,
    )
