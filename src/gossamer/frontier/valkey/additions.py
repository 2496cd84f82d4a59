"""Opens crawls and adds requests, with a cache of what the frontier's shards know of a run already.

The frontier, the store of the requests that wait, is divided into shards. A run is one life of a crawl, from its first
request until nothing is left; terms are the options of one submission. A request goes to the shard of its domain. The
home record of a crawl, on its home shard, lists the shards of the run.

Fixed: a shard is listed in the home record before it gets requests, or a finish or a stop would miss them; and a
repeated addition has the names and numbers of the first one, or its URLs would count as duplicates of themselves.
"""

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from gossamer.errors import CrawlRefused, FrontierFull
from gossamer.frontier.base import AddResult, FailureFilter, RunFinished
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Argument, ScriptCommands, gather_all
from gossamer.frontier.valkey.keys import KeyPattern, check_batch, check_names, crawl_token, home_shard, shard_of
from gossamer.frontier.valkey.runs import (
    call_after_purge,
    carry_out_stop,
    postpone_if_unavailable,
    read_home,
    run_arguments,
    try_finish,
)
from gossamer.model.crawl import Crawl, CrawlState, Run, Terms
from gossamer.model.request import Batch
from gossamer.policy.cache import BoundedCache

URLS_A_CALL = 1280
"""URLs that one call adds, which takes the server a few milliseconds. More make the call longer, and the shard executes
no other call meanwhile."""
_RETRIES_A_CALL = 1000
"""Failed requests that one call queues again."""
_CACHED_RUNS = 10_000
"""Runs whose shards are remembered. Fewer take less memory, and ask home shards more often."""
_CACHED_TERMS_BYTES = 2 * 1024 * 1024
"""Memory for packed terms. Less packs more often."""

Group = list[tuple[int, int, Batch]]
"""Content of one call: (index of the batch, offset in it, part of the batch)."""


class _AddCall(NamedTuple):
    """One call of the script `add`."""

    group: Group
    name: str
    """Name under which the server keeps the answer. Empty: it does not."""
    number: int
    """Distinguishes successive calls of one name."""


class _AdditionNames:
    """Names of additions whose answer is not known yet, so that a repeated addition gets its first answer.

    A later addition uses a free name again, with another number. So the servers keep only the answers of additions
    under way, and of those that were given up in the last hour.
    """

    def __init__(self) -> None:
        self._client = secrets.token_hex(8)
        """Distinguishes the names of this process from those of others."""
        self._free: list[str] = []
        self._name_count = 0
        self._last_number = 0

    def begin(self, first: Batch) -> None:
        """Name an addition by its first batch. A repeated one has its name already."""
        if first.attempt is not None:
            return
        if not self._free:
            self._free.append(f"{self._client}.{self._name_count}")
            self._name_count += 1
        self._last_number += 1
        first.attempt = (self._free.pop(), self._last_number)

    def end(self, first: Batch) -> None:
        """Free the name of an addition whose answer is known."""
        if first.attempt is not None:
            self._free.append(first.attempt[0])
            first.attempt = None


