"""The frontier on Valkey or Redis: the store of the requests that wait, which leases them to workers.

Its keys are divided into shards: a domain's queues are on the shard of the domain, the state of a crawl is on the
crawl's home shard. Most operations are one Lua script on one shard; those that span shards, such as the end of a run
(one life of a crawl, from its first request until nothing is left), are in `runs.py`.

This class only hands each call to the module that carries it out. Fixed: the signatures, which are those of `Frontier`,
and which shard has what (`shard_of`, `home_shard`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import msgspec

from gossamer.errors import BadInput, CrawlRefused
from gossamer.frontier.base import AddResult, ClaimResult, Submission, SubmissionResult
from gossamer.frontier.valkey import codec, queries, runs
from gossamer.frontier.valkey import policies as policy_store
from gossamer.frontier.valkey.additions import RequestAdder
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.identity import FrontierIdentity, ValkeySpiderRegistry
from gossamer.frontier.valkey.keys import KeyPattern, check_names, home_shard, shard_of
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.frontier.valkey.maintenance import ShardMaintenance
from gossamer.frontier.valkey.submissions import RequestSubmitter
from gossamer.model.crawl import Crawl, CrawlEvent, CrawlId, CrawlState, DomainPolicy, Rate, Run, Terms
from gossamer.model.info import AppInfo, Backlog, CrawlInfo, DomainInfo, UrlInfo, WorkerInfo
from gossamer.model.request import Batch
from gossamer.valkey.shards import Shards

_MAX_TERMS = 100
"""Maximum number of terms (the options of one submission) that `crawl_terms` returns. More make the call slower.
`Frontier.crawl_terms` names the 100, too."""
_CLAIM_MS = 20_000
"""Life of a claim (of a task that is done once in a crawl) that its owner does not renew. May be longer, which delays
the start items of a process that died. Must stay well above `_RENEW_SECONDS` in `scrapy/start.py` (5 s), or two
processes handle the same item. `Frontier.claim` and `StartClaims` name the 20 s, too."""
_CLAIMS_KEPT_MS = 30 * 86400 * 1000
"""Life of the record of a crawl's claims after the last change. May be longer; if it is shorter, a crawl that is
resumed later repeats its start items. `Frontier.claim` and `KeyPattern.ONCE` name the 30 days, too."""
_KEY_OF_ITEM = "item:"
"""Beginning of the names under which keys of items are claimed, beside the tasks of a crawl. Must not change, or a
crawl that is resumed writes items again."""
_CRAWL_DELAY_KEPT_MS = 24 * 3600 * 1000
"""Life of a domain's crawl delay after it was last set. May be longer. Must stay longer than `_DELAY_REFRESH_SECONDS`
in `worker/robots.py`, after which a worker that still finds the delay in robots.txt sets it again."""
_ROBOTS_BYTES_A_DOMAIN = 8 * 1024 * 1024
"""Approximate limit on the total size of one domain's robots.txt records. Fewer bytes cause more fetches of robots.txt,
more take memory of the server. These are enough for tens of thousands of records of an absent robots.txt (a site with a
host for every user), and bound a site that invents hosts with 500 KiB of robots.txt each."""

# Defaults of `connect` and `from_connection`, where their meaning stands. All processes of a frontier must have the
# same values at any time.
_DEAD_AFTER_SECONDS = 10.0
_RETENTION_SECONDS = 86400.0
_STOP_MARKER_SECONDS = 30 * 86400.0


class ValkeyFrontier:
    """Implements Frontier, where the methods are described. Made by `connect`."""

    def __init__(
        self,
        commands: ScriptCommands,
        *,
        identity: FrontierIdentity,
        dead_after_seconds: float,
        retention_seconds: float,
        stop_marker_seconds: float,
        clock: Callable[[], float] | None,
    ) -> None:
        self._commands = commands
        self._identity = identity
        self.spiders = ValkeySpiderRegistry(commands, identity)
        self._dead_after_ms = int(dead_after_seconds * 1000)
        self._retention_ms = int(retention_seconds * 1000)
        self._stop_marker_ms = int(stop_marker_seconds * 1000)
        self._clock = clock
        self._adder = RequestAdder(commands, retention_ms=self._retention_ms)
        self._submitter = RequestSubmitter(commands, self._adder, retention_ms=self._retention_ms)
        self._maintenance = ShardMaintenance(
            commands, identity, dead_after_ms=self._dead_after_ms, retention_ms=self._retention_ms
        )

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        prefix: str = "gossamer",
        shards: int | None = None,
        dead_after_seconds: float = _DEAD_AFTER_SECONDS,
        retention_seconds: float = _RETENTION_SECONDS,
        stop_marker_seconds: float = _STOP_MARKER_SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Join the frontier at this address, or create it.

        `shards`: number of shards; None: that of the existing frontier, or 1 for a new one. It cannot be changed later.
        `dead_after_seconds`: a worker whose last call is longer ago counts as dead; workers send heartbeats more often.
        All processes of a frontier should have the same value. `retention_seconds`: how long a finished crawl is kept.
        `stop_marker_seconds`: how long new requests for a stopped crawl are refused. `clock`: for tests only. Raises
        FrontierUnavailable, FrontierIncompatible, and BadInput for an invalid address.
        """
        connection = await Shards.connect(address)
        try:
            return await cls.from_connection(
                connection,
                prefix=prefix,
                shards=shards,
                dead_after_seconds=dead_after_seconds,
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
        dead_after_seconds: float = _DEAD_AFTER_SECONDS,
        retention_seconds: float = _RETENTION_SECONDS,
        stop_marker_seconds: float = _STOP_MARKER_SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Join the frontier over open connections, as `connect` does. Closing the frontier closes them."""
        commands, identity = await FrontierIdentity.open(connection, prefix=prefix, shards=shards, clock=clock)
        return cls(
            commands,
            identity=identity,
            dead_after_seconds=dead_after_seconds,
            retention_seconds=retention_seconds,
            stop_marker_seconds=stop_marker_seconds,
            clock=clock,
        )

    @property
    def secret(self) -> int:
        return self._identity.secret

    @property
    def data_epoch(self) -> int:
        return self._commands.shards.epoch.number

    @property
    def reclaimed(self) -> int:
        return self._maintenance.reclaimed

    @property
    def lost_shards(self) -> int:
        return self._identity.lost_shards

    async def check_data(self) -> None:
        await self._identity.check()

    @property
    def connection(self) -> Shards:
        """The connections to the frontier's servers. Closed with the frontier."""
        return self._commands.shards

    @property
    def server_warnings(self) -> Sequence[str]:
        """Warnings about the servers, as of when this process connected; each begins with an address."""
        return self._commands.shards.warnings

    @property
    def shard_count(self) -> int:
        return self._commands.count

    def shard_of(self, domain: str) -> int:
        return shard_of(domain, self._commands.count)

    def shard_load(self, shard: int) -> float:
        return self._commands.load(shard)

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
        return await self._adder.open_crawl(
            crawl,
            fresh=fresh,
            expires=expires,
            process_age_seconds=process_age_seconds,
            idempotency_key=idempotency_key,
        )

    async def set_crawl_limits(self, run: Run, *, rate: Rate | None, concurrency: int | None) -> Run:
        # The crawl is stored on every shard that the run touched, and on its home shard.
        crawl = msgspec.structs.replace(run.crawl, rate=rate, concurrency=concurrency)
        token = crawl.id.token
        home = await runs.read_home(self._commands, token)
        shards = {home_shard(token, self._commands.count), *(home.shards if home else ())}
        arguments = (token, run.number, codec.pack_crawl(crawl))
        await asyncio.gather(
            *(self._commands.call(shard, "set_crawl_limits", *arguments, confirmed=True) for shard in shards)
        )
        return msgspec.structs.replace(run, crawl=crawl)

    async def add(self, run: Run, terms: Terms, batches: Sequence[Batch], *, seeds: bool = False) -> AddResult:
        return await self._adder.add(run, terms, batches, seeds=seeds)

    async def retry_failed(self, run: Run, terms: Terms, *, keep_reason: str = "") -> tuple[Run, int]:
        return await self._adder.retry_failed(run, terms, keep_reason)

    async def submit(self, submissions: Sequence[Submission]) -> list[SubmissionResult | CrawlRefused | BadInput]:
        return await self._submitter.submit(submissions)

    # --- workers ------------------------------------------------------------------------------------------------------

    async def open_leaseholder(
        self, *, pool: str, spiders: Sequence[str], egress: str = "", plain: bool = True, browser: bool = False
    ) -> ValkeyLeaseholder:
        check_names(pool, egress, *spiders)
        holder = ValkeyLeaseholder(
            self._commands,
            pool=pool,
            names=codec.lane_names(spiders, plain=plain, browser=browser),
            egress=egress,
            dead_after_ms=self._dead_after_ms,
            retention_ms=self._retention_ms,
            clock=self._clock,
        )
        await holder.start()
        return holder

    async def announce_browser(self, *, pool: str, worker: str, seconds: float) -> None:
        check_names(pool)
        await self._commands.call(0, "announce_browser", f"{pool}|{worker}", round(seconds * 1000))

    async def browser_workers(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for announced in await self._commands.call(0, "announce_browser", "", 0):
            pool, _, worker = announced.decode().partition("|")
            found.setdefault(pool, set()).add(worker)
        return {pool: frozenset(workers) for pool, workers in found.items()}

    async def heartbeat_for(self, shard: int, session_name: str) -> None:
        await self._commands.call(shard, "heartbeat", session_name, self._dead_after_ms)

    async def claim(self, run: Run, names: Sequence[str], *, owner: str) -> list[ClaimResult]:
        token = run.crawl.id.token
        home = home_shard(token, self._commands.count)
        answers = await self._commands.call(
            home, "claim", token, run.generation, owner, _CLAIM_MS, _CLAIMS_KEPT_MS, *names, confirmed=True
        )
        return [ClaimResult(answer) for answer in answers]

    async def claim_keys(self, run: Run, keys: Sequence[str], *, owner: str) -> list[bool]:
        token = run.crawl.id.token
        home = home_shard(token, self._commands.count)
        names = [f"{_KEY_OF_ITEM}{key}" for key in keys]
        answers = await self._commands.call(
            home, "claim", token, run.generation, owner, _CLAIMS_KEPT_MS, _CLAIMS_KEPT_MS, *names, confirmed=True
        )
        return [answer == ClaimResult.GRANTED for answer in answers]

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
            dead_after_seconds=self._dead_after_ms / 1000,
            retention_seconds=self._retention_ms / 1000,
            stop_marker_seconds=self._stop_marker_ms / 1000,
            clock=self._clock,
        )

    async def maintain(self, *, may_declare_dead: Callable[[], bool] | None = None, shard: int | None = None) -> int:
        return await self._maintenance.maintain(may_declare_dead=may_declare_dead, shard=shard)

    async def reclaim_all(self) -> int:
        """Reclaim the leases of all workers, where the caller knows that none of them lives any more: the server was
        started for it alone. Requests that several of them have held are given up without the usual wait for a sign of
        life. Returns the number of requests."""
        return await self._maintenance.reclaim_all()

    def on_repair(self, report: Callable[[str], None]) -> None:
        """Have `report` called with a sentence about each repair by this process. By default it is logged."""
        self._maintenance.on_repair = report

    async def repair(self, crawl: CrawlId | None = None) -> bool:
        if crawl is None:
            return any([await self._maintenance.repair(shard) for shard in range(self.shard_count)])
        home = await runs.read_home(self._commands, crawl.token)
        return any([await self._maintenance.repair(shard, crawl.token) for shard in (home.shards if home else ())])

    # --- reading ------------------------------------------------------------------------------------------------------

    async def crawl_info(self, crawl: CrawlId) -> CrawlInfo | None:
        [info] = await self.crawl_infos([crawl])
        return info

    async def crawl_infos(self, crawls: Sequence[CrawlId]) -> list[CrawlInfo | None]:
        return await queries.crawl_infos(self._commands, crawls)

    async def list_crawls(
        self, *, appid: str | None = None, state: CrawlState | None = None, cursor: str = "", limit: int = 100
    ) -> tuple[list[CrawlInfo], str]:
        return await queries.list_crawls(self._commands, appid=appid, state=state, cursor=cursor, limit=limit)

    async def app_info(self, appid: str, *, spider: str = "") -> AppInfo:
        return await queries.app_info(self._commands, appid, spider=spider)

    async def first_domains(self, crawls: Sequence[CrawlId], *, limit: int) -> list[list[DomainInfo]]:
        return await queries.first_domains(self._commands, crawls, limit=limit)

    async def crawl_domains(
        self, crawl: CrawlId, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[DomainInfo], str]:
        return await queries.crawl_domains(self._commands, crawl, cursor=cursor, limit=limit)

    async def list_crawl_ids(
        self, *, appid: str | None = None, cursor: str = "", limit: int = 100
    ) -> tuple[list[CrawlId], str]:
        return await queries.list_crawl_ids(self._commands, appid=appid, cursor=cursor, limit=limit)

    async def latest_run(self, crawl: CrawlId) -> Run | None:
        home = await runs.read_home(self._commands, crawl.token)
        return Run(home.crawl, home.run, home.generation) if home else None

    async def crawl_terms(self, crawl: CrawlId) -> list[Terms]:
        return await queries.crawl_terms(self._commands, crawl, limit=_MAX_TERMS)

    async def workers(self) -> list[WorkerInfo]:
        return await queries.workers(self._commands, dead_after_ms=self._dead_after_ms)

    async def backlog(self) -> list[Backlog]:
        return await queries.backlog(self._commands)

    async def backlog_domains(
        self, spider: str, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[tuple[str, int]], str]:
        return await queries.backlog_domains(self._commands, spider, cursor=cursor, limit=limit)

    async def find_url(self, run: Run, *, spider: str, domain: str, url: str, fingerprint: int) -> UrlInfo:
        shard = shard_of(domain, self._commands.count)
        return await queries.find_url(
            self._commands, shard, run, spider=spider, domain=domain, url=url, fingerprint=fingerprint
        )

    # --- ending crawls ------------------------------------------------------------------------------------------------

    async def stop_crawl(
        self, crawl: CrawlId, *, spider: str | None = None, state: CrawlState = CrawlState.STOPPED
    ) -> int:
        token = crawl.token
        home = home_shard(token, self._commands.count)
        # The home shard records the stop first, so that maintenance carries it out if this process dies.
        known = await self._commands.call(
            home,
            "stop_crawl",
            token,
            state.value,
            spider or "",
            self._stop_marker_ms,
            self._retention_ms,
            confirmed=True,
        )
        return await runs.carry_out_stop(self._commands, token, retention_ms=self._retention_ms) if known else 0

    async def delete_crawl(self, crawl: CrawlId) -> bool:
        """Delete everything that the frontier has of a crawl. Returns False, and deletes nothing, while it runs."""
        return await runs.delete_crawl(self._commands, crawl.token, retention_ms=self._retention_ms)

    async def expire_due(self, *, limit: int = 100, shard: int | None = None) -> int:
        return await runs.expire_due(
            self._commands,
            limit=limit,
            stop_marker_ms=self._stop_marker_ms,
            retention_ms=self._retention_ms,
            shard=shard,
        )

    async def finish_idle(self, *, limit: int = 100, shard: int | None = None) -> int:
        shards = range(self._commands.count) if shard is None else (shard,)
        calls = (runs.finish_idle(self._commands, one, limit=limit, retention_ms=self._retention_ms) for one in shards)
        return sum(await asyncio.gather(*calls))

    async def pending_events(
        self, *, limit: int = 100, shard: int | None = None, publisher: str = ""
    ) -> list[CrawlEvent]:
        return await runs.pending_events(self._commands, limit=limit, shard=shard, publisher=publisher)

    async def acknowledge_events(self, events: Sequence[CrawlEvent]) -> None:
        await runs.acknowledge_events(self._commands, events)

    # --- politeness ---------------------------------------------------------------------------------------------------

    async def domain_policy(self, domain: str | None) -> DomainPolicy:
        return await policy_store.read_policy(self._commands, domain)

    async def set_domain_policy(
        self, domain: str | None, policy: DomainPolicy | None, *, expected: DomainPolicy | None = None
    ) -> None:
        await policy_store.set_policy(self._commands, domain, policy, expected=expected)

    async def domain_policies(self) -> tuple[DomainPolicy, dict[str, DomainPolicy]]:
        return await policy_store.read_policies(self._commands)

    async def policies_version(self) -> int:
        return await policy_store.policies_version(self._commands)

    async def replace_policies(
        self, default: DomainPolicy, policies: Mapping[str, DomainPolicy], *, expected_version: int
    ) -> int:
        return await policy_store.replace_policies(self._commands, default, policies, expected_version=expected_version)

    async def block_domain(self, domain: str, *, seconds: float) -> None:
        await self._block(domain, seconds * 1000, "")

    async def set_crawl_delay(self, domain: str, *, seconds: float) -> None:
        await self._block(domain, "", seconds * 1000)

    async def _block(self, domain: str, block_ms: float | str, delay_ms: float | str) -> None:
        """Set the block and the crawl delay of a domain. An empty string leaves a value as it is, because a script's
        arguments have no null."""
        shard = shard_of(domain, self._commands.count)
        await self._commands.call(
            shard, "block_domain", domain, block_ms, delay_ms, _CRAWL_DELAY_KEPT_MS, confirmed=True
        )

    async def load_robots(self, domain: str, origin: str) -> bytes | None:
        shard = shard_of(domain, self._commands.count)
        key = self._commands.keys[shard].key(KeyPattern.ROBOTS, origin=origin)
        record: bytes | None = await self._commands.plain(shard, "GET", key)
        return record

    async def claim_robots(self, domain: str, origin: str, *, owner: str, seconds: float) -> bool:
        shard = shard_of(domain, self._commands.count)
        key = self._commands.keys[shard].key(KeyPattern.ROBOTS_CLAIM, origin=origin)
        life_ms = int(seconds * 1000)
        holder = await self._commands.plain(shard, "SET", key, owner, "NX", "GET", "PX", life_ms)
        if holder is None:
            return True
        # A claim that ends between the two commands is not renewed, and the caller asks again.
        return bool(holder == owner.encode() and await self._commands.plain(shard, "PEXPIRE", key, life_ms))

    async def save_robots(self, domain: str, origin: str, record: bytes, *, ttl_seconds: float) -> None:
        shard = shard_of(domain, self._commands.count)
        ttl_ms = max(1, int(ttl_seconds * 1000))  # the server refuses 0
        await self._commands.call(shard, "save_robots", domain, origin, record, ttl_ms, _ROBOTS_BYTES_A_DOMAIN)

    async def release_robots_claim(self, domain: str, origin: str) -> None:
        shard = shard_of(domain, self._commands.count)
        key = self._commands.keys[shard].key(KeyPattern.ROBOTS_CLAIM, origin=origin)
        await self._commands.plain(shard, "DEL", key)

    async def close(self) -> None:
        await self._commands.shards.close()
