"""Fills a run with requests that were done before the frontier, the store of requests, lost them.

A run is one life of a crawl. Its shards are the servers that have its requests, by domain; its home shard decides when
it ends. Fixed: the run is held open before the first request is entered, because a run in which nothing waits is
finished at once, and released after the last.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from gossamer.errors import CrawlRefused
from gossamer.frontier.base import RestoredRequest
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.additions import RequestAdder
from gossamer.frontier.valkey.commands import Argument, ScriptCommands, gather_all
from gossamer.frontier.valkey.keys import home_shard, shard_of
from gossamer.frontier.valkey.runs import call_after_purge, run_arguments, try_finish
from gossamer.model.crawl import Crawl, Run, Terms
from gossamer.model.request import Outcome

_REQUESTS_A_CALL = 1000
"""Requests that one call enters, which takes the server a few milliseconds."""
_LETTERS = {Outcome.FAILED: "F", Outcome.DROPPED: "D"}
"""Letters of the counters (KeyPattern.COUNTERS) by outcome."""


class RunRestorer:
    """Enters requests with their results into a run of a crawl. All calls may be repeated, also by another process:
    what was entered before changes nothing."""

    def __init__(
        self, commands: ScriptCommands, adder: RequestAdder, crawl: Crawl, terms: Terms, *, retention_ms: int
    ) -> None:
        self._commands = commands
        self._adder = adder
        self._crawl = crawl
        self._terms = terms
        self._retention_ms = retention_ms

    async def open(self, *, expires: Mapping[str, float] = MappingProxyType({})) -> Run:
        """Open the run, or join the running one, and hold it open. Raises CrawlRefused for a crawl that was stopped or
        has expired. `expires`: as for `ValkeyFrontier.open_crawl`."""
        run = await self._adder.open_crawl(
            self._crawl, fresh=False, expires=expires, process_age_seconds=None, idempotency_key=""
        )
        await self.hold(run)
        return run

    async def hold(self, run: Run) -> None:
        """Hold a run open until `release`."""
        await self._call(run, home_shard(self._crawl.id.token, self._commands.count), "hold")

    async def enter(self, run: Run, requests: Sequence[RestoredRequest]) -> int:
        """Enter requests; returns how many were not known. Of two with one fingerprint, the first counts."""
        by_shard: dict[int, list[RestoredRequest]] = {}
        for request in requests:
            by_shard.setdefault(shard_of(request.domain, self._commands.count), []).append(request)
        calls = [
            (shard, some[first : first + _REQUESTS_A_CALL])
            for shard, some in by_shard.items()
            for first in range(0, len(some), _REQUESTS_A_CALL)
        ]
        replies = await gather_all(self._call(run, shard, "enter", *_groups(some)) for shard, some in calls)
        return sum(int(entered) for _, entered, _ in replies)

    async def release(self, run: Run) -> None:
        """Hold the run open no longer: it is finished if nothing is left to do."""
        _, _, idle = await self._call(run, home_shard(self._crawl.id.token, self._commands.count), "release")
        if idle:
            await try_finish(self._commands, self._crawl.id.token, retention_ms=self._retention_ms)

    async def _call(self, run: Run, shard: int, step: str, *groups: bytes) -> Any:
        """Return the reply of restore.lua, which reads these arguments by position. Raises CrawlRefused."""
        version = 0  # the home shard was not asked
        if self._adder.unlisted(run, [shard]):
            run, version = await self._confirmed(run, shard)
        packed = self._adder.pack_terms(self._terms)
        while True:
            arguments: list[Argument] = [
                *run_arguments(self._commands, run), packed.digest, packed.blob, version, self._adder.ended(run),
                self._retention_ms, step, *groups,
            ]  # fmt: skip
            call = partial(self._commands.call, shard, "restore", *arguments, confirmed=True)
            reply = await call_after_purge(self._commands, shard, call, blocked=b"purging")
            if reply[0] != b"closed":
                return reply
            run, version = await self._confirmed(run, shard)

    async def _confirmed(self, run: Run, shard: int) -> tuple[Run, int]:
        """Confirm the run on its home shard, which then lists the shard. Raises CrawlRefused where it is over."""
        confirmed = await self._adder.confirm(run, [shard], seeds=False)
        if confirmed is None:
            raise CrawlRefused(f"the run {run.number} of {run.crawl.id} has ended while it was filled again")
        return confirmed


def _groups(requests: Sequence[RestoredRequest]) -> list[bytes]:
    """Return requests as restore.lua takes them: a list for each spider and domain."""
    groups: dict[tuple[str, str], list[object]] = {}
    for one in requests:
        name = codec.stored_name(one.spider, render=one.render)
        counter = ""
        if one.outcome is Outcome.FETCHED:
            counter = f"f:{name}"
        elif one.outcome is not None:
            counter = f"{_LETTERS[one.outcome]}:{name}:{one.reason}"
        group = groups.setdefault((name, one.domain), [name, one.domain])
        group += (str(one.fingerprint), counter, one.priority, one.depth, one.kept_url)
    return [codec.pack_values(group) for group in groups.values()]
