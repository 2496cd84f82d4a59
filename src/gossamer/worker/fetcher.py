"""Works on one lease from start to end: robots.txt, fetch, redirects, retries, and then the page.

A lease is a request that the frontier (the cluster's store of requests) has handed to this worker. A hit is the charge
for it, to the site's rate limit. A request that is not finished goes back with one of four outcomes:

RETRY      it failed, and may succeed later: counts as an attempt, the hit is spent, waits for a delay
FORWARDED  the site has seen it, and sending again needs another hit: no attempt, the hit is spent, no delay
RETURNED   nothing was sent, because it is too late for the hit: no attempt, the hit is given back, no delay
POSTPONED  something else must come first, as its robots.txt: no attempt, the hit is spent, waits for a delay

Fixed: a request that a site may have seen needs another hit before anything is sent again; robots.txt and the scope are
checked for every URL; and the reasons, which records show (`spider_error`, `http_404`).
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.worker_session import FrontierAccess
from gossamer.errors import (
    BadInput,
    BadSpider,
    BlockedAddress,
    BrowserMissing,
    BrowserNotStarted,
    ConnectionLost,
    DnsFailed,
    FetchError,
    FrontierError,
    Http2Needed,
    LoginFailed,
    LoginUnanswered,
    NotSentInTime,
    ProxyFailed,
)
from gossamer.extract.encoding import content_type_of, is_html
from gossamer.extract.refusals import find_refusal
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.exchange import FetchRequest, FetchResponse, first_header, header_lines, redirect_location
from gossamer.frontier.base import RedirectPermit
from gossamer.model.assets import ASSET_SPIDER, Asset
from gossamer.model.crawl import login_of
from gossamer.model.record import Output, PageRecord, PageRefusal
from gossamer.model.request import MAX_DEATHS, Batch, DropReason, Lease, Outcome, Settlement, payload_size_error
from gossamer.option_names import named
from gossamer.policy.lateness import is_late, send_by
from gossamer.policy.pacing import Pacing
from gossamer.policy.refusal_rests import rest_seconds
from gossamer.policy.refusals import DEFAULT_FINDER, RefusalFinder
from gossamer.policy.repeated_pages import Repeat, RepeatedPages
from gossamer.policy.retry import (
    BROWSER_ENDS,
    REFUSED,
    Retry,
    decide,
    is_unanswered,
    longest_retrying,
    parse_retry_after,
)
from gossamer.policy.slow_hosts import SlowHosts
from gossamer.policy.urls import host, redirect_target, registered_domain
from gossamer.policy.words import fetch_error, follow_advice
from gossamer.telemetry import logs
from gossamer.telemetry.tally import WorkerCounts
from gossamer.worker.attempt import MAX_HOPS, Attempt
from gossamer.worker.context import Context, Contexts
from gossamer.worker.drops import drop_reason
from gossamer.worker.page import NOT_MODIFIED, PAGE_OVERHEAD_BYTES, PageReader, output_size
from gossamer.worker.proxies import WorkerProxies
from gossamer.worker.records import LARGE_BYTES, NO_TEXT, bare_record, page_record, wire_of, without_long_body
from gossamer.worker.robots import RobotsChecker, RobotsPostponed, RobotsRefused
from gossamer.worker.sitemaps import MAX_SITEMAP_BYTES, SitemapTurns

if TYPE_CHECKING:
    from gossamer.fetch.backend import FetchBackend
    from gossamer.render.backend import BrowserBackend
    from gossamer.session.site_session import SiteSession
    from gossamer.session.worker_sessions import WorkerSessions

log = logging.getLogger("gossamer.worker")

_BLOCKING_STATUSES = (429, 503)
"""Statuses whose Retry-After blocks the whole domain, for all workers. More domains then wait."""
_PUNCTUAL_SECONDS = 0.001
"""A request that is due within this time starts without a timer. Must stay far below the gaps between requests, which
it may shorten."""
_READING_FACTOR = 2
"""Memory that a page takes while it is read, as a multiple of its body: the body and its text. An estimate; a larger
one lets fewer large pages be read at once."""
_PAUSED_SECONDS = 1.0
"""Time after which a login asks again whether its site, which is paused, may be fetched from. Shorter costs calls."""
_NO_BROWSER_SECONDS = 30.0
"""Delay of a page for which no browser has started. A shorter one spends more hits of its site in vain."""
_MOST_RENEWALS = 10
"""Times that a page is repeated because its session had ended, by all workers together. The page ends earlier where one
worker sees it twice; fewer fail pages that were given from one worker with an old session to the next."""
_SHOWN_CHARACTERS = 200
"""Characters of an invalid Location that a record shows. More only make failed records larger."""
_NOT_TOLD = (DropReason.DUPLICATE, DropReason.BUDGET, DropReason.STOPPED, DropReason.EXPIRED, DropReason.MOVED)
"""Reasons of a dropped seed that are no error of the person who started the crawl."""


class FetchPolicy(msgspec.Struct, frozen=True):
    """Settings of a worker's fetches."""

    keep_wire: bool
    """True: an output wants the bytes as they were sent."""
    retries: int
    """Retries of a request whose terms (the options of its submission) name no number."""
    retry_base_seconds: float
    """Delay before the first retry; it doubles with each further one."""
    asset_bytes: int
    """Largest asset, a file that a page embeds or links. A longer one fails."""
    body_bytes: int
    """Largest body that a record has. Of a sitemap, more than that is read."""
    proxies: WorkerProxies
    open_browser: "Callable[[], BrowserBackend]"
    """Returns the backend of rendered pages when the first one comes."""
    sessions_of: "Callable[[Lease], WorkerSessions]"
    """Returns the sessions of a lease whose crawl asks for them."""
    refusals: RefusalFinder = DEFAULT_FINDER
    """Finds out which responses are refusals by the site."""