class RequestAdder:
    """Implements `ValkeyFrontier.open_crawl` and `ValkeyFrontier.add`."""

    def __init__(self, commands: ScriptCommands, *, retention_ms: int) -> None:
        self._commands = commands
        self._retention_ms = retention_ms
        self._touched: OrderedDict[tuple[str, int, int], set[int]] = OrderedDict()
        """By run (see `_run_key`): the shards that the run's home record lists."""
        self._ended: dict[tuple[str, int, int], str] = {}
        """By run: spiders whose part (share of the crawl) has ended, as open_run.lua returns them and add.lua takes
        them: each behind the letter of its end (see `runs.LETTERS`), joined by commas."""
        self._cache_epoch = 0
        """Data epoch to which the two caches above belong. It ends when the frontier may have lost confirmed writes."""
        self._fresh_keys: dict[str, str] = {}
        """By crawl: idempotency key of a fresh run whose opening is not answered yet."""
        self._names = _AdditionNames()
        self._packed: BoundedCache[int, tuple[Terms, codec.PackedTerms]] = BoundedCache(_CACHED_TERMS_BYTES)
        """By the `id()` of the terms, which are kept, so that no other object gets this id."""

    # --- opening ------------------------------------------------------------------------------------------------------

    async def open_crawl(
        self,
        crawl: Crawl,
        *,
        fresh: bool,
        expires: Mapping[str, float] | None,
        process_age_seconds: float | None,
        idempotency_key: str,
    ) -> Run:
        check_names(crawl.pool, *(expires or ()))
        token = crawl.id.token
        # The key is kept until the call is answered. Else a repeated call would be refused because of the run that the
        # first one began.
        if fresh and not idempotency_key:
            idempotency_key = self._fresh_keys.setdefault(token, secrets.token_hex(8))
        try:
            touch = [0] if self._commands.count == 1 else []
            age_ms = -1.0 if process_age_seconds is None else process_age_seconds * 1000
            run, _ = await self._open(
                crawl, key=idempotency_key, fresh=fresh, touch=touch, expires=expires or {}, age_ms=age_ms
            )
        except (CrawlRefused, RunFinished):
            self._fresh_keys.pop(token, None)
            raise
        self._fresh_keys.pop(token, None)
        return run

    async def _open(
        self,
        crawl: Crawl,
        *,
        touch: Sequence[int],
        key: str = "",
        fresh: bool = False,
        expected: int = 0,
        expires: Mapping[str, float] = MappingProxyType({}),
        age_ms: float = -1.0,
    ) -> tuple[Run, int]:
        """Open a crawl on its home shard; returns the run, and the version of the home record that confirms it.

        `touch`: shards to list in the home record. `key`: idempotency key of a fresh run. `expected`: number of the
        only run that may be joined; 0: any. `age_ms`: age of the process that joins; negative: unknown.
        """
        token, packed = crawl.id.token, codec.pack_crawl(crawl)
        home = home_shard(token, self._commands.count)
        touched = ",".join(map(str, touch))
        arguments: list[Argument] = [token, packed, key, touched, expected, age_ms, int(fresh)]
        for spider, at in expires.items():
            arguments += (spider, round(at * 1000))
        self._drop_old_cache()
        epoch = self._commands.shards.epoch
        data_epoch = epoch.number
        while (reply := await self._commands.call(home, "open_run", *arguments, confirmed=True))[0] == b"stopping":
            await carry_out_stop(self._commands, token, retention_ms=self._retention_ms)
        # The fields of a reply are described at the head of open_run.lua.
        if reply[0] == b"refused":
            _, state, *_ = reply
            is_running = fresh and state.decode() == CrawlState.RUNNING
            hint = "; it can start afresh when it is finished or given up" if is_running else ""
            refused = CrawlRefused(refusal(crawl, reply) + hint)
            refused.is_running = is_running
            raise refused
        run, version, ended = decode_opened(reply, crawl, packed)
        if reply[0] == b"finished":
            raise RunFinished(run)
        run_key = _run_key(run)
        known = self._touched.setdefault(run_key, set())
        if data_epoch == epoch.number:  # else the home shard may have lost this already
            known.update(touch)
        self._ended[run_key] = ended
        if len(self._touched) > _CACHED_RUNS:
            oldest, _ = self._touched.popitem(last=False)
            self._ended.pop(oldest, None)
        return run, version

    def _drop_old_cache(self) -> None:
        """Empty the cache when a new data epoch has begun: the home shards may have lost what they confirmed."""
        if self._cache_epoch != (number := self._commands.shards.epoch.number):
            self._cache_epoch = number
            self._touched.clear()
            self._ended.clear()

    # --- adding -------------------------------------------------------------------------------------------------------

    async def add(self, run: Run, terms: Terms, batches: Sequence[Batch], *, seeds: bool) -> AddResult:
        if not batches:
            return AddResult()
        self._names.begin(batches[0])
        result = await self._add(run, terms, batches, seeds=seeds)
        self._names.end(batches[0])
        return result

    async def _add(self, run: Run, terms: Terms, batches: Sequence[Batch], *, seeds: bool) -> AddResult:
        """Add the batches, after `begin` has named the addition."""
        result = AddResult()
        by_shard: dict[int, list[tuple[int, Batch]]] = {}
        for index, batch in enumerate(batches):
            check_batch(batch)
            if batch.unfiltered and not batch.call:
                batch.call = secrets.token_hex(8)
            by_shard.setdefault(shard_of(batch.domain, self._commands.count), []).append((index, batch))
        # First list the shards in the home record; only then may they get requests of the run.
        if unlisted := self.unlisted(run, by_shard):
            confirmed = await self.confirm(run, unlisted, seeds=seeds)
            if confirmed is None:
                _reject(result, [(index, 0, batch) for index, batch in enumerate(batches)])
                return result
            run, _ = confirmed
        calls = {shard: _split_into_calls(batches[0].attempt, part) for shard, part in by_shard.items()}
        is_only_call = sum(map(len, calls.values())) == 1
        await gather_all(
            self._add_shard(run, terms, shard, some, result, seeds=seeds, last=is_only_call)
            for shard, some in calls.items()
        )
        if not is_only_call and result.added == 0:
            # Only now is it known that no URL was new. A last call says so: the run may have nothing left to do.
            empty = [_AddCall([], "", 0)]
            await self._add_shard(run, terms, next(iter(calls)), empty, result, seeds=False, last=True)
        return result

    def ended(self, run: Run) -> str:
        """Return the spiders whose part of the run has ended, as scripts take them."""
        return self._ended.get(_run_key(run), "")

    def unlisted(self, run: Run, shards: Iterable[int]) -> list[int]:
        """Return those of the shards that the home record is not known to list."""
        self._drop_old_cache()
        listed = self._touched.get(_run_key(run), ())
        return [shard for shard in shards if shard not in listed]

    async def confirm(self, run: Run, touch: Sequence[int], *, seeds: bool) -> tuple[Run, int] | None:
        """Confirm the run on its home shard, which then lists these shards; returns the run and the version of the home
        record. None: the run is over, and the URLs are late outlinks."""
        try:
            return await self._open(run.crawl, touch=touch, expected=0 if seeds else run.number)
        except CrawlRefused:
            if seeds:
                raise
            return None

    async def _add_shard(
        self, run: Run, terms: Terms, shard: int, calls: list[_AddCall], result: AddResult, *, seeds: bool, last: bool
    ) -> None:
        """Add to one shard, one call after the other, and enter the replies in the result.

        `last`: True for a call after which nothing more comes and before which no URL was new. A shard answers "closed"
        where the run is being finished or is over. Then the home shard is asked: if the run goes on, the call is
        repeated with the version of the home record that confirms it; else its URLs are rejected.
        """
        for call in calls:
            version = 0  # the home shard was not asked
            while (reply := await self._call(run, terms, shard, call, version, last=last, seeds=seeds))[0] == b"closed":
                confirmed = await self.confirm(run, [shard], seeds=seeds)
                if confirmed is None:
                    break
                run, version = confirmed
            if reply[0] == b"closed":
                _reject(result, call.group)
                continue
            if record_added(result, reply, call.group):
                with postpone_if_unavailable():
                    await try_finish(self._commands, run.crawl.id.token, retention_ms=self._retention_ms)

    # --- retrying -----------------------------------------------------------------------------------------------------

    async def retry_failed(
        self, run: Run, terms: Terms | None, keep_reason: str, only: FailureFilter
    ) -> tuple[Run, int]:
        crawl = run.crawl
        home = await read_home(self._commands, crawl.id.token)
        shards = home.shards if home else []
        run, version = await self._open(crawl, touch=shards)
        blob = self.pack_terms(terms).blob if terms is not None else b""
        url = only.url.encode()
        chosen: list[Argument] = [
            _RETRIES_A_CALL, keep_reason, only.reason, len(url).to_bytes(2, "big") + url if url else b"",
        ]  # fmt: skip
        waiting, total = shards, 0
        while waiting:
            replies = await gather_all(self._retry_on_shard(run, version, blob, shard, chosen) for shard in waiting)
            total += sum(count for count, _ in replies)
            waiting = [shard for shard, (_, is_closed) in zip(waiting, replies, strict=True) if is_closed]
            if waiting:
                # The run is being finished: it goes on, and only these shards are asked again. Or it is over: the next
                # one begins on all shards.
                before = run
                run, version = await self._open(crawl, touch=shards)
                waiting = waiting if run.number == before.number else shards
        return run, total

    async def _retry_on_shard(
        self, run: Run, version: int, terms: bytes, shard: int, chosen: Sequence[Argument]
    ) -> tuple[int, bool]:
        """Retry what a shard has kept up to now. Returns the number of requests, and whether the shard has closed the
        run: then the home shard has to confirm it. `terms`: packed, or empty. `chosen`: the script's last arguments."""
        arguments: list[Argument] = [*run_arguments(self._commands, run), terms, version, self.ended(run), *chosen]
        total = seen = 0
        # As many as were kept at the first call: what fails again meanwhile waits for the next start.
        kept_at_first: int | None = None
        while kept_at_first is None or seen < kept_at_first:
            reply = await call_after_purge(
                self._commands,
                shard,
                lambda: self._commands.call(shard, "retry_failed", *arguments, confirmed=True),
                blocked=b"purging",
            )
            if reply[0] == b"closed":
                return total, True
            _, count, left, still_kept = reply
            if kept_at_first is None:
                kept_at_first = count + left
            total += count
            seen += count + still_kept
            if not count + still_kept:
                break
        return total, False

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _call(
        self, run: Run, terms: Terms, shard: int, call: _AddCall, version: int, *, last: bool, seeds: bool
    ) -> Any:
        """Return the reply of add.lua, which reads these arguments by position."""
        packed = self.pack_terms(terms)
        arguments: list[Argument] = [
            *run_arguments(self._commands, run),
            packed.digest,
            packed.blob,
            version,
            call.name,
            call.number,
            self.ended(run),
            self._retention_ms,
            int(last),
            int(seeds),
            *(codec.pack_batch(batch) for _, _, batch in call.group),
        ]
        try:
            return await call_after_purge(
                self._commands,
                shard,
                lambda: self._commands.call(shard, "add", *arguments, confirmed=True),
                blocked=b"purging",
            )
        except FrontierFull as exc:
            raise await name_largest_crawl(self._commands, shard, exc) from None

    def pack_terms(self, terms: Terms) -> codec.PackedTerms:
        """Return the terms as scripts take them. The same object is packed once."""
        known = self._packed.get(id(terms))
        if known is not None:
            known_terms, packed = known
            if known_terms is terms:
                return packed
        packed = codec.pack_terms(terms)
        self._packed.put(id(terms), (terms, packed), codec.terms_memory_bytes(packed.blob))
        return packed


