"""Tunnels through proxies: CONNECT of HTTP proxies (RFC 9110), and SOCKS5 (RFC 1928; user and password by RFC 1929).

Fixed: the bytes of both protocols.
"""

import asyncio
import socket
from ipaddress import ip_address

from gossamer.errors import ProxyFailed
from gossamer.fetch.proxies import Proxy

_MAX_REPLY_BYTES = 16 * 1024
"""Longest answer to CONNECT. It bounds memory."""
_READ_BYTES = 4096
"""Most bytes that are read at once of that answer."""
_SHOWN_CHARACTERS = 100
"""Characters of a refusal that an error shows."""

# SOCKS5: RFC 1928 and RFC 1929 fix all of these.
_SOCKS_VERSION = 5
_NO_AUTHENTICATION = 0
_USER_AND_PASSWORD = 2
_USER_AND_PASSWORD_VERSION = 1
_CONNECT = b"\x05\x01\x00"
"""Version, command, and a reserved byte."""
_IPV4, _NAME, _IPV6 = 1, 3, 4
"""Types of an address."""
_SUCCEEDED = 0
_SOCKS_REFUSALS = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "TTL expired",
    7: "command not supported",
    8: "address type not supported",
}
"""Replies of RFC 1928, section 6, as people read them."""


async def open_tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask `proxy`, to which `sock` is connected, to connect to `host` (a name, or an address without brackets) and
    `port`.

    Afterwards the socket leads to the target. Raises ProxyFailed, or OSError if the connection breaks.
    """
    if proxy.scheme == "http":
        await _connect_http(sock, proxy, host, port)
    else:
        await _connect_socks(sock, proxy, host, port)


async def _connect_http(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask an HTTP proxy for a tunnel with CONNECT (RFC 9110, section 9.3.6)."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, connect_head(proxy, host, port))
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = await loop.sock_recv(sock, _READ_BYTES)
        answer += piece
        if not piece or len(answer) > _MAX_REPLY_BYTES:
            break
    check_connected(answer, host, port)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connect_head(proxy: Proxy, host: str, port: int) -> bytes:
    """Return the request for a tunnel."""
    authority = _authority(host, port)
    head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{proxy.header_lines}\r\n"
    return head.encode("ascii")


def check_connected(answer: bytes, host: str, port: int) -> None:
    """Raise ProxyFailed unless this answer to CONNECT is complete and grants the tunnel."""
    if b"\r\n\r\n" not in answer:
        raise ProxyFailed("it gave no proper answer to CONNECT")
    status_line = answer.partition(b"\r\n")[0].decode("latin-1")
    version, _, rest = status_line.partition(" ")
    if not version.startswith("HTTP/1.") or not rest.startswith("2"):
        wants_credentials = rest.startswith("407")
        raise ProxyFailed(
            f"it refused {_authority(host, port)}: {status_line[:_SHOWN_CHARACTERS]!r}",
            for_target=not wants_credentials,
        )
    # In TLS the client speaks first, so no bytes may have arrived yet.
    if not answer.endswith(b"\r\n\r\n"):
        raise ProxyFailed("it spoke out of turn")


class ConnectAnswer(asyncio.Protocol):
    """Reads the answer to CONNECT of a proxy that speaks TLS."""

    def __init__(self) -> None:
        self.answer = b""
        self.is_complete = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.answer += data
        if b"\r\n\r\n" in self.answer or len(self.answer) > _MAX_REPLY_BYTES:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.is_complete.done():
            self.is_complete.set_result(None)


async def _connect_socks(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask a SOCKS5 proxy for a tunnel: agree on an authentication, log in if need be, then CONNECT."""
    loop = asyncio.get_running_loop()
    methods = bytes([_NO_AUTHENTICATION, _USER_AND_PASSWORD] if proxy.user else [_NO_AUTHENTICATION])
    await loop.sock_sendall(sock, bytes([_SOCKS_VERSION, len(methods)]) + methods)
    version, method = await _receive(sock, 2)
    if version != _SOCKS_VERSION:
        raise ProxyFailed("it does not speak SOCKS5")
    if method == _USER_AND_PASSWORD and proxy.user:
        user, password = proxy.user, proxy.password
        login = bytes([_USER_AND_PASSWORD_VERSION, len(user)]) + user + bytes([len(password)]) + password
        await loop.sock_sendall(sock, login)
        _, refused = await _receive(sock, 2)
        if refused:
            raise ProxyFailed("it refused user and password")
    elif method != _NO_AUTHENTICATION:
        raise ProxyFailed("it wants another kind of authentication")
    await loop.sock_sendall(sock, _CONNECT + _socks_address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = await _receive(sock, 4)
    if version != _SOCKS_VERSION or reply != _SUCCEEDED:
        refusal = _SOCKS_REFUSALS.get(reply, f"reply {reply}")
        raise ProxyFailed(f"it could not connect: {refusal}", for_target=True)
    # The address and port (2 bytes) that the proxy connected from: unused, but the tunnel begins after them.
    if kind == _IPV4:
        length = 4
    elif kind == _IPV6:
        length = 16
    else:
        length = (await _receive(sock, 1))[0]
    await _receive(sock, length + 2)


def _socks_address(host: str) -> bytes:
    """Return the type of a host's address, and the address or name as SOCKS5 sends it."""
    try:
        address = ip_address(host)
    except ValueError:
        name = host.encode("ascii")
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


async def _receive(sock: socket.socket, count: int) -> bytes:
    """Read exactly `count` bytes: the bytes after them belong to the tunnel."""
    received = b""
    while len(received) < count:
        piece = await asyncio.get_running_loop().sock_recv(sock, count - len(received))
        if not piece:
            raise ProxyFailed("it hung up")
        received += piece
    return received
