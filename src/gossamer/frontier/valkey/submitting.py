"""Many submissions at once: a call a shard for their crawls' runs, another for their URLs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from gossamer.errors import BadInput, CrawlRefused, FrontierFull
from gossamer.frontier.base import AddResult, Lane, Submission, SubmissionResult
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Argument, ScriptCommands
from gossamer.frontier.valkey.finishing import try_finish
from gossamer.frontier.valkey.identity import FrontierIdentity
from gossamer.frontier.valkey.info import full
from gossamer.frontier.valkey.keys import home_shard, shard_of
from gossamer.model.crawl import Crawl, QueryOrder, Run, Terms
from gossamer.model.request import Batch, name_fault
from gossamer.policy.scrapy_urls import scrapy_fingerprint
from gossamer.policy.urls import fingerprint, spider_seed, with_sorted_query

_AT_ONCE = 100
_BYTES_AT_ONCE = 1 << 20
_URLS_AT_ONCE = 1280
"""Bounds of a call, so that it takes the server a few milliseconds."""
_PART = 2 * _AT_ONCE
"""Submissions for each shard that travel together."""

T = TypeVar("T")

Answer = SubmissionResult | CrawlRefused | BadInput


def check_names(*names: str) -> None:
    """Of pools, spiders, egresses. Raises BadInput for what would blur the names of keys."""
    for name in names:
        if why := name_fault(name):
            raise BadInput(why)


def check_batch(batch: Batch) -> None:
    """The same of its spider, and of its domain, where a comma may be: a URL's host may have one."""
    check_names(batch.spider)
    if "|" in batch.domain or "\n" in batch.domain:
        raise BadInput(f"a domain may not contain '|' or a line break: {batch.domain[:200]!r}")


@dataclass(slots=True)
class _Opening:
    """A crawl whose run is asked for, once for all its submissions. Of those the first one's crawl counts."""

    crawl: Crawl
    packed: bytes
    shards: set[int] = field(default_factory=set)
    expiries: dict[str, int] = field(default_factory=dict)
    """Spider -> epoch ms, 0: never."""
    run: Run | None = None
    version: int = 0
    ended: str = ""
    refused: str = ""
    """Why nothing is taken."""

    def want(self, spider: str, expires: float) -> None:
        """The latest time that anybody asks for; never (0) is later than any."""
        at, known = round(expires * 1000), self.expires_of(spider)
        self.expiries[spider] = at if known is None else (at and known and max(at, known))

    def expires_of(self, spider: str) -> int | None:
        return self.expiries.get(spider)

    def arguments(self, token: str) -> list[Argument]:
        """As `open_many` takes them."""
        wishes = [part for wish in self.expiries.items() for part in wish]
        return [token, self.packed, ",".join(map(str, sorted(self.shards))), len(self.expiries), *wishes]

    def hear(self, reply: Sequence[bytes]) -> None:
        """What the home shard answered; one that has to be halted first, or has finished, stays without a run."""
        if reply[0] == b"refused":
            self.refused = refusal(self.crawl, reply)
        elif reply[0] == b"ok":
            crawl = self.crawl if reply[4] == self.packed else codec.unpack_crawl(reply[4])
            self.run = Run(crawl, int(reply[1]), int(reply[2]))
            self.version = int(reply[3])
            self.ended = ",".join(spider.decode() for spider in reply[5:])


def refusal(crawl: Crawl, reply: Sequence[bytes]) -> str:
    """Return why a home shard refused to open a crawl, from its reply."""
    whose = f"this spider's part of {crawl.id}" if len(reply) > 2 else f"{crawl.id}"
    return f"{whose} is {reply[1].decode()}"


async def submit(
    commands: ScriptCommands,
    submissions: Sequence[Submission],
    *,
    pack_terms: Callable[[Terms], codec.PackedTerms],
    retention_ms: int,
    one: Callable[[Submission], Awaitable[SubmissionResult]],
) -> list[Answer]:
    """One answer each, in order. `one` does what does not fit into a call with others, or has to wait for something."""
    # In parts, each on its way while the next is prepared: the servers and we do not wait for each other.
    size = _PART * commands.count
    parts = [submissions[first : first + size] for first in range(0, len(submissions), size)]
    answers = await every(
        _submit(commands, part, pack_terms=pack_terms, retention_ms=retention_ms, one=one) for part in parts
    )
    return [answer for part in answers for answer in part]