def _run_key(run: Run) -> tuple[str, int, int]:
    """Return the key of a run in the caches of the adder."""
    return run.crawl.id.token, run.generation, run.number


def _split_into_calls(attempt: tuple[str, int] | None, indexed: list[tuple[int, Batch]]) -> list[_AddCall]:
    """Split one shard's batches, each with its index, into calls. A batch with a name of its own gets calls of its own.

    `attempt`: name and number of the addition. The same batches must be split into the same calls when the addition is
    repeated: each call has the name of the addition and its place, or the name of the batch and its offset in it.
    """
    name, number = attempt or ("", 0)
    groups = _groups([(index, batch) for index, batch in indexed if not batch.call])
    calls = [_AddCall(group, f"{name}.{place}", number) for place, group in enumerate(groups)]
    for index, batch in indexed:
        if batch.call:
            for group in _groups([(index, batch)]):
                [(_, offset, _)] = group  # a single part, because no other batch is in the group
                calls.append(_AddCall(group, f"{batch.call}.{offset}", 0))
    return calls


def _groups(indexed: list[tuple[int, Batch]]) -> list[Group]:
    """Split batches into groups that one call may add."""
    groups = codec.split_batches([batch for _, batch in indexed], URLS_A_CALL)
    return [[(indexed[position][0], offset, part) for position, offset, part in group] for group in groups]


