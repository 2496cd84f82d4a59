"""What takes more than one shard: deciding that a run is finished, ending it early, sharing out its page budget.

Whoever is at it may die between any two steps. So the home shard says first what is to be, and keeps a note of it
(`idle`, `halting`, `opened`, `starving`) until every shard has done its part; housekeeping looks at the notes.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.valkey import codec, info
from gossamer.frontier.valkey.commands import Argument, ScriptCommands
from gossamer.frontier.valkey.keys import home_shard
from gossamer.model.crawl import Crawl, CrawlState

_LETTERS = {CrawlState.STOPPED: "s", CrawlState.EXPIRED: "e", CrawlState.FINISHED: "f"}
_FINISHED = [(_LETTERS[CrawlState.FINISHED], "")]
_SPENT = "b"


@dataclass(frozen=True, slots=True)
class CrawlHome:
    """What a crawl's home shard says of it."""

    token: str
    state: CrawlState
    run: int
    generation: int
    version: int
    shards: list[int]
    """Touched by this run or an earlier one."""
    crawl: Crawl
    parts: dict[str, str]
    """Spiders whose part has ended, and the letter of how."""
    expires: dict[str, float]
    """When the spiders' parts expire, in epoch seconds; 0: never."""
    facts: dict[bytes, bytes]

    def arguments(self, commands: ScriptCommands) -> list[Argument]:
        """How scripts are told which run is meant, and what they need to begin it."""
        return [self.token, self.run, self.generation, int(commands.count == 1), codec.pack_crawl(self.crawl)]


@dataclass(slots=True)
class StopResult:
    """What came of telling a crawl's shards that something of it ended."""

    purged: int = 0
    """Waiting requests dropped for the stop that was carried out, also by others who told some shards of it."""
    by_end: dict[str, int] = field(default_factory=dict)
    """The same for each end, whichever stop said so: by spider, or "" for all of the crawl."""
    idle: bool = False
    """A shard has nothing left to do: the run may be over."""


async def read_home(commands: ScriptCommands, token: str) -> CrawlHome | None:
    """None: no such crawl."""
    shard = home_shard(token, commands.count)
    return unpack_home(token, await commands.plain(shard, "HGETALL", commands.keys[shard].home(token)))


def unpack_home(token: str, fields: Sequence[bytes]) -> CrawlHome | None:
    """A home record as the server sends it."""
    row = info.pairs(fields)
    if b"state" not in row:
        return None
    shards = row.get(b"shards", b"").decode()
    return CrawlHome(
        token=token,
        state=CrawlState(row[b"state"].decode()),
        run=int(row[b"run"]),
        generation=int(row[b"gen"]),
        version=int(row.get(b"version", 0)),
        shards=[int(shard) for shard in shards.split(",")] if shards else [],
        crawl=codec.unpack_crawl(row[b"crawl"]),
        parts={name[3:].decode(): row[name].decode() for name in row if name.startswith(b"st:")},
        expires={name[2:].decode(): int(row[name]) / 1000 for name in row if name.startswith(b"x:")},
        facts=row,
    )


def left_for_later() -> contextlib.suppress:
    """Suppress the failure of a step that concerns several shards, one of which is away. The note of the step stays in
    the frontier, so housekeeping repeats it; the other work of the caller goes on."""
    return contextlib.suppress(FrontierUnavailable)


async def purge(commands: ScriptCommands, shard: int) -> None:
    """Unlink the queues of what has ended on a shard."""
    while await commands.call(shard, "purge", 100):
        pass


async def patiently(commands: ScriptCommands, shard: int, call: Callable[[], Awaitable[Any]], *, until: Any) -> Any:
    """A call that cannot go on before an earlier run's queues are gone: `until` is what it answers so long."""
    while (reply := await call())[0] == until:
        await purge(commands, shard)
    return reply


# --- the end ----------------------------------------------------------------------------------------------------------


async def _sum(commands: ScriptCommands, home: CrawlHome, name: str) -> tuple[int, bool]:
    """Over all shards; and whether any shard knows of the run."""
    rows = await asyncio.gather(
        *(commands.plain(s, "HMGET", commands.keys[s].crawl(home.token), "run", name) for s in home.shards)
    )
    mine = [row[1] for row in rows if row[0] is not None and int(row[0]) == home.run]
    return sum(int(value or 0) for value in mine), bool(mine)


