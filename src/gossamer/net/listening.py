"""Sockets that listen, and the explanation why a process cannot listen at an address."""

import asyncio
import contextlib
import errno
import os
import socket
from typing import Final

from gossamer.errors import BadInput

BACKLOG: Final = 512
"""Connections that the kernel accepts before the server takes them. With fewer, clients that connect in a burst are
refused or wait a second. The kernel has its own upper limit (net.core.somaxconn)."""
_NO_SUCH_ADDRESS: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""Errors of an address that this machine does not have."""
_ADVICE = {
    errno.EADDRINUSE: "Another program uses the port. Stop it, or choose another port with {option}",
    errno.EACCES: "Only the system's administrator may use this port. Choose one above 1023 with {option}",
    errno.EADDRNOTAVAIL: "This machine does not have the address. Choose one that it has",
}


def listen_fault(place: str, error: OSError, *, option: str) -> str:
    """Return a sentence for a person. `place`: address and port, or a file. `option`: option or setting that chooses
    another port."""
    number = 0 if isinstance(error, socket.gaierror) else error.errno or 0
    # Not `strerror`: some functions of the standard library repeat the address in it.
    reason = os.strerror(number) if number else error.strerror or str(error)
    advice = _ADVICE.get(number, "").format(option=option)
    return f"cannot listen at {place}: {reason}" + (f". {advice}" if advice else "")


async def listen_tcp(host: str, port: int, *, option: str) -> list[socket.socket]:
    """Return a listening socket for each address of the host, all on one port (0: a free one). An empty host means
    every address of this machine. `option`: where a person chooses another port.

    An address that this machine does not have, such as IPv6 without an IPv6 network, is skipped. At the first other
    error the remaining addresses are not tried. Raises BadInput if no address is left, or if the port is taken on one
    of them."""
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise BadInput(listen_fault(_url(host, port), error, option=option)) from None
    listening: list[socket.socket] = []
    last_error: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(addresses):  # each once
        try:
            ip, _, *scope = address  # the rest is IPv6's flow and scope
            listening.append(_bind(family, (ip, port, *scope)))
            port = _port_of(listening[0])  # if it was 0: the free port of the first address, for the others
        except OSError as error:
            last_error = error
            if error.errno not in _NO_SUCH_ADDRESS:
                break
    if last_error is not None and (not listening or last_error.errno == errno.EADDRINUSE):
        for sock in listening:
            sock.close()
        raise BadInput(listen_fault(_url(host, port), last_error, option=option))
    return listening


def listen_unix(path: str) -> socket.socket:
    """Return a listening socket in the file system, for this user and its group. Replaces the one that a killed process
    has left, so the caller must know that no other process lives there. Raises BadInput."""
    path = os.path.abspath(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        os.chmod(path, 0o660)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise BadInput(f"cannot listen at {path}: {error.strerror or error}") from None
    sock.setblocking(False)
    return sock


def url_of(host: str, listening: socket.socket) -> str:
    """Return the address of a socket for clients on this machine. `host`: as a person has given it."""
    name = listening.getsockname()
    if isinstance(name, str):
        return f"http+unix://{name}"
    # The address of all interfaces is none that a client can use.
    return _url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), _port_of(listening))  # noqa: S104


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    """Return a socket that listens at this address. Raises OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A response is two writes. With Nagle's algorithm the second would wait 40 ms for the first's acknowledgement.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _port_of(listening: socket.socket) -> int:
    """Return the port on which a socket listens."""
    _, port, *_ = listening.getsockname()
    return int(port)


def _url(host: str, port: int) -> str:
    name = host or socket.gethostname()
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
