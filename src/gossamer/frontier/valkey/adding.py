"""Into the frontier: opening crawls and adding requests, with what this client remembers of both."""

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from gossamer.errors import CrawlRefused, FrontierFull
from gossamer.frontier.base import AddResult, RunFinished
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Argument, ScriptCommands
from gossamer.frontier.valkey.finishing import carry_out, left_for_later, patiently, try_finish
from gossamer.frontier.valkey.info import full
from gossamer.frontier.valkey.keys import home_shard, shard_of
from gossamer.frontier.valkey.submitting import check_batch, check_names, every, note_added, refusal
from gossamer.model.crawl import Crawl, CrawlState, Run, Terms
from gossamer.model.request import Batch
from gossamer.policy.cache import BoundedCache

_URLS_A_CALL = 1280
"""So many URLs take a script a few milliseconds."""
_RUNS_KNOWN = 10_000
_PACKED_BYTES = 2 * 1024 * 1024

Group = list[tuple[int, int, Batch]]
"""What one call adds: (index of the batch, offset in it, part of the batch)."""


class _Call(NamedTuple):
    """One call of the script `add`."""

    group: Group
    name: str
    """Under this name the answer is kept; empty: it is not."""
    number: int
    """Tells the calls of one name apart."""


class _Attempts:
    """Names of additions whose answer is not known yet: a repeated addition gets its first answer.

    A name is used again by a later addition, so that the servers keep no more answers than there are additions under
    way, and those that were given up in the last hour.
    """

    def __init__(self) -> None:
        self._client = secrets.token_hex(8)
        self._free: list[str] = []
        self._names = 0
        self._number = 0

    def begin(self, first: Batch) -> None:
        """Name an addition by its first batch. A repeated one has its name already."""
        if first.attempt is not None:
            return
        if not self._free:
            self._free.append(f"{self._client}.{self._names}")
            self._names += 1
        self._number += 1
        first.attempt = (self._free.pop(), self._number)

    def end(self, first: Batch) -> None:
        """Its answer is known."""
        if first.attempt is not None:
            self._free.append(first.attempt[0])
            first.attempt = None


