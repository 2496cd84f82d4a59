"""TLS for clients: who is trusted, and sessions resumed, which halves the price of a new connection."""

import ssl
import sys
from ssl import MemoryBIO, SSLObject, SSLSession
from typing import Any

from gossamer.errors import BadInput

REMEMBERED_SESSIONS = 2048
"""Each is a few kilobytes, the server's certificate among them."""


READING_LEAKS = sys.version_info < (3, 12, 8) or (3, 13) <= sys.version_info < (3, 13, 1)
"""CPython's issue 116810, fixed in 3.12.8 and 3.13.1, never in 3.11: each time a session is read, memory is lost
for ever (5.5 KB, measured). Using a session loses nothing."""

LEAKY_READS = 2048
"""How many sessions are read at most where that leaks: 11 MB in the life of a process."""


class ClientContext(ssl.SSLContext):
    """A client's context that offers the last session with a server again.

    asyncio cannot be told a session, but it does call `wrap_bio`, uvloop too. Sessions are kept by server name, and a
    context resumes its own only, so what was not verified is never resumed as verified.
    """

    def __init__(self, protocol: int = ssl.PROTOCOL_TLS_CLIENT) -> None:
        """`protocol` is what `ssl.SSLContext` takes; it was given to `__new__`."""
        self._sessions: dict[str, SSLSession] = {}
        self.reads_left = LEAKY_READS if READING_LEAKS else sys.maxsize
        """How often a session may still be read from a connection."""

    def wrap_bio(self, incoming: MemoryBIO, outgoing: MemoryBIO, *args: Any, **kwargs: Any) -> SSLObject:
        """As the original, with the session of `server_hostname` if there is one."""
        name = kwargs.get("server_hostname")
        kwargs.setdefault("session", self._sessions.get(name) if isinstance(name, str) else None)
        return super().wrap_bio(incoming, outgoing, *args, **kwargs)

    def remember(self, server_hostname: str, connection: SSLObject) -> None:
        """Keep the session of `connection` for the next one to this server; the oldest makes room.

        One that was resumed itself stays good until the server refuses it, so it is not read again.
        """
        if connection.session_reused or self.reads_left <= 0:
            return
        self.reads_left -= 1
        session = connection.session
        if session is None or not session.has_ticket:
            return
        self._sessions.pop(server_hostname, None)
        while len(self._sessions) >= REMEMBERED_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[server_hostname] = session

    @property
    def session_count(self) -> int:
        """How many servers' sessions are kept."""
        return len(self._sessions)


class TlsContexts:
    """The two contexts of a client, made when first needed: reading the trust store takes tens of milliseconds."""

    def __init__(self, *, extra_ca: str | None = None) -> None:
        """`extra_ca`: a PEM file of authorities trusted beside the system's. Raises BadInput if it cannot be read."""
        self._verified: ClientContext | None = None if extra_ca is None else _verified_context(extra_ca)
        self._insecure: ClientContext | None = None

    def get(self, *, insecure: bool) -> ClientContext:
        """The context that verifies (system trust store, host name), or the one that accepts anything."""
        if insecure:
            if self._insecure is None:
                self._insecure = _insecure_context()
            return self._insecure
        if self._verified is None:
            self._verified = _verified_context(None)
        return self._verified


def _verified_context(extra_ca: str | None) -> ClientContext:
    context = _context()
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if extra_ca is not None:
        try:
            context.load_verify_locations(extra_ca)
        except OSError as exc:  # ssl.SSLError is one
            raise BadInput(f"{extra_ca} has no certificates in PEM: {exc.strerror or exc}") from exc
    return context


def _insecure_context() -> ClientContext:
    context = _context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Who accepts any certificate wants the page, also from a server that was last configured in 2009.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.options |= getattr(ssl, "OP_LEGACY_SERVER_CONNECT", 0x4)
    return context


def _context() -> ClientContext:
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Many servers end an answer by closing TCP without saying so in TLS. Where HTTP's framing tells the length it
    # detects a loss by itself; where it does not, a browser believes the end, too.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    return context
