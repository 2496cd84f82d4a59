"""Marks of dead letters (rejected messages) whose message was sent again, mended or not. They are for people: a lost
one does no harm.

They are kept in the server of the frontier. Keys: `{prefix:resent}:ID`, which expire after LIFE_SECONDS.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from gossamer.model.json_codec import encode_value
from gossamer.valkey.shards import Shards

LIFE_SECONDS: Final = 30 * 86400
"""Time for which a mark is kept. A bus that keeps dead letters for longer shows them without it."""
_DIGEST_BYTES: Final = 16


class ResentMark(msgspec.Struct):
    """Sender and time of a dead letter's message that was sent again."""

    at: float
    """Epoch seconds."""
    actor: str
    """As in the audit."""
    origin: str
    """As in the audit."""


_decode = msgspec.json.Decoder(ResentMark).decode


def letter_id(letter: bytes) -> str:
    """Return the id of a dead letter, as it is on the bus."""
    return hashlib.blake2b(letter, digest_size=_DIGEST_BYTES).hexdigest()


class ResentMarks:
    """The marks of one cluster. Every call may raise FrontierError."""

    def __init__(self, shards: Shards, *, prefix: str) -> None:
        self._shards = shards
        self._hash_tag = f"{{{prefix}:resent}}"

    async def add(self, letter: str, mark: ResentMark) -> None:
        """Mark the dead letter with this id. A later mark replaces an earlier one."""
        key = self._key(letter)
        await self._shards.command(key, "SET", key, encode_value(mark), "EX", LIFE_SECONDS)

    async def read(self, letters: Sequence[str]) -> list[ResentMark | None]:
        """Return the marks of the dead letters with these ids, in their order. None: it has none."""
        if not letters:
            return []
        keys = [self._key(letter) for letter in letters]
        return [text and _decode(text) for text in await self._shards.command(keys[0], "MGET", *keys)]

    def _key(self, letter: str) -> str:
        return f"{self._hash_tag}:{letter}"