class RequestAdder:
    """`open_crawl` and `add` of the Frontier; promises are there."""

    def __init__(self, commands: ScriptCommands, *, retention_ms: int) -> None:
        self._commands = commands
        self._retention_ms = retention_ms
        self._touched: OrderedDict[tuple[str, int, int], set[int]] = OrderedDict()
        """Of each run: the shards of which its home knows."""
        self._ended: dict[tuple[str, int, int], str] = {}
        self._touched_era = 0
        self._fresh: dict[str, str] = {}
        self._attempts = _Attempts()
        self._packed: BoundedCache[int, tuple[Terms, codec.PackedTerms]] = BoundedCache(_PACKED_BYTES)

    async def open_crawl(
        self,
        crawl: Crawl,
        *,
        fresh: bool = False,
        expires: Mapping[str, float] | None = None,
        process_age_seconds: float | None = None,
        idempotency_key: str = "",
    ) -> Run:
        check_names(crawl.pool, *(expires or ()))
        token = crawl.id.token
        # The key is kept until the call is answered, so that a repeated call does not refuse what it began itself.
        if fresh and not idempotency_key:
            idempotency_key = self._fresh.setdefault(token, secrets.token_hex(8))
        try:
            touch = [0] if self._commands.count == 1 else []
            age = -1.0 if process_age_seconds is None else process_age_seconds * 1000
            run, _ = await self._open(
                crawl, key=idempotency_key, fresh=fresh, touch=touch, expires=expires or {}, age_ms=age
            )
        except (CrawlRefused, RunFinished):
            self._fresh.pop(token, None)
            raise
        self._fresh.pop(token, None)
        return run

    async def _open(
        self,
        crawl: Crawl,
        *,
        key: str = "",
        fresh: bool = False,
        touch: Sequence[int] = (),
        expected: int = 0,
        expires: Mapping[str, float] = MappingProxyType({}),
        age_ms: float = -1.0,
    ) -> tuple[Run, int]:
        """The run, and the version at which the home shard confirmed it."""
        token = crawl.id.token
        home = home_shard(token, self._commands.count)
        touched = ",".join(map(str, touch))
        arguments: list[Argument] = [token, codec.pack_crawl(crawl), key, touched, expected, age_ms, int(fresh)]
        for spider, at in expires.items():
            arguments += (spider, round(at * 1000))
        self._forget_touched()
        era = self._commands.shards.era
        while (reply := await self._commands.call_confirmed(home, "open_run", *arguments))[0] == b"halting":
            await carry_out(self._commands, token, retention_ms=self._retention_ms)
        if reply[0] == b"refused":
            state = reply[1].decode()
            goes_on = fresh and state == CrawlState.RUNNING
            hint = "; it can start afresh when it is finished or given up" if goes_on else ""
            raise CrawlRefused(refusal(crawl, reply) + hint)
        run = Run(codec.unpack_crawl(reply[4]), int(reply[1]), int(reply[2]))
        if reply[0] == b"finished":
            raise RunFinished(run)
        run_key = (token, run.generation, run.number)
        self._touched.setdefault(run_key, set()).update(touch if era == self._commands.shards.era else ())
        self._ended[run_key] = ",".join(spider.decode() for spider in reply[5:])
        if len(self._touched) > _RUNS_KNOWN:
            old, _ = self._touched.popitem(last=False)
            self._ended.pop(old, None)
        return run, int(reply[3])

    def _forget_touched(self) -> None:
        """What the home shards were told before they may not know any more."""
        if self._touched_era != self._commands.shards.era:
            self._touched_era = self._commands.shards.era
            self._touched.clear()
            self._ended.clear()

    async def add(self, run: Run, terms: Terms, batches: Sequence[Batch], *, seeds: bool = False) -> AddResult:
        if not batches:
            return AddResult()
        self._attempts.begin(batches[0])
        added = await self._add(run, terms, batches, seeds=seeds)
        self._attempts.end(batches[0])
        return added

    async def _add(self, run: Run, terms: Terms, batches: Sequence[Batch], *, seeds: bool) -> AddResult:
        added = AddResult()
        by_shard: dict[int, list[tuple[int, Batch]]] = {}
        for index, batch in enumerate(batches):
            check_batch(batch)
            if batch.unfiltered and not batch.call:
                batch.call = secrets.token_hex(8)
            by_shard.setdefault(shard_of(batch.domain, self._commands.count), []).append((index, batch))
        # The home shard knows which shards a run touched before they hold work.
        self._forget_touched()
        known = self._touched.get((run.crawl.id.token, run.generation, run.number), ())
        if new := [shard for shard in by_shard if shard not in known]:
            confirmed = await self._confirm(run, new, seeds=seeds)
            if confirmed is None:
                _reject(added, [(index, 0, batch) for index, batch in enumerate(batches)])
                return added
            run, _ = confirmed
        calls = {shard: _calls(batches[0].attempt, part) for shard, part in by_shard.items()}
        whole = sum(map(len, calls.values())) == 1
        await every(self._add_shard(run, terms, shard, few, added, seeds, whole) for shard, few in calls.items())
        if not whole and added.added == 0:  # only now it is known that nothing in it was new
            await self._add_shard(run, terms, next(iter(calls)), [_Call([], "", 0)], added, False, True)
        return added

    async def _confirm(self, run: Run, touch: Sequence[int], *, seeds: bool) -> tuple[Run, int] | None:
        """Ask the home shard; None: the run is over and these are its late outlinks."""
        try:
            return await self._open(run.crawl, touch=touch, expected=0 if seeds else run.number)
        except CrawlRefused:
            if seeds:
                raise
            return None

    async def _add_shard(
        self, run: Run, terms: Terms, shard: int, calls: list[_Call], added: AddResult, seeds: bool, last: bool
    ) -> None:
        for call in calls:
            version = 0
            while (reply := await self._call(run, terms, shard, call, version, last=last, seeds=seeds))[0] == b"closed":
                confirmed = await self._confirm(run, [shard], seeds=seeds)
                if confirmed is None:
                    break
                run, version = confirmed
            if reply[0] == b"closed":
                _reject(added, call.group)
                continue
            if note_added(added, reply, call.group):
                with left_for_later():
                    await try_finish(self._commands, run.crawl.id.token, retention_ms=self._retention_ms)

    async def _call(
        self, run: Run, terms: Terms, shard: int, call: _Call, version: int, *, last: bool, seeds: bool
    ) -> Any:
        packed = self.pack_terms(terms)
        token = run.crawl.id.token
        arguments: list[Argument] = [
            token,
            run.number,
            run.generation,
            int(self._commands.count == 1),
            codec.pack_crawl(run.crawl),
            packed.digest,
            packed.blob,
            version,
            call.name,
            call.number,
            self._ended.get((token, run.generation, run.number), ""),
            self._retention_ms,
            int(last),
            int(seeds),
        ]
        for _, _, batch in call.group:
            arguments += codec.batch_arguments(batch)
        try:
            return await patiently(
                self._commands,
                shard,
                lambda: self._commands.call_confirmed(shard, "add", *arguments),
                until=b"purging",
            )
        except FrontierFull as exc:
            raise await full(self._commands, shard, exc) from None

    def pack_terms(self, terms: Terms) -> codec.PackedTerms:
        """As the scripts take them; what is asked for again and again is packed once."""
        known = self._packed.get(id(terms))
        if known is not None and known[0] is terms:
            return known[1]
        packed = codec.pack_terms(terms)
        self._packed.put(id(terms), (terms, packed), codec.weight_of_terms(packed.blob))
        return packed


def _reject(added: AddResult, group: Group) -> None:
    """The run is over: nothing of this is queued."""
    for index, offset, batch in group:
        for position in range(offset, offset + len(batch.urls)):
            added.rejected[index, position] = "stopped"


def _calls(attempt: tuple[str, int] | None, part: list[tuple[int, Batch]]) -> list[_Call]:
    """Splits one shard's batches into calls; a batch that must be made once is a call of its own."""
    name, number = attempt or ("", 0)
    filtered = _groups([pair for pair in part if not pair[1].call])
    calls = [_Call(group, f"{name}.{index}", number) for index, group in enumerate(filtered)]
    for pair in part:
        if pair[1].call:
            calls += [_Call(group, f"{pair[1].call}.{group[0][1]}", 0) for group in _groups([pair])]
    return calls


def _groups(part: list[tuple[int, Batch]]) -> list[Group]:
    return [
        [(part[index][0], offset, batch) for index, offset, batch in group]
        for group in codec.split_batches([batch for _, batch in part], _URLS_A_CALL)
    ]
