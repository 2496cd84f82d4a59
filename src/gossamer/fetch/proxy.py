"""Proxies: their URLs, and what is said to one before the connection behind it is ours.

A plain HTTP proxy gets requests for http URLs in the absolute form and a CONNECT for https ones. Through SOCKS5 (RFC
1928, user and password by RFC 1929) everything is tunnelled.

Who looks up the name is a choice. `socks5://` is told the address that the guard approved, so what was judged is what
is reached. `http://` and `socks5h://` are told the name, because such proxies choose the address nearest to them and
often stand where names resolve differently. Then the guard can only judge the name as seen from here: what resolves to
a private address is refused, a name unknown here is left to the proxy, whose own rules must keep it off its network.
"""

import asyncio
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import unquote_to_bytes, urlsplit

from gossamer.errors import BadInput, ProxyFailed
from gossamer.fetch.request import basic_credentials

_DEFAULT_PORTS = {"http": 8080, "socks5": 1080, "socks5h": 1080}
_ANSWER_BYTES = 16 * 1024
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
"""RFC 1928, section 6."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where a proxy is and how to speak to it."""

    scheme: str
    """`http`, `socks5` or `socks5h`."""
    host: str
    port: int
    user: bytes = field(default=b"", repr=False)
    password: bytes = field(default=b"", repr=False)

    @property
    def knows_names(self) -> bool:
        """Whether it is told the target's name instead of its address."""
        return self.scheme != "socks5"

    @property
    def authorization(self) -> str:
        """The value of a Proxy-Authorization header; empty when there is no user."""
        return basic_credentials(self.user, self.password) if self.user else ""


def parse_proxy(url: str) -> Proxy:
    """Raises BadInput for anything but `http://`, `socks5://` or `socks5h://` with a host. Tells no secrets."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        user, password = unquote_to_bytes(parts.username or ""), unquote_to_bytes(parts.password or "")
    except ValueError as exc:
        raise BadInput("this proxy's URL cannot be read; write http://USER:PASSWORD@HOST:PORT") from exc
    if parts.scheme not in _DEFAULT_PORTS or not host or port == 0:
        given = f"{parts.scheme}://{host or ''}" if parts.scheme else "what has no scheme"
        raise BadInput(
            f"a proxy is http://, socks5:// or socks5h:// with a host, as http://proxy.example:3128, not {given}"
        )
    if len(user) > 255 or len(password) > 255:
        raise BadInput(f"user and password of proxy {host} may have 255 bytes each")
    return Proxy(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], user, password)


async def open_tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """On a connection to `proxy`, have it connect to `host` (a name, or an address without brackets) and `port`.

    Afterwards the socket is as good as one to the target. Raises ProxyFailed, or OSError if the connection breaks.
    """
    if proxy.scheme == "http":
        await _connect_http(sock, proxy, host, port)
    else:
        await _connect_socks(sock, proxy, host, port)


async def _connect_http(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n"
    if proxy.authorization:
        head += f"Proxy-Authorization: {proxy.authorization}\r\n"
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, head.encode("ascii") + b"\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = await loop.sock_recv(sock, 4096)
        answer += piece
        if not piece or len(answer) > _ANSWER_BYTES:
            raise ProxyFailed(f"{proxy.host}:{proxy.port} gave no proper answer to CONNECT")
    status_line = answer.partition(b"\r\n")[0].decode("latin-1")
    version, _, rest = status_line.partition(" ")
    if not version.startswith("HTTP/1.") or not rest.startswith("2"):
        raise ProxyFailed(f"{proxy.host}:{proxy.port} refused {authority}: {status_line[:100]!r}")
    # In TLS the client speaks first, so nothing may be here yet.
    if not answer.endswith(b"\r\n\r\n"):
        raise ProxyFailed(f"{proxy.host}:{proxy.port} spoke out of turn")


async def _connect_socks(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    where = f"{proxy.host}:{proxy.port}"
    loop = asyncio.get_running_loop()
    methods = b"\x00\x02" if proxy.user else b"\x00"
    await loop.sock_sendall(sock, bytes([5, len(methods)]) + methods)
    version, method = await _receive(sock, 2, where)
    if version != 5:
        raise ProxyFailed(f"{where} does not speak SOCKS5")
    if method == 2 and proxy.user:
        user, password = proxy.user, proxy.password
        await loop.sock_sendall(sock, bytes([1, len(user)]) + user + bytes([len(password)]) + password)
        _, refused = await _receive(sock, 2, where)
        if refused:
            raise ProxyFailed(f"{where} refused user and password")
    elif method != 0:
        raise ProxyFailed(f"{where} wants another kind of authentication")
    await loop.sock_sendall(sock, b"\x05\x01\x00" + _socks_address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = await _receive(sock, 4, where)
    if version != 5 or reply != 0:
        raise ProxyFailed(f"{where} could not connect: {_SOCKS_REFUSALS.get(reply, f'reply {reply}')}")
    # The address it connected from, of no interest, but it must be read.
    length = {1: 4, 4: 16}.get(kind) or (await _receive(sock, 1, where))[0]
    await _receive(sock, length + 2, where)


def _socks_address(host: str) -> bytes:
    try:
        address = ip_address(host)
    except ValueError:
        name = host.encode("ascii")
        return bytes([3, len(name)]) + name
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


async def _receive(sock: socket.socket, count: int, where: str) -> bytes:
    """Exactly `count` bytes: what follows belongs to the tunnel."""
    received = b""
    while len(received) < count:
        piece = await asyncio.get_running_loop().sock_recv(sock, count - len(received))
        if not piece:
            raise ProxyFailed(f"{where} hung up")
        received += piece
    return received