# --- replies ----------------------------------------------------------------------------------------------------------


class OpenedRun(NamedTuple):
    """Reply of a home shard about a run that is open, or finished."""

    run: Run
    version: int
    """Version of the home record that confirms the run."""
    ended: str
    """Spiders whose part of the crawl has ended, as scripts take them (see `RequestAdder._ended`)."""


def decode_opened(reply: Sequence[bytes], crawl: Crawl, packed: bytes) -> OpenedRun:
    """Return what open_run.lua replied with "ok" or "finished". `crawl`, `packed`: the crawl as the caller has it; the
    home shard may know it with other options."""
    _, number, generation, version, stored, *ended = reply
    crawl = crawl if stored == packed else codec.unpack_crawl(stored)
    return OpenedRun(Run(crawl, int(number), int(generation)), int(version), ",".join(one.decode() for one in ended))


def refusal(crawl: Crawl, reply: Sequence[bytes]) -> str:
    """Return why a home shard refused to open a crawl, from its reply."""
    _, state, *is_part = reply  # is_part: not empty if only the spider's part of the crawl has ended
    subject = f"this spider's part of {crawl.id}" if is_part else f"{crawl.id}"
    return f"{subject} is {state.decode()}"


def record_added(result: AddResult, reply: Sequence[Any], parts: Sequence[tuple[int, int, Batch]]) -> bool:
    """Add an "ok" reply of `add` to the result. `parts`: what was sent, as (index of the batch, offset in it, part).

    Returns whether the shard became idle: the run may have finished."""
    _, new, duplicates, is_idle, duplicate_positions, rejected, has_other_terms = reply
    result.has_other_terms |= bool(has_other_terms)
    result.added += new
    result.duplicates += duplicates
    if duplicate_positions or rejected:
        # The reply counts the URLs of all parts from 0.
        places = [(index, offset + k) for index, offset, batch in parts for k in range(len(batch.urls))]
        result.duplicate_positions += [places[position] for position in duplicate_positions]
        result.rejected.update(
            (places[position], reason.decode()) for position, reason in zip(rejected[::2], rejected[1::2], strict=True)
        )
    return bool(is_idle)


