"""The ends of runs: deciding that a run is finished, stopping it, expiring its parts, sharing out its page budget.

A run is one life of a crawl, from its first request until nothing is left of it; a part is one spider's share of a
crawl. A crawl's requests are on the shards of their domains; its state is on its home shard.

These operations concern several shards, and the process that runs one may die between any two steps. So a shard first
records what is to be done (in `idle`, `stopping`, `opened`, `starving`, `forgotten`) and keeps the record until every
shard has done its part; maintenance resumes what is recorded.

Fixed: the order of the steps in each function, which a kill between any two of them relies on, and that every step may
be repeated.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Argument, ScriptCommands
from gossamer.frontier.valkey.keys import KeyPattern, home_shard
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import Crawl, CrawlState, Run
from gossamer.telemetry import logs as names

log = logging.getLogger("gossamer.frontier")

LETTERS = {CrawlState.STOPPED: "s", CrawlState.EXPIRED: "e", CrawlState.FINISHED: "f"}
"""Letters by which scripts store how a run or a part ended (end_reasons.lua). Must not change."""
_BUDGET_USED = "b"
"""Another stored letter: the run's page budget is used up. Must not change."""


class End(NamedTuple):
    """End of a run, or of one part of it."""

    letter: str
    spider: str = ""
    """Spider whose part ends. Empty: the whole run ends."""


_PURGE_STEP = 100
"""Domains whose queues one call deletes (about). More make each call longer, and a shard executes no other call
meanwhile."""


# Stops that one process carries out, and shards that it asks for expired parts, at a time. More end many crawls sooner,
# with more calls at once.
_STOPS_AT_ONCE = 16
_EXPIRING_SHARDS_AT_ONCE = 8


# --- the home record --------------------------------------------------------------------------------------------------


class CrawlHome(msgspec.Struct, frozen=True):
    """A crawl's record on its home shard."""

    token: str
    """The 16 characters that stand for the crawl in keys."""
    state: CrawlState
    run: int
    """Number of the last run."""
    generation: int
    """Number of the run's seen-set."""
    version: int
    """Grows whenever a process asks this record before it adds requests, and with every stop. A run finishes only if
    this has not grown since the decision began."""
    shards: list[int]
    """Shards that this run or an earlier one touched."""
    crawl: Crawl
    parts: dict[str, str]
    """Spiders whose part has ended, each with its letter (LETTERS)."""
    expires: dict[str, float]
    """When the spiders' parts expire, in epoch seconds; 0: never."""
    fields: dict[bytes, bytes]
    """The record as the server sent it."""

    def arguments(self, commands: ScriptCommands) -> list[Argument]:
        """Return the first arguments of a script that concerns the run."""
        return run_arguments(commands, Run(self.crawl, self.run, self.generation))


def run_arguments(commands: ScriptCommands, run: Run) -> list[Argument]:
    """Return the arguments that name a run to a script, with what the script needs to begin it on a shard. Scripts read
    them by position."""
    return [run.crawl.id.token, run.number, run.generation, int(commands.count == 1), codec.pack_crawl(run.crawl)]


async def read_home(commands: ScriptCommands, token: str) -> CrawlHome | None:
    """Read a crawl's home record. None: no such crawl."""
    shard = home_shard(token, commands.count)
    key = commands.keys[shard].key(KeyPattern.HOME, token=token)
    return decode_home(token, await commands.plain(shard, "HGETALL", key))


def decode_home(token: str, row: Sequence[bytes]) -> CrawlHome | None:
    """Decode a home record as the server sends it. None: no such crawl."""
    fields = codec.hash_fields(row)
    if b"state" not in fields:
        return None
    shards = fields.get(b"shards", b"").decode()
    return CrawlHome(
        token=token,
        state=CrawlState(fields[b"state"].decode()),
        run=int(fields[b"run"]),
        generation=int(fields[b"gen"]),
        version=int(fields.get(b"version", 0)),
        shards=[int(shard) for shard in shards.split(",")] if shards else [],
        crawl=codec.unpack_crawl(fields[b"crawl"]),
        parts={name.decode(): state.decode() for name, state in _fields_with_prefix(fields, b"st:")},
        expires={name.decode(): int(time_ms) / 1000 for name, time_ms in _fields_with_prefix(fields, b"x:")},
        fields=fields,
    )


