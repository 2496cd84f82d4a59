"""The frontier on Valkey or Redis: every verb is one script per shard; what crosses shards is in `finishing`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import msgspec

from gossamer.errors import BadInput, CrawlRefused
from gossamer.frontier.base import AddResult, ClaimResult, RunFinished, Submission, SubmissionResult
from gossamer.frontier.valkey import codec, info, listing
from gossamer.frontier.valkey import info as run_events
from gossamer.frontier.valkey import listing as lookup
from gossamer.frontier.valkey.adding import RequestAdder
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.finishing import carry_out, finish_idle, read_home
from gossamer.frontier.valkey.identity import FrontierIdentity
from gossamer.frontier.valkey.keys import home_shard, shard_of
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.frontier.valkey.maintenance import ShardMaintenance
from gossamer.frontier.valkey.policies import (
    policies_version,
    read_policies,
    read_policy,
    replace_policies,
    set_policy,
)
from gossamer.frontier.valkey.resubmitting import FinishedRun, is_wider, recall
from gossamer.frontier.valkey.submitting import ValkeySpiderRegistry, check_names, every, submit
from gossamer.model.crawl import Crawl, CrawlEvent, CrawlId, CrawlState, DomainPolicy, Rate, Run, Terms
from gossamer.model.info import AppInfo, Backlog, CrawlInfo, DomainInfo, UrlInfo, WorkerInfo
from gossamer.model.request import Batch
from gossamer.valkey.shards import Shards

_MOST_TERMS = 100
_EVER = 1e12
"""Seconds: longer than any run has been over."""

_ROBOTS_BYTES_A_DOMAIN = 8 * 1024 * 1024
"""About as much as a domain's robots.txt records may take together: tens of thousands that are absent, as where every
user has a host, but not 500 KiB for each of the hosts that somebody makes up without end."""
_CRAWL_DELAY_LIFE_MS = 24 * 3600 * 1000


_CLAIM_MS = 20_000
_CLAIMS_KEPT_MS = 30 * 86400 * 1000


class ValkeyFrontier:
    """Implements Frontier. Use `connect`."""

    def __init__(
        self,
        commands: ScriptCommands,
        *,
        identity: FrontierIdentity,
        heartbeat_seconds: float,
        retention_seconds: float,
        stop_marker_seconds: float,
        clock: Callable[[], float] | None,
    ) -> None:
        self._commands = commands
        self._identity = identity
        self.spiders = ValkeySpiderRegistry(commands, identity)
        self._heartbeat_ms = int(heartbeat_seconds * 1000)
        self._retention_ms = int(retention_seconds * 1000)
        self._stop_marker_ms = int(stop_marker_seconds * 1000)
        self._clock = clock
        self._adding = RequestAdder(commands, retention_ms=self._retention_ms)
        self._keeping = ShardMaintenance(
            commands, identity, heartbeat_ms=self._heartbeat_ms, retention_ms=self._retention_ms
        )

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        prefix: str = "gossamer",
        shards: int | None = None,
        heartbeat_seconds: float = 10.0,
        retention_seconds: float = 86400.0,
        stop_marker_seconds: float = 30 * 86400.0,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Join the frontier at this address, or make it with so many shards (None: as it is, or 1).

        `heartbeat_seconds`: after so long without a sign a worker counts as dead; `retention_seconds`: how long a
        finished crawl is remembered; `stop_marker_seconds`: how long a stopped one is refused. `clock`: for tests only.
        Raises FrontierUnavailable, FrontierIncompatible, BadInput for an address that is none.
        """
        connection = await Shards.connect(address)
        try:
            return await cls.from_connection(
                connection,
                prefix=prefix,
                shards=shards,
                heartbeat_seconds=heartbeat_seconds,
                retention_seconds=retention_seconds,
                stop_marker_seconds=stop_marker_seconds,
                clock=clock,
            )
        except BaseException:
            await connection.close()
            raise

    @classmethod
    async def from_connection(
        cls,
        connection: Shards,
        *,
        prefix: str = "gossamer",
        shards: int | None = None,
        heartbeat_seconds: float = 10.0,
        retention_seconds: float = 86400.0,
        stop_marker_seconds: float = 30 * 86400.0,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """The same over connections that are there already; closed with the frontier."""
        commands, identity = await FrontierIdentity.open(connection, prefix=prefix, shards=shards, clock=clock)
        return cls(
            commands,
            identity=identity,
            heartbeat_seconds=heartbeat_seconds,
            retention_seconds=retention_seconds,
            stop_marker_seconds=stop_marker_seconds,
            clock=clock,
        )

    @property
    def secret(self) -> int:
        return self._identity.secret

    @property
    def era(self) -> int:
        return self._commands.shards.era

    @property
    def reclaimed(self) -> int:
        return self._keeping.reclaimed

    @property
    def lost_shards(self) -> int:
        return self._identity.lost_shards

    async def check_data(self) -> None:
        await self._identity.check()

    @property
    def connection(self) -> Shards:
        """The connections to its servers; closed with the frontier."""
        return self._commands.shards

    @property
    def memory_only_servers(self) -> Sequence[str]:
        """The servers that kept nothing on disk when they were connected to."""
        return self._commands.shards.memory_only

    @property
    def shard_count(self) -> int:
        return self._commands.count

    def shard_of(self, domain: str) -> int:
        return shard_of(domain, self._commands.count)

    # --- submitting ---------------------------------------------------------------------------------------------------

    async def open_crawl(
        self,
        crawl: Crawl,
        *,
        fresh: bool = False,
        expires: Mapping[str, float] | None = None,
        process_age_seconds: float | None = None,
        idempotency_key: str = "",
    ) -> Run:
        return await self._adding.open_crawl(
            crawl,
            fresh=fresh,
            expires=expires,
            process_age_seconds=process_age_seconds,
            idempotency_key=idempotency_key,
        )

    async def set_crawl_limits(self, run: Run, *, rate: Rate | None, concurrency: int | None) -> Run:
        crawl = msgspec.structs.replace(run.crawl, rate=rate, concurrency=concurrency)
        home = await read_home(self._commands, crawl.id.token)
        shards = {home_shard(crawl.id.token, self._commands.count), *(home.shards if home else ())}
        wish = (crawl.id.token, run.number, codec.pack_crawl(crawl))
        await asyncio.gather(*(self._commands.call_confirmed(shard, "set_requested_rate", *wish) for shard in shards))
        return msgspec.structs.replace(run, crawl=crawl)

    async def add(self, run: Run, terms: Terms, batches: Sequence[Batch], *, seeds: bool = False) -> AddResult:
        return await self._adding.add(run, terms, batches, seeds=seeds)

    async def submit(self, submissions: Sequence[Submission]) -> list[SubmissionResult | CrawlRefused | BadInput]:
        answers = await submit(
            self._commands,
            submissions,
            pack_terms=self._adding.pack_terms,
            retention_ms=self._retention_ms,
            one=self._submit_one,
        )
        for submission, answer in zip(submissions, answers, strict=True):
            if isinstance(answer, SubmissionResult) and answer.added.has_other_terms:
                answer.exceeds_earlier_terms = await self._is_wider(submission)
        return answers

    async def _is_wider(self, submission: Submission) -> bool:
        token, terms = submission.crawl.id.token, submission.terms
        shards = {shard_of(batch.domain, self._commands.count) for batch in submission.batches}
        packed = self._adding.pack_terms(terms)
        found = await every(is_wider(self._commands, shard, token, terms, packed) for shard in shards)
        return any(found)

    async def _submit_one(self, submission: Submission) -> SubmissionResult:
        expires = submission.expires
        spiders = {} if expires is None else {batch.spider: expires for batch in submission.batches}
        crawl, terms, batches = submission.crawl, submission.terms, submission.batches
        fresh, begin = submission.fresh, submission.fresh
        while True:
            try:
                age_seconds = None if begin else _EVER
                run = await self.open_crawl(
                    crawl,
                    fresh=fresh,
                    expires=spiders,
                    process_age_seconds=age_seconds,
                    idempotency_key=submission.idempotency_key,
                )
                break
            except RunFinished as finished:
                verdict = await recall(self._commands, self._adding, finished.run, terms, batches)
                repeated = fresh  # its fresh run has finished; only what did not get into that is added
                if (
                    verdict is not FinishedRun.NEW
                    if repeated
                    else verdict is FinishedRun.KNOWN and not submission.fresh
                ):
                    return SubmissionResult(finished.run, _all_known(batches))
                fresh, begin = not repeated and (submission.fresh or verdict is FinishedRun.WIDER), True
            except CrawlRefused:
                if not fresh:
                    raise
                fresh = begin = False  # a run is running: join it
        added = await self._adding.add(run, terms, batches, seeds=True)
        return SubmissionResult(run, added, joined_running=submission.fresh and not fresh)

    # --- working ------------------------------------------------------------------------------------------------------

    async def open_leaseholder(self, *, pool: str, spiders: Sequence[str], egress: str = "") -> ValkeyLeaseholder:
        check_names(pool, egress, *spiders)
        holder = ValkeyLeaseholder(
            self._commands,
            pool=pool,
            spiders=spiders,
            egress=egress,
            heartbeat_ms=self._heartbeat_ms,
            retention_ms=self._retention_ms,
            clock=self._clock,
        )
        await holder.start()
        return holder

    async def heartbeat_for(self, shard: int, name: str) -> None:
        await self._commands.call(shard, "heartbeat", name, self._heartbeat_ms)

    async def claim(self, run: Run, names: Sequence[str], *, owner: str) -> list[ClaimResult]:
        token = run.crawl.id.token
        home = home_shard(token, self._commands.count)
        answers = await self._commands.call_confirmed(
            home, "claim", token, run.generation, owner, _CLAIM_MS, _CLAIMS_KEPT_MS, *names
        )
        return [ClaimResult(answer) for answer in answers]

    def clone(self) -> "ValkeyFrontier":
        commands = self._commands
        return ValkeyFrontier(
            ScriptCommands(
                commands.shards.clone(),
                prefix=commands.prefix,
                count=commands.count,
                clock=self._clock,
            ),
            identity=self._identity,
            heartbeat_seconds=self._heartbeat_ms / 1000,
            retention_seconds=self._retention_ms / 1000,
            stop_marker_seconds=self._stop_marker_ms / 1000,
            clock=self._clock,
        )

    async def maintain(self, *, declare_dead: bool = True, shard: int | None = None) -> int:
        return await self._keeping.maintain(declare_dead=declare_dead, shard=shard)

    # --- asking -------------------------------------------------------------------------------------------------------

    async def crawl_info(self, crawl: CrawlId) -> CrawlInfo | None:
        [found] = await listing.crawl_infos(self._commands, [crawl])
        return found

    async def list_crawls(
        self, *, appid: str | None = None, state: CrawlState | None = None, cursor: str = "", limit: int = 100
    ) -> tuple[list[CrawlInfo], str]:
        return await listing.crawl_page(self._commands, appid=appid, state=state, cursor=cursor, limit=limit)

    async def app_info(self, appid: str, *, spider: str = "") -> AppInfo:
        return await listing.app_info(self._commands, appid, spider=spider)

    async def first_domains(self, crawls: Sequence[CrawlId], *, limit: int) -> list[list[DomainInfo]]:
        return await listing.first_domains(self._commands, crawls, limit=limit)

    async def crawl_domains(
        self, crawl: CrawlId, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[DomainInfo], str]:
        token = crawl.token
        at, inner = listing.read_cursor(cursor, self._commands.count, begin="0")
        domains: list[DomainInfo] = []
        while at < self._commands.count and len(domains) < limit:
            inner_bytes, row = await self._commands.plain(
                at, "HSCAN", self._commands.keys[at].shares(token), inner, "COUNT", limit
            )
            domains += [d for d in (info.domain_info(k, v) for k, v in info.pairs(row).items()) if d.by_priority]
            inner = inner_bytes.decode()
            if inner == "0":
                at += 1
        return domains, listing.next_cursor(at, inner, self._commands.count)

    async def list_crawl_ids(
        self, *, appid: str | None = None, cursor: str = "", limit: int = 100
    ) -> tuple[list[CrawlId], str]:
        return await listing.crawls(self._commands, appid=appid, cursor=cursor, limit=limit)

    async def latest_run(self, crawl: CrawlId) -> Run | None:
        home = await read_home(self._commands, crawl.token)
        return Run(home.crawl, home.run, home.generation) if home else None

    async def crawl_terms(self, crawl: CrawlId) -> list[Terms]:
        return await listing.terms_of(self._commands, crawl, most=_MOST_TERMS)

    async def workers(self) -> list[WorkerInfo]:
        return await listing.workers(self._commands, heartbeat_ms=self._heartbeat_ms)

    async def backlog(self) -> list[Backlog]:
        return await listing.backlog(self._commands)

    async def backlog_domains(
        self, spider: str, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[tuple[str, int]], str]:
        return await listing.backlog_domains(self._commands, spider, cursor=cursor, limit=limit)

    async def find_url(self, run: Run, *, spider: str, domain: str, url: str, fingerprint: int) -> UrlInfo:
        shard = shard_of(domain, self._commands.count)
        return await lookup.find(
            self._commands, shard, run, spider=spider, domain=domain, url=url, fingerprint=fingerprint
        )

    # --- steering -----------------------------------------------------------------------------------------------------

    async def stop_crawl(
        self, crawl: CrawlId, *, spider: str | None = None, state: CrawlState = CrawlState.STOPPED
    ) -> int:
        token = crawl.token
        home = home_shard(token, self._commands.count)
        known = await self._commands.call_confirmed(
            home, "stop_crawl", token, state.value, spider or "", self._stop_marker_ms, self._retention_ms
        )
        return await carry_out(self._commands, token, retention_ms=self._retention_ms) if known else 0

    async def expire_due(self, *, limit: int = 100, shard: int | None = None) -> int:
        return await run_events.expire_due(
            self._commands,
            limit=limit,
            stop_marker_ms=self._stop_marker_ms,
            retention_ms=self._retention_ms,
            shard=shard,
        )

    async def finish_idle(self, *, limit: int = 100, shard: int | None = None) -> int:
        shards = range(self._commands.count) if shard is None else (shard,)
        retention_ms = self._retention_ms
        return sum(
            await asyncio.gather(
                *(finish_idle(self._commands, one, limit=limit, retention_ms=retention_ms) for one in shards)
            )
        )

    async def pending_events(
        self, *, limit: int = 100, shard: int | None = None, publisher: str = ""
    ) -> list[CrawlEvent]:
        return await run_events.untold(self._commands, limit=limit, shard=shard, publisher=publisher)

    async def acknowledge_events(self, events: Sequence[CrawlEvent]) -> None:
        await run_events.forget(self._commands, events)

    async def domain_policy(self, domain: str | None) -> DomainPolicy:
        return await read_policy(self._commands, domain)

    async def set_domain_policy(
        self, domain: str | None, policy: DomainPolicy | None, *, expected: DomainPolicy | None = None
    ) -> None:
        await set_policy(self._commands, domain, policy, expected=expected)

    async def domain_policies(self) -> tuple[DomainPolicy, dict[str, DomainPolicy]]:
        return await read_policies(self._commands)

    async def policies_version(self) -> int:
        return await policies_version(self._commands)

    async def replace_policies(
        self, default: DomainPolicy, policies: Mapping[str, DomainPolicy], *, expected_version: int
    ) -> int:
        return await replace_policies(self._commands, default, policies, expected_version=expected_version)

    async def block_domain(self, domain: str, *, seconds: float) -> None:
        shard = shard_of(domain, self._commands.count)
        await self._commands.call_confirmed(shard, "block_domain", domain, seconds * 1000, "", _CRAWL_DELAY_LIFE_MS)

    async def set_crawl_delay(self, domain: str, *, seconds: float) -> None:
        shard = shard_of(domain, self._commands.count)
        await self._commands.call_confirmed(shard, "block_domain", domain, "", seconds * 1000, _CRAWL_DELAY_LIFE_MS)

    async def load_robots(self, domain: str, origin: str) -> bytes | None:
        shard = shard_of(domain, self._commands.count)
        record: bytes | None = await self._commands.plain(shard, "GET", self._commands.keys[shard].robots(origin))
        return record

    async def claim_robots(self, domain: str, origin: str, *, seconds: float) -> bool:
        shard = shard_of(domain, self._commands.count)
        key = self._commands.keys[shard].robots_claim(origin)
        return await self._commands.plain(shard, "SET", key, "1", "NX", "PX", int(seconds * 1000)) is not None

    async def save_robots(self, domain: str, origin: str, record: bytes, *, ttl_seconds: float) -> None:
        shard = shard_of(domain, self._commands.count)
        life_ms = max(1, int(ttl_seconds * 1000))
        await self._commands.call(shard, "save_robots", domain, origin, record, life_ms, _ROBOTS_BYTES_A_DOMAIN)

    async def release_robots_claim(self, domain: str, origin: str) -> None:
        shard = shard_of(domain, self._commands.count)
        await self._commands.plain(shard, "DEL", self._commands.keys[shard].robots_claim(origin))

    async def close(self) -> None:
        await self._commands.shards.close()


def _all_known(batches: Sequence[Batch]) -> AddResult:
    """Every URL is a duplicate."""
    known = [(index, position) for index, batch in enumerate(batches) for position in range(len(batch.urls))]
    return AddResult(duplicates=len(known), duplicate_positions=known)
