"""Cache of look-ups on a Valkey or Redis server, which also keeps their rate for all processes together.

All keys expire. Keys: `PREFIX:KEY` is an answer, as JSON; `PREFIX/failed:KEY` a failure; `PREFIX/claim:KEY` the process
that makes a look-up; `PREFIX/next` the time of the next one. Fixed: these names and the JSON, because caches are kept
over releases, and other programs fill and read them.
"""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple

from gossamer.errors import BadInput, FrontierError
from gossamer.model.crawl import Rate
from gossamer.valkey.address import Address
from gossamer.valkey.client import ClientOptions
from gossamer.valkey.scripts import Scripts
from gossamer.valkey.shards import Shards
from gossamer.valkey.topology import Topology

_SCRIPTS: Final = Scripts(Path(__file__).with_name("scripts"))
_CALL_SECONDS: Final = 5.0
"""Time limit of connecting and of a call."""
_AWAY_SECONDS: Final = 5.0
"""Time for which calls to a server that has failed fail at once."""
_KEY_BYTES: Final = 200
"""Longest key that is stored as it is; a longer one is stored by its digest. Must stay: the cache would miss them."""
_MARGIN_SECONDS: Final = 0.1
"""Time that a request may take from its moment to the server. Must be the same in all processes. A longer one lowers
the rate that is reached; with a shorter one, a busy machine exceeds the rate."""


class CacheAway(Exception):
    """The cache's server cannot be used now. The text says why."""


class Cached(NamedTuple):
    """State of a look-up in the cache. `state` is one of:

    - answer: `text` is the JSON
    - failure: `text` is the reason
    - wait: another process makes the look-up; ask again after `seconds`
    - go: this process makes the look-up, now
    """

    state: str
    text: bytes = b""
    seconds: float = 0.0


class Throttle:
    """Rate of look-ups in this process alone: they begin window/hits seconds apart."""

    def __init__(self, rate: Rate) -> None:
        self._spacing = (rate.window_seconds + _MARGIN_SECONDS) / rate.hits
        self._next = 0.0
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Return when the next look-up may begin. Callers are served in their order."""
        async with self._turn:
            await asyncio.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + self._spacing


class LookupCache:
    """Cache of one kind of look-up on a server. Methods raise CacheAway while the server is away.

    All methods belong to one asyncio loop.
    """

    def __init__(self, address: str, prefix: str, rate: Rate, *, claim_seconds: float) -> None:
        """`claim_seconds`: time within which a look-up ends. Raises BadInput for an address that cannot be used."""
        self._address = Address.parse(address)
        if self._address.cluster:
            raise BadInput("name a single server: the keys of a look-up cannot lie on one server of a cluster")
        options = ClientOptions.from_address(self._address, connect_seconds=_CALL_SECONDS, call_seconds=_CALL_SECONDS)
        # Not Shards.connect: it refuses servers that may forget keys, which a cache may.
        self._shards = Shards(Topology(self._address, options), confirm_ms=0)
        self._prefix = prefix
        self._rate = rate
        self._claim_ms = int(1000 * claim_seconds)
        self._name = secrets.token_hex(8)
        self._turn = asyncio.Lock()
        """Held by the look-up that has the next moment, so that a process has one at a time."""
        self._away_until = 0.0

    def __str__(self) -> str:
        return str(self._address)

    @property
    def away(self) -> bool:
        """True while calls fail at once, because the server has failed."""
        return time.monotonic() < self._away_until

    async def read(self, key: str) -> Cached | None:
        """Return the answer or failure of a look-up; None: there is neither."""
        answer, failure = await self._call(
            self._shards.command(self._key("", key), "MGET", self._key("", key), self._key("/failed", key))
        )
        if answer is not None:
            return Cached("answer", answer)
        return None if failure is None else Cached("failure", failure)

    async def claim(self, key: str) -> Cached:
        """Return the state of a look-up; with `go`, it returns at the moment at which the look-up may begin."""
        margin = _MARGIN_SECONDS
        async with self._turn:
            while True:
                asked = time.monotonic()
                state, value = await self._claim(key, margin)
                answered = time.monotonic()
                if state == b"wait":
                    return Cached("wait", seconds=max(value, 0) / 1000)
                if state != b"go":
                    return Cached(state.decode(), value)
                await asyncio.sleep(max(0.0, answered + value / 1000 - time.monotonic()))
                # The server has replied between the two times, so this is the most that the look-up can be late.
                late = time.monotonic() - (asked + value / 1000)
                if late <= margin:
                    return Cached("go")
                margin = 2 * late

    async def settle(self, key: str, *, answer: bytes | None, failure: str, life_seconds: float) -> None:
        """Store the answer, or without one the failure, and let other processes have it."""
        name = self._key("/failed" if answer is None else "", key)
        content: bytes | str = failure if answer is None else answer
        arguments: list[bytes | str | int] = [self._name, content, max(1, int(1000 * life_seconds))]
        await self._call(self._shards.call(0, _SCRIPTS["settle"], [name, self._key("/claim", key)], arguments))

    async def close(self) -> None:
        """Disconnect. Returns soon, even if the server does not answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CALL_SECONDS):
                await self._shards.close()

    async def _claim(self, key: str, margin: float) -> tuple[bytes, Any]:
        keys = [self._key("", key), self._key("/failed", key), self._key("/claim", key), f"{self._prefix}/next"]
        window_ms, margin_ms = round(1000 * self._rate.window_seconds), round(1000 * margin)
        smallest_ms = round(1000 * _MARGIN_SECONDS)
        arguments: list[str | int] = [self._name, self._rate.hits, window_ms, margin_ms, smallest_ms, self._claim_ms]
        state, value = await self._call(self._shards.call(0, _SCRIPTS["claim"], keys, arguments))
        return state, value

    async def _call(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Return the reply to a call. Many may fail at a time, all of them within _CALL_SECONDS. Raises CacheAway."""
        if self.away:
            call.close()
            raise CacheAway("it has just failed")
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                return await call
        except TimeoutError:
            reason = f"no answer in {_CALL_SECONDS:g} s"
        except FrontierError as error:  # the client's errors speak of the frontier, and this server is another one
            reason = error.detail or "the server refuses the call"
        except OSError as error:
            reason = str(error)
        self._away_until = time.monotonic() + _AWAY_SECONDS
        raise CacheAway(reason)

    def _key(self, kind: str, key: str) -> str:
        # Pages may have halves of surrogate pairs, which have no UTF-8.
        data = key.encode(errors="backslashreplace")
        key = hashlib.blake2b(data, digest_size=16).hexdigest() if len(data) > _KEY_BYTES else data.decode()
        return f"{self._prefix}{kind}:{key}"
