"""The frontier's contract: where URLs wait. Every call is one atomic step per shard and may be repeated.

Errors of every call: FrontierUnavailable (repeat it), FrontierFull (adding only), FrontierIncompatible.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol

from gossamer.errors import BadInput, CrawlRefused, FrontierError
from gossamer.model.crawl import Crawl, CrawlEvent, CrawlId, CrawlState, DomainPolicy, QueryOrder, Rate, Run, Terms
from gossamer.model.info import AppInfo, Backlog, CrawlInfo, DomainInfo, UrlInfo, WorkerInfo
from gossamer.model.request import Batch, Lease, Settled, Settlement


@dataclass(slots=True)
class AddResult:
    """What became of the URLs of one `add`: `added + duplicates + len(rejected)` is their number.

    A URL that is not rejected is in the run's seen-set.
    """

    added: int = 0
    duplicates: int = 0
    rejected: dict[tuple[int, int], str] = field(default_factory=dict)
    """(batch, position) of every URL that was dropped, and the reason: `budget` (domain_max_pending), `stopped`,
    `expired`. These URLs are not in the seen-set and may be found again."""
    duplicate_positions: list[tuple[int, int]] = field(default_factory=list)
    """Of seeds: (batch, position) of every duplicate."""
    has_other_terms: bool = False
    """Of seeds: some are duplicates of URLs that were queued under other terms."""

    @property
    def rejected_by_reason(self) -> dict[str, int]:
        """The number of rejected URLs by reason."""
        return dict(Counter(self.rejected.values()))


@dataclass(slots=True)
class Submission:
    """One request to crawl something, as `submit` takes it."""

    crawl: Crawl
    terms: Terms
    batches: Sequence[Batch]
    expires: float | None = None
    """When the parts of the spiders of `batches` expire: epoch seconds, 0: never. None: unchanged."""
    fresh: bool = False
    """A finished crawl begins a run that has seen nothing; a running one is joined."""
    idempotency_key: str = ""
    """Of a fresh one: the same whenever it is repeated, within an hour; it begins or joins one run. Empty: none."""


@dataclass(slots=True)
class SubmissionResult:
    """What became of a submission."""

    run: Run
    """The run that it joined."""
    added: AddResult
    joined_running: bool = False
    """It asked for a fresh run, and joined the one that is running."""
    exceeds_earlier_terms: bool = False
    """Its duplicates were taken in this run under a smaller maxdepth or a narrower scope."""


class RedirectPermit(StrEnum):
    """What a redirect inside its domain may do."""

    GRANTED = "granted"
    """A hit was charged: fetch the target now."""
    WAIT = "wait"
    """No free hit, or the answer came too late to use one: settle as `forwarded`; the target is marked as seen by this
    request already."""
    SEEN = "seen"
    """The target was seen in this run: the request ends here, with a record that shows the chain."""


class Leaseholder(Protocol):
    """One worker's seat at the frontier. Not to be shared between tasks except where said.

    Each shard knows the worker under a name of its own. A shard that had no sign of life from the worker for too long
    declares that name dead and gives its leases to others. The worker then has a new name on this shard, and `holds`
    answers False for what it lost; its leases on other shards are not concerned.

    A shard that does not answer is asked again beside the others, which do not wait for it.
    """

    @property
    def worker(self) -> str:
        """The worker's name. The names that the shards know begin with it."""
        ...

    async def lease(self, *, limit: int) -> list[Lease]:
        """Requests that are due, at most `limit`. Empty means 'none now', not 'finished'.

        Raises FrontierUnavailable when no shard answers."""

    def holds(self, lease: Lease) -> bool:
        """Whether this lease still is this worker's: it is not settled, and was not given to another."""
        ...

    async def settle(self, settlements: Sequence[Settlement], *, era: int | None = None) -> list[Settled]:
        """Report outcomes; one answer each, in order. May run beside `lease`. Safe to repeat.

        Each is reported under the name that it was leased under: a late one concerns nothing that was leased since.

        `era`: the era in which the outlinks of these requests were confirmed. In a later one it raises
        FrontierForgot: add them again first."""

    async def request_redirect(self, lease: Lease, *, fingerprint: int, payload: bytes) -> RedirectPermit:
        """Ask for a hit for a redirect inside the lease's domain; `payload` (the chain) replaces the entry's own,
        so that whoever takes it over goes on there. Raises LeaseLost."""

    async def charge_hit(self, run: Run, *, spider: str, domain: str) -> float | None:
        """Charge a hit for a request that did not come from a queue (an image, a call of an API). 0: go now. Else the
        seconds until it may be worth asking again, None where the domain is paused or blacklisted. It does not count
        as a request in flight. A call whose reply was lost may have charged: repeated, it makes slower, never faster.
        """

    def set_egress(self, egress: str) -> None:
        """From the next lease on this worker fetches from that address (empty: the nameless one)."""

    async def wait_for_work(self, *, timeout_seconds: float) -> None:
        """Return when work may be due, when some arrived, or after `timeout_seconds`."""

    def session_name(self, shard: int) -> str:
        """The name that the worker has on this shard, now."""
        ...

    async def heartbeat(self, shard: int | None = None) -> float:
        """Say on a shard (None: on all) that the worker lives. `lease` and `settle` say so on theirs too. The seconds
        until some other worker counts as dead there if nothing is heard of it; 0: one does, and `reclaim` takes back
        what it held."""

    async def ping(self) -> None:
        """Return when any shard answers. Raises FrontierUnavailable when none does."""

    async def close(self) -> None:
        """Give back whatever is still leased, in front of its queue, and leave.

        What is leased from a shard that is away is taken back later, as a dead worker's."""


