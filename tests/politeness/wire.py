"""The network as a site's owner could record it: when requests arrived, however long the web took to read them.

Needs Linux and the right to record packets (root, or CAP_NET_RAW).
"""

import ctypes
import re
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

Arrivals = Mapping[tuple[str, str], Sequence[float]]
"""By host and path, when requests arrived, on the monotonic clock; in order."""

_ETH_P_IP = 0x0800
_SO_ATTACH_FILTER, _SO_TIMESTAMPNS = 26, 35
_OUTGOING = 4  # PACKET_OUTGOING: the same packet, on its way out
_LEAST_BYTES = 80
"""Acknowledgements are shorter; requests are longer."""
_BUFFER_BYTES = 64 * 1024 * 1024
_PACKET_BYTES = 65536
_LOOK_SECONDS = 0.2
_HEAD = re.compile(rb"(?:GET|HEAD) (\S+) HTTP/1\.1\r\n(?:.*\r\n)*?[Hh]ost: ([^\r:]+)")


class Wire:
    """Recorder of the requests to a port of this machine. A context manager."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._arrivals: dict[tuple[str, str], list[float]] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        try:
            recorder = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IP))
        except (AttributeError, PermissionError):
            return self
        recorder.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        recorder.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        _attach(recorder, self._port)
        recorder.bind(("lo", _ETH_P_IP))
        recorder.settimeout(_LOOK_SECONDS)
        self._thread = threading.Thread(target=self._record, args=(recorder,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def arrivals(self) -> Arrivals | None:
        """What was recorded so far. None: this process may not record."""
        return self._arrivals if self._thread is not None else None

    def _record(self, recorder: socket.socket) -> None:
        with recorder:
            while not self._over.is_set():
                try:
                    packet, extra, _, sender = recorder.recvmsg(_PACKET_BYTES, 64)
                except TimeoutError:
                    continue
                if sender[2] == _OUTGOING or (head := _HEAD.search(packet)) is None:
                    continue
                seconds, nanoseconds = struct.unpack("qq", extra[0][2])
                age = time.time() - (seconds + nanoseconds / 1e9)
                path, host = head[1].decode(), head[2].decode()
                self._arrivals.setdefault((host, path), []).append(time.monotonic() - age)


def _attach(recorder: socket.socket, port: int) -> None:
    """Have the kernel drop all packets but those with data to this port: there are thousands of others a second."""
    program = [
        (0x30, 0, 0, 9),  # protocol
        (0x15, 0, 6, socket.IPPROTO_TCP),
        (0x28, 0, 0, 2),  # bytes of the packet
        (0x25, 0, 4, _LEAST_BYTES),
        (0xB1, 0, 0, 0),  # bytes of the IP header
        (0x48, 0, 0, 2),  # destination port
        (0x15, 0, 1, port),
        (0x06, 0, 0, _PACKET_BYTES),
        (0x06, 0, 0, 0),
    ]
    instructions = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    kept = ctypes.create_string_buffer(instructions)
    recorder.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(kept)))
