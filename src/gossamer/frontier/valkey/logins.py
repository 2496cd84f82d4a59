"""Logins of a service: by name, with secrets that only the holders of the operator's key can read.

Crawls name them, and are then in the pool of their login. Fixed: the fields of what is stored, which other releases
read; a new one is added at the end, with a default.
"""

import re
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from gossamer.errors import BadInput
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.keys import KeyPattern
from gossamer.model.crawl import Crawl, CrawlId, Run, login_pool

LOGIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Name of a login. It becomes part of keys and of the name of a pool."""
_FAILURES_KEPT_MS = 90 * 86400 * 1000
"""Life of what is known of failed logins. `KeyPattern.LOGIN_FAILURES` names the 90 days, too."""
_UNUSABLE_MS = 10_000
"""Life of a note that a worker cannot use a login, which it repeats meanwhile. `KeyPattern.LOGIN_UNUSABLE` names the 10
seconds, too."""
_PRUNED_MS = 86400 * 1000
"""Names stay listed so long after the end of their login: longer than any two clocks differ."""

_encode = msgspec.msgpack.Encoder().encode


def check_login_name(name: str) -> None:
    """Raise BadInput for what cannot be the name of a login."""
    if not LOGIN_NAME.fullmatch(name):
        raise BadInput(f"a login cannot have the name {name!r:.100}. Write at most 64 letters, digits, _ . and -.")


class StoredLogin(msgspec.Struct, frozen=True, array_like=True):
    """A login as it is stored. All but `sealed` may be shown to anyone."""

    site: str
    """Registered domain."""
    accounts: tuple[str, ...]
    """Names of the accounts."""
    never_follow: tuple[str, ...]
    """Expressions of links that its crawls do not follow, besides those that log out."""
    budget: str
    """`site` or `account`: what has the rate of the site for itself."""
    version: int
    """Number that no earlier login of this name has: epoch ms at which it was stored."""
    expires: float
    """End of its life, epoch seconds."""
    sealed: bytes
    """The login with its secrets, encrypted."""


class LoginFailure(msgspec.Struct, frozen=True, array_like=True):
    """Reason why no worker uses an account."""

    version: int
    """Version of the login that failed."""
    at: float
    """Epoch seconds."""
    detail: str


def login_claims(name: str) -> Run:
    """Return the run under which workers claim the accounts of a login. It is that of no crawl: no application has an
    empty name."""
    return Run(Crawl(id=CrawlId("", login_pool(name)), pool=login_pool(name)), 0, 0)


def login_jars(name: str, version: int) -> Run:
    """Return the run under which the cookies of a login are stored. Another version has other cookies."""
    return msgspec.structs.replace(login_claims(name), generation=version)


class LoginRegistry:
    """The logins of a service."""

    def __init__(self, commands: ScriptCommands) -> None:
        self._commands = commands
        self._decoder = msgspec.msgpack.Decoder(StoredLogin)
        self._failure_decoder = msgspec.msgpack.Decoder(LoginFailure)

    async def put(self, name: str, login: StoredLogin) -> None:
        """Store a login until its end, and forget that its accounts have failed. May be repeated. Raises BadInput."""
        check_login_name(name)
        life_ms = max(1, round((login.expires - time.time()) * 1000))
        await self._do("SET", self._key(KeyPattern.LOGIN, name), _encode(login), "PX", life_ms)
        await self._do("DEL", self._key(KeyPattern.LOGIN_FAILURES, name))
        listed = self._key(KeyPattern.LOGINS)
        await self._do("ZADD", listed, round(login.expires * 1000), name)
        await self._do("ZREMRANGEBYSCORE", listed, "-inf", round(time.time() * 1000) - _PRUNED_MS)

    async def delete(self, name: str) -> bool:
        """Delete a login. Returns whether there was one. Its crawls wait until there is one of this name again."""
        found = await self._do("DEL", self._key(KeyPattern.LOGIN, name))
        await self._do("DEL", self._key(KeyPattern.LOGIN_FAILURES, name))
        await self._do("ZREM", self._key(KeyPattern.LOGINS), name)
        return bool(found)

    async def exist(self) -> bool:
        """Return whether there are or were any logins."""
        return bool(await self._do("EXISTS", self._key(KeyPattern.LOGINS)))

    async def all(self) -> dict[str, StoredLogin]:
        """Return all logins by name, sorted."""
        names = [name.decode() for name in await self._do("ZRANGE", self._key(KeyPattern.LOGINS), 0, -1)]
        return await self.some(sorted(names))

    async def some(self, names: Iterable[str]) -> dict[str, StoredLogin]:
        """Return those of these logins that there are."""
        wanted = [name for name in names if LOGIN_NAME.fullmatch(name)]
        if not wanted:
            return {}
        packed = await self._do("MGET", *(self._key(KeyPattern.LOGIN, name) for name in wanted))
        return {name: self._decoder.decode(one) for name, one in zip(wanted, packed, strict=True) if one is not None}

    async def failures(self, name: str, login: StoredLogin) -> dict[str, LoginFailure]:
        """Return the accounts of a login that have failed."""
        rows = await self._do("HGETALL", self._key(KeyPattern.LOGIN_FAILURES, name))
        decoded = {
            account.decode(): self._failure_decoder.decode(packed)
            for account, packed in zip(rows[::2], rows[1::2], strict=True)
        }
        return {account: one for account, one in decoded.items() if one.version == login.version}

    async def fail(self, name: str, account: str, failure: LoginFailure) -> None:
        """Note that no worker is to use an account any more. May be repeated."""
        key = self._key(KeyPattern.LOGIN_FAILURES, name)
        await self._do("HSET", key, account, _encode(failure))
        await self._do("PEXPIRE", key, _FAILURES_KEPT_MS)

    async def retry(self, name: str) -> bool:
        """Have workers use the accounts that have failed again. Returns whether there were any."""
        return bool(await self._do("DEL", self._key(KeyPattern.LOGIN_FAILURES, name)))

    async def note_unusable(self, name: str, sentence: str) -> None:
        """Note for 10 seconds why a worker cannot use a login. The latest sentence counts."""
        await self._do("SET", self._key(KeyPattern.LOGIN_UNUSABLE, name), sentence, "PX", _UNUSABLE_MS)

    async def note_usable(self, name: str) -> None:
        """Note that a worker can use a login."""
        await self._do("DEL", self._key(KeyPattern.LOGIN_UNUSABLE, name))

    async def unusable(self, name: str) -> str:
        """Return the sentence on why a worker cannot use a login. Empty: none has noted one of late."""
        found: bytes | None = await self._do("GET", self._key(KeyPattern.LOGIN_UNUSABLE, name))
        return "" if found is None else found.decode()

    async def with_work(self, logins: Collection[str], stored_names: Sequence[str]) -> set[str]:
        """Return those of these logins in whose pools requests wait in queues, under one of these stored names (see
        `codec.lane_names`)."""
        if not logins or not stored_names:
            return set()
        fields = [(login, f"{login_pool(login)}|{stored}") for login in logins for stored in stored_names]
        found: set[str] = set()
        for shard in range(self._commands.count):
            key = self._commands.keys[shard].key(KeyPattern.BACKLOG)
            counts = await self._commands.plain(shard, "HMGET", key, *(field for _, field in fields))
            found.update(login for (login, _), count in zip(fields, counts, strict=True) if count)
        return found

    def _key(self, pattern: KeyPattern, name: str = "") -> str:
        return self._commands.keys[0].key(pattern, name=name)

    async def _do(self, *command: str | int | bytes) -> Any:
        """Run a command on shard 0."""
        return await self._commands.plain(0, *command)