class RunFinished(FrontierError):
    """This run has finished."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"{run.crawl.id}, run {run.number}")
        self.run = run


class Lane(StrEnum):
    """A kind of worker."""

    FAST = "fast"
    SCRAPY = "scrapy"


class ClaimResult(IntEnum):
    """Answer to a claim of something that is done once in a crawl."""

    HELD_BY_OTHER = -1
    """Another process is doing it."""
    DONE = 0
    GRANTED = 1


class SpiderRegistry(Protocol):
    """The spiders that processes have announced, each with the lanes that run it.

    The lane decides what counts as the same request. Requests to a spider that only Scrapy runs are remembered by
    Scrapy's default fingerprint, all others by method, canonical URL and body. A process that does not know yet that a
    spider is Scrapy's uses the wrong one; then a page may be fetched a second time, but none is lost.
    """

    async def announce(self, lane: Lane, names: Collection[str]) -> None:
        """Say that this lane runs these spiders. It holds for 30 days; repeat it before."""

    async def refresh(self, names: Collection[str]) -> None:
        """Read the announcements again if one of these spiders is not known, or after 10 s."""

    def lanes(self, name: str) -> frozenset[Lane]:
        """Return the lanes that have announced the spider, as far as was read last."""
        ...

    def names(self) -> frozenset[str]:
        """Return all spiders that were announced, as far as was read last."""
        ...

    def fingerprint(
        self,
        spider: str,
        url: str,
        *,
        method: str = "GET",
        body: bytes = b"",
        query_order: QueryOrder = QueryOrder.SIGNIFICANT,
    ) -> int:
        """Return the signed 64-bit number by which a request to any spider is remembered. `url` is canonical;
        `query_order` of the terms of the request, which counts for spiders of the fast lane."""
        ...


class Frontier(Protocol):
    """The whole of it: submitting, asking, steering; `open_leaseholder` gives a worker its seat."""

    @property
    def secret(self) -> int:
        """Keys the fingerprints (unsigned 64-bit); made once per frontier. One that lost its data may get another
        one."""
        ...

    @property
    def reclaimed(self) -> int:
        """Requests that this client has taken back from dead workers."""
        ...

    @property
    def lost_shards(self) -> int:
        """Number of times this process found a shard without its data: its server restarted without it, or somebody
        deleted it. `check_data` and `maintain` look. The frontier can be used on, empty."""
        ...

    async def check_data(self) -> None:
        """Look on every shard whether its data are there, for `lost_shards`."""

    @property
    def spiders(self) -> SpiderRegistry:
        """The spiders that processes have announced."""
        ...

    @property
    def shard_count(self) -> int:
        """Number of shards. What is asked of one of them does not wait for the others."""
        ...

    def shard_of(self, domain: str) -> int:
        """The shard that a domain lives on."""
        ...

    @property
    def era(self) -> int:
        """Grows whenever the frontier may have forgotten some of what it confirmed last (its server was started again
        from an older file, a replica took over); mostly it has not. Who remembers what the frontier knows must not
        rely on what it was told in an earlier era."""
        ...

    async def open_crawl(
        self,
        crawl: Crawl,
        *,
        fresh: bool = False,
        expires: Mapping[str, float] | None = None,
        process_age_seconds: float | None = None,
        idempotency_key: str = "",
    ) -> Run:
        """The run that submissions join: the running one, or the next after a finished one. `fresh`: a new run with
        an empty seen-set, of a finished crawl only. Raises CrawlRefused for a stopped or expired crawl.

        `idempotency_key`: names a fresh run for an hour. A repeated call with the same key joins the run that the first
        one began or joined, and raises RunFinished when that run has finished.

        `process_age_seconds`: how long ago the process that joins was started. When a run has finished since then, the
        process belongs to that run: no run begins, and RunFinished is raised. The server's clock measures the time.

        `expires`: for each spider that something is about to be submitted for, the epoch seconds at which all of that
        expires (0: not all of it does). A spider's part of the run ends then, at the latest of these, unless something
        that does not expire was submitted for it in this run. Where the parts of all these spiders were stopped or
        have expired, no run begins: CrawlRefused; but a fresh one may begin where all have expired."""

    async def set_crawl_limits(self, run: Run, *, rate: Rate | None, concurrency: int | None) -> Run:
        """Change what a running crawl wishes for every domain, from the next lease on. The run with the new wish."""

    async def add(self, run: Run, terms: Terms, batches: Sequence[Batch], *, seeds: bool = False) -> AddResult:
        """Queue what this run has not seen. Dedupe and enqueue are one step. Repeat a call that raised
        FrontierUnavailable with the same Batch objects: within an hour it has the answer of a single call.

        `seeds`: a person or program submits these; where the run has just finished they begin the next one
        (CrawlRefused when it was stopped). Otherwise they are outlinks: of a run that is over they are rejected, as
        `stopped`, and those not added are counted when the settlement of their page says so (`Settlement.drops`)."""

    async def submit(self, submissions: Sequence[Submission]) -> list[SubmissionResult | CrawlRefused | BadInput]:
        """Hundreds of submissions of any crawls in a few calls: `open_crawl` and `add` (as seeds) of
        each. One answer each, in order; an error (not raised) where it was refused, and of that nothing was done.

        A finished crawl begins its next run only for what adds something: a submission whose URLs its last run has
        seen is answered as duplicates of that run. Where they were seen under a smaller maxdepth or a narrower scope,
        the next run is a fresh one, which fetches everything on the way again.

        Where this raises, nobody knows which were done; repeating all of them is safe, and what was done already then
        counts as duplicates. A `run` may have ended and another begun since: `latest_run` knows."""

    async def claim(self, run: Run, names: Sequence[str], *, owner: str) -> list[ClaimResult]:
        """Claim things that one process does once in a crawl, for the process of this name; "": note that they are
        done. A claim that was not repeated for 20 s is free again. One answer each, in order. It is remembered for 30
        days after the last call, and forgotten where the crawl begins with nothing seen."""
        ...

    async def open_leaseholder(self, *, pool: str, spiders: Sequence[str], egress: str = "") -> Leaseholder:
        """A seat for a worker that takes these spiders' requests in this pool, fetching from this egress address."""

    async def heartbeat_for(self, shard: int, name: str) -> None:
        """Say on a shard that the worker with this name lives, for whoever holds its seat and cannot.

        Does nothing for a name that is not known there, or was declared dead."""

    def clone(self) -> "Frontier":
        """The same frontier over connections of its own, for another thread's event loop. Close it. It connects when it
        is used, also where some shards are away."""
        ...

    async def maintain(self, *, declare_dead: bool = True, shard: int | None = None) -> int:
        """Housekeeping of a shard (None: of all) that any process may do at any time: take back what dead workers held,
        finish idle crawls, sweep what has outlived its retention. Returns the number of requests taken back. What
        concerns other shards, too, is left for later where one of those does not answer.

        `declare_dead`: declare workers dead that were silent for a heartbeat. A process that has just started, or was
        itself cut off from the frontier a moment ago, passes False (see `LivenessJudge`)."""

    async def crawl_info(self, crawl: CrawlId) -> CrawlInfo | None:
        """Counters only, whatever the size of the crawl. None: no such crawl (or past its retention)."""

    async def list_crawls(
        self, *, appid: str | None = None, state: CrawlState | None = None, cursor: str = "", limit: int = 100
    ) -> tuple[list[CrawlInfo], str]:
        """Where about `limit` crawls stand, of one application or of all, of one state or of all; and the next page's
        cursor ('' at the end). As `list_crawl_ids` otherwise. A page may be short, even empty, and have a next one.

        Its cost does not grow with the number of crawls that there are; those that run are listed apart."""
        ...

    async def app_info(self, appid: str, *, spider: str = "") -> AppInfo:
        """What waits of an application, for one spider (empty: all). The cost does not grow with its crawls."""
        ...

    async def first_domains(self, crawls: Sequence[CrawlId], *, limit: int) -> list[list[DomainInfo]]:
        """Of each crawl at most `limit` of the domains where requests wait. Those of a stopped crawl are named until
        their queues are gone."""
        ...

    async def crawl_domains(
        self, crawl: CrawlId, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[DomainInfo], str]:
        """A page of the domains with waiting requests, about `limit`, and the next page's cursor ('' at the end)."""

    async def list_crawl_ids(
        self, *, appid: str | None = None, cursor: str = "", limit: int = 100
    ) -> tuple[list[CrawlId], str]:
        """A page of the crawls of all pools that are known (running, within their retention, or marked as
        stopped or expired), of one application or of all; about `limit`, and the next page's cursor ('' at the end).

        Every crawl that is there all the while is found; one that comes or goes meanwhile perhaps, and a crawl may be
        on two pages. In no order. Raises BadInput for a cursor that is none."""

    async def latest_run(self, crawl: CrawlId) -> Run | None:
        """The crawl's newest run, running or over, with what it was opened with. None: no such crawl."""

    async def crawl_terms(self, crawl: CrawlId) -> list[Terms]:
        """What the submissions to a crawl asked for, each distinct set once, at most 100 of them, in no order; in
        earlier runs too. Empty: no such crawl, or nothing added."""

    async def workers(self) -> list[WorkerInfo]:
        """Everyone with a seat, in every pool, who was heard of within the heartbeat; by name."""

    async def backlog(self) -> list[Backlog]:
        """What waits in the queues of all pools for each spider (retries that are not due apart), whatever the size.
        The requests are exact. So are the domains, but that those whose requests all wait for a page of their crawl's
        budget are left out, and those just stopped are counted until their queues are gone."""

    async def backlog_domains(
        self, spider: str, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[tuple[str, int]], str]:
        """A page of the domains where requests of this spider wait, with their number (of the
        first 1,000 queues there), about `limit`, and the next page's cursor ('' at the end). A domain whose urgency
        changes meanwhile may be on two pages or on none. Raises BadInput for a cursor that is none."""

    async def find_url(self, run: Run, *, spider: str, domain: str, url: str, fingerprint: int) -> UrlInfo:
        """What is known of one URL. Looks through at most 100,000 queue entries."""

    async def stop_crawl(
        self, crawl: CrawlId, *, spider: str | None = None, state: CrawlState = CrawlState.STOPPED
    ) -> int:
        """Stop (or expire) a crawl or one spider's part of it; how many waiting requests were purged. From the next
        lease on nothing of it is handed out; what is leased may still be settled. Repeating it purges 0."""

    async def expire_due(self, *, limit: int = 100, shard: int | None = None) -> int:
        """Housekeeping for any process: stop as `expired` every part whose time has passed by the server's clock, at
        most `limit` (`shard`: only of crawls that are kept there). How many parts; one of a run that is over, or that
        has ended already, is none.

        A run that ends by itself after that time ends as expired, too: nothing depends on when this is called."""

    async def finish_idle(self, *, limit: int = 100, shard: int | None = None) -> int:
        """Housekeeping for any process: end the runs that have had nothing to do for their crawl's `idle_seconds`, at
        most `limit` of each shard (`shard`: only of this one). How many were looked at. A run that is to end at once
        needs no such call."""

    async def pending_events(
        self, *, limit: int = 100, shard: int | None = None, publisher: str = ""
    ) -> list[CrawlEvent]:
        """Ends of runs of the pool `shared` that nobody has confirmed as told, oldest first (`shard`: only of crawls
        that are kept there); one event per run, and
        one for each spider's part that was stopped or expired by itself. A run all of whose parts ended by themselves
        has no event beside theirs, a run to which nothing was ever added has none, and what is stopped after it ended
        has none any more. Of a part that expired, `purged` counts all its requests that were dropped for that.

        The same again until `acknowledge_events`. Kept for the retention after the end. `publisher`: name of a caller
        that publishes what it gets; for 5 s after that, every other publisher gets none of that shard's events."""

    async def acknowledge_events(self, events: Sequence[CrawlEvent]) -> None:
        """They have been told. May be repeated."""

    async def domain_policy(self, domain: str | None) -> DomainPolicy:
        """What the operator set for a domain itself (None: the default); an empty policy where nothing is set."""

    async def set_domain_policy(
        self, domain: str | None, policy: DomainPolicy | None, *, expected: DomainPolicy | None = None
    ) -> None:
        """Set or (None) remove a domain's policy; domain None: the default. In force from the next lease.

        `expected`: raise PoliciesChanged where another policy than this one (empty: none) or the new one is set; so two
        editors never lose what the other did. None: whatever is set."""

    async def domain_policies(self) -> tuple[DomainPolicy, dict[str, DomainPolicy]]:
        """The operator's default and all domains' policies."""

    async def policies_version(self) -> int:
        """Grows with every change of any policy."""

    async def replace_policies(
        self, default: DomainPolicy, policies: Mapping[str, DomainPolicy], *, expected_version: int
    ) -> int:
        """Put these in the place of all policies; the new version. Raises PoliciesChanged when they are no longer at
        `expected_version`, or somebody changes one meanwhile: what others did is never overwritten, what was done up to
        then stays. Repeat it with what is there then."""

    async def block_domain(self, domain: str, *, seconds: float) -> None:
        """Nothing of this domain is leased for so long, cluster-wide (Retry-After). Never shortens a block."""

    async def set_crawl_delay(self, domain: str, *, seconds: float) -> None:
        """What robots.txt asks between two hits; forgotten after a day."""

    async def load_robots(self, domain: str, origin: str) -> bytes | None:
        """The shared record of an origin's robots.txt. None: not known."""

    async def claim_robots(self, domain: str, origin: str, *, seconds: float) -> bool:
        """True: you are to fetch it, nobody else will for so long."""

    async def save_robots(self, domain: str, origin: str, record: bytes, *, ttl_seconds: float) -> None:
        """Share a record and end the claim. A domain's take at most about 8 MiB together: beyond it the oldest
        are forgotten."""

    async def release_robots_claim(self, domain: str, origin: str) -> None:
        """End a claim without a record: somebody else may fetch it. A record that is there stays."""

    async def close(self) -> None:
        """Close the connections. Not the leaseholders: close those first."""