class Fetcher:
    """Turns leases into finished leases. Calls of `process` overlap, one for each slot of the worker."""

    def __init__(
        self,
        access: FrontierAccess,
        clients: "FetchBackend",
        robots: RobotsChecker,
        contexts: Contexts,
        reader: PageReader,
        counts: WorkerCounts,
        *,
        policy: FetchPolicy,
        budget: ByteBudget,
    ) -> None:
        """`counts`: counts with the worker's tally. `budget`: the one of bytes in which `clients` count the bodies that
        they receive. Large pages count in it until they are committed."""
        self._frontier = access.frontier
        self._holder = access.holder
        self._retrier = access.retrier
        self._clients = clients
        self._robots = robots
        self._contexts = contexts
        self._proxies = policy.proxies
        self._reader = reader
        self._counts = counts
        self._tally = counts.tally
        self._keep_wire = policy.keep_wire
        self._retries = policy.retries
        self._retry_base_seconds = policy.retry_base_seconds
        self._asset_bytes = policy.asset_bytes
        self._body_bytes = policy.body_bytes
        self._sitemap_turns = SitemapTurns()
        self._budget = budget
        self._open_browser = policy.open_browser
        self._refusals = policy.refusals
        self._repeated = None if policy.refusals.accepts_repeats else RepeatedPages()
        self._sessions_of = policy.sessions_of
        self._browser: BrowserBackend | None = None
        self._last_context: Context | None = None
        self._slow_hosts = SlowHosts()
        self._pacing = Pacing()

    def pages_in_browser(self) -> tuple[int, int]:
        """Return the number of pages that a browser builds, or that wait for a tab, and of those among them that were
        leased as plain ones."""
        browser = self._browser
        return (0, 0) if browser is None else (browser.pages_in_progress, browser.unasked_in_progress)

    def process(self, lease: Lease) -> Coroutine[Any, Any, FinishedLease]:
        """Return the result of a lease. Raises LeaseLost; a page that fails in any other way becomes a record."""
        try:
            attempt = Attempt(lease, self._context(lease))
        except Exception as error:
            return self._fail_unstarted(lease, error)
        if attempt.context.terms.session or login_of(lease.run.crawl.pool):
            return self._fetch_in_session(attempt)
        return self._fetch_of_its_kind(attempt)

    def _fetch_of_its_kind(self, attempt: Attempt) -> Coroutine[Any, Any, FinishedLease]:
        """Return the result of an attempt: a sitemap, a page whose main content is wanted, or another one."""
        if attempt.payload.sitemap:
            return self._fetch_sitemap(attempt)
        if attempt.context.terms.content is None or attempt.payload.asset is not None:
            return self._fetch(attempt)
        return self._fetch_for_content(attempt)

    def _context(self, lease: Lease) -> Context:
        """Return the context of a lease, which is mostly that of the lease before."""
        last, terms, run = self._last_context, lease.terms, lease.run
        if last is None or last.terms is not terms or last.run is not run or last.spider_name != lease.spider:
            last = self._last_context = self._contexts.for_lease(lease)
        return last

    async def _fetch_sitemap(self, attempt: Attempt) -> FinishedLease:
        """Fetch a sitemap when it is its turn. Where that took long, it is given back: the pages of the one before go
        first."""
        lease = attempt.lease
        async with self._sitemap_turns.take(lease.run.crawl.id.token, lease.domain) as record:
            finished = await self._fetch(attempt)
            if attempt.listed_pages is not None:
                record(attempt.listed_pages)
            return finished

    async def _fetch_for_content(self, attempt: Attempt) -> FinishedLease:
        """Fetch a page whose main content is wanted. If too many of them are in progress, postpone it for a moment, so
        that other crawls have slots."""
        contents = self._reader.contents
        try:
            delay_seconds = contents.delay_seconds
            if delay_seconds and attempt.lease.deaths < MAX_DEATHS and not attempt.lease.blacklisted:
                return self._requeue(attempt, Outcome.POSTPONED, delay_seconds)
            with contents.place():
                return await self._fetch(attempt)
        except FrontierError:
            raise
        except Exception as error:
            return self._fail_unexpectedly(attempt, error)

    async def _fetch(self, attempt: Attempt) -> FinishedLease:
        """Fetch the attempt's URL and the redirects from it, and return the result. For most pages nothing here waits
        but the HTTP client: what may have to wait has a check before it that does not."""
        lease = attempt.lease
        try:
            if lease.deaths >= MAX_DEATHS or lease.blacklisted:
                return self._refuse(attempt)
            while True:
                try:
                    if attempt.context.proxy is not None and not self._proxies.choose(attempt):
                        return self._requeue(attempt, Outcome.FORWARDED)
                    request = attempt.request(keep_wire=self._keep_wire)
                    if not self._robots.allows_at_once(attempt):
                        verdict = await self._robots.check(attempt, request)
                        if verdict is not None:
                            return self._refuse_by_robots(attempt, verdict)
                        if attempt.context.proxy is not None:  # its proxy may rest since the robots.txt was fetched
                            if not self._proxies.choose(attempt):
                                return self._requeue(attempt, Outcome.FORWARDED)
                            request.proxy = attempt.proxy
                    now = time.monotonic()
                    at = self._pacing.next_start(lease.domain, attempt.start, lease.spacing_seconds, now=now)
                    if at is None or (at - now > _PUNCTUAL_SECONDS and await self._wakes_late(attempt, at - now)):
                        # Its robots.txt took long. Others waited for it, too: without new hits all would be sent now.
                        return self._give_back(attempt)
                    name, began = host(attempt.url), time.monotonic()
                    allowed = self._set_limits(attempt, request, name, now=began)
                    timeout = attempt.context.terms.timeout_seconds
                    try:
                        renders = lease.render or lease.terms.render_match or lease.terms.render_auto
                        backend = self._backend(attempt, request) if renders else self._clients
                        fetched = await backend.fetch(request, timeout, wait_for_room=True)
                    except NotSentInTime as error:
                        self._note_late(name, error, allowed=allowed, began=began)
                        return self._give_back(attempt)
                    self._count_response(attempt, name, fetched)
                    if self._is_small_page(attempt, fetched, name):
                        finished = await self._reader.read(attempt, fetched)
                        if attempt.content_encoding is not None or finished.size >= LARGE_BYTES:
                            await self._keep(attempt, finished)
                        return finished
                    if (ended := await self._handle_response(attempt, fetched)) is not None:
                        return ended
                except FetchError as error:
                    if isinstance(error, BlockedAddress):
                        return self._drop(attempt, DropReason.BLOCKED_ADDRESS, str(error))
                    if not self._proxies.on_failure(attempt, error):
                        finished = self._handle_failure(attempt, error)
                        await self._keep(attempt, finished)  # the record may have a large body
                        return finished
        except BadInput as error:
            return self._fail(attempt, "bad_request", str(error))
        except BrowserMissing as error:
            return self._without_browser(attempt, error)
        except FrontierError:
            raise
        except Exception as error:
            return self._fail_unexpectedly(attempt, error)

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def _fetch_in_session(self, attempt: Attempt) -> FinishedLease:
        """Fetch with the cookies and the login that the crawl has at the site. Without an account, or after a failed
        login, the request goes back."""
        lease, login = attempt.lease, login_of(attempt.lease.run.crawl.pool)
        needs_login = lease.terms.session == "login"
        if lease.run.crawl.is_of_service and needs_login != bool(login):  # it was sent while the crawl began
            begun = f"with the login {login}" if login else "without a login"
            return self._fail(attempt, "bad_request", f"its crawl had begun {begun}")
        session: SiteSession | None = None
        try:
            sessions = self._sessions_of(lease)
            sessions.in_use += 1  # before the login: an account that seems idle is given to another worker
            try:
                if needs_login and not sessions.has_accounts:
                    raise LoginFailed(f"This crawl needs a login. Start it with {named('session', 'FILE')} here, too.")
                session = sessions.session_for(lease.domain)
                if session is None:
                    return self._give_back(attempt)
                if attempt.context.proxy is not None and not self._proxies.choose(attempt):
                    return self._requeue(attempt, Outcome.FORWARDED)
                await session.prepare(attempt.login_request, partial(self._send_login, attempt))
                attempt.session = session
                return await self._fetch_of_its_kind(attempt)
            finally:
                sessions.in_use -= 1
        except LoginFailed as error:
            sessions.fail(error, session)
            return self._give_back(attempt)
        except FetchError as error:  # all proxies rest, or the login got no answer
            return self._handle_failure(attempt, error)
        except BadInput as error:
            return self._fail(attempt, "bad_request", str(error))
        except FrontierError:
            raise
        except Exception as error:
            return self._fail_unexpectedly(attempt, error)

    async def _send_login(self, attempt: Attempt, request: FetchRequest) -> FetchResponse:
        """Charge a hit of the site, and send a request of a login."""
        lease, holder = attempt.lease, self._holder
        while True:
            wait = await self._retrier.call_frontier(
                lambda: holder.charge_hit(lease.run, spider=lease.spider, domain=lease.domain, egress=lease.egress),
                shard=lease.shard,
            )
            if self._sessions_of(lease).session_for(lease.domain) is None:
                raise LoginUnanswered("meanwhile the account was given to another worker")
            if wait == 0:
                return await self._clients.fetch(request, attempt.context.terms.timeout_seconds)
            await asyncio.sleep(_PAUSED_SECONDS if wait is None else wait)

    async def _receive_in_session(
        self, attempt: Attempt, session: "SiteSession", fetched: FetchResponse
    ) -> tuple[FetchResponse, FinishedLease | None]:
        """Take over the cookies of a response. Returns it without them; and the result of the request, if the session
        has ended: it is renewed, and the request is sent again."""
        if fetched.rendering is None:  # else the browser's backend has passed the cookies on
            attempt.has_new_cookies = session.receive(attempt.url, fetched, number=attempt.sent_by)
        fetched = session.without_cookies(fetched)
        if attempt.payload.asset is not None or attempt.payload.sitemap:
            return fetched, None
        requested = attempt.chain[0][0] if attempt.chain else attempt.url
        if not session.is_logged_out(fetched, url=attempt.url, requested=requested):
            session.on_page()
            return fetched, None
        try:
            number, request_id = attempt.login_number, attempt.request_id
            if session.was_made_for(request_id, number) or attempt.payload.renewals >= _MOST_RENEWALS:
                return fetched, self._fail(attempt, "logged_out", "", fetched)
            send = partial(self._send_login, attempt)
            if not await session.renew(number, attempt.login_request, send, status=fetched.status):
                return fetched, self._fail(attempt, "logged_out", "", fetched)
            session.repeat(request_id)
        except LoginFailed as error:
            self._sessions_of(attempt.lease).fail(error, session)
            return fetched, self._requeue(attempt, Outcome.FORWARDED)
        settlement = Settlement(attempt.lease, Outcome.FORWARDED, payload=attempt.packed_again())
        return fetched, FinishedLease(settlement, size=PAGE_OVERHEAD_BYTES)

    def _is_small_page(self, attempt: Attempt, fetched: FetchResponse, name: str) -> bool:
        """Return whether the response is a small page, as most are, and neither a redirect nor perhaps a refusal, and
        no session has to look at it."""
        return (
            200 <= fetched.status < 300
            and attempt.session is None
            and len(fetched.body) <= LARGE_BYTES
            and fetched.moved_to is None
            and not self._keep_wire
            and not attempt.payload.repeated
            and not self._refusals.may_be_refused(fetched.status, fetched.body, redirected=bool(attempt.chain))
            and not (
                self._repeated is not None
                and self._repeated.may_repeat(attempt.lease.run.crawl.id.token, name, fetched.body)
            )
        )

    def _backend(self, attempt: Attempt, request: FetchRequest) -> "FetchBackend":
        """Return the backend of a request: the browser for a page that is to be rendered, else the HTTP client."""
        reason = attempt.render_reason
        if not reason:
            return self._clients
        if self._browser is None:
            self._browser = self._open_browser()
        request.page = attempt.page_load(partial(self._robots.allows_load, attempt), reason)
        return self._browser

    def _set_limits(self, attempt: Attempt, request: FetchRequest, name: str, *, now: float) -> float:
        """Set the time by which the attempt's next request to this host must be sent: later, its hit is no longer
        valid. Returns the seconds more that a new connection to the host may take, because connecting takes long
        there."""
        allowed = self._slow_hosts.allowance(name, now=now) if self._slow_hosts else 0.0
        request.send_by = send_by(attempt.start, attempt.lease.spacing_seconds)
        request.connect_allowance = allowed
        if attempt.payload.asset is not None:
            request.body_bytes, request.whole_only = self._asset_bytes, True
        elif attempt.payload.sitemap:
            request.body_bytes, request.decoded_bytes = max(MAX_SITEMAP_BYTES, self._body_bytes), self._body_bytes
            request.keep_wire = True
        return allowed

    def _note_late(self, name: str, error: NotSentInTime, *, allowed: float, began: float) -> None:
        """Learn from a request that was not sent in time. `allowed`: what `_set_limits` has returned, at `began`."""
        if error.connecting:
            now, took = time.monotonic(), error.connect_seconds
            self._slow_hosts.on_late(name, took=took, allowed=allowed, began=began, now=now)

    def _count_response(self, attempt: Attempt, name: str, fetched: FetchResponse) -> None:
        """Count a response of this host, and learn how long connecting took."""
        timings = fetched.timings
        if timings.connect or timings.tls:
            self._slow_hosts.on_connected(name, took=timings.connecting, now=time.monotonic())
        if attempt.proxy is not None:
            self._proxies.on_response(attempt, fetched.status)
        self._counts.count_response(name, fetched.status, timings.total)
        self._tally.bytes += fetched.received_bytes
        for fault in fetched.faults:
            self._tally.count_fault(fault)

    async def _wakes_late(self, attempt: Attempt, seconds: float) -> bool:
        """Wait until the attempt's next request may start. Returns True if that is too late for its hit."""
        await asyncio.sleep(seconds)
        return is_late(attempt.start, attempt.lease.spacing_seconds, now=time.monotonic())

    async def _handle_response(self, attempt: Attempt, fetched: FetchResponse) -> FinishedLease | None:
        """Return the result; None: the attempt continues with a redirect.

        A large page counts in the budget while it is read, with its body and text, but not while its main content is
        extracted: other crawls' pages would wait for that. Then `_keep` counts it.
        """
        if attempt.session is not None:
            fetched, ended = await self._receive_in_session(attempt, attempt.session, fetched)
            if ended is not None:
                return ended
        location = fetched.moved_to or redirect_location(fetched.status, fetched.headers)
        if location is not None:
            fetched = without_long_body(fetched)
        if self._keep_wire:
            hidden = attempt.context.hidden_headers
            attempt.wires = (*attempt.wires, wire_of(fetched, attempt.body, time.time(), hidden=hidden))
        budget = self._budget
        size = max(len(fetched.body), len(fetched.wire_body or b""))
        reading = _READING_FACTOR * size if size > LARGE_BYTES else 0
        if reading:
            budget.retain(reading)
        try:
            if location is not None:
                finished = await self._follow_redirect(attempt, fetched, location)
            elif 200 <= fetched.status < 400 and (fetched.status != NOT_MODIFIED or attempt.is_conditional):
                finished = await self._read_page(attempt, fetched)
            else:
                finished = await self._handle_error_status(attempt, fetched)
        finally:
            if reading:
                budget.release(reading)
        if finished is not None:
            await self._keep(attempt, finished)
        return finished

    async def _read_page(self, attempt: Attempt, fetched: FetchResponse) -> FinishedLease:
        """Return the result of a request whose response has the status of a page, but may be a refusal."""
        if self._refusals.may_be_refused(fetched.status, fetched.body, redirected=bool(attempt.chain)):
            refusal = await self._find_refusal(attempt, fetched)
            if refusal is not None and refusal.kind == "empty":
                return await self._read_shell(attempt, fetched, refusal)
            if refusal is not None:
                return self._fail_refused(attempt, fetched, refusal)
        repeat = self._find_repeat(attempt, fetched)
        if repeat is not None:
            await self._rest(attempt, repeat.refusal)
            finished = self._fail_refused(attempt, fetched, repeat.refusal)
            finished.settlement.payload = attempt.packed_refused(repeat.text)
            return finished
        return await self._reader.read(attempt, fetched)

    async def _read_shell(self, attempt: Attempt, fetched: FetchResponse, refusal: PageRefusal) -> FinishedLease:
        """Return the result of a request whose response is empty until scripts build it. A spider reads it as any
        other, because it may ask for the page again, with a browser."""
        attempt.is_shell = True
        finished = await self._reader.read(attempt, fetched)
        record = finished.outputs[0].record
        assert isinstance(record, PageRecord)
        record.refusal = refusal
        if finished.settlement.outcome is not Outcome.FETCHED:  # the spider has failed
            return finished
        failed = self._fail_refused(attempt, fetched, refusal)
        failed.settlement.drops = finished.settlement.drops
        finished.settlement = failed.settlement
        finished.outputs = [*failed.outputs, *finished.outputs[1:]]
        return finished

    async def _find_refusal(self, attempt: Attempt, fetched: FetchResponse) -> PageRefusal | None:
        """Return the refusal that the response is, after a rest of its domain. None: it is none, or the request is for
        an asset."""
        if attempt.payload.asset is not None:
            return None
        refusal = find_refusal(
            fetched.status,
            fetched.headers,
            fetched.body,
            url=attempt.url,
            requested=attempt.requested_url,
            is_built=fetched.rendering is not None or bool(fetched.render_choice),
            finder=self._refusals,
        )
        if refusal is not None:
            await self._rest(attempt, refusal)
        return refusal

    def _find_repeat(self, attempt: Attempt, fetched: FetchResponse) -> Repeat | None:
        """Return the refusal that a page is because many other paths of its site have got the same one, perhaps from
        another process."""
        repeated, name, body = self._repeated, host(attempt.url), fetched.body
        crawl = attempt.lease.run.crawl.id.token
        if (
            repeated is None
            or fetched.status != 200
            or attempt.chain
            or attempt.method != "GET"
            or attempt.payload.asset is not None
        ):
            return None
        if attempt.payload.repeated:
            repeated.remember(crawl, name, body, text=attempt.payload.repeated)
        if not repeated.may_repeat(crawl, name, body):
            return None
        if not is_html(content_type_of(header_lines(fetched.headers, "content-type")), body, fetched.headers):
            return None
        return repeated.find(crawl, name, body, url=attempt.url)

    async def _rest(self, attempt: Attempt, refusal: PageRefusal) -> None:
        """Let the domain of a refusal rest for all workers, if such a refusal asks for that."""
        in_a_row = self._counts.refusals.in_a_row.get(host(attempt.url), 0) + 1
        if seconds := rest_seconds(refusal.kind, in_a_row):
            self._counts.rest(attempt.lease.domain, seconds)
            await self._block_domain(attempt, seconds, rests=True)

    async def _block_domain(self, attempt: Attempt, seconds: float, *, rests: bool = False) -> None:
        """Let no worker fetch from the attempt's domain for a time. `rests`: because of a refusal."""
        domain = attempt.lease.domain
        await self._retrier.call_frontier(
            lambda: self._frontier.block_domain(domain, seconds=seconds, rests=rests), shard=attempt.lease.shard
        )

    async def _keep(self, attempt: Attempt, finished: FinishedLease) -> None:
        """Add the main content of a page if it is wanted. Count a large page in the budget until it is committed, or
        pages that wait for a slow output would fill the memory."""
        if attempt.content_encoding is not None and finished.settlement.outcome is Outcome.FETCHED:
            await self._reader.contents.add(attempt, finished, attempt.content_encoding)
        if finished.size >= LARGE_BYTES:
            self._budget.retain(finished.size)
            finished.on_released = partial(self._budget.release, finished.size)

    # --- redirects ----------------------------------------------------------------------------------------------------

    async def _follow_redirect(self, attempt: Attempt, fetched: FetchResponse, location: str) -> FinishedLease | None:
        """Return the result; None: the target may be fetched now.

        Checks that cost the site nothing come first: a valid target, the number of redirects, loops, the scope, another
        domain (which has a budget of its own), robots.txt. The hit for the target is asked for last."""
        target = redirect_target(attempt.url, location)
        if target is None:
            return self._fail(attempt, "bad_redirect", f"it leads to {location[:_SHOWN_CHARACTERS]!r}", fetched)
        cookies_before = attempt.cookies
        attempt.redirect(fetched.status, fetched.headers, target)
        if len(attempt.chain) > MAX_HOPS:
            return self._fail(attempt, "too_many_redirects", f"more than {MAX_HOPS}", fetched)
        visited = any(url == target for url, _ in attempt.chain)
        if visited and (attempt.cookies != cookies_before or attempt.has_new_cookies):
            # Back to a visited URL with a new cookie: no loop, but it needs another hit.
            return self._requeue(attempt, Outcome.FORWARDED)
        if visited:
            return self._fail(attempt, "redirect_loop", f"back to {target}", fetched)
        context = attempt.context
        refusal = (context.deny_scope if attempt.payload.sitemap else context.scope).refusal(target)
        if refusal is not None:
            return self._drop(attempt, drop_reason(refusal.reason), f"{target}: {refusal.rule}", fetched)
        fingerprint = attempt.fingerprint(target)
        domain = registered_domain(host(target))
        if domain != attempt.lease.domain:
            return await self._move_to_domain(attempt, fetched, domain, fingerprint)
        if any(attempt.fingerprint(url) == fingerprint for url, _ in attempt.chain):
            # Only the order of the query changed, which is ignored: no duplicate of itself, but it needs another hit.
            return self._requeue(attempt, Outcome.FORWARDED)
        verdict = await self._robots.check(attempt, attempt.request(keep_wire=False))
        if verdict is not None:
            return self._refuse_by_robots(attempt, verdict)
        asked_at = time.monotonic()  # the hit is charged later than that, so this is the safe start time
        permit = await self._retrier.call_frontier(
            lambda: self._holder.request_redirect(attempt.lease, fingerprint=fingerprint, payload=attempt.packed()),
            shard=attempt.lease.shard,
        )
        if permit is RedirectPermit.GRANTED:
            attempt.start = asked_at
            return None
        if permit is RedirectPermit.WAIT:
            return self._requeue(attempt, Outcome.FORWARDED)
        return self._drop(attempt, DropReason.DUPLICATE, f"{target} was found before", fetched)

    async def _move_to_domain(
        self, attempt: Attempt, fetched: FetchResponse, domain: str, fingerprint: int
    ) -> FinishedLease:
        """Add the request to another domain, under that domain's budget and robots.txt. This
        lease ends as dropped (MOVED), although the request goes on."""
        lease = attempt.lease
        batch = Batch(
            lease.spider, domain, lease.priority, lease.depth, [lease.url], [fingerprint], [attempt.packed(moved=True)],
            call=f"{attempt.request_id}.{fingerprint}",  # a repeated call must not find its own request as a duplicate
            render=lease.render,
        )  # fmt: skip
        added = await self._retrier.call_frontier(
            lambda: self._frontier.add(lease.run, lease.terms, [batch]), shard=self._frontier.shard_of(domain)
        )
        if added.added:
            if attempt.payload.asset is None:
                self._tally.drop(DropReason.MOVED)
            return FinishedLease(Settlement(lease, Outcome.DROPPED, DropReason.MOVED), size=PAGE_OVERHEAD_BYTES)
        reason = next(iter(added.rejected_by_reason), DropReason.DUPLICATE.value)
        return self._drop(attempt, reason, f"{attempt.url} under {domain}", fetched)

    # --- other ends ---------------------------------------------------------------------------------------------------

    def _refuse(self, attempt: Attempt) -> FinishedLease:
        """Return the result of a request that killed too many workers, or whose domain is blacklisted."""
        deaths = attempt.lease.deaths
        if deaths >= MAX_DEATHS:
            return self._fail(attempt, "worker_died", f"{deaths} workers died with it")
        return self._drop(attempt, DropReason.BLACKLISTED, "its domain is on the operator's blacklist")

    def _refuse_by_robots(self, attempt: Attempt, verdict: RobotsRefused | RobotsPostponed) -> FinishedLease:
        """Return the result of a request that robots.txt forbids, or whose robots.txt is not known yet."""
        if isinstance(verdict, RobotsPostponed):
            return self._requeue(attempt, Outcome.POSTPONED, verdict.seconds, "robots_unreachable")
        if verdict.unreachable:
            finished = self._fail(attempt, "robots_unreachable", verdict.rule)
        else:
            finished = self._drop(attempt, DropReason.ROBOTS, verdict.rule)
        # Its hit is given back if nothing was sent: URLs that a site forbids must not take the time of its requests.
        finished.settlement.unused = not attempt.was_sent
        return finished

    def _handle_failure(self, attempt: Attempt, error: FetchError) -> FinishedLease:
        """Return the result of a request without a response: another attempt, or a failure."""
        if isinstance(error, ConnectionLost) and error.repeatable:
            # Not a failed attempt, but the site saw the request: sending it again needs another hit. This ends, because
            # connections to the site are not reused after two such losses, and by HTTP/2 each needs a response of its
            # connection.
            return self._requeue(attempt, Outcome.FORWARDED)
        if isinstance(error, BrowserNotStarted):  # not the page's fault, which was in none
            return self._requeue(attempt, Outcome.POSTPONED, _NO_BROWSER_SECONDS, error.kind)
        # A name that does not exist: a person has mistyped a seed, and need not wait for retries to read that again.
        denied = isinstance(error, DnsFailed) and error.denied and not attempt.chain
        mistyped = denied and self._counts.seeds is not None and attempt.is_seed(self._tally.pages)
        wait = error.wait_seconds if isinstance(error, ProxyFailed) else None
        hopeless = mistyped or (isinstance(error, Http2Needed) and error.is_sure)
        retry = None if hopeless else self._decide_retry(attempt, error.kind, wait)
        if retry is not None:
            if error.kind in BROWSER_ENDS:
                attempt.payload = msgspec.structs.replace(
                    attempt.payload, browser_ends=attempt.payload.browser_ends + 1
                )
            return self._retry(attempt, error.kind, retry, error.detail)
        # The status and headers of a response without a usable body belong to its record.
        return self._fail(attempt, error.kind, str(error), error.response)

    async def _handle_error_status(self, attempt: Attempt, fetched: FetchResponse) -> FinishedLease:
        """Return the result of a request whose response is not a page: 4xx, 5xx and unknown statuses, and 304 where
        nothing was said to be known."""
        retry_after = None
        if fetched.status in _BLOCKING_STATUSES:
            value = first_header(fetched.headers, "retry-after")
            retry_after = None if value is None else parse_retry_after(value, now=time.time())
            if retry_after:
                await self._block_domain(attempt, retry_after)
        refusal = await self._find_refusal(attempt, fetched)
        if self._proxies.has_another(attempt, fetched.status) and self._decide_retry(attempt, "proxy", None):
            return self._retry(attempt, f"http_{fetched.status}", Retry(0.0))
        retry = self._decide_retry(attempt, fetched.status, retry_after)
        if retry is not None:
            return self._retry(attempt, f"http_{fetched.status}", retry)
        if refusal is not None:
            return self._fail_refused(attempt, fetched, refusal)
        return self._fail(attempt, f"http_{fetched.status}", "", fetched)

    def _decide_retry(self, attempt: Attempt, failure: str | int, retry_after: float | None) -> Retry | None:
        """Return the retry of a failed request; None: it has failed for good. `failure`: a status, or a reason without
        one."""
        if failure in BROWSER_ENDS and attempt.payload.browser_ends:
            return None
        retries = attempt.context.terms.retries
        decision = decide(
            failure,
            attempt.lease.attempt + 1,
            self._retries if retries is None else retries,
            random=random.random(),
            base_seconds=self._retry_base_seconds,
            retry_after_seconds=retry_after,
        )
        return decision if isinstance(decision, Retry) else None

    def _without_browser(self, attempt: Attempt, error: BrowserMissing) -> FinishedLease:
        """Leave a page whose URL is to be rendered to workers with a browser; fail one that came here as to one of
        them. The hit was not used, unless a redirect led here."""
        if attempt.lease.render:
            return self._fail(attempt, "browser", str(error))
        finished = self._requeue(attempt, Outcome.SWITCHED)
        if finished.settlement.outcome is Outcome.SWITCHED:
            finished.settlement.payload = attempt.packed_for_browser(error.why) or finished.settlement.payload
            finished.settlement.unused = not (attempt.was_sent or error.was_sent)
        return finished

    def _give_back(self, attempt: Attempt) -> FinishedLease:
        """Return the request to the front of its domain, for another hit. The hit of this lease is spent if a request
        was sent under it."""
        if attempt.was_sent:
            return self._requeue(attempt, Outcome.FORWARDED)
        return FinishedLease(Settlement(attempt.lease, Outcome.RETURNED), size=PAGE_OVERHEAD_BYTES)

    def _retry(self, attempt: Attempt, reason: str, retry: Retry, detail: str = "") -> FinishedLease:
        """Return the request to the frontier, for another attempt after the delay of `retry`."""
        self._counts.tally.retry(reason)
        retries = attempt.context.terms.retries
        retrying_seconds = longest_retrying(
            attempt.lease.attempt + 1,
            self._retries if retries is None else retries,
            base_seconds=self._retry_base_seconds,
            first_seconds=retry.delay_seconds,
        )
        self._tell_if_seed(attempt, reason, detail, retrying_seconds=retrying_seconds)
        return self._requeue(attempt, Outcome.RETRY, retry.delay_seconds, reason)

    def _tell_if_seed(
        self, attempt: Attempt, reason: str, detail: str, *, advice: str = "", retrying_seconds: float = 0.0
    ) -> None:
        """Tell a person why a seed cannot be fetched."""
        seeds = self._counts.seeds
        if seeds is None or not attempt.is_seed(self._tally.pages) or not seeds.wants(reason):
            return
        detail = detail.removeprefix(f"{reason}: ")
        text = fetch_error(attempt.lease.url, reason, detail, advice=advice, retrying_seconds=retrying_seconds)
        seeds.report(reason, text)

    def _requeue(self, attempt: Attempt, outcome: Outcome, seconds: float = 0.0, reason: str = "") -> FinishedLease:
        """Return the request to the frontier with its redirects so far, which are not followed again. `reason`: as in
        Settlement."""
        payload = attempt.packed() if attempt.chain or attempt.payload.browser_ends else None
        if why := payload_size_error(payload):
            return self._fail(attempt, "bad_redirect", f"with what its redirects added, {why}")
        settlement = Settlement(attempt.lease, outcome, reason, delay_seconds=seconds, payload=payload)
        return FinishedLease(settlement, size=PAGE_OVERHEAD_BYTES)

    def _fail(self, attempt: Attempt, reason: str, detail: str, fetched: FetchResponse | None = None) -> FinishedLease:
        """Return the result of a request that has failed for good. `reason`: a word, `detail`: more for a person."""
        if attempt.payload.asset is None:
            self._counts.fail(host(attempt.url), reason, attempt.lease.url)
        self._tally.status(attempt.lease.spider, fetched.status if fetched else 0)
        self._tell_if_seed(attempt, reason, detail)
        return self._finish(attempt, Outcome.FAILED, reason, detail, fetched)

    def _fail_refused(self, attempt: Attempt, fetched: FetchResponse, refusal: PageRefusal) -> FinishedLease:
        """Return the result of a request whose response is a refusal. Its record keeps the body."""
        detail = f"{refusal.rule}: {', '.join(refusal.evidence)}"
        finished = self._fail(attempt, f"{REFUSED}{refusal.kind}", detail, fetched)
        record = finished.outputs[0].record
        assert isinstance(record, PageRecord)
        record.refusal = refusal
        return finished

    def _drop(self, attempt: Attempt, reason: str, detail: str, fetched: FetchResponse | None = None) -> FinishedLease:
        """Return the result of a request that must not be fetched, or not again. Arguments as for `_fail`."""
        if attempt.payload.asset is None:
            self._tally.drop(reason)
        if reason not in _NOT_TOLD:
            advice = ""
            if reason == DropReason.OFFSITE:
                detail, advice = attempt.url, follow_advice(attempt.url)
            elif reason == DropReason.BLOCKED_ADDRESS and (name := host(attempt.url)) != host(attempt.lease.url):
                # It redirects there. --allow-private would not help: it permits only the hosts that were given.
                advice = f"If the server is your own, {named('resolve', name)} permits it."
            self._tell_if_seed(attempt, reason, detail, advice=advice)
        return self._finish(attempt, Outcome.DROPPED, reason, detail, fetched)

    def _fail_unexpectedly(self, attempt: Attempt, error: Exception) -> FinishedLease:
        """Return the result of a request that an error in this program ended."""
        log.error("%s %s", logs.PAGE_BROKE, attempt.url, exc_info=error)
        return self._fail(attempt, "internal_error", f"{type(error).__name__}: {error}")

    def _finish(
        self, attempt: Attempt, outcome: Outcome, reason: str, detail: str, fetched: FetchResponse | None
    ) -> FinishedLease:
        """Return the result of a request that failed or was dropped, with its record."""
        reason = str(reason)
        if attempt.payload.asset is not None:
            self._tally.fail_asset(reason)
        decoded = self._reader.decode(fetched) if fetched else NO_TEXT
        record = page_record(attempt, fetched, decoded, now=time.time(), failure=reason, exception=detail)
        body = fetched.body if fetched else b""
        output = Output(record=record, body=body, wires=tuple(attempt.wires), asset=attempt.payload.asset)
        unanswered = is_unanswered(outcome, reason, fetched.status if fetched else None)
        settlement = Settlement(attempt.lease, outcome, reason, unanswered=unanswered)
        return FinishedLease(settlement, [output], size=output_size(output))

    async def _fail_unstarted(self, lease: Lease, error: Exception) -> FinishedLease:
        """Fail a request whose spider does not load here, or whose entry another program wrote in an unknown form."""
        reason, detail = "bad_entry", f"{type(error).__name__}: {error}"
        if isinstance(error, BadSpider):
            reason, detail = "spider_error", error.detail
        log.error("%s %s: %s", logs.PAGE_BROKE, lease.url, detail)
        self._tally.fail(reason, lease.url)
        asset = Asset(kind="", referrer="") if lease.spider == ASSET_SPIDER else None
        output = Output(record=bare_record(lease, now=time.time(), reason=reason, exception=detail), asset=asset)
        settlement = Settlement(lease, Outcome.FAILED, reason, unanswered=True)
        return FinishedLease(settlement, [output], size=PAGE_OVERHEAD_BYTES)
