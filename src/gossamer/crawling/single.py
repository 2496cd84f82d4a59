"""Fetches one page the way a crawl would, without a frontier: for `gossamer.get` and the commands that look at a page.

Fixed: every decision (robots.txt, headers, redirects, scope) is made by the code that crawls use, never by a copy here,
or a page could look different from what a crawl gets.
"""

import base64
import mimetypes
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.crawling.seeds import check_host, find_private_hosts
from gossamer.errors import BadInput, FetchError, FetchRefused
from gossamer.extract.encoding import decode
from gossamer.extract.page import Page
from gossamer.extract.refusals import find_refusal
from gossamer.fetch.exchange import FetchRequest, FetchResponse, first_header, redirect_location
from gossamer.fetch.proxies import first_proxy, resolve_names
from gossamer.fetch.robots_service import RobotsService, RobotsUnavailable
from gossamer.model.crawl import Run
from gossamer.model.request import DropReason, Lease
from gossamer.option_names import named
from gossamer.policy.refusals import RefusalFinder
from gossamer.policy.retry import REFUSED
from gossamer.policy.scope import LinkScope
from gossamer.policy.urls import from_user_input, host, redirect_target, registered_domain
from gossamer.policy.words import cause_advice, fetch_error, follow_advice
from gossamer.settings import Settings
from gossamer.wiring.plan import Plan, check_settings, make_plan, renders
from gossamer.wiring.refusals import load_refusals
from gossamer.wiring.worker import make_clients, make_resolver, page_fetcher
from gossamer.worker.attempt import MAX_HOPS, Attempt
from gossamer.worker.context import Context, ContextOptions, SharedMemory
from gossamer.worker.loading import find_spider, make_spider
from gossamer.worker.page import PageReader
from gossamer.worker.records import PageText, file_record, page_record
from gossamer.worker.robots import MemoryRobotsStore
from gossamer.worker.seen import SeenCache
from gossamer.worker.spider import LinkSpider

if TYPE_CHECKING:
    from gossamer.fetch.backend import FetchBackend
    from gossamer.render.backend import BrowserBackend

_SHOWN_CHARACTERS = 200
"""Characters of an invalid redirect that an error shows. More only make the message longer."""


@dataclass(frozen=True, slots=True)
class RobotsDecision:
    """Decision of robots.txt on one request."""

    allowed: bool
    rule: str
    """Rule that decided, in words."""
    crawl_delay: float | None = None
    """Seconds between two requests that robots.txt asks for."""


@dataclass(slots=True)
class Hop:
    """One request on the way to a page."""

    url: str
    robots: RobotsDecision | None = None
    """None: it is not known, because of an error."""
    response: FetchResponse | None = None
    """None: the request was not sent, or failed."""
    location: str = ""
    """URL that the response redirects to. Empty: it is no redirect that a crawl follows."""


@dataclass(slots=True)
class FetchedPage:
    """A page and the way to it, or the reason why there is none."""

    url: str
    """Canonical form of the given URL."""
    scope: LinkScope
    """Decision on the links that a crawl from this URL would follow."""
    hops: list[Hop] = field(default_factory=list)
    """Requests in order. All but the last were redirected."""
    user_agent: str = ""
    """User-Agent header of the requests."""
    session: str = ""
    """Sentence on the login by which the page was fetched, without secrets. Empty: by none."""
    page: Page | None = None
    """The page, also one with an error status."""
    error: FetchError | FetchRefused | None = None
    """Reason why there is no page."""

    @property
    def advice(self) -> str:
        """Sentence on what a person can do about the error, as a crawl says it. Empty: nothing, or there is a page."""
        if self.error is None:
            return ""
        reason = self.error.kind if isinstance(self.error, FetchError) else self.error.reason
        if reason == DropReason.OFFSITE:
            return follow_advice(self.hops[-1].location)
        return cause_advice(reason, str(self.error))

    @property
    def failure(self) -> str:
        """Reason why there is no page and what a person can do, as a crawl says it. Empty: there is a page."""
        if isinstance(self.error, FetchError):
            return fetch_error(self.url, self.error.kind, self.error.detail)
        return f"{str(self.error).rstrip('.')}. {self.advice}".rstrip() if self.error else ""


