"""The frontier on Valkey or Redis: the store of the requests that wait, which leases them to workers.

Its keys are divided into shards: a domain's queues are on the shard of the domain, the state of a crawl is on the
crawl's home shard. Most operations are one Lua script on one shard; those that span shards, such as the end of a run
(one life of a crawl, from its first request until nothing is left), are in `runs.py`.

Words: a *run* is one life of a crawl, from its first request until nothing is left; its *parts* are the shares of
single spiders. *Terms* are the options of one submission. A *lease* is the loan of a request to one worker, until the
worker *settles* it. A *hit* is a request that counts against a domain's rate limit. The *egress* is the public address
that requests leave from. A *pool* is a group of workers with requests of their own.

Every call is one atomic step per shard and may be repeated. Every call may raise FrontierUnavailable (repeat it) and
FrontierIncompatible; calls that add requests may raise FrontierFull. Callers rely on these promises and on those of the
docstrings; tests/contract/frontier checks them. Fixed: which shard has what (`shard_of`, `home_shard`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import msgspec

from gossamer.errors import BadInput, CrawlRefused
from gossamer.frontier.base import (
    EVERY_FAILURE,
    MOST_COOKIES,
    AddResult,
    ClaimResult,
    FailureFilter,
    Submission,
    SubmissionResult,
)
from gossamer.frontier.exported import ExportHeader
from gossamer.frontier.valkey import codec, exports, runs
from gossamer.frontier.valkey.additions import RequestAdder
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.events import EventList
from gossamer.frontier.valkey.identity import FrontierIdentity, ValkeySpiderRegistry
from gossamer.frontier.valkey.imports import CrawlImport
from gossamer.frontier.valkey.keys import KeyPattern, check_names, home_shard, shard_of
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.frontier.valkey.logins import LoginRegistry
from gossamer.frontier.valkey.maintenance import ShardMaintenance
from gossamer.frontier.valkey.policies import PolicyStore
from gossamer.frontier.valkey.queries import FrontierQueries
from gossamer.frontier.valkey.restorations import RunRestorer
from gossamer.frontier.valkey.submissions import RequestSubmitter
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, Rate, Run, Terms
from gossamer.model.growth import PatternCount
from gossamer.model.request import Batch
from gossamer.policy.urls import host, registered_domain
from gossamer.valkey.shards import Shards

_CLAIM_MS = 20_000
"""Life of a claim (of a task that is done once in a crawl) that its owner does not renew. May be longer, which delays
the start items of a process that died. Must stay well above `_RENEW_SECONDS` in `scrapy/start.py` (5 s), or two
processes handle the same item. `claim` and `StartClaims` name the 20 s, too."""
_CLAIMS_KEPT_MS = 30 * 86400 * 1000
"""Life of the record of a crawl's claims after the last change. May be longer; if it is shorter, a crawl that is
resumed later repeats its start items. `claim` and `KeyPattern.ONCE` name the 30 days, too."""
_RENDER_CHOICES_KEPT_MS = 30 * 86400 * 1000
"""Life of what was learnt about rendering the pages of a site, after the last change. `KeyPattern.RENDER_CHOICES` and
`save_render_choices` name the 30 days, too."""
_MOST_RENDER_CHOICES = 2000
"""URL patterns of one site of which that is stored. Each takes about 60 bytes in the server."""
_PATTERNS_KEPT = 20
"""Patterns of a run of which each shard keeps that their pages may have no end. More make each reading of the run's
counters larger."""
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


class ValkeyFrontier(FrontierQueries, PolicyStore, EventList):
    """Client of the whole frontier: submits requests, reads its state, steers crawls, opens workers' leaseholders.

    Made by `connect`. The tasks of one event loop may share it; another loop needs a `clone`.
    """

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
        """The spiders that processes have announced."""
        self.logins = LoginRegistry(commands)
        """Logins of a service."""
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
        """Key of the fingerprints (unsigned 64-bit), made once per frontier. A frontier that lost its data may get
        another one."""
        return self._identity.secret

    @property
    def data_epoch(self) -> int:
        """Number of the current data epoch: the time in which this process may rely on the frontier's answers. It grows
        whenever the frontier may have lost some of what it confirmed last (its server was restarted from an older file,
        or a replica took over). Mostly nothing was lost. A cache of the frontier's content must not rely on answers of
        an earlier data epoch."""
        return self._commands.shards.epoch.number

    @property
    def reclaimed(self) -> int:
        """Number of requests that this client has taken back from dead workers."""
        return self._maintenance.reclaimed

    @property
    def lost_shards(self) -> int:
        """Number of times this process found a shard without its data, because its server restarted without them or a
        person deleted them. `check_data` and `maintain` look. The frontier remains usable, but empty."""
        return self._identity.lost_shards

    async def check_data(self) -> None:
        """Check on every shard whether its data are there, and count those without in `lost_shards`."""
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
        """Number of shards. A call that concerns one shard does not wait for the others."""
        return self._commands.count

    def shard_of(self, domain: str) -> int:
        """Return the shard that a domain lives on."""
        return shard_of(domain, self._commands.count)

    def shard_load(self, shard: int) -> float:
        """Return the share of a core that the shard's server used in the last seconds, 0 to 1. 0: it is not known."""
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
        """Return the run that submissions join: the running one, or the next after a finished one.

        Raises CrawlRefused for a stopped or expired crawl.

        `fresh`: begin a run with an empty seen-set. Only a finished crawl can; a running one raises CrawlRefused.

        `idempotency_key`: names a fresh run for an hour. A repeated call with the same key joins the run that the first
        one began or joined, and raises RunFinished when that run has finished.

        `process_age_seconds`: how long ago the process that joins was started. When a run has finished since then, the
        process belongs to that run: no run begins, and RunFinished is raised. The server's clock measures the time.

        `expires`: for each spider with submissions to come, the epoch seconds at which all of them expire (0: not all
        of them do). The latest time counts: then the spider's part of the run ends, unless a submission for it in this
        run never expires. Where the parts of all these spiders were stopped or have expired, no run begins and
        CrawlRefused is raised; a fresh run may begin where all have expired."""
        return await self._adder.open_crawl(
            crawl,
            fresh=fresh,
            expires=expires,
            process_age_seconds=process_age_seconds,
            idempotency_key=idempotency_key,
        )

    async def set_crawl_limits(self, run: Run, *, rate: Rate | None, concurrency: int | None) -> Run:
        """Change the rate and the concurrency that a running crawl requests for every domain; returns the changed run.
        The next lease applies them."""
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

    async def note_growth(self, run: Run, pattern: str, count: PatternCount, *, pages: int) -> None:
        """Add these pages of a run, which may have no end, to what `crawl_info` returns. A call that fails may have
        counted them."""
        shard = self.shard_of(registered_domain(host(count.example)))
        arguments = (run.crawl.id.token, run.number, pattern, count.growth.value, pages, count.depth, count.example)
        await self._commands.call(shard, "note_growth", *arguments, _PATTERNS_KEPT)

    async def add(self, run: Run, terms: Terms, batches: Sequence[Batch], *, seeds: bool = False) -> AddResult:
        """Queue the URLs that this run has not seen. Dedupe and enqueue are one step.

        Repeat a call that raised FrontierUnavailable with the same Batch objects: within an hour it returns the result
        of a single call.

        `seeds`: a person or program submits these URLs; where the run has just finished, they begin the next one
        (CrawlRefused when the crawl was stopped). Otherwise they are outlinks: a run that is over rejects them as
        `stopped`, and those not added are counted when their page is settled (`Settlement.drops`)."""
        return await self._adder.add(run, terms, batches, seeds=seeds)

    async def retry_failed(
        self, run: Run, terms: Terms | None, *, keep_reason: str = "", only: FailureFilter = EVERY_FAILURE
    ) -> tuple[Run, int]:
        """Queue again what the crawl of this run has kept of its failed requests (`Crawl.keep_failed`), and give these
        terms to all of its requests (None: each has its own). Returns the run that they joined, and their number. May
        be repeated. A crawl that has finished begins its next run with the options in `run`.

        `keep_reason`: requests that ended for this reason stay kept; empty: none. `only`: all others stay kept."""
        return await self._adder.retry_failed(run, terms, keep_reason, only)

    def restorer(self, crawl: Crawl, terms: Terms) -> RunRestorer:
        """Return what fills a run of the crawl with requests that were done before the frontier lost them."""
        return RunRestorer(self._commands, self._adder, crawl, terms, retention_ms=self._retention_ms)

    async def set_paused(self, crawl: CrawlId, *, paused: bool) -> bool:
        """Hand out no request of a crawl until it goes on (`paused` False). What workers hold, they finish. Returns
        False for a crawl that does not run. It holds on the shards that the crawl has touched: repeat it while requests
        are in flight or submitted, because they may touch others."""
        return await exports.set_paused(self._commands, crawl.token, paused=paused, retention_ms=self._retention_ms)

    async def export(self, crawl: CrawlId) -> exports.CrawlExport:
        """Return the export of a crawl that is paused, and of which no worker has a request. Raises BadInput for a
        crawl that does not run."""
        return await exports.CrawlExport.of(self._commands, crawl, secret=self.secret)

    def importer(self, header: ExportHeader) -> CrawlImport:
        """Return what enters an exported crawl. Raises FrontierIncompatible."""
        return CrawlImport(self._commands, self._adder, header, retention_ms=self._retention_ms)

    async def adopt_secret(self, secret: int) -> None:
        """Compute fingerprints by this key from now on, because a crawl comes from the frontier that has it. Raises
        BadInput where the frontier has another key and crawls."""
        if secret == self.secret:
            return
        crawls, _ = await self.list_crawl_ids(limit=1)
        if crawls:
            raise BadInput(
                "the frontier has crawls, and computes fingerprints by another key than the one that the export comes "
                "from: pages would be fetched twice. Import into an empty frontier, or with another --prefix, or fill "
                "this one from the records with gossamer crawls rebuild."
            )
        await self._identity.adopt_secret(secret)

    async def submit(self, submissions: Sequence[Submission]) -> list[SubmissionResult | CrawlRefused | BadInput]:
        """Submit hundreds of requests to any crawls in a few calls: `open_crawl` and `add` (as seeds) for each.

        Returns one answer for each, in order: an error (not raised) where a submission was refused as a whole.

        A finished crawl begins its next run only for a submission that adds something: a submission whose URLs its last
        run has seen returns duplicates of that run. Where that run saw them under a smaller maxdepth or a narrower
        scope, the next run is a fresh one, which fetches all pages again.

        When this raises, some submissions may have been carried out. Repeat all of them: URLs that were added already
        then count as duplicates. A `run` of the results may have ended since; `latest_run` returns the current one."""
        return await self._submitter.submit(submissions)

    # --- workers ------------------------------------------------------------------------------------------------------

    async def open_leaseholder(
        self, *, pool: str, spiders: Sequence[str], egress: str = "", plain: bool = True, browser: bool = False
    ) -> ValkeyLeaseholder:
        """Return a leaseholder for a worker that takes these spiders' requests in this pool and fetches from the egress
        address.

        `plain`, `browser`: which lanes it takes: requests that are fetched plainly, and those that are to be rendered
        (`Lease.render`). At least one of them."""
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
        """Announce that a worker of this pool has a browser, and takes requests that are to be rendered. Repeat it
        before `seconds` have passed; 0 ends the announcement."""
        check_names(pool)
        await self._commands.call(0, "announce_browser", f"{pool}|{worker}", round(seconds * 1000))

    async def browser_workers(self) -> dict[str, frozenset[str]]:
        """Return the workers with a browser that are announced now, by pool. A pool without any is missing."""
        found: dict[str, set[str]] = {}
        for announced in await self._commands.call(0, "announce_browser", "", 0):
            pool, _, worker = announced.decode().partition("|")
            found.setdefault(pool, set()).add(worker)
        return {pool: frozenset(workers) for pool, workers in found.items()}

    async def heartbeat_for(self, shard: int, session_name: str) -> None:
        """Send a heartbeat to a shard for a worker that cannot send it itself.

        Does nothing for a session that the shard does not know or has declared dead."""
        await self._commands.call(shard, "heartbeat", session_name, self._dead_after_ms)

    async def claim(
        self, run: Run, names: Sequence[str], *, owner: str, seconds: float = _CLAIM_MS / 1000
    ) -> list[ClaimResult]:
        """Claim tasks that one process does once in a crawl, for the process `owner`. Owner "": mark them as done.

        A claim that is not repeated for `seconds` is free again, or later where a worker may be silent for longer: all
        processes must pass the same. Returns one answer for each, in order. The frontier remembers the tasks for 30
        days after the last call, and forgets them when a fresh run begins."""
        token = run.crawl.id.token
        home = home_shard(token, self._commands.count)
        answers = await self._commands.call(
            home, "claim", token, run.generation, owner, round(seconds * 1000), _CLAIMS_KEPT_MS, *names, confirmed=True
        )
        return [ClaimResult(answer) for answer in answers]

    async def release_claims(self, run: Run, names: Sequence[str], *, owner: str) -> None:
        """Give up claims of the process `owner`. Those of others, and tasks that are done, stay as they are."""
        token = run.crawl.id.token
        home = home_shard(token, self._commands.count)
        await self._commands.call(home, "release_claims", token, run.generation, owner, *names)

    async def read_cookies(self, run: Run, account: str, site: str) -> dict[bytes, bytes]:
        """Return what `save_cookies` has stored for this site and account (empty: the crawl has none). Empty: nothing,
        or its life is over."""
        shard = shard_of(site, self._commands.count)
        key = self._commands.keys[shard].key(
            KeyPattern.JAR, token=run.crawl.id.token, generation=run.generation, account=account, site=site
        )
        return codec.hash_fields(await self._commands.plain(shard, "HGETALL", key))

    async def save_cookies(
        self, run: Run, account: str, site: str, changed: Mapping[bytes, bytes], *, seconds: float
    ) -> None:
        """Store changed cookies by their fields; empty bytes remove one. All cookies of the account at the site are
        forgotten `seconds` after the last call. At most MOST_COOKIES are stored. May be repeated."""
        shard = shard_of(site, self._commands.count)
        rows = [part for row in changed.items() for part in row]
        life_ms = max(1, round(seconds * 1000))
        await self._commands.call(
            shard, "save_cookies", run.crawl.id.token, run.generation, account, site, life_ms, MOST_COOKIES, *rows
        )

    async def read_render_choice(self, token: str, site: str, field: bytes) -> bytes | None:
        """Return what `save_render_choices` has stored for a URL pattern of a site. None: nothing. `token`: of the
        crawl."""
        shard = shard_of(site, self._commands.count)
        key = self._commands.keys[shard].key(KeyPattern.RENDER_CHOICES, token=token, site=site)
        found: bytes | None = await self._commands.plain(shard, "HGET", key, field)
        return found

    async def save_render_choices(self, token: str, site: str, learnt: Mapping[bytes, bytes]) -> None:
        """Store what was learnt of URL patterns of a site, for all workers of the crawl. It is forgotten 30 days after
        the last call. At most _MOST_RENDER_CHOICES patterns are stored. May be repeated."""
        shard = shard_of(site, self._commands.count)
        rows = [part for row in learnt.items() for part in row]
        await self._commands.call(
            shard, "save_render_choices", token, site, _RENDER_CHOICES_KEPT_MS, _MOST_RENDER_CHOICES, *rows
        )

    async def claim_keys(self, run: Run, keys: Sequence[str], *, owner: str) -> list[bool]:
        """Give those of these keys of items to the request `owner` that no other request has. Returns for each, in
        order, whether the request has it now. May be repeated.

        The frontier remembers the keys for 30 days after the last call, and forgets them when a fresh run begins. A
        key takes about 150 bytes of the memory of the crawl's home shard."""
        token = run.crawl.id.token
        home = home_shard(token, self._commands.count)
        names = [f"{_KEY_OF_ITEM}{key}" for key in keys]
        answers = await self._commands.call(
            home, "claim", token, run.generation, owner, _CLAIMS_KEPT_MS, _CLAIMS_KEPT_MS, *names, confirmed=True
        )
        return [answer == ClaimResult.GRANTED for answer in answers]

    def clone(self) -> "ValkeyFrontier":
        """Return the same frontier over connections of its own, for the event loop of another thread. The caller closes
        it. It connects when it is first used, also where some shards do not answer."""
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
        """Run the periodic maintenance of a shard (None: of all): reclaim leases of dead workers, finish idle crawls,
        resume interrupted operations, delete what is past its retention. Any process may call it at any time.

        Returns the number of reclaimed requests. Steps that also concern a shard that does not answer are left for
        later.

        `may_declare_dead` is asked immediately before workers without a recent heartbeat are declared dead: False if
        this process has just started, or was itself cut off from the frontier a moment ago (see `LivenessJudge`). None:
        they may be."""
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
        """Compare what a crawl (None: every crawl) has in the frontier with its lists and counts, and correct these:
        a server that lost a part of its writes may have left queues that no worker gets, and wrong counts. Requests
        that are counted and nowhere to be found count as dropped (LOST) afterwards. Returns whether anything was
        wrong.

        Safe beside workers, and without effect where nothing is wrong; but it reads everything, so it is for crawls
        that should go on and do not. `maintain` calls it by itself after a start of a server that is known to lose
        writes in that way."""
        if crawl is None:
            return any([await self._maintenance.repair(shard) for shard in range(self.shard_count)])
        home = await runs.read_home(self._commands, crawl.token)
        return any([await self._maintenance.repair(shard, crawl.token) for shard in (home.shards if home else ())])

    # --- ending crawls ------------------------------------------------------------------------------------------------

    async def stop_crawl(
        self, crawl: CrawlId, *, spider: str | None = None, state: CrawlState = CrawlState.STOPPED
    ) -> int:
        """Stop (or expire) a crawl or one spider's part of it; returns how many waiting requests were purged. A crawl
        that has finished stays so: nothing is left to stop, and a later submission begins a new run. Only one that has
        workers of its own (its pool is none of a service) which wait for more is stopped all the same, to end them.

        From the next lease on none of its requests is handed out; leased ones may still be settled. A repeated call
        purges 0."""
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
        """Stop as `expired` at most `limit` parts whose time has passed by the server's clock (`shard`: only of crawls
        with this home shard); returns their number. Any process may call it at any time.

        Parts of a run that is over, and parts that have ended already, do not count. A run that finishes after its time
        has passed ends as expired, too: nothing depends on when this is called."""
        return await runs.expire_due(
            self._commands,
            limit=limit,
            stop_marker_ms=self._stop_marker_ms,
            retention_ms=self._retention_ms,
            shard=shard,
        )

    async def finish_idle(self, *, limit: int = 100, shard: int | None = None) -> int:
        """Finish the runs that have had nothing to do for their crawl's `idle_seconds`, at most `limit` of each shard
        (`shard`: only of this one); returns how many were looked at. Any process may call it at any time.

        Runs whose `idle_seconds` is 0 finish without this call."""
        shards = range(self._commands.count) if shard is None else (shard,)
        calls = (runs.finish_idle(self._commands, one, limit=limit, retention_ms=self._retention_ms) for one in shards)
        return sum(await asyncio.gather(*calls))

    # --- politeness ---------------------------------------------------------------------------------------------------

    async def block_domain(self, domain: str, *, seconds: float, rests: bool = False) -> None:
        """Lease no request of this domain to any worker for `seconds`. Never shortens a block. `rests`: because of a
        refusal; else the site has asked for it (Retry-After)."""
        await self._block(domain, seconds * 1000, "", rests=rests)

    async def set_crawl_delay(self, domain: str, *, seconds: float) -> None:
        """Set the delay between two hits that robots.txt requests; it is kept for a day."""
        await self._block(domain, "", seconds * 1000)

    async def _block(self, domain: str, block_ms: float | str, delay_ms: float | str, *, rests: bool = False) -> None:
        """Set the block and the crawl delay of a domain. An empty string leaves a value as it is, because a script's
        arguments have no null."""
        shard = shard_of(domain, self._commands.count)
        await self._commands.call(
            shard, "block_domain", domain, block_ms, delay_ms, _CRAWL_DELAY_KEPT_MS, int(rests), confirmed=True
        )

    async def load_robots(self, domain: str, origin: str) -> bytes | None:
        """Return the shared record of an origin's robots.txt. None: not known."""
        shard = shard_of(domain, self._commands.count)
        key = self._commands.keys[shard].key(KeyPattern.ROBOTS, origin=origin)
        record: bytes | None = await self._commands.plain(shard, "GET", key)
        return record

    async def claim_robots(self, domain: str, origin: str, *, owner: str, seconds: float) -> bool:
        """Claim the fetch of a robots.txt. True: the caller is to fetch it, and no other `owner` will for `seconds`.
        May be repeated: the owner of a claim gets it again."""
        shard = shard_of(domain, self._commands.count)
        key = self._commands.keys[shard].key(KeyPattern.ROBOTS_CLAIM, origin=origin)
        life_ms = int(seconds * 1000)
        holder = await self._commands.plain(shard, "SET", key, owner, "NX", "GET", "PX", life_ms)
        if holder is None:
            return True
        # A claim that ends between the two commands is not renewed, and the caller asks again.
        return bool(holder == owner.encode() and await self._commands.plain(shard, "PEXPIRE", key, life_ms))

    async def save_robots(self, domain: str, origin: str, record: bytes, *, ttl_seconds: float) -> None:
        """Share a record and release the claim. A domain's records take at most about 8 MiB together: beyond that the
        oldest are deleted."""
        shard = shard_of(domain, self._commands.count)
        ttl_ms = max(1, int(ttl_seconds * 1000))  # the server refuses 0
        await self._commands.call(shard, "save_robots", domain, origin, record, ttl_ms, _ROBOTS_BYTES_A_DOMAIN)

    async def release_robots_claim(self, domain: str, origin: str) -> None:
        """Release a claim without a record: another caller may fetch it. An existing record stays."""
        shard = shard_of(domain, self._commands.count)
        key = self._commands.keys[shard].key(KeyPattern.ROBOTS_CLAIM, origin=origin)
        await self._commands.plain(shard, "DEL", key)

    async def close(self) -> None:
        """Close the connections. Leaseholders are not closed: close them first."""
        await self._commands.shards.close()
