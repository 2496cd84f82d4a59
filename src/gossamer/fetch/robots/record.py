"""What is known of one origin's robots.txt, and its form in a RobotsStore."""

import zlib

import msgspec

from gossamer.policy import robots as policy
from gossamer.policy.robots import Meaning


class RobotsRecord(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of asking an origin. Times are Unix seconds by the clock of whoever asked."""

    meaning: Meaning
    asked_at: float
    body: bytes = b""
    """Of RULES: as received, at most 500 KiB."""
    truncated: bool = False
    """The body ends within a line."""
    detail: str = ""
    """In a few words what came instead of rules: `404`, `connect: …`."""
    attempt: int = 0
    """Of UNREACHABLE: failures in a row."""
    failing_since: float = 0.0
    """Of UNREACHABLE: when the first of them was."""
    retry_at: float = 0.0
    """Of UNREACHABLE: not to be asked again before."""

    @property
    def given_up_at(self) -> float:
        """Of UNREACHABLE: from when on the origin's requests are dropped rather than kept waiting."""
        return self.failing_since + policy.UNREACHABLE_LIMIT_SECONDS

    @property
    def until(self) -> float:
        """When to ask again."""
        return self.retry_at if self.meaning is Meaning.UNREACHABLE else self.asked_at + policy.LIFETIME_SECONDS

    @property
    def ttl_seconds(self) -> float:
        """How long a store keeps it. A failure is kept longer than it counts: the next one must know since when."""
        return policy.LIFETIME_SECONDS * (2 if self.meaning is Meaning.UNREACHABLE else 1)


_PACKED_FROM_BYTES = 512


def pack(record: RobotsRecord) -> bytes:
    """For a store. The first byte says whether the rest is compressed."""
    raw = msgspec.msgpack.encode(record)
    return b"\x00" + raw if len(raw) < _PACKED_FROM_BYTES else b"\x01" + zlib.compress(raw, 1)


def unpack(packed: bytes | None) -> RobotsRecord | None:
    """Of what a store held; None where it held nothing, or nothing this version can read."""
    if not packed:
        return None
    raw = packed[1:]
    try:
        if packed[0] == 1:
            # Bounded, because whoever can write to the store must not be able to fill this process's memory.
            raw = zlib.decompressobj().decompress(raw, 2 * policy.MAX_BYTES)
        return msgspec.msgpack.decode(raw, type=RobotsRecord)
    except (zlib.error, msgspec.DecodeError):
        return None
