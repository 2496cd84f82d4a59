"""Calls of a server over HTTP, with the standard library only: a project can be deployed without further packages.

Every call has a time limit. Passwords and tokens are sent to the server of the target only, so redirects are refused.
Fixed: the exit codes of the errors, which docs/reference/exit-codes.md promises.
"""

import base64
import contextlib
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from gossamer.errors import GossamerError
from gossamer.net.credentials import hide_secrets, hide_secrets_of
from gossamer.net.loopback import is_loopback

CALL_SECONDS: Final = 30.0
"""Time limit of a call that does not wait for work."""
_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""Longest answer that is read into memory. A page of 1,000 items is the longest one."""
_BLOCK_BYTES: Final = 64 * 1024
"""Bytes that are sent or read at a time."""
_NOT_READY: Final = frozenset({502, 503, 504})
"""Statuses of a server that lacks its database or its store, or of a proxy whose server is away: they pass."""


class ServerUnreachable(GossamerError):
    """The server cannot be reached."""

    only_detail = True
    exit_code = 4  # the same command may succeed later
    is_passing = True

    @property
    def never_arrived(self) -> bool:
        """True: nothing listens there, so the server did not get the call."""
        return isinstance(self.__cause__, OSError) and "refused" in str(self.__cause__).lower()


class ServerRefused(GossamerError):
    """The server refused a call."""

    only_detail = True

    def __init__(self, detail: str, status: int = 0) -> None:
        super().__init__(detail)
        self.status = status
        """Status of the answer. 0: there was an answer with status 200 that names an error, as those of Scrapyd."""
        self.is_passing = status in _NOT_READY
        """True: the same call may succeed later, because the server or a proxy is not ready."""


class Credentials(NamedTuple):
    """Proof of who calls. All empty: none."""

    token: str = ""
    username: str = ""
    password: str = ""

    def header(self) -> str:
        """Return the value of the header Authorization. Empty: there is none."""
        if self.token:
            return f"Bearer {self.token}"
        if self.username or self.password:
            return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return ""


class UploadBody:
    """Body of a request that reports how much of it was sent."""

    def __init__(self, parts: Sequence[bytes], show: Callable[[int, int], None]) -> None:
        """`show` is called with the bytes that were sent and all bytes."""
        self._content = b"".join(parts)
        self._sent = 0
        self._show = show

    def __len__(self) -> int:
        return len(self._content)

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; http.client calls this."""
        end = len(self._content) if size < 0 else self._sent + max(size, _BLOCK_BYTES)
        block = self._content[self._sent : end]
        self._sent += len(block)
        self._show(self._sent, len(self._content))
        return block


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any) -> None:
        return None


class HttpSession:
    """One server, and the credentials for it."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self.url = url.rstrip("/")
        self.shown = hide_secrets(self.url, web=True)
        """The URL for messages."""
        self._credentials = credentials
        handlers: list[Any] = [_NoRedirect]
        if is_loopback(urlsplit(self.url).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy cannot know this machine's own servers
        self._opener = urllib.request.build_opener(*handlers)

    def json(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer of a call, parsed. None: it has no content. Options are those of `open`."""
        content = b"".join(islice(self.parts(method, path, **options), _ANSWER_BYTES // _BLOCK_BYTES))
        if not content:
            return None
        try:
            return json.loads(content)
        except ValueError:
            raise ServerRefused(
                f"{self.shown}{path} answered with something that is not JSON: {content[:80]!r}. Is the address right?"
            ) from None

    def parts(self, method: str, path: str, **options: Any) -> Iterator[bytes]:
        """Yield the content of an answer in blocks. Options are those of `open`. Raises ServerUnreachable if it breaks
        off."""
        with self.open(method, path, **options) as response:
            while part := self._read(response):
                yield part

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        with _as_unreachable(self.shown):
            part = response.read(_BLOCK_BYTES)
            if not part and response.length:  # http.client raises this only for an answer in chunks
                raise http.client.IncompleteRead(part, response.length)
        return part

    @contextlib.contextmanager
    def open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = CALL_SECONDS,
    ) -> Iterator[http.client.HTTPResponse]:
        """Call, and yield the response to read from. Raises ServerUnreachable or ServerRefused.

        `query`: parameters; None values are left out, lists are repeated. `body`: bytes, an UploadBody, or an object
        that is sent as JSON. `seconds`: longest silence of the server.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        url = f"{self.url}{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
        all_headers = {"User-Agent": "gossamer", **(headers or {})}
        if body is not None and not isinstance(body, bytes | UploadBody):
            body, all_headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        if body is not None:
            all_headers["Content-Length"] = str(len(body))
        if proof := self._credentials.header():
            all_headers["Authorization"] = proof
        try:
            request = urllib.request.Request(url, data=body, method=method, headers=all_headers)  # noqa: S310
            with _as_unreachable(self.shown):
                response = self._opener.open(request, timeout=seconds)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error) from None
        except ValueError as error:  # an address that urllib cannot read
            raise ServerUnreachable(
                f"{self.shown} is no address of a server: {hide_secrets_of(self.url, str(error))}"
            ) from None
        with response:
            yield response

    def _refused(self, error: urllib.error.HTTPError) -> ServerRefused:
        """Return the error for an answer with another status than 2xx."""
        content = b""
        with contextlib.suppress(OSError, http.client.HTTPException):  # its status says enough
            content = error.read(_BLOCK_BYTES)
        if 300 <= error.code < 400:
            return ServerRefused(
                f"{self.shown} redirects to {error.headers.get('Location', '')}. Name that address as the target.",
                error.code,
            )
        detail = _detail(content) or f"it answered {error.code} {error.reason}. Is the address right?"
        if error.code == 401:
            given = "The token or password was refused" if self._credentials.header() else "A token is needed"
            detail = (
                f"{given}: {detail}. Set GOSSAMER_PLATFORM_TOKEN, or GOSSAMER_PLATFORM_USERNAME and _PASSWORD, or "
                "username and password of the target in scrapy.cfg."
            )
        return ServerRefused(f"{self.shown}: {detail}", error.code)


def _detail(content: bytes) -> str:
    """Return the reason in an answer: of problem+json, or of Scrapyd. Empty: there is none."""
    try:
        found = json.loads(content)
    except ValueError:
        return ""
    if not isinstance(found, dict):
        return ""
    return str(found.get("detail") or found.get("message") or "")


@contextlib.contextmanager
def _as_unreachable(url: str) -> Iterator[None]:
    """Turn the errors of a connection into ServerUnreachable."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        raise ServerUnreachable(
            f"{url} cannot be reached: {_words(cause)}. Is the server running? `gossamer scrapyd` starts one. To "
            "use another, write its address: --target, and after `gossamer deploy` the address alone."
        ) from error


def _words(cause: Any) -> str:
    if isinstance(cause, http.client.IncompleteRead):
        return "its answer broke off"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, socket.gaierror):
        return "there is no host of this name"
    if isinstance(cause, ssl.SSLError):
        return f"the secure connection failed ({cause.reason or cause})"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return str(cause) or type(cause).__name__