def _fields_with_prefix(fields: dict[bytes, bytes], prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields whose name begins with this, without it, and their values."""
    for name, value in fields.items():
        if name.startswith(prefix):
            yield name.removeprefix(prefix), value


# --- steps that maintenance can resume --------------------------------------------------------------------------------


def postpone_if_unavailable() -> contextlib.suppress:
    """Suppress the failure of a step that concerns several shards, one of which does not answer. The step is recorded
    in the frontier, so maintenance repeats it; the other work of the caller goes on."""
    return contextlib.suppress(FrontierUnavailable)


async def purge_queues(commands: ScriptCommands, shard: int) -> None:
    """Delete the queues of runs and parts that have ended on a shard."""
    while await commands.call(shard, "purge", _PURGE_STEP):
        pass


async def call_after_purge(
    commands: ScriptCommands, shard: int, call: Callable[[], Awaitable[Any]], *, blocked: Any
) -> Any:
    """Repeat a call, and delete queues in between, as long as the first item of its reply is `blocked`: queues of an
    earlier run are in its way."""
    while (reply := await call())[0] == blocked:
        await purge_queues(commands, shard)
    return reply


# --- finishing and stopping -------------------------------------------------------------------------------------------


class StopResult(msgspec.Struct):
    """Result of ending a run or some of its parts on all shards."""

    purged: int = 0
    """Waiting requests dropped for this stop, also by other processes that carried it out on some shards."""
    by_end: dict[str, int] = {}
    """Waiting requests dropped for each end, by any stop: by spider, or "" for the whole crawl."""
    idle: bool = False
    """A shard has nothing left to do: the run may have finished."""


async def _sum_counter(commands: ScriptCommands, home: CrawlHome, name: str) -> tuple[int, bool]:
    """Return the sum of a counter (`A`: requests added, `Z`: requests done) over all shards, and whether any shard
    knows the run."""
    keys = {shard: commands.keys[shard].key(KeyPattern.COUNTERS, token=home.token) for shard in home.shards}
    rows = await asyncio.gather(*(commands.plain(shard, "HMGET", key, "run", name) for shard, key in keys.items()))
    values = [value for run, value in rows if run is not None and int(run) == home.run]
    return sum(int(value or 0) for value in values), bool(values)


async def try_finish(
    commands: ScriptCommands,
    token: str,
    *,
    retention_ms: int,
    home: CrawlHome | None = None,
    even_if_empty: bool = False,
) -> bool:
    """Finish the run if nothing of it is left to do; returns True if this call decided so. Any process may call it.

    The steps, in this order:
    1. Read the home record, with its version. (`home`: the caller has just read this one.) Without a record there is
       nothing to decide; `end_if_forgotten` ends what a shard still holds.
    2. Read all counters of requests done, then all counters of requests added. A done counter never exceeds its added
       counter, so equal sums mean that nothing was open at a moment in between.
    3. Every shard closes the run: from then on additions must ask the home shard, and those that asked before step 1
       must ask again.
    4. The home shard decides, only if no addition has asked since step 1. In the same step it ends as expired the parts
       whose time has passed, so the end is the same whether the expirer or the last lease came first.
    5. End the run on all shards.

    Steps 3 and 4 are confirmed by replicas: a shard whose server was replaced and does not know the run would close a
    run that goes on elsewhere. `even_if_empty`: finish also a run to which nothing was ever added.
    """
    home = home or await read_home(commands, token)
    if home is None:
        return False
    finished = [End(LETTERS[CrawlState.FINISHED])]
    if home.state is CrawlState.FINISHED:  # the process that decided may have died before it ended the run everywhere
        await end_on_shards(commands, home, finished, retention_ms=retention_ms)
    if home.state is not CrawlState.RUNNING:  # `stopping` records the shards that do not know of a stop yet
        return False
    done, known = await _sum_counter(commands, home, "Z")
    added, _ = await _sum_counter(commands, home, "A")
    if done != added or not (known or even_if_empty):
        return False
    arguments = home.arguments(commands)
    closed = await asyncio.gather(
        *(commands.call(shard, "finish_shard", *arguments, home.version, confirmed=True) for shard in home.shards)
    )
    if not all(closed):
        return False
    latest = 0.0
    expired: Counter[bytes] = Counter()
    for time_ms, *spiders_and_counts in closed:  # of its expired requests, in turn
        latest = max(latest, float(time_ms))
        for spider, count in zip(spiders_and_counts[::2], spiders_and_counts[1::2], strict=True):
            expired[spider] += count
    spiders = [part for pair in expired.items() for part in pair]
    if not await commands.call(
        home_shard(token, commands.count),
        "finish_run", token, home.run, home.version, retention_ms, f"{latest:.3f}", *spiders,
confirmed=True,
    ):  # fmt: skip
        return False
    await end_on_shards(commands, home, finished, retention_ms=retention_ms)
    return True


async def finish_idle(commands: ScriptCommands, shard: int, *, limit: int, retention_ms: int) -> int:
    """Finish at most `limit` runs that have been idle on this shard for long enough; returns how many were looked
    at."""
    if not await commands.call(shard, "has_idle"):
        return 0
    due, *tokens = await commands.call(shard, "finish_idle", limit, retention_ms, confirmed=True)
    for token in tokens:
        with postpone_if_unavailable():
            await try_finish(commands, token.decode(), retention_ms=retention_ms)
    return int(due)


async def end_on_shards(
    commands: ScriptCommands, home: CrawlHome, ends: Sequence[End], *, stop: int = 0, retention_ms: int
) -> StopResult:
    """End the run or some of its parts on every shard. `stop`: number of the stop that is carried out; 0: none, the run
    ends by itself."""
    arguments = home.arguments(commands)
    result = StopResult()

    async def end_on(shard: int) -> None:
        purged = 0
        for letter, spider in ends:
            call = partial(
                commands.call, shard, "stop_shard", *arguments, letter, spider, retention_ms, stop, confirmed=True
            )
            purged_so_far, purged_for_end, *idle = await call_after_purge(commands, shard, call, blocked=-1)
            # For this stop on the shard up to now, all ends together; less if another stop came between two calls.
            purged = max(purged, int(purged_so_far))
            result.by_end[spider] = result.by_end.get(spider, 0) + int(purged_for_end)
            result.idle |= bool(idle)
        result.purged += purged

    await asyncio.gather(*map(end_on, home.shards))
    return result


async def carry_out_stop(commands: ScriptCommands, token: str, *, retention_ms: int) -> int:
    """Carry out the stop that is recorded on the home shard; returns how many waiting requests it dropped.

    The last call, `confirm_stop`, deletes the record: it must come when all shards have done their part.
    """
    home = await read_home(commands, token)
    result = StopResult()
    if home is not None:
        ends = [End(letter, spider) for spider, letter in home.parts.items()]
        if ends:  # the assets of all spiders are one part; with any spider's part it ends
            ends.append(End(ends[-1].letter, ASSET_SPIDER))
        if home.state is not CrawlState.RUNNING:
            ends.append(End(LETTERS[home.state]))
        stop = int(home.fields.get(b"stop", 0))
        result = await end_on_shards(commands, home, ends, stop=stop, retention_ms=retention_ms)
        if result.idle:
            await try_finish(commands, token, retention_ms=retention_ms)
        await asyncio.gather(*(purge_queues(commands, shard) for shard in home.shards))
    ended = [part for end in result.by_end.items() for part in end]
    await commands.call(home_shard(token, commands.count), "confirm_stop", token, home.version if home else 0, *ended)
    return result.purged


async def delete_crawl(commands: ScriptCommands, token: str, *, retention_ms: int) -> bool:
    """Delete everything that the frontier has of a crawl. Returns False while the crawl runs.

    The home shard is the last: until then the crawl is listed, and an interrupted call can be repeated.
    """
    home = await read_home(commands, token)
    if home is None:
        return True
    if home.state is CrawlState.RUNNING:
        return False
    own_pool = home.crawl.pool if home.crawl.pool.endswith(token) else ""  # else other crawls may have it, too
    last = home_shard(token, commands.count)
    for shard in (*(shard for shard in home.shards if shard != last), last):
        await purge_queues(commands, shard)
        if not await commands.call(shard, "forget", token, home.generation, own_pool, confirmed=True):
            return False
        await sweep(commands, shard, retention_ms=retention_ms)
    return True


_KEYS_A_STEP = 1000
"""Keys that one call removes. More make a call longer."""


async def sweep(commands: ScriptCommands, shard: int, *, retention_ms: int) -> None:
    """Remove what has outlived its retention on a shard. Events that nothing has published are logged as lost."""
    lost, more = 0, True
    while more:
        more, given_up = await commands.call(shard, "sweep", _KEYS_A_STEP, retention_ms)
        lost += given_up
    if lost:
        log.error(
            "%s ends of crawls that will not be published: %s. No service could publish them for %.3g hours, or they "
            "were more than a shard keeps",
            names.EVENTS_LOST,
            f"{lost:,}",
            retention_ms / 3_600_000,
        )


async def expire_due(
    commands: ScriptCommands, *, limit: int, stop_marker_ms: int, retention_ms: int, shard: int | None
) -> int:
    """Stop as expired the parts that are due on a shard (None: on all); returns their number, about `limit` at most.
    Where one of a crawl's shards does not answer, maintenance carries out the stop later."""
    total, stop_slots = 0, asyncio.Semaphore(_STOPS_AT_ONCE)
    next_shard, end = (0, commands.count) if shard is None else (shard, shard + 1)

    async def stop(token: bytes) -> None:
        async with stop_slots:
            with postpone_if_unavailable():
                await carry_out_stop(commands, token.decode(), retention_ms=retention_ms)

    while next_shard < end and total < limit:
        # Near the limit one shard at a time is asked: each that is asked may return one part.
        at_once = _EXPIRING_SHARDS_AT_ONCE if limit - total >= _EXPIRING_SHARDS_AT_ONCE else 1
        shards = range(next_shard, min(next_shard + at_once, end))
        share = max(1, (limit - total) // len(shards))
        replies = await asyncio.gather(
            *(commands.call(one, "expire", share, stop_marker_ms, retention_ms) for one in shards)
        )
        has_more, tokens = False, []
        for part_count, may_have_more, *crawls in replies:
            total += part_count
            has_more |= bool(may_have_more)
            tokens += crawls
        await asyncio.gather(*map(stop, tokens))
        if not has_more:  # else the same shards are asked again
            next_shard += len(shards)
    return total


# --- runs that their home shard has forgotten -------------------------------------------------------------------------


async def end_if_forgotten(
    commands: ScriptCommands, token: str, shard: int, home: CrawlHome | None, *, retention_ms: int
) -> bool:
    """End a run on one shard if its home shard has no record of it; returns True if this call ended it. `home`: the
    record, as the caller has just read it.

    Nothing else would end the run there: the home shard has to decide that a run is finished, and has to tell all
    shards. It forgets a run if a replica takes over that had not received the record, or if it deletes the record after
    the retention while the shard is away.

    A missing record may come back, for example if the operator restores a backup of its server. And as long as other
    shards work on the run, they find links to this one, which must still know what it has seen. So a run ends here only
    when its record has been missing, and the run at rest on all shards, for the whole retention. Maintenance calls this
    function until then; the script keeps the time. Such an end has no event: only the record says what to publish.
    """
    rows = await asyncio.gather(
        *(
            commands.plain(one, "HMGET", keys.key(KeyPattern.COUNTERS, token=token), "run", "gen", "A", "Z")
            for one, keys in enumerate(commands.keys)
        )
    )
    run, generation, _, _ = rows[shard]
    is_known = home is not None and (shard in home.shards or int(generation or 0) == home.generation)
    open_on = [
        one
        for one, (its_run, its_generation, added, done) in enumerate(rows)
        if (its_run, its_generation) == (run, generation) and added != done
    ]
    waits_in_vain = await asyncio.gather(
        *(commands.plain(one, "SISMEMBER", commands.keys[one].key(KeyPattern.STARVING), token) for one in open_on)
    )
    if is_known or run is None or not all(waits_in_vain):
        await commands.plain(shard, "HDEL", commands.keys[shard].key(KeyPattern.FORGOTTEN), token)
        return False
    if not await commands.call(shard, "end_forgotten_run", token, run, generation, retention_ms, confirmed=True):
        return False
    log.warning(
        "%s The home shard of the crawl with the token %s has no record of its run. What shard %d still had of it is "
        "deleted.", names.RUN_FORGOTTEN, token, shard,
    )  # fmt: skip
    return True


# --- the page budget --------------------------------------------------------------------------------------------------


async def rebalance_budget(commands: ScriptCommands, token: str, shard: int, *, retention_ms: int) -> bool:
    """Move a share of a crawl's page budget to a shard whose requests wait for one, or end the run when all of the
    budget is used.

    Returns True when requests on that shard need not wait any more. The steps: `begin` gives out a number; `return`
    makes every shard give back what it has not used; `grant` writes the shares down on the home shard; `take` hands the
    new share to the shard. All carry the number, so that a rebalance that was overtaken or died half-way grants no page
    twice.
    """
    home = await read_home(commands, token)
    if home is None or home.crawl.max_pages is None:
        return True
    run, max_pages = home.run, home.crawl.max_pages
    at_home = home_shard(token, commands.count)
    number = await commands.call(at_home, "page_budget", "begin", token, run, 0)
    if number == 0:  # the run is over
        return True
    rows = await asyncio.gather(
        *(commands.call(one, "page_budget", "return", token, run, number) for one in home.shards)
    )
    kept = {one: int(pages) for one, (pages, _, _) in zip(home.shards, rows, strict=True)}
    if sum(int(fetched) for _, fetched, _ in rows) >= max_pages:
        await end_on_shards(commands, home, [End(_BUDGET_USED)], retention_ms=retention_ms)
        await try_finish(commands, token, retention_ms=retention_ms)
        return True
    ordered = [shard, *(one for one in home.shards if one != shard)]  # the shard that asks comes first
    pairs = [part for one in ordered for part in (one, kept.get(one, 0))]
    quota = await commands.call(at_home, "page_budget", "grant", token, run, number, max_pages, *pairs)
    if quota <= kept.get(shard, 0):
        return False
    await commands.call(shard, "page_budget", "take", token, run, number, quota)
    return True
