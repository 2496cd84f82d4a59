"""Start keys: lists, sets and sorted sets of messages that others feed. What is taken stays known until it is done."""

import base64
import time
import uuid
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gossamer.errors import BadInput, FrontierError, FrontierUnavailable
from gossamer.scrapy.redis.connection import Link
from gossamer.scrapy.redis.presence import SCRIPTS

LEASE_SECONDS = 30.0
"""What a process took and neither finished nor kept, the next that asks after so long takes."""
DEAD_SECONDS = 7 * 86400


class Taken(NamedTuple):
    """A message on its way."""

    entry: bytes
    message: bytes

    @classmethod
    def read(cls, entry: bytes) -> "Taken":
        return cls(entry, entry.partition(b"|")[2])


class StartKey:
    """One key. Its messages are in it, in `<key>:processing`, or done; bad ones go to `<key>:dead` for a week.

    Calls raise FrontierUnavailable and may be repeated."""

    def __init__(self, link: Link, key: str, *, kind: str) -> None:
        """`kind`: list, set or zset, for messages that go back to a key that is empty by now."""
        self._link = link
        self.key = key
        self._kind = kind
        self._processing = link.beside(key, "processing")
        self.dead = link.beside(key, "dead")

    async def take(self, most: int) -> list[Taken]:
        """At most so many messages; a set's in no order, a list's oldest first, a sorted set's highest first.

        Raises BadInput where the key is none of them."""
        keys = [self.key, self._processing]
        arguments: list[int | str | bytes] = [most, int(LEASE_SECONDS * 1000), uuid.uuid4().hex]
        try:
            entries = await self._call("take", keys, arguments)
        except FrontierUnavailable:
            raise
        except FrontierError as error:
            if "WRONGTYPE" in str(error):
                raise BadInput(f"{self.key} is no list, set or sorted set") from None
            raise
        return [Taken.read(entry) for entry in entries]

    async def keep(self, taken: Sequence[Taken]) -> None:
        """They take longer: nobody else is to take them yet."""
        await self._call("extend", [self._processing], [int(LEASE_SECONDS * 1000), *(one.entry for one in taken)])

    async def done(self, taken: Sequence[Taken]) -> None:
        """What came of them is in the frontier."""
        if taken:
            shards = await self._link.shards()
            await shards.command(self._processing, "ZREM", self._processing, *(one.entry for one in taken))

    async def give_back(self, taken: Sequence[Taken]) -> None:
        """As if they had not been taken."""
        rows = [part for one in taken for part in (one.entry, _score(one.entry), one.message)]
        await self._call("return", [self.key, self._processing], [self._kind, *rows])

    async def bury(self, one: Taken, reason: str) -> None:
        """It can never be used: keep it with the reason, a JSON object, among the dead letters."""
        letter: dict[str, object] = {"reason": reason, "at": time.time()}
        try:
            letter["message"] = one.message.decode()
        except UnicodeDecodeError:
            letter["message_base64"] = base64.b64encode(one.message).decode()
        arguments: list[int | str | bytes] = [DEAD_SECONDS, one.entry, msgspec.json.encode(letter)]
        await self._call("bury", [self.dead, self._processing], arguments)

    async def _call(self, name: str, keys: list[str], arguments: Sequence[int | str | bytes]) -> list[bytes]:
        shards = await self._link.shards()
        answer = await shards.call(0, SCRIPTS[name], keys, list(arguments))
        return answer if isinstance(answer, list) else []


def _score(entry: bytes) -> bytes:
    return entry.partition(b"|")[0].split(b":")[2]
