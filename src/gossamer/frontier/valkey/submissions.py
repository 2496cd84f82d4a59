"""Submits many requests at once: one call to each home shard opens their runs, one call to each shard adds their URLs.

A submission is a request to crawl some URLs, with its options (terms). A run is one life of a crawl, from its first
request until nothing is left. The state of a crawl is on its home shard, its URLs are on the shards of their domains.
A submission that does not fit into a call with others, or has to wait for something, is carried out alone.

Fixed: runs are opened before URLs are added, because the home shard must list a shard before it gets URLs of the run;
and all calls of a chunk have ended before one of its errors is raised, because the caller then repeats all
submissions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, TypeVar

import msgspec

from gossamer.errors import BadInput, CrawlRefused, FrontierFull
from gossamer.frontier.base import AddResult, RunFinished, Submission, SubmissionResult
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.additions import (
    URLS_A_CALL,
    RequestAdder,
    decode_opened,
    name_largest_crawl,
    record_added,
    refusal,
)
from gossamer.frontier.valkey.commands import Argument, ScriptCommands, gather_all
from gossamer.frontier.valkey.keys import check_batch, check_names, home_shard, shard_of
from gossamer.frontier.valkey.queries import stored_terms
from gossamer.frontier.valkey.runs import try_finish
from gossamer.model.crawl import Crawl, Run, Terms
from gossamer.model.request import Batch
from gossamer.policy.scope import covers

# Bounds of a call, so that it takes the server a few milliseconds. More make it longer, and the shard executes no other
# call meanwhile.
_SUBMISSIONS_A_CALL = 100
_BYTES_A_CALL = 1 << 20
_FINGERPRINTS_A_CALL = 5000

_SUBMISSIONS_A_CHUNK = 2 * _SUBMISSIONS_A_CALL
"""Submissions for each shard that are sent together. While the servers work on one chunk, the next is prepared. Larger
chunks take fewer calls and overlap less."""
_TERMS_COMPARED = 100
"""Terms of a crawl that new ones are compared with. Terms beyond them count as narrower: in the worst case a finished
crawl is fetched again. More cost time, only for URLs that were submitted before."""
_ANY_AGE_SECONDS = 1e12
"""Longer than any run has been over: a process of this age belongs to the last run, so that no run begins. May be any
number above the retention of crawls."""

T = TypeVar("T")

Answer = SubmissionResult | CrawlRefused | BadInput


class _Opening(msgspec.Struct):
    """A crawl whose run is opened once for all its submissions of a chunk. The first submission's crawl counts."""

    crawl: Crawl
    packed: bytes
    """The crawl as scripts take it."""
    shards: set[int] = msgspec.field(default_factory=set)
    """Shards that get URLs of the run. The home shard lists them."""
    expires: dict[str, int] = msgspec.field(default_factory=dict)
    """By spider, in epoch ms; 0: never."""
    run: Run | None = None
    """None: not opened yet, because queues of an earlier run are in the way, or the last run has finished."""
    version: int = 0
    """Version of the home record that confirms the run."""
    ended: str = ""
    """Spiders whose part of the crawl has ended, as scripts take them: each behind the letter of its end (see
    `runs.LETTERS`), joined by commas."""
    refused: str = ""
    """Reason why the crawl takes no requests. Empty: it does."""

    def request_expiry(self, spider: str, expires: float) -> None:
        """Keep the latest time (epoch seconds) that any submission requests; never (0) is later than any."""
        at, known = round(expires * 1000), self.expires.get(spider)
        if known is None:
            self.expires[spider] = at
        else:
            self.expires[spider] = 0 if 0 in (at, known) else max(at, known)

    def arguments(self, token: str) -> list[Argument]:
        """Return the arguments of `open_runs` for this crawl, which the script reads by position."""
        expires = [part for pair in self.expires.items() for part in pair]
        return [token, self.packed, ",".join(map(str, sorted(self.shards))), len(self.expires), *expires]

    def record(self, reply: Sequence[bytes]) -> None:
        """Record the reply of the home shard. After any other reply than these two, `run` stays None."""
        if reply[0] == b"refused":
            self.refused = refusal(self.crawl, reply)
        elif reply[0] == b"ok":
            self.run, self.version, self.ended = decode_opened(reply, self.crawl, self.packed)