def _reject(result: AddResult, group: Group) -> None:
    """Record all URLs of a group as rejected, because the run is over."""
    for index, offset, batch in group:
        for position in range(offset, offset + len(batch.urls)):
            result.rejected[index, position] = "stopped"


# --- the crawl that fills the memory ----------------------------------------------------------------------------------

# Larger values are more exact, and take longer.
_KEYS_SAMPLED = 128
"""Random keys by which the largest crawl is found: a crawl has more keys, the more URLs it saw and has waiting."""
_CRAWLS_MEASURED = 3
"""Crawls with the most keys in the sample whose size is read."""
_BYTES_SEEN, _BYTES_WAITING = 10, 100
"""Estimated memory of a URL that is only remembered, and of one that waits. Only their ratio matters."""


async def name_largest_crawl(commands: ScriptCommands, shard: int, error: FrontierFull) -> FrontierFull:
    """Return the error with the name of the crawl that seems to fill the memory."""
    largest = await largest_crawl(commands, shard)
    return FrontierFull(f"{error.detail}; the largest seems to be {largest}") if largest else error


async def largest_crawl(commands: ScriptCommands, shard: int) -> str:
    """Describe the crawl that seems to be the largest on this shard's server, judged by a random sample of keys. Empty:
    the sample has no key of a crawl."""
    sample = await asyncio.gather(*(commands.plain(shard, "RANDOMKEY") for _ in range(_KEYS_SAMPLED)))
    prefix = f"{commands.prefix}:{{".encode()
    tokens: Counter[str] = Counter()
    for key in sample:
        if key is not None and key.startswith(prefix) and (token := crawl_token(key)):
            tokens[token] += 1
    sizes = await asyncio.gather(
        *(_measure_crawl(commands, token, shard) for token, _ in tokens.most_common(_CRAWLS_MEASURED))
    )
    _, description = max(sizes, default=(0, ""))
    return description


async def _measure_crawl(commands: ScriptCommands, token: str, shard: int) -> tuple[int, str]:
    """Estimate a crawl's bytes on a shard, and describe it. (0, ""): it is not there any more."""
    key = commands.keys[shard].key(KeyPattern.COUNTERS, token=token)
    counters = codec.hash_fields(await commands.plain(shard, "HGETALL", key))
    if b"crawl" not in counters:
        return 0, ""
    seen = int(counters.get(b"n", 0))
    waiting = sum(int(count) for field, count in counters.items() if field.startswith((b"q:", b"l:")))
    crawl = codec.unpack_crawl(counters[b"crawl"]).id
    return (
        _BYTES_SEEN * seen + _BYTES_WAITING * waiting,
        f"{crawl} ({waiting:,} URLs wait and {seen:,} are remembered on this shard)",
    )