async def _submit(
    commands: ScriptCommands,
    submissions: Sequence[Submission],
    *,
    pack_terms: Callable[[Terms], codec.PackedTerms],
    retention_ms: int,
    one: Callable[[Submission], Awaitable[SubmissionResult]],
) -> list[Answer]:
    answers: dict[int, Answer] = {}
    alone: list[int] = []
    openings: dict[str, _Opening] = {}
    places: dict[int, tuple[int, _Opening]] = {}
    for index, submission in enumerate(submissions):
        try:
            shard = _only_shard(submission, commands.count)
        except BadInput as exc:
            answers[index] = exc
            continue
        if shard is None:
            alone.append(index)
            continue
        crawl = submission.crawl
        token = crawl.id.token
        opening = openings.get(token)
        if opening is None:
            opening = openings[token] = _Opening(crawl, codec.pack_crawl(crawl))
        opening.shards.add(shard)
        places[index] = shard, opening
        if submission.expires is not None:
            for batch in submission.batches:
                opening.want(batch.spider, submission.expires)
    await _open(commands, openings)

    calls: dict[int, list[tuple[tuple[int, Run], list[Argument]]]] = {}
    for index, (shard, opening) in places.items():
        submission = submissions[index]
        if opening.refused:
            answers[index] = CrawlRefused(opening.refused)
        elif opening.run is None:
            alone.append(index)
        else:
            try:
                arguments = _arguments(opening, opening.run, pack_terms(submission.terms), submission)
            except BadInput as exc:
                answers[index] = exc
            else:
                calls.setdefault(shard, []).append(((index, opening.run), arguments))

    async def add(shard: int, group: Sequence[tuple[tuple[int, Run], list[Argument]]]) -> None:
        head = (int(commands.count == 1), retention_ms)
        flat = [argument for _, arguments in group for argument in arguments]
        replies = await _call(commands, shard, "add_many", *head, *flat)
        for ((index, run), _), reply in zip(group, replies, strict=True):
            if reply[0] != b"ok":  # closed meanwhile, or an earlier run is in the way
                alone.append(index)
                continue
            submitted = answers[index] = SubmissionResult(run, AddResult())
            group_of_one = [(number, 0, batch) for number, batch in enumerate(submissions[index].batches)]
            if note_added(submitted.added, reply, group_of_one):
                await try_finish(commands, run.crawl.id.token, retention_ms=retention_ms)

    await every(add(shard, group) for shard, group in _split(calls))

    async def do_alone(index: int) -> None:
        try:
            answers[index] = await one(submissions[index])
        except (CrawlRefused, BadInput) as exc:
            answers[index] = exc

    await every(map(do_alone, alone))
    return [answers[index] for index in range(len(submissions))]