class _Chunk(msgspec.Struct):
    """Submissions that are sent together, and what is known of each by its index."""

    submissions: Sequence[Submission]
    answers: dict[int, Answer] = msgspec.field(default_factory=dict)
    alone: list[int] = msgspec.field(default_factory=list)
    """Submissions to carry out one by one."""
    openings: dict[str, _Opening] = msgspec.field(default_factory=dict)
    """By crawl token."""
    places: dict[int, tuple[int, _Opening]] = msgspec.field(default_factory=dict)
    """Shard and opening of each submission that goes into a call with others."""


class _Verdict(Enum):
    """Comparison of a submission with a finished run."""

    KNOWN = auto()
    """The run has seen every URL, and followed links at least as far."""
    NEW = auto()
    """The run has not seen every URL."""
    WIDER = auto()
    """The run has seen some URLs, but under a smaller maxdepth or a narrower scope."""


class RequestSubmitter:
    """Implements `ValkeyFrontier.submit`."""

    def __init__(self, commands: ScriptCommands, adder: RequestAdder, *, retention_ms: int) -> None:
        self._commands = commands
        self._adder = adder
        self._retention_ms = retention_ms

    async def submit(self, submissions: Sequence[Submission]) -> list[Answer]:
        size = _SUBMISSIONS_A_CHUNK * self._commands.count
        chunks = [submissions[first : first + size] for first in range(0, len(submissions), size)]
        answers = [answer for chunk in await gather_all(map(self._submit_chunk, chunks)) for answer in chunk]
        for submission, answer in zip(submissions, answers, strict=True):
            if isinstance(answer, SubmissionResult) and answer.added.has_other_terms:
                answer.exceeds_earlier_terms = await self._exceeds_earlier_terms(submission)
        return answers

    # --- together -----------------------------------------------------------------------------------------------------

    async def _submit_chunk(self, submissions: Sequence[Submission]) -> list[Answer]:
        """Carry out some submissions: together where that is possible, then the others one by one."""
        chunk = _Chunk(submissions)
        self._plan_openings(chunk)
        await self._open_runs(chunk.openings)
        calls = self._plan_calls(chunk)
        await gather_all(self._add(chunk, shard, group) for shard, group in _split(calls))
        await gather_all(self._submit_alone(chunk, index) for index in chunk.alone)
        return [chunk.answers[index] for index in range(len(submissions))]

    def _plan_openings(self, chunk: _Chunk) -> None:
        """Sort the submissions: invalid ones are answered, others go to `alone` or, with an opening, to `places`."""
        for index, submission in enumerate(chunk.submissions):
            try:
                shard = _only_shard(submission, self._commands.count)
            except BadInput as exc:
                chunk.answers[index] = exc
                continue
            if shard is None:
                chunk.alone.append(index)
                continue
            token = submission.crawl.id.token
            opening = chunk.openings.get(token)
            if opening is None:
                opening = chunk.openings[token] = _Opening(submission.crawl, codec.pack_crawl(submission.crawl))
            opening.shards.add(shard)
            chunk.places[index] = shard, opening
            if submission.expires is not None:
                for batch in submission.batches:
                    opening.request_expiry(batch.spider, submission.expires)

    async def _open_runs(self, openings: Mapping[str, _Opening]) -> None:
        """Open the runs on their home shards, and record the replies."""
        by_home: dict[int, list[tuple[str, list[Argument]]]] = {}
        for token, opening in openings.items():
            home = home_shard(token, self._commands.count)
            by_home.setdefault(home, []).append((token, opening.arguments(token)))

        async def open_runs(home: int, group: Sequence[tuple[str, list[Argument]]]) -> None:
            arguments = [argument for _, arguments in group for argument in arguments]
            replies = await self._call(home, "open_runs", *arguments)
            for (token, _), reply in zip(group, replies, strict=True):
                openings[token].record(reply)

        await gather_all(open_runs(home, group) for home, group in _split(by_home))

    def _plan_calls(self, chunk: _Chunk) -> dict[int, list[tuple[int, list[Argument]]]]:
        """Return for each shard the indexes of its submissions, each with its arguments for `add_many`."""
        calls: dict[int, list[tuple[int, list[Argument]]]] = {}
        for index, (shard, opening) in chunk.places.items():
            submission = chunk.submissions[index]
            if opening.refused:
                chunk.answers[index] = CrawlRefused(opening.refused)
            elif opening.run is None:
                chunk.alone.append(index)
            else:
                packed = self._adder.pack_terms(submission.terms)
                try:
                    arguments = _add_arguments(opening, opening.run, packed, submission)
                except BadInput as exc:
                    chunk.answers[index] = exc
                else:
                    calls.setdefault(shard, []).append((index, arguments))
        return calls

    async def _add(self, chunk: _Chunk, shard: int, group: Sequence[tuple[int, list[Argument]]]) -> None:
        """Add the URLs of submissions (index, arguments) to one shard in one call."""
        head = (int(self._commands.count == 1), self._retention_ms)
        arguments = [argument for _, arguments in group for argument in arguments]
        replies = await self._call(shard, "add_many", *head, *arguments)
        for (index, _), reply in zip(group, replies, strict=True):
            _, opening = chunk.places[index]
            run = opening.run
            if reply[0] != b"ok" or run is None:  # closed meanwhile, or an earlier run's queues are in the way
                chunk.alone.append(index)
                continue
            result = chunk.answers[index] = SubmissionResult(run, AddResult())
            batches = chunk.submissions[index].batches
            if record_added(result.added, reply, [(number, 0, batch) for number, batch in enumerate(batches)]):
                await try_finish(self._commands, run.crawl.id.token, retention_ms=self._retention_ms)

    async def _call(self, shard: int, script: str, *arguments: Argument) -> Any:
        """Run a script that adds. An error for a full server names the largest crawl."""
        try:
            return await self._commands.call(shard, script, *arguments, confirmed=True)
        except FrontierFull as exc:
            raise await name_largest_crawl(self._commands, shard, exc) from None

    # --- alone --------------------------------------------------------------------------------------------------------

    async def _submit_alone(self, chunk: _Chunk, index: int) -> None:
        """Submit one submission of a chunk in calls of its own. A refusal becomes its answer."""
        try:
            chunk.answers[index] = await self._submit_one(chunk.submissions[index])
        except (CrawlRefused, BadInput) as exc:
            chunk.answers[index] = exc

    async def _submit_one(self, submission: Submission) -> SubmissionResult:
        """Open or join a run and add the URLs, unless the last run has finished and has seen them all.

        A fresh run forgets what the crawl has seen. What happens depends on the crawl's last run:
        - none: the first run begins
        - running: it is joined, also by a submission that wants a fresh run
        - finished, and the submission wants a fresh run: that begins. If an earlier attempt of this submission has
          begun it already, and it has finished: a normal run begins for URLs that are new; else nothing is to be added
        - finished otherwise: a fresh run begins if the terms are wider than those of the last run; else a normal run
          begins if some URL is new; else nothing is to be added

        Each round of the loop tries one of these. Another process may begin or finish a run in between.
        """
        crawl, terms, batches, at = submission.crawl, submission.terms, submission.batches, submission.expires
        expires = {} if at is None else {batch.spider: at for batch in batches}
        open_fresh = submission.fresh  # whether to ask for a fresh run
        may_begin = submission.fresh  # whether a run may follow a finished one; False: RunFinished instead
        while True:
            try:
                run = await self._adder.open_crawl(
                    crawl,
                    fresh=open_fresh,
                    expires=expires,
                    process_age_seconds=None if may_begin else _ANY_AGE_SECONDS,
                    idempotency_key=submission.idempotency_key,
                )
                break
            except RunFinished as finished:
                verdict = await self._compare(finished.run, terms, batches)
                if open_fresh:  # the fresh run that an earlier attempt began (by the idempotency key) has finished
                    nothing_to_add = verdict is not _Verdict.NEW
                    open_fresh = False
                else:
                    nothing_to_add = verdict is _Verdict.KNOWN and not submission.fresh
                    open_fresh = submission.fresh or verdict is _Verdict.WIDER
                if nothing_to_add:
                    return SubmissionResult(finished.run, _all_duplicates(batches))
                may_begin = True
            except CrawlRefused:
                if not open_fresh:
                    raise
                open_fresh = may_begin = False  # a run is running: join it
        added = await self._adder.add(run, terms, batches, seeds=True)
        return SubmissionResult(run, added, joined_running=submission.fresh and not open_fresh)

    # --- comparing with earlier submissions ---------------------------------------------------------------------------

    async def _compare(self, run: Run, terms: Terms, batches: Sequence[Batch]) -> _Verdict:
        """Compare a submission with a finished run. Changes nothing."""
        token, packed = run.crawl.id.token, self._adder.pack_terms(terms)
        by_shard: dict[int, list[int]] = {}
        for batch in batches:
            if not batch.unfiltered:
                by_shard.setdefault(shard_of(batch.domain, self._commands.count), []).extend(batch.fingerprints)

        async def compare_on(shard: int, fingerprints: Sequence[int]) -> tuple[int, bool]:
            """Return how many the run has seen, and whether the submission's terms are wider."""
            seen, has_other_terms = 0, False
            for first in range(0, len(fingerprints), _FINGERPRINTS_A_CALL):
                some = fingerprints[first : first + _FINGERPRINTS_A_CALL]
                count, known_terms = await self._commands.call(
                    shard, "count_seen", token, run.number, run.generation, packed.digest, packed.blob, *some
                )
                seen += count
                has_other_terms |= bool(count) and not known_terms
            return seen, has_other_terms and await self._is_wider(shard, token, terms)

        found = await gather_all(compare_on(shard, fingerprints) for shard, fingerprints in by_shard.items())
        if any(wider for _, wider in found):
            return _Verdict.WIDER
        url_count = sum(len(batch.urls) for batch in batches)
        return _Verdict.KNOWN if sum(seen for seen, _ in found) == url_count else _Verdict.NEW

    async def _exceeds_earlier_terms(self, submission: Submission) -> bool:
        """Return whether the submission asks for more than the earlier ones on some shard of its URLs."""
        shards = {shard_of(batch.domain, self._commands.count) for batch in submission.batches}
        token, terms = submission.crawl.id.token, submission.terms
        return any(await gather_all(self._is_wider(shard, token, terms) for shard in shards))

    async def _is_wider(self, shard: int, token: str, terms: Terms) -> bool:
        """Return whether the terms ask for more than all others under which the crawl queued anything on this shard."""
        if terms.maxdepth == 0:  # only the URL itself is wanted
            return False
        blob = self._adder.pack_terms(terms).blob
        stored = await stored_terms(self._commands, shard, token, limit=_TERMS_COMPARED)
        others = [codec.unpack_stored_terms(raw) for raw in stored[:_TERMS_COMPARED] if raw != blob]
        return not any(covers(other, terms) for other in others)