def for_one_page(settings: Settings, *, render: bool, typed: Mapping[str, Any]) -> Settings:
    """Return the settings with which one page is fetched, and built in a browser or not, whatever a crawl would do.
    `typed`: the options that were given. Raises BadInput for those of a browser where there is none."""
    crawl = settings.crawl
    if not render and (unused := [name for name, value in typed.items() if name.startswith("render_") and value]):
        raise BadInput(f"the page is not rendered. Add {named('render', True)}.", option=unused[0])
    if render:
        return settings.copy(crawl=crawl.copy(render="always", render_match=()))
    return settings.copy(crawl=crawl.copy(render="never", render_match=(), render_step=(), render_capture=()))


async def fetch_page(settings: Settings, url: str) -> FetchedPage:
    """Fetch a page with its redirects. Raises BadInput for what a crawl from this URL would refuse, too."""
    check_settings(settings)
    refusals = load_refusals(settings)
    resolver = make_resolver(settings)
    clients = make_clients(settings, resolver)
    foreign = page_fetcher(settings, resolver)
    robots = RobotsService(clients.fetch, MemoryRobotsStore())
    browser: BrowserBackend | None = None
    try:
        url = check_host(url)
        private = await find_private_hosts(
            resolver,
            [url],
            allowed=settings.crawl.allow_private,
            look_up_names=not resolve_names(settings.fetch.proxy),
        )
        plan = make_plan(settings, [url], crawl_id=None, now=time.time(), private_hosts=private)
        attempt = _attempt(settings, plan, url)
        if renders(settings):
            from gossamer.wiring.browser import browser_backend  # imported late: most pages are not rendered

            browser = browser_backend(settings, clients)
            await browser.start()
        found = FetchedPage(url, attempt.context.scope)
        try:
            if settings.crawl.session:
                found.session = await _log_in(attempt, settings, foreign or clients)
            fetched = await _follow(found, attempt, settings, browser or foreign or clients, foreign or clients, robots)
        except (FetchError, FetchRefused) as error:
            found.error = error
        else:
            found.page = _page(attempt, fetched, refusals)
        return found
    finally:
        if browser is not None:
            await browser.close()
        await robots.close()
        if foreign is not None:
            await foreign.close()
        await clients.close()
        resolver.close()


def read_page(path: Path, *, url: str = "") -> Page:
    """Return the page in a file. `url`: the page's own, against which its links are resolved; empty: the file's, which
    makes relative links useless. Raises BadInput."""
    page_url = from_user_input(url) if url else path.absolute().as_uri()
    try:
        body = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    content_type = mimetypes.guess_type(path.name)[0] or ""
    text, encoding, is_valid = decode(body, content_type)
    found = PageText(text if is_valid else None, encoding, content_type)
    record = file_record(page_url, content_type=content_type, text=found, now=time.time())
    if found.text is None:
        record.body, record.body_encoding = base64.b64encode(body).decode(), "base64"
    return Page.of_record(record, body)


def _attempt(settings: Settings, plan: Plan, url: str) -> Attempt:
    """Return the request for this URL as a worker has it, with headers, proxy and limits of the plan."""
    run = Run(plan.crawl, number=1, generation=0)
    context = Context(
        run,
        plan.spider,
        plan.terms,
        spider=LinkSpider(),
        available_spiders=None,
        secret=0,
        memory=SharedMemory(SeenCache(limit=1)),
        options=ContextOptions(
            user_agent=settings.fetch.full_user_agent,
            proxy=settings.fetch.proxy,
            include_links=False,
            redact=settings.records.secrets == "redact",
        ),
    )
    lease = Lease(
        id=0,
        shard=0,
        worker="",
        run=run,
        spider=plan.spider,
        domain=registered_domain(host(url)),
        priority=plan.priority,
        depth=0,
        attempt=0,
        deaths=0,
        url=url,
        payload=None,
        terms=plan.terms,
        request_id="",
        render=plan.terms.render,
        identity=b"",
        charged=time.monotonic(),
    )
    attempt = Attempt(lease, context)
    attempt.proxy = first_proxy(context.proxy)
    return attempt


async def _log_in(attempt: Attempt, settings: Settings, clients: "FetchBackend") -> str:
    """Give the attempt a session: of the first account of the session file, or one that only keeps cookies. Returns a
    sentence on the login; empty: there was none. Raises LoginFailed."""
    from gossamer.session.site_session import SiteSession  # imported late, as below: most pages need no session
    from gossamer.wiring.sessions import load_login, with_spider

    login, site = load_login(settings), registered_domain(host(attempt.url))
    if login is not None:
        login = with_spider(login, lambda: make_spider(find_spider(settings.crawl.spider)))
    session = SiteSession(site, None, login, login.accounts[0] if login is not None else None)
    await session.prepare(attempt.login_request, clients.fetch)
    attempt.session = session
    return session.beginning


