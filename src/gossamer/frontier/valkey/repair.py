"""Repair of a shard whose server has lost a part of its writes.

A script writes queues, lists of them and counters in one transaction. A server that carries out only half of one (see
KEEPS_TORN in valkey/server_check.py) leaves queues that no worker gets, leases without a worker, and wrong counts;
without a repair the run of such requests would never end. The requests themselves may be lost, too: those that are
counted and nowhere to be found count as dropped, with the reason `lost`.

Each call compares and corrects in one step of the server, so that any number of workers may go on meanwhile, and
several processes may repair at once. Where nothing is wrong, nothing is written. A token is 16 characters that stand
for a crawl; a scope is what shares one rate limit; a lease is a request that a worker holds.
"""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec

from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.keys import KeyPattern

# Keys that a scan looks at, domains and scopes that one call compares, and crawls whose counters one call compares (a
# large one is compared alone). More make each call longer, and a shard executes no other call meanwhile.
_KEYS_A_STEP = 1000
_DOMAINS_A_CALL = 200
_SCOPES_A_CALL = 1000
_CRAWLS_A_CALL = 50
_LARGE_CRAWL_DOMAINS = 1000

_QUEUE = re.compile(r"(.{16})\|([^|]*)\|(.*)\|(-?\d+)", re.DOTALL)
"""Name of a queue behind the kind of its key (KeyPattern.QUEUE)."""

_pack = msgspec.msgpack.Encoder().encode


class RepairResult(msgspec.Struct):
    """Corrections made by a repair."""

    queues: int = 0
    """Queues that no worker would have got."""
    leases: int = 0
    """Workers with leases that maintenance would not have reclaimed."""
    counts: int = 0
    """Counts that were wrong."""
    lost: dict[str, int] = {}
    """Requests that are counted and nowhere to be found, by token of their crawl."""
    idle: list[str] = []
    """Tokens of crawls that may be finished now."""

    def __bool__(self) -> bool:
        return bool(self.queues or self.leases or self.counts or self.lost)

    def add(self, other: "RepairResult") -> None:
        """Add the corrections of another repair."""
        self.queues += other.queues
        self.leases += other.leases
        self.counts += other.counts
        for token, count in other.lost.items():
            self.lost[token] = self.lost.get(token, 0) + count
        self.idle += other.idle


class ShardRepair:
    """Repair of one shard."""

    def __init__(self, commands: ScriptCommands, shard: int, *, retention_ms: int) -> None:
        self._commands = commands
        self._shard = shard
        self._retention_ms = retention_ms
        self._base = commands.keys[shard].base
        self._result = RepairResult()

    async def run(self) -> RepairResult:
        """Compare everything on the shard."""
        names: dict[str, list[str]] = {kind.kind: [] for kind in (KeyPattern.COUNTERS, KeyPattern.LEASES)}
        scopes: list[str] = []
        async for page in self._scan(""):
            await self._relist(page)
            for kind, name in page:
                if kind == KeyPattern.THROTTLE.kind:
                    scopes.append(name)
                elif kind in names:
                    names[kind].append(name)
        workers, tokens = names[KeyPattern.LEASES.kind], names[KeyPattern.COUNTERS.kind]
        for first in range(0, max(1, len(scopes)), _SCOPES_A_CALL):
            unknown, wrong = await self._call(
                "recount_leases", len(workers), *workers, *scopes[first : first + _SCOPES_A_CALL]
            )
            self._result.leases += unknown
            self._result.counts += wrong
        await self._recount(tokens)
        self._result.counts += await self._call("recount_waiting", *tokens)
        return self._result

    async def run_for(self, token: str) -> RepairResult:
        """Compare one crawl. The server looks at the names of all of its keys for that."""
        async for page in self._scan(f"{KeyPattern.QUEUE.kind}:{token}|"):
            await self._relist(page)
        await self._recount([token])
        return self._result

    async def _scan(self, start: str) -> AsyncIterator[list[tuple[str, str]]]:
        """Yield the keys of the shard whose name begins so behind its base, page by page: kind and the rest."""
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", self._base + start) + "*"
        cursor: Any = 0
        while True:
            cursor, page = await self._commands.plain(
                self._shard, "SCAN", cursor, "MATCH", pattern, "COUNT", _KEYS_A_STEP
            )
            names = (key.decode().removeprefix(self._base).partition(":") for key in page)
            yield [(kind, rest) for kind, colon, rest in names if colon]
            if int(cursor) == 0:
                return

    async def _relist(self, page: Iterable[tuple[str, str]]) -> None:
        """Compare the queues among these keys with what lists them."""
        found: dict[tuple[str, str], list[str | int]] = {}
        for kind, name in page:
            if kind == KeyPattern.QUEUE.kind and (match := _QUEUE.fullmatch(name)):
                token, spider, domain, priority = match.groups()
                found.setdefault((token, domain), []).extend((spider, int(priority)))
        await self._compare_domains([(*place, *queues) for place, queues in found.items()])

    async def _compare_domains(self, domains: Sequence[tuple[str | int, ...]]) -> None:
        """Compare the queues of these domains, each a token, a domain, and the queues that were found there."""
        for first in range(0, len(domains), _DOMAINS_A_CALL):
            packed = [b"".join(map(_pack, parts)) for parts in domains[first : first + _DOMAINS_A_CALL]]
            unlisted, miscounted = await self._call("relist_queues", *packed)
            self._result.queues += unlisted
            self._result.counts += miscounted

    async def _recount(self, tokens: Sequence[str]) -> None:
        """Compare shares and counters of these crawls."""
        small: list[str] = []
        for token in tokens:
            key = self._commands.keys[self._shard].key(KeyPattern.SHARES, token=token)
            cursor: Any = 0
            while True:  # shares may count queues that are gone
                cursor, row = await self._commands.plain(self._shard, "HSCAN", key, cursor, "COUNT", _DOMAINS_A_CALL)
                await self._compare_domains([(token, domain.decode()) for domain in row[::2]])
                if int(cursor) == 0:
                    break
            if await self._commands.plain(self._shard, "HLEN", key) >= _LARGE_CRAWL_DOMAINS:
                await self._recount_crawls([token])
            else:
                small.append(token)
        for first in range(0, len(small), _CRAWLS_A_CALL):
            await self._recount_crawls(small[first : first + _CRAWLS_A_CALL])

    async def _recount_crawls(self, tokens: Sequence[str]) -> None:
        corrected, losses, *idle = await self._call("recount_crawls", self._retention_ms, *tokens)
        lost = {token.decode(): count for token, count in zip(losses[::2], losses[1::2], strict=True)}
        self._result.add(RepairResult(counts=corrected, lost=lost, idle=[token.decode() for token in idle]))

    async def _call(self, script: str, *arguments: Any) -> Any:
        return await self._commands.call(self._shard, script, *arguments)