def _only_shard(submission: Submission, shard_count: int) -> int | None:
    """Return the shard that takes the whole submission in a call with others. None: it must be carried out alone,
    because it goes to several shards or is too large, has a batch that may be added only once, or asks for a fresh
    run."""
    check_names(submission.crawl.pool)
    shards: set[int] = set()
    url_count = 0
    for batch in submission.batches:
        check_batch(batch)
        shards.add(shard_of(batch.domain, shard_count))
        url_count += URLS_A_CALL if batch.unfiltered else len(batch.urls)
    return shards.pop() if len(shards) == 1 and url_count < URLS_A_CALL and not submission.fresh else None


def _add_arguments(opening: _Opening, run: Run, packed: codec.PackedTerms, submission: Submission) -> list[Argument]:
    """Return the arguments of `add_many` for one submission, which the script reads by position."""
    crawl = opening.packed if run.crawl is opening.crawl else codec.pack_crawl(run.crawl)
    head: list[Argument] = [run.crawl.id.token, run.number, run.generation, crawl, packed.digest, packed.blob]
    batches = map(codec.pack_batch, submission.batches)
    return [*head, opening.version, opening.ended, len(submission.batches), *batches]


def _split(calls: Mapping[int, list[tuple[T, list[Argument]]]]) -> Iterator[tuple[int, list[tuple[T, list[Argument]]]]]:
    """Yield each shard's rows in groups that one call may take."""
    for shard, rows in calls.items():
        group: list[tuple[T, list[Argument]]] = []
        size = 0
        for row in rows:
            _, arguments = row
            size += _byte_count(arguments)
            group.append(row)
            if len(group) == _SUBMISSIONS_A_CALL or size >= _BYTES_A_CALL:
                yield shard, group
                group, size = [], 0
        if group:
            yield shard, group


def _byte_count(arguments: Iterable[Argument]) -> int:
    """Return the size of the texts among the arguments, nearly that of all."""
    return sum([len(argument) for argument in arguments if isinstance(argument, (bytes, str))])


def _all_duplicates(batches: Sequence[Batch]) -> AddResult:
    """Return the result of an addition in which every URL was a duplicate."""
    places = [(index, position) for index, batch in enumerate(batches) for position in range(len(batch.urls))]
    return AddResult(duplicates=len(places), duplicate_positions=places)