async def try_finish(commands: ScriptCommands, token: str, *, retention_ms: int, abandoned: bool = False) -> bool:
    """Decide that the run is finished if it is; True for the one who decided. May be called at any time by anyone.

    First all `done` are read, then all `added`: done never runs ahead, so equal sums mean that nothing was open at a
    moment in between. Then every shard closes the run: additions must ask the home shard from then on, and those who
    asked it before the version was read must ask again. The home shard decides only if nobody asked since. All of it
    is confirmed: a server that was replaced and does not know would close what goes on elsewhere. In the same step the
    home shard ends as expired the parts whose time has passed: whether the expirer or the last lease came first, the
    end is the same.

    `abandoned`: also a run to which nothing was ever added.
    """
    home = await read_home(commands, token)
    if home is None:
        return False
    if home.state is CrawlState.FINISHED:  # somebody decided, and perhaps did not live to tell the shards
        await halt(commands, home, _FINISHED, retention_ms=retention_ms)
    if home.state is not CrawlState.RUNNING:  # of a stop, `halting` remembers who is still to be told
        return False
    done, known = await _sum(commands, home, "Z")
    added, _ = await _sum(commands, home, "A")
    if done != added or not (known or abandoned):
        return False
    arguments = home.arguments(commands)
    closed = await asyncio.gather(
        *(commands.call_confirmed(s, "finish_shard", *arguments, home.version) for s in home.shards)
    )
    if not all(closed):
        return False
    at = home_shard(token, commands.count)
    latest = max((float(row[0]) for row in closed), default=0.0)
    expired: Counter[bytes] = Counter()
    for row in closed:
        for spider, count in zip(row[1::2], row[2::2], strict=True):
            expired[spider] += count
    spiders = [part for pair in expired.items() for part in pair]
    if not await commands.call_confirmed(
        at, "finish_run", token, home.run, home.version, retention_ms, f"{latest:.3f}", *spiders
    ):
        return False
    await halt(commands, home, _FINISHED, retention_ms=retention_ms)
    return True


async def finish_idle(commands: ScriptCommands, shard: int, *, limit: int, retention_ms: int) -> int:
    """End the runs that have been idle on this shard for long enough, at most `limit`; how many were looked at."""
    if not await commands.call(shard, "has_idle"):
        return 0
    due, *tokens = await commands.call_confirmed(shard, "finish_idle", limit, retention_ms)
    for token in tokens:
        with left_for_later():
            await try_finish(commands, token.decode(), retention_ms=retention_ms)
    return int(due)


async def halt(
    commands: ScriptCommands, home: CrawlHome, ends: Sequence[tuple[str, str]], *, stop: int = 0, retention_ms: int
) -> StopResult:
    """Tell every shard how the run and its parts ended: (letter, spider or "") of each."""
    arguments = home.arguments(commands)
    halted = StopResult()

    async def tell(shard: int) -> None:
        purged = 0
        for letter, spider in ends:
            told = (*arguments, letter, spider, retention_ms, stop)
            reply = await patiently(
                commands, shard, partial(commands.call_confirmed, shard, "stop_shard", *told), until=-1
            )
            purged = int(reply[0])
            halted.by_end[spider] = halted.by_end.get(spider, 0) + int(reply[1])
            halted.idle |= len(reply) > 2
        halted.purged += purged

    await asyncio.gather(*map(tell, home.shards))
    return halted


async def carry_out(commands: ScriptCommands, token: str, *, retention_ms: int) -> int:
    """Do what `stop` noted on the home shard; returns how many waiting requests that stop dropped."""
    home = await read_home(commands, token)
    halted = StopResult()
    if home is not None:
        ends = [(letter, spider) for spider, letter in home.parts.items()]
        if home.state is not CrawlState.RUNNING:
            ends.append((_LETTERS[home.state], ""))
        stop = int(home.facts.get(b"stop", 0))
        halted = await halt(commands, home, ends, stop=stop, retention_ms=retention_ms)
        if halted.idle:
            await try_finish(commands, token, retention_ms=retention_ms)
        await asyncio.gather(*(purge(commands, shard) for shard in home.shards))
    ended = [part for end in halted.by_end.items() for part in end]
    await commands.call(home_shard(token, commands.count), "confirm_stop", token, home.version if home else 0, *ended)
    return halted.purged


# --- the page budget --------------------------------------------------------------------------------------------------


async def rebalance(commands: ScriptCommands, token: str, shard: int, *, retention_ms: int) -> bool:
    """Get a shard whose requests starve a share of the page budget, or end the run when all of it is used.

    True when there is nothing more to wait for on that shard.
    """
    home = await read_home(commands, token)
    if home is None or home.crawl.max_pages is None:
        return True
    at, run, max_pages = home_shard(token, commands.count), home.run, home.crawl.max_pages
    number = await commands.call(at, "page_budget", "begin", token, run, 0)
    if number == 0:
        return True
    rows = await asyncio.gather(*(commands.call(s, "page_budget", "return", token, run, number) for s in home.shards))
    if sum(int(row[1]) for row in rows) >= max_pages:
        await halt(commands, home, [(_SPENT, "")], retention_ms=retention_ms)
        await try_finish(commands, token, retention_ms=retention_ms)
        return True
    kept = {s: int(row[0]) for s, row in zip(home.shards, rows, strict=True)}
    ordered = [shard, *(s for s in home.shards if s != shard)]
    pairs = [part for s in ordered for part in (s, kept.get(s, 0))]
    quota = await commands.call(at, "page_budget", "grant", token, run, number, max_pages, *pairs)
    if quota <= kept.get(shard, 0):
        return False
    await commands.call(shard, "page_budget", "take", token, run, number, quota)
    return True