async def every(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What they give. Raises the first's error once none is under way any more: whoever repeats them does not meet
    them."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    for answer in found:
        if isinstance(answer, BaseException):
            raise answer
    return cast(list[T], found)


def _only_shard(submission: Submission, count: int) -> int | None:
    """Where all of it goes; None: to several shards, in several calls, what may be made only once, or to a fresh
    run."""
    check_names(submission.crawl.pool)
    shards, urls = set(), 0
    for batch in submission.batches:
        check_batch(batch)
        shards.add(shard_of(batch.domain, count))
        urls += _URLS_AT_ONCE if batch.unfiltered else len(batch.urls)
    return shards.pop() if len(shards) == 1 and urls < _URLS_AT_ONCE and not submission.fresh else None


async def _open(commands: ScriptCommands, openings: dict[str, _Opening]) -> None:
    by_home: dict[int, list[tuple[str, list[Argument]]]] = {}
    for token, opening in openings.items():
        home = home_shard(token, commands.count)
        by_home.setdefault(home, []).append((token, opening.arguments(token)))

    async def ask(home: int, group: Sequence[tuple[str, list[Argument]]]) -> None:
        flat = [argument for _, arguments in group for argument in arguments]
        replies = await _call(commands, home, "open_runs", *flat)
        for (token, _), reply in zip(group, replies, strict=True):
            openings[token].hear(reply)

    await every(ask(home, group) for home, group in _split(by_home))


async def _call(commands: ScriptCommands, shard: int, script: str, *arguments: Argument) -> Any:
    try:
        return await commands.call_confirmed(shard, script, *arguments)
    except FrontierFull as exc:
        raise await full(commands, shard, exc) from None


def _arguments(opening: _Opening, run: Run, packed: codec.PackedTerms, submission: Submission) -> list[Argument]:
    """As `add_many` takes them."""
    batches: list[Argument] = []
    for batch in submission.batches:
        batches += codec.batch_arguments(batch)
    crawl = opening.packed if run.crawl is opening.crawl else codec.pack_crawl(run.crawl)
    head: list[Argument] = [run.crawl.id.token, run.number, run.generation, crawl, packed.digest, packed.blob]
    return [*head, opening.version, opening.ended, len(batches), *batches]


def note_added(added: AddResult, reply: Sequence[Any], parts: Sequence[tuple[int, int, Batch]]) -> bool:
    """Enter an "ok" reply of `add` in `added`. `parts`: what was sent, as (index of the batch, offset in it, part).
    Returns whether the shard became idle."""
    _, new, duplicates, idle, known, rejected, strange = reply
    added.has_other_terms |= bool(strange)
    added.added += new
    added.duplicates += duplicates
    if known or rejected:
        where = [(index, offset + k) for index, offset, batch in parts for k in range(len(batch.urls))]
        added.duplicate_positions += [where[position] for position in known]
        added.rejected.update(
            (where[position], reason.decode()) for position, reason in zip(rejected[::2], rejected[1::2], strict=True)
        )
    return bool(idle)


def _split(calls: dict[int, list[tuple[T, list[Argument]]]]) -> Iterator[tuple[int, list[tuple[T, list[Argument]]]]]:
    """Each shard's rows in groups that a call may take."""
    for shard, rows in calls.items():
        group: list[tuple[T, list[Argument]]] = []
        size = 0
        for row in rows:
            size += _bytes(row[1])
            group.append(row)
            if len(group) == _AT_ONCE or size >= _BYTES_AT_ONCE:
                yield shard, group
                group, size = [], 0
        if group:
            yield shard, group


def _bytes(arguments: Iterable[Argument]) -> int:
    return sum([len(argument) for argument in arguments if isinstance(argument, (bytes, str))])


_LIFE_MS = 30 * 86400 * 1000
_ASK_AGAIN_SECONDS = 10.0


class ValkeySpiderRegistry:
    """Implements Spiders."""

    def __init__(self, commands: ScriptCommands, identity: FrontierIdentity) -> None:
        self._commands = commands
        self._identity = identity
        self._announced: dict[str, frozenset[Lane]] = {}
        self._asked = float("-inf")

    async def announce(self, lane: Lane, names: Collection[str]) -> None:
        await self._ask(lane, *names)

    async def refresh(self, names: Collection[str]) -> None:
        stale = time.monotonic() - self._asked >= _ASK_AGAIN_SECONDS
        if stale or not all(name in self._announced for name in names):
            await self._ask()

    def lanes(self, name: str) -> frozenset[Lane]:
        return self._announced.get(name, frozenset())

    def names(self) -> frozenset[str]:
        return frozenset(self._announced)

    def fingerprint(
        self,
        spider: str,
        url: str,
        *,
        method: str = "GET",
        body: bytes = b"",
        query_order: QueryOrder = QueryOrder.SIGNIFICANT,
    ) -> int:
        seed = spider_seed(self._identity.secret, spider)
        if self.lanes(spider) == {Lane.SCRAPY}:
            return fingerprint(scrapy_fingerprint(url, method=method, body=body), seed=seed)
        if query_order is QueryOrder.IGNORED:
            url = with_sorted_query(url)
        return fingerprint(url, seed=seed, method=method, body=body)

    async def _ask(self, *announcement: str) -> None:
        fast, scrapy = (
            {name.decode() for name in names}
            for names in await self._commands.call(0, "announce_spiders", _LIFE_MS, *announcement)
        )
        self._announced = {
            name: frozenset(lane for lane, known in ((Lane.FAST, fast), (Lane.SCRAPY, scrapy)) if name in known)
            for name in fast | scrapy
        }
        self._asked = time.monotonic()
