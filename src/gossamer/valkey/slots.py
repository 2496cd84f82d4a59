"""Which node of a cluster serves which key: the slots of the Redis Cluster specification."""

import binascii
from collections.abc import Iterable
from typing import Any

from gossamer.valkey.address import Endpoint

SLOTS = 16384


def slot_of(key: str | bytes) -> int:
    """The slot of a key: CRC-16/XMODEM of its hash tag, the part within the first braces that are not empty."""
    name = key.encode() if isinstance(key, str) else key
    start = name.find(b"{")
    if start >= 0:
        end = name.find(b"}", start + 1)
        if end > start + 1:
            name = name[start + 1 : end]
    return binascii.crc_hqx(name, 0) % SLOTS


def read_slots(reply: Iterable[Any], *, asked: Endpoint) -> list[Endpoint | None]:
    """CLUSTER SLOTS as a list of the primary of every slot; None where nobody serves it.

    `asked`: who answered; a node that does not know its own address means that one.
    """
    owners: list[Endpoint | None] = [None] * SLOTS
    for first, last, primary, *_ in reply:
        owner = _endpoint(primary[0], primary[1], asked)
        owners[first : last + 1] = [owner] * (last + 1 - first)
    return owners


def read_redirect(text: str, *, asked: Endpoint) -> tuple[int, Endpoint]:
    """The slot and the node of `MOVED 3999 host:port` or `ASK 3999 host:port`."""
    _, slot, where = text.split(" ")[:3]
    host, _, port = where.rpartition(":")
    return int(slot), _endpoint(host, int(port), asked)


def speaks_for(nodes: bytes, name: str, slot: int) -> bool:
    """Whether in this answer to CLUSTER NODES the node of that name serves the slot, and nobody holds it for failed."""
    for line in nodes.decode().splitlines():
        words = line.split(" ")
        if words[0] == name:
            flags = words[2].split(",")
            spans = [part.split("-") for part in words[8:] if not part.startswith("[")]
            served = any(int(span[0]) <= slot <= int(span[-1]) for span in spans)
            return served and "master" in flags and "fail" not in flags and "fail?" not in flags
    return False


def _endpoint(host: bytes | str | None, port: int, asked: Endpoint) -> Endpoint:
    name = host.decode() if isinstance(host, bytes) else host or ""
    return Endpoint(host=asked.host if name in ("", "?") else name.strip("[]"), port=port)
