"""A name server that answers as attackers' do: private addresses, and another one each time it is asked.

8 or 32 hexadecimal digits before `.ip.example` are the address of that name. `A-B.turn.example` is A when it is first
asked and B from then on; `A-B.both.example` is both. `alias.example` is another name for localhost. `silent.example`
gets no answer, anything else does not exist.
"""

import contextlib
import socket
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_A, _AAAA, _CNAME = 1, 28, 5
_NO_SUCH_NAME = 3
_SHORTEST = 12 + 5
_ALIAS = b"\x09localhost\0"


class Names:
    """Answers on port 53 of every name server that this system is told to ask. Only inside a network of one's own."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """Every question, in order: the name, in lower case."""
        self._turns: dict[tuple[str, int], int] = {}
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        for server in _servers():
            family = socket.AF_INET6 if ":" in server else socket.AF_INET
            listening = socket.socket(family, socket.SOCK_DGRAM)
            listening.bind((server, 53))
            self._sockets.append(listening)
            threading.Thread(target=self._serve, args=(listening,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for listening in self._sockets:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                question, client = listening.recvfrom(4096)
                answer = self._answer(question) if len(question) > _SHORTEST else b""
                if answer:
                    listening.sendto(answer, client)
            except OSError:
                return

    def _answer(self, question: bytes) -> bytes:
        """RFC 1035, section 4: the question again, and what there is to it. Empty: none."""
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode("latin-1").lower())
            at += 1 + question[at]
        kind = struct.unpack("!H", question[at + 1 : at + 3])[0]
        name = ".".join(labels)
        self.asked.append(name)
        if name == "silent.example":
            return b""
        known, records = self._records(name, kind)
        flags = 0x8180 if known else 0x8180 | _NO_SUCH_NAME
        head = question[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
        return head + question[12 : at + 5] + b"".join(records)

    def _records(self, name: str, kind: int) -> tuple[bool, list[bytes]]:
        first, _, zone = name.partition(".")
        if name == "alias.example":
            target = struct.pack("!HHHIH", 0xC00C, _CNAME, 1, 0, len(_ALIAS)) + _ALIAS
            address = _ALIAS + struct.pack("!HHIH", _A, 1, 0, 4) + bytes((127, 0, 0, 1))
            return True, [target, address] if kind == _A else [target]
        if zone not in ("ip.example", "turn.example", "both.example"):
            return False, []
        addresses = [bytes.fromhex(part) for part in first.split("-")]
        wanted = [address for address in addresses if len(address) == (4 if kind == _A else 16)]
        if zone == "turn.example" and wanted:
            turn = self._turns.get((name, kind), 0)
            self._turns[name, kind] = turn + 1
            wanted = [wanted[min(turn, len(wanted) - 1)]]
        # For no time at all: whoever asks again gets another answer.
        return True, [struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(each)) + each for each in wanted]


def _servers() -> list[str]:
    lines = Path("/etc/resolv.conf").read_text().splitlines()
    return [words[1] for words in map(str.split, lines) if len(words) > 1 and words[0] == "nameserver"]