async def _follow(
    found: FetchedPage,
    attempt: Attempt,
    settings: Settings,
    backend: "FetchBackend",
    clients: "FetchBackend",
    robots: RobotsService,
) -> FetchResponse:
    """Send the request and follow its redirects, and record each in `found`. Returns the response that is no redirect.
    `clients`: send requests of a login.

    Raises FetchError, LoginFailed, and FetchRefused for what a crawl would not fetch.
    """
    for _ in range(MAX_HOPS + 1):
        hop = Hop(attempt.url)
        found.hops.append(hop)  # before it is complete: an error shows how far it came
        request = attempt.request(keep_wire=False)
        found.user_agent = first_header(request.headers, "user-agent") or ""
        hop.robots = await _verdict(request, settings, robots)
        if not hop.robots.allowed:
            raise FetchRefused(f"robots.txt: {hop.robots.rule}", "robots")
        if reason := attempt.render_reason:
            request.page = attempt.page_load(partial(_allows, settings, robots), reason)
        fetched = await backend.fetch(request)
        if (session := attempt.session) is not None:
            if fetched.rendering is None:  # else the browser's backend has passed the cookies on
                session.receive(attempt.url, fetched, number=attempt.sent_by)
            fetched = session.without_cookies(fetched)
            if session.is_logged_out(fetched, url=attempt.url, requested=found.url):
                hop.response = fetched
                send = clients.fetch
                if await session.renew(attempt.sent_by, attempt.login_request, send, status=fetched.status):
                    continue
                raise FetchRefused("it looks as to a visitor who is not logged in", "logged_out")
        hop.response = fetched
        location = fetched.moved_to or redirect_location(fetched.status, fetched.headers)
        if location is None:
            return fetched
        target = redirect_target(attempt.url, location)
        if target is None:
            fault = f"it redirects to {location[:_SHOWN_CHARACTERS]!r}, which is not a web page"
            raise FetchRefused(fault, "bad_redirect")
        hop.location = target
        refusal = attempt.context.scope.refusal(target)
        if refusal is not None:
            fault = f"it redirects to {target}, which a crawl would not follow: {refusal.rule}"
            raise FetchRefused(fault, refusal.reason)
        attempt.redirect(fetched.status, fetched.headers, target)
    raise FetchRefused(f"more than {MAX_HOPS} redirects", "too_many_redirects")


async def _verdict(request: FetchRequest, settings: Settings, robots: RobotsService) -> RobotsDecision:
    """Return whether robots.txt allows the request, and the rule that decided."""
    if settings.crawl.ignore_robots:
        return RobotsDecision(True, "not fetched")
    answer = await robots.check(request.url, user_agent=settings.fetch.full_user_agent, template=request, explain=True)
    if isinstance(answer, RobotsUnavailable):
        return RobotsDecision(False, f"robots.txt could not be fetched ({answer.reason}); a crawl would wait")
    return RobotsDecision(answer.allowed, answer.rule, answer.crawl_delay)


async def _allows(settings: Settings, robots: RobotsService, request: FetchRequest) -> bool:
    """Return whether a page may load this in a browser."""
    return (await _verdict(request, settings, robots)).allowed


def _page(attempt: Attempt, fetched: FetchResponse, refusals: RefusalFinder) -> Page:
    """Return the page with its record. A refusal of the site is a page that has failed, as in a crawl."""
    decoded = PageReader.decode(fetched)
    failure, refusal = "" if fetched.status < 400 else f"http_{fetched.status}", None
    if failure or refusals.may_be_refused(fetched.status, fetched.body, redirected=bool(attempt.chain)):
        refusal = find_refusal(
            fetched.status,
            fetched.headers,
            fetched.body,
            url=attempt.url,
            requested=attempt.requested_url,
            is_built=fetched.rendering is not None,
            finder=refusals,
        )
        failure = f"{REFUSED}{refusal.kind}" if refusal is not None else failure
    record = page_record(attempt, fetched, decoded, now=time.time(), failure=failure)
    record.refusal = refusal
    return Page.of_record(record, fetched.body)
