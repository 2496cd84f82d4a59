"""Middleware that finds out who may use the API. Fixed: status codes and titles of the problems, which clients read."""

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gossamer.api.openapi import DOCS_PATHS
from gossamer.fresh.subscriptions import CALLBACKS
from gossamer.web.access import authorization, foreign_page_fault, is_secret, local_fault
from gossamer.web.problems import Problem
from gossamer.web.rates import GuessLimit, TooManyGuesses, client_address

UNLIMITED_PATHS = frozenset({"/healthz"})
"""Paths without limits of rate and connections, so that a busy process is not restarted as dead. A path may be added
only if its endpoint reads no body and does no work."""
OPEN_PATHS = UNLIMITED_PATHS | DOCS_PATHS
"""Paths that need no token. Any program that reaches the API can read a path that is added here."""


def is_open(path: str) -> bool:
    """Return whether a path needs no token: one of OPEN_PATHS, or a callback, which is a secret itself."""
    return path in OPEN_PATHS or path.startswith(CALLBACKS)


class Authentication:
    """ASGI middleware that checks the token; without one it accepts only programs on this machine. Raises Problem."""

    def __init__(self, app: ASGIApp, *, token: str, guesses: GuessLimit) -> None:
        """`guesses`: limit of wrong tokens, which counts those at the dashboard's login as well."""
        self._app = app
        self._token = token
        self._guesses = guesses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_open(scope["path"]):
            request = Request(scope)
            if self._token:
                self._check_token(request.headers, client_address(request))
            else:
                _check_local(request)
        await self._app(scope, receive, send)

    def _check_token(self, headers: Headers, client: str | None) -> None:
        """Raise Problem unless the request has the token, and its client has not sent too many wrong ones."""
        scheme, given = authorization(headers)
        is_right = scheme == "bearer" and is_secret(given.encode("latin-1"), self._token)
        try:
            if given:
                self._guesses.judge(client, is_right=is_right)
        except TooManyGuesses as error:
            raise Problem(429, "Too many requests", str(error), headers=error.headers) from None
        if not is_right:
            raise Problem(
                401,
                "Unauthorized",
                "send the header Authorization: Bearer <token>, with the token of the setting service.token",
                headers={"WWW-Authenticate": 'Bearer realm="gossamer"'},
            )


def _check_local(request: Request) -> None:
    """Raise Problem for a request that another machine, or a web page in a browser on this machine, may have made."""
    headers = request.headers
    fault = local_fault(headers, client=client_address(request)) or foreign_page_fault(request.method, headers)
    if fault:
        raise Problem(403, "Forbidden", f"{fault}; set service.token, and send it with each request")
