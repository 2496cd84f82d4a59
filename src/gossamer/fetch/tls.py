"""TLS contexts of the HTTP client, which resume their last session with a server.

Fixed: a verified context resumes only its own sessions.
"""

import ssl
import sys
from ssl import MemoryBIO, SSLObject, SSLSession
from typing import Any

from gossamer.errors import BadInput

REMEMBERED_SESSIONS = 2048
"""TLS sessions that a context keeps, so that the next handshake with a server is short. Above 0: each takes a few
kilobytes, because it includes the server's certificate."""

READING_LEAKS = sys.version_info < (3, 12, 8) or (3, 13) <= sys.version_info < (3, 13, 1)
"""True where CPython issue 116810 is not fixed (fixed in 3.12.8 and 3.13.1, not in 3.11): each read of a session leaks
5.5 KB (measured). Using a session leaks nothing. To be removed when these versions are not supported any more."""

LEAKY_READS = 2048
"""Bound on reads of sessions where each leaks memory: 11 MB in the life of a process. More leak more, fewer make more
full handshakes."""


class ClientContext(ssl.SSLContext):
    """TLS context that resumes the last session with a server.

    asyncio has no parameter for a session, but it calls `wrap_bio`, and so does uvloop. Sessions are kept by server
    name, and a context resumes only its own, so that an unverified session is never resumed as verified.
    """

    def __init__(self, protocol: int = ssl.PROTOCOL_TLS_CLIENT) -> None:
        """`protocol`: argument of `ssl.SSLContext`, which has passed it to `__new__` already."""
        self._sessions: dict[str, SSLSession] = {}
        self.reads_left = LEAKY_READS if READING_LEAKS else sys.maxsize
        """Number of sessions that may still be read from connections."""

    def wrap_bio(self, incoming: MemoryBIO, outgoing: MemoryBIO, *args: Any, **kwargs: Any) -> SSLObject:
        """Call the original method with the session of `server_hostname`, if there is one."""
        name = kwargs.get("server_hostname")
        kwargs.setdefault("session", self._sessions.get(name) if isinstance(name, str) else None)
        return super().wrap_bio(incoming, outgoing, *args, **kwargs)

    def remember(self, server_hostname: str, connection: SSLObject) -> None:
        """Keep the session of `connection` for the next connection to this server; the oldest session makes room.

        A session that was resumed stays valid until the server refuses it, so it is not read again.
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


class TlsContexts:
    """TLS contexts of a client, made when first needed: reading the trust store takes tens of milliseconds."""

    def __init__(self, *, extra_ca: str | None = None) -> None:
        """`extra_ca`: a PEM file of authorities trusted in addition to the system's. Raises BadInput if it cannot be
        read."""
        self._extra_ca = extra_ca
        self._verified: ClientContext | None = None if extra_ca is None else _verified_context(extra_ca)
        self._insecure: ClientContext | None = None
        self._with_http2: dict[bool, ClientContext] = {}
        """Those that offer HTTP/2, by `insecure`."""

    def get(self, *, insecure: bool, http2: bool = False) -> ClientContext:
        """Return the context that verifies certificates (system trust store, host name), or one that accepts any.
        `http2`: HTTP/2 is offered to the server, besides HTTP/1.1."""
        if http2:
            context = self._with_http2.get(insecure)
            if context is None:
                context = _insecure_context() if insecure else _verified_context(self._extra_ca)
                context.set_alpn_protocols(["h2", "http/1.1"])
                self._with_http2[insecure] = context
            return context
        if insecure:
            if self._insecure is None:
                self._insecure = _insecure_context()
            return self._insecure
        if self._verified is None:
            self._verified = _verified_context(None)
        return self._verified


def _verified_context(extra_ca: str | None) -> ClientContext:
    """Return a context that verifies certificates. `extra_ca`: as in TlsContexts."""
    context = _context()
    context.set_ciphers(_CIPHERS)
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if extra_ca is not None:
        try:
            context.load_verify_locations(extra_ca)
        except OSError as exc:
            fault = "has no certificates in PEM" if isinstance(exc, ssl.SSLError) else "cannot be read"
            raise BadInput(f"{extra_ca} {fault}: {exc.strerror or exc}") from exc
    return context


_CIPHERS = "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:kRSA+AESGCM:kRSA+AES:!aNULL:!eNULL:!aDSS:!AESCCM"
"""Ciphers of TLS 1.2, the best first: Python's own, and those without forward secrecy or with SHA-1 as MAC, which
Chromium uses, too, with servers that have no others."""


def _insecure_context() -> ClientContext:
    """Return a context that accepts any certificate, and the ciphers of old servers."""
    context = _context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # A crawl that accepts any certificate wants the page, even from a server that was last configured in 2009.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


def _context() -> ClientContext:
    """Return a context with what both kinds have in common."""
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Many servers close TCP without ending TLS. Where HTTP framing gives the length, it detects a loss by itself; where
    # it does not, browsers accept the end, too.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    # As browsers, it connects to servers without secure renegotiation (RFC 5746). Neither side can renegotiate with
    # these. The number is OpenSSL's, where Python has no name.
    context.options |= getattr(ssl, "OP_LEGACY_SERVER_CONNECT", 0x4)
    return context
