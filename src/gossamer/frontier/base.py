"""Interface of the frontier: the store of the URLs that wait, which leases them to workers and limits how fast each
domain is fetched.

Words: the frontier is divided into *shards* by domain; a crawl's state is on its *home shard*. A *run* is one life of a
crawl, from its first request until nothing is left; its *parts* are the shares of single spiders. *Terms* are the
options of one submission. A *lease* is the loan of a request to one worker, until the worker *settles* it. A *hit* is a
request that counts against a domain's rate limit. The *egress* is the public address that requests leave from. A *pool*
is a group of workers with requests of their own.

Every call is one atomic step per shard and may be repeated. Every call may raise FrontierUnavailable (repeat it) and
FrontierIncompatible; calls that add requests may raise FrontierFull. Callers rely on these promises and on those of the
docstrings; tests/contract/frontier checks them. Numbers in the docstrings (such as "20 s") are constants of
frontier/valkey and may change with them. Values of the enumerations may change only where their docstring allows it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Protocol

import msgspec

from gossamer.errors import BadInput, CrawlRefused, FrontierError
from gossamer.model.crawl import Crawl, CrawlEvent, CrawlId, CrawlState, DomainPolicy, QueryOrder, Rate, Run, Terms
from gossamer.model.info import AppInfo, Backlog, CrawlInfo, DomainInfo, UrlInfo, WorkerInfo
from gossamer.model.request import Batch, Lease, Settlement


class AddResult(msgspec.Struct):
    """Result of one `add`: `added + duplicates + len(rejected)` is the number of its URLs.

    A URL that is not rejected is in the run's seen-set.
    """

    added: int = 0
    duplicates: int = 0
    rejected: dict[tuple[int, int], str] = {}
    """(batch, position) of every URL that was dropped, and the reason: `budget` (domain_max_pending), `stopped`,
    `expired`. These URLs are not in the seen-set and may be found again. The reasons are stored, so they are fixed."""
    duplicate_positions: list[tuple[int, int]] = []
    """(batch, position) of every duplicate. For seeds only."""
    has_other_terms: bool = False
    """True: some duplicates are URLs that were queued under other terms. For seeds only."""

    @property
    def rejected_by_reason(self) -> dict[str, int]:
        """The number of rejected URLs by reason."""
        return dict(Counter(self.rejected.values()))


class Submission(msgspec.Struct):
    """One request to crawl something, as `submit` takes it."""

    crawl: Crawl
    terms: Terms
    batches: Sequence[Batch]
    expires: float | None = None
    """When the parts of the spiders of `batches` expire, in epoch seconds; 0: never. None: unchanged."""
    fresh: bool = False
    """True: a finished crawl begins a run with an empty seen-set; a running crawl is joined."""
    idempotency_key: str = ""
    """Key of a fresh submission, the same on each repetition within an hour: all begin or join one run. Empty: none."""


class SubmissionResult(msgspec.Struct):
    """Result of a submission."""

    run: Run
    """The run that the submission joined."""
    added: AddResult
    joined_running: bool = False
    """True: the submission asked for a fresh run, and joined the one that is running."""
    exceeds_earlier_terms: bool = False
    """True: this run took in some of its duplicates under a smaller maxdepth or a narrower scope."""


class RedirectPermit(StrEnum):
    """Answer to a worker that wants to follow a redirect inside a domain. The values are free: nothing stores them."""

    GRANTED = "granted"
    """A hit was charged: fetch the target now."""
    WAIT = "wait"
    """No hit is free, or the answer came too late: settle as `forwarded`. The target is already marked as seen."""
    SEEN = "seen"
    """The target was seen in this run: the request ends here, with a record that shows the redirects."""


class Leaseholder(Protocol):
    """One worker's client of the frontier. Tasks may share it only where a method says so.

    The worker has a session with a name of its own on each shard. A shard that received no heartbeat for too long
    declares the session dead and gives its leases to other workers. The worker then continues with a new session on
    this shard, and `holds` returns False for the leases that it lost; its leases on other shards are not concerned.

    A shard that does not answer is asked again in the background; calls do not wait for it while others answer.
    """

    @property
    def worker(self) -> str:
        """The worker's name. The names of its sessions begin with it."""

    async def lease(self, *, limit: int) -> list[Lease]:
        """Return at most `limit` requests that are due. Empty means 'none now', not 'finished'.

        Raises FrontierUnavailable when no shard answers."""

    def holds(self, lease: Lease) -> bool:
        """Return whether the worker still holds this lease: it is not settled, and was not given to another worker."""

    async def settle(self, settlements: Sequence[Settlement], *, data_epoch: int | None = None) -> None:
        """Report outcomes. May run beside `lease`. May be repeated.

        Each outcome is reported under the session that leased the request, so a late report does not concern later
        leases. One of a lease that is settled already, or whose session was declared dead, changes nothing.

        `data_epoch`: the data epoch in which the frontier confirmed the outlinks of these requests. Raises
        FrontierForgot when a later one has begun: add the outlinks again first."""

    async def request_redirect(self, lease: Lease, *, fingerprint: int, payload: bytes) -> RedirectPermit:
        """Request a hit for a redirect inside the lease's domain.

        `payload` (the redirects so far) replaces the payload of the entry, so that a worker that takes the request over
        continues there. Raises LeaseLost."""

    async def charge_hit(self, run: Run, *, spider: str, domain: str, egress: str = "") -> float | None:
        """Charge a hit for a request that did not come from a queue (an image, a call of an API), and that leaves from
        `egress` (empty: the worker's first). Returns 0: send the request now; the number of seconds after which to ask
        again; or None: the domain is paused or blacklisted. The request does not count as in flight. A call whose reply
        was lost may have charged a hit: repeating it makes the crawl slower, never faster."""

    def take_browser_lane(self) -> None:
        """Also lease requests that are to be rendered, from now on. May be repeated."""

    def set_egress(self, *egresses: str) -> None:
        """Set the address that the worker fetches from, beginning with the next lease; with several, each lease is for
        one of them (`Lease.egress`). Empty: the address has no name."""

    async def wait_for_work(self, *, timeout_seconds: float) -> None:
        """Return when a request may be due, when new requests arrived, or after `timeout_seconds`."""

    @property
    def has_later_work(self) -> bool:
        """True if the last lease calls found requests that wait for their site's turn, or for a retry."""

    @property
    def has_capped_work(self) -> bool:
        """True if the last lease calls found requests that wait only until others of their domains, which are in
        flight, have ended."""

    def session_name(self, shard: int) -> str:
        """Return the name of the worker's current session on the shard."""

    async def heartbeat(self, shard: int | None = None) -> float:
        """Send a heartbeat to a shard (None: to all). `lease` and `settle` send one to their shards, too.

        Returns the number of seconds until some other worker counts as dead there, if it stays silent; 0: one does, and
        `maintain` takes its leases back."""

    async def ping(self) -> None:
        """Return when any shard answers. Raises FrontierUnavailable when none does."""

    async def close(self) -> None:
        """Put all unsettled leases back in front of their queues, and end the sessions.

        Leases of a shard that does not answer are reclaimed later, as those of a dead worker."""


class RunFinished(FrontierError):
    """The run has finished."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"{run.crawl.id}, run {run.number}")
        self.run = run


class Lane(StrEnum):
    """A kind of worker: Gossamer's own (fast), or a Scrapy process. A spider runs in one lane or in both.

    The values are in keys of running frontiers, so they are fixed.
    """

    FAST = "fast"
    SCRAPY = "scrapy"


class ClaimResult(IntEnum):
    """Answer to a claim of a task that one process does once in a crawl. The values are those of claim.lua."""

    HELD_BY_OTHER = -1
    """Another process is doing it."""
    DONE = 0
    """The task is done: the caller does not do it."""
    GRANTED = 1
    """The caller does the task."""


class SpiderRegistry(Protocol):
    """The spiders that processes have announced, each with the lanes (kinds of worker) that run it.

    The lane decides which requests are duplicates. Requests to a spider that only Scrapy runs are remembered by
    Scrapy's default fingerprint, all others by method, canonical URL and body. A process that does not know yet that a
    spider is Scrapy's uses the wrong fingerprint; then a page may be fetched a second time, but none is lost.
    """

    async def announce(self, lane: Lane, names: Collection[str]) -> None:
        """Announce that this lane runs these spiders. The announcement is kept for 30 days: repeat it before."""

    async def refresh(self, names: Collection[str]) -> None:
        """Read the announcements again if one of these spiders is not known, or after 10 s."""

    def lanes(self, name: str) -> frozenset[Lane]:
        """Return the lanes that had announced the spider when the announcements were last read. Empty: unknown."""

    def names(self) -> frozenset[str]:
        """Return all spiders that were announced when the announcements were last read."""

    def fingerprint(
        self,
        spider: str,
        url: str,
        *,
        method: str = "GET",
        body: bytes = b"",
        query_order: QueryOrder = QueryOrder.SIGNIFICANT,
    ) -> int:
        """Return the fingerprint of a request to a spider, a signed 64-bit number.

        `url` is canonical. `query_order` comes from the terms of the request; only the fast lane uses it."""


class Frontier(Protocol):
    """Client of the whole frontier: submits requests, reads its state, steers crawls, opens workers' leaseholders.

    An implementation may be used by the tasks of one event loop; another loop needs a `clone`.
    """

    @property
    def secret(self) -> int:
        """Key of the fingerprints (unsigned 64-bit), made once per frontier. A frontier that lost its data may get
        another one."""

    @property
    def reclaimed(self) -> int:
        """Number of requests that this client has taken back from dead workers."""

    @property
    def lost_shards(self) -> int:
        """Number of times this process found a shard without its data, because its server restarted without them or a
        person deleted them. `check_data` and `maintain` look. The frontier remains usable, but empty."""

    async def check_data(self) -> None:
        """Check on every shard whether its data are there, and count those without in `lost_shards`."""

    @property
    def spiders(self) -> SpiderRegistry:
        """The spiders that processes have announced."""

    @property
    def shard_count(self) -> int:
        """Number of shards. A call that concerns one shard does not wait for the others."""

    def shard_of(self, domain: str) -> int:
        """Return the shard that a domain lives on."""

    def shard_load(self, shard: int) -> float:
        """Return the share of a core that the shard's server used in the last seconds, 0 to 1. 0: it is not known."""

    @property
    def data_epoch(self) -> int:
        """Number of the current data epoch: the time in which this process may rely on the frontier's answers. It grows
        whenever the frontier may have lost some of what it confirmed last (its server was restarted from an older file,
        or a replica took over). Mostly nothing was lost. A cache of the frontier's content must not rely on answers of
        an earlier data epoch."""

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

    async def set_crawl_limits(self, run: Run, *, rate: Rate | None, concurrency: int | None) -> Run:
        """Change the rate and the concurrency that a running crawl requests for every domain; returns the changed run.
        The next lease applies them."""

    async def add(self, run: Run, terms: Terms, batches: Sequence[Batch], *, seeds: bool = False) -> AddResult:
        """Queue the URLs that this run has not seen. Dedupe and enqueue are one step.

        Repeat a call that raised FrontierUnavailable with the same Batch objects: within an hour it returns the result
        of a single call.

        `seeds`: a person or program submits these URLs; where the run has just finished, they begin the next one
        (CrawlRefused when the crawl was stopped). Otherwise they are outlinks: a run that is over rejects them as
        `stopped`, and those not added are counted when their page is settled (`Settlement.drops`)."""

    async def retry_failed(self, run: Run, terms: Terms, *, keep_reason: str = "") -> tuple[Run, int]:
        """Queue again what the crawl of this run has kept of its failed requests (`Crawl.keep_failed`), and give these
        terms to all of its requests. Returns the run that they joined, and their number. May be repeated.

        `keep_reason`: requests that ended for this reason stay kept; empty: none."""

    async def submit(self, submissions: Sequence[Submission]) -> list[SubmissionResult | CrawlRefused | BadInput]:
        """Submit hundreds of requests to any crawls in a few calls: `open_crawl` and `add` (as seeds) for each.

        Returns one answer for each, in order: an error (not raised) where a submission was refused as a whole.

        A finished crawl begins its next run only for a submission that adds something: a submission whose URLs its last
        run has seen returns duplicates of that run. Where that run saw them under a smaller maxdepth or a narrower
        scope, the next run is a fresh one, which fetches all pages again.

        When this raises, some submissions may have been carried out. Repeat all of them: URLs that were added already
        then count as duplicates. A `run` of the results may have ended since; `latest_run` returns the current one."""

    async def claim(self, run: Run, names: Sequence[str], *, owner: str) -> list[ClaimResult]:
        """Claim tasks that one process does once in a crawl, for the process `owner`. Owner "": mark them as done.

        A claim that is not repeated for 20 s is free again. Returns one answer for each, in order. The frontier
        remembers the tasks for 30 days after the last call, and forgets them when a fresh run begins."""

    async def claim_keys(self, run: Run, keys: Sequence[str], *, owner: str) -> list[bool]:
        """Give those of these keys of items to the request `owner` that no other request has. Returns for each, in
        order, whether the request has it now. May be repeated.

        The frontier remembers the keys for 30 days after the last call, and forgets them when a fresh run begins. A
        key takes about 150 bytes of the memory of the crawl's home shard."""

    async def open_leaseholder(
        self, *, pool: str, spiders: Sequence[str], egress: str = "", plain: bool = True, browser: bool = False
    ) -> Leaseholder:
        """Return a leaseholder for a worker that takes these spiders' requests in this pool and fetches from the egress
        address.

        `plain`, `browser`: which lanes it takes: requests that are fetched plainly, and those that are to be rendered
        (`Lease.render`). At least one of them."""

    async def announce_browser(self, *, pool: str, worker: str, seconds: float) -> None:
        """Announce that a worker of this pool has a browser, and takes requests that are to be rendered. Repeat it
        before `seconds` have passed; 0 ends the announcement."""

    async def browser_workers(self) -> dict[str, frozenset[str]]:
        """Return the workers with a browser that are announced now, by pool. A pool without any is missing."""

    async def heartbeat_for(self, shard: int, session_name: str) -> None:
        """Send a heartbeat to a shard for a worker that cannot send it itself.

        Does nothing for a session that the shard does not know or has declared dead."""

    def clone(self) -> "Frontier":
        """Return the same frontier over connections of its own, for the event loop of another thread. The caller closes
        it. It connects when it is first used, also where some shards do not answer."""

    async def maintain(self, *, may_declare_dead: Callable[[], bool] | None = None, shard: int | None = None) -> int:
        """Run the periodic maintenance of a shard (None: of all): reclaim leases of dead workers, finish idle crawls,
        resume interrupted operations, delete what is past its retention. Any process may call it at any time.

        Returns the number of reclaimed requests. Steps that also concern a shard that does not answer are left for
        later.

        `may_declare_dead` is asked immediately before workers without a recent heartbeat are declared dead: False if
        this process has just started, or was itself cut off from the frontier a moment ago (see `LivenessJudge`). None:
        they may be."""

    async def repair(self, crawl: CrawlId | None = None) -> bool:
        """Compare what a crawl (None: every crawl) has in the frontier with its lists and counts, and correct these:
        a server that lost a part of its writes may have left queues that no worker gets, and wrong counts. Requests
        that are counted and nowhere to be found count as dropped (LOST) afterwards. Returns whether anything was
        wrong.

        Safe beside workers, and without effect where nothing is wrong; but it reads everything, so it is for crawls
        that should go on and do not. `maintain` calls it by itself after a start of a server that is known to lose
        writes in that way."""

    async def crawl_info(self, crawl: CrawlId) -> CrawlInfo | None:
        """Return a crawl's state and counters, at the same cost for any size. None: no such crawl, or past its
        retention."""

    async def crawl_infos(self, crawls: Sequence[CrawlId]) -> list[CrawlInfo | None]:
        """Return `crawl_info` of each of these crawls, in order, in a few calls for hundreds of them."""

    async def list_crawls(
        self, *, appid: str | None = None, state: CrawlState | None = None, cursor: str = "", limit: int = 100
    ) -> tuple[list[CrawlInfo], str]:
        """Return a page of about `limit` crawls, of one application or all, in one state or any; and the cursor of the
        next page ('' at the end). Pages are as those of `list_crawl_ids`; a page may be short or empty and have a next
        one.

        The cost does not grow with the number of crawls; running crawls are listed apart."""

    async def app_info(self, appid: str, *, spider: str = "") -> AppInfo:
        """Return how much of an application waits, for one spider (empty: all). The cost does not grow with its
        crawls."""

    async def first_domains(self, crawls: Sequence[CrawlId], *, limit: int) -> list[list[DomainInfo]]:
        """Return for each crawl at most `limit` of the domains where requests wait. The domains of a stopped crawl are
        listed until their queues are deleted."""

    async def crawl_domains(
        self, crawl: CrawlId, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[DomainInfo], str]:
        """Return a page of about `limit` domains with waiting requests, and the cursor of the next page ('' at the
        end)."""

    async def list_crawl_ids(
        self, *, appid: str | None = None, cursor: str = "", limit: int = 100
    ) -> tuple[list[CrawlId], str]:
        """Return a page of about `limit` crawls of all pools that are known (running, within their retention, or
        stopped or expired), of one application or all; and the cursor of the next page ('' at the end).

        The pages contain every crawl that exists throughout, perhaps those that come or go meanwhile, and perhaps a
        crawl twice. In no order. Raises BadInput for an invalid cursor."""

    async def latest_run(self, crawl: CrawlId) -> Run | None:
        """Return the crawl's newest run, running or over, as it was opened. None: no such crawl."""

    async def crawl_terms(self, crawl: CrawlId) -> list[Terms]:
        """Return the distinct terms of the submissions to a crawl, those of earlier runs too; at most 100, in no order.
        Empty: no such crawl, or nothing was added."""

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers of all pools that sent a heartbeat in time; by name."""

    async def backlog(self) -> list[Backlog]:
        """Return for each spider what waits in the queues of all pools, without retries that are not due. The cost does
        not grow with it.

        The number of requests is exact. So is the number of domains, except that domains whose requests all wait for a
        page of their crawl's budget are left out, and those just stopped count until their queues are deleted."""

    async def backlog_domains(
        self, spider: str, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[tuple[str, int]], str]:
        """Return a page of about `limit` domains where requests of this spider wait, with their number (in the first
        1,000 queues there), and the cursor of the next page ('' at the end).

        A domain whose urgency changes meanwhile may be on two pages or on none. Raises BadInput for an invalid
        cursor."""

    async def find_url(self, run: Run, *, spider: str, domain: str, url: str, fingerprint: int) -> UrlInfo:
        """Return the state of one URL. Searches at most 100,000 entries of each queue, of the retries and of the failed
        requests that the crawl keeps. Of a request that is done, only the fingerprint is left, so how it ended is not
        known, with the two exceptions that `UrlInfo` names."""

    async def stop_crawl(
        self, crawl: CrawlId, *, spider: str | None = None, state: CrawlState = CrawlState.STOPPED
    ) -> int:
        """Stop (or expire) a crawl or one spider's part of it; returns how many waiting requests were purged. A crawl
        that has finished stays so: nothing is left to stop, and a later submission begins a new run. Only one that has
        workers of its own (a pool besides SHARED_POOL) which wait for more is stopped all the same, to end them.

        From the next lease on none of its requests is handed out; leased ones may still be settled. A repeated call
        purges 0."""

    async def expire_due(self, *, limit: int = 100, shard: int | None = None) -> int:
        """Stop as `expired` at most `limit` parts whose time has passed by the server's clock (`shard`: only of crawls
        with this home shard); returns their number. Any process may call it at any time.

        Parts of a run that is over, and parts that have ended already, do not count. A run that finishes after its time
        has passed ends as expired, too: nothing depends on when this is called."""

    async def finish_idle(self, *, limit: int = 100, shard: int | None = None) -> int:
        """Finish the runs that have had nothing to do for their crawl's `idle_seconds`, at most `limit` of each shard
        (`shard`: only of this one); returns how many were looked at. Any process may call it at any time.

        Runs whose `idle_seconds` is 0 finish without this call."""

    async def pending_events(
        self, *, limit: int = 100, shard: int | None = None, publisher: str = ""
    ) -> list[CrawlEvent]:
        """Return the ends of runs of the pool `shared` that are not acknowledged yet, oldest first (`shard`: only of
        crawls with this home shard). Repeated calls return the same until `acknowledge_events`, or the retention ends.

        There is one event per run, and one for each spider's part that was stopped or expired by itself. There is none
        for a run whose parts all ended by themselves, for a run to which nothing was ever added, and for a stop after
        the end. For a part that expired, `purged` counts all its requests that were dropped for that.

        `publisher`: name of a caller that publishes the events; for 5 s after a call that returned some, every other
        publisher gets no events of that shard."""

    async def acknowledge_events(self, events: Sequence[CrawlEvent]) -> None:
        """Delete events that have been published. May be repeated."""

    async def domain_policy(self, domain: str | None) -> DomainPolicy:
        """Return the operator's policy for a domain itself (None: the default); an empty policy where none is set."""

    async def set_domain_policy(
        self, domain: str | None, policy: DomainPolicy | None, *, expected: DomainPolicy | None = None
    ) -> None:
        """Set or (None) remove a domain's policy; domain None: the default. The next lease applies it.

        `expected`: raise PoliciesChanged unless this policy (empty: none) or the new one is set, so that two editors
        never overwrite each other's changes. None: overwrite any."""

    async def domain_policies(self) -> tuple[DomainPolicy, dict[str, DomainPolicy]]:
        """Return the operator's default and all domains' policies."""

    async def policies_version(self) -> int:
        """Return a number that grows with every change of any policy."""

    async def replace_policies(
        self, default: DomainPolicy, policies: Mapping[str, DomainPolicy], *, expected_version: int
    ) -> int:
        """Replace all policies by these; returns the new version.

        Raises PoliciesChanged when the version is not `expected_version`, or when another caller changes a policy
        meanwhile: its change is not overwritten, and changes made up to then stay. Read the policies and repeat."""

    async def block_domain(self, domain: str, *, seconds: float) -> None:
        """Lease no request of this domain to any worker for `seconds` (Retry-After). Never shortens a block."""

    async def set_crawl_delay(self, domain: str, *, seconds: float) -> None:
        """Set the delay between two hits that robots.txt requests; it is kept for a day."""

    async def load_robots(self, domain: str, origin: str) -> bytes | None:
        """Return the shared record of an origin's robots.txt. None: not known."""

    async def claim_robots(self, domain: str, origin: str, *, owner: str, seconds: float) -> bool:
        """Claim the fetch of a robots.txt. True: the caller is to fetch it, and no other `owner` will for `seconds`.
        May be repeated: the owner of a claim gets it again."""

    async def save_robots(self, domain: str, origin: str, record: bytes, *, ttl_seconds: float) -> None:
        """Share a record and release the claim. A domain's records take at most about 8 MiB together: beyond that the
        oldest are deleted."""

    async def release_robots_claim(self, domain: str, origin: str) -> None:
        """Release a claim without a record: another caller may fetch it. An existing record stays."""

    async def close(self) -> None:
        """Close the connections. Leaseholders are not closed: close them first."""
