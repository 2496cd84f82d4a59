"""`gossamer why`: explains the state of a URL in a crawl, and what the URL waits for.

It reads the frontier (the store of requests), the notes of earlier commands and robots.txt, and changes none of them.
Fixed: flags, and the fields of the JSON object that `_why` returns, which `--json` prints; fields may be added.
"""

import json as json_module
import os
import time
from collections import Counter
from contextlib import closing
from typing import Annotated, Any

import msgspec

from gossamer.cli import options, terminal
from gossamer.cli.commands.crawls import INTERRUPTED, KnownCrawl, find_crawl, lock_holder, state_of
from gossamer.cli.frontier_here import frontier_here
from gossamer.cli.parser import argument, option
from gossamer.cli.running import run as run_loop
from gossamer.control.browsers import browser_to_start
from gossamer.control.domains import blacklisted_among
from gossamer.control.logins import login_wait
from gossamer.errors import BadScheme, BlockedAddress, DnsFailed, FetchError
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.fetch.proxies import first_proxy
from gossamer.fetch.robots_service import RobotsService, RobotsUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import SHARED_POOL, Terms, workers_of
from gossamer.model.info import SpiderCounts, UrlInfo
from gossamer.model.record import PageRecord
from gossamer.model.request import DropReason
from gossamer.net.credentials import hide_secrets
from gossamer.policy.robots import RobotsPolicy
from gossamer.policy.scope import Refusal, scope_of
from gossamer.policy.urls import from_user_input, host, registered_domain
from gossamer.policy.words import cause_advice, counted, duration_text, explain
from gossamer.settings import Settings
from gossamer.wiring.frontier import CrawlNote
from gossamer.wiring.plan import APPID
from gossamer.wiring.records import FETCHED, RecordsOfUrl, records_of_url
from gossamer.wiring.worker import make_clients, make_resolver, robots_patience
from gossamer.worker.robots import FrontierRobotsStore, MemoryRobotsStore

_NO_WEB_SCHEMES = frozenset(("about", "blob", "callto", "data", "fax", "javascript", "mailto", "sms", "tel", "urn"))
"""Schemes that are common in links and never mean a host's name. A host of that name then needs `http://` before it."""

CrawlIdOption = Annotated[
    str | None,
    option(
        "--crawl-id",
        metavar="ID",
        help="Name of the crawl, or a unique beginning of it. Unset: one that has the URL, else the latest one started "
        "here.",
        panel=options.WHERE,
        show_default=False,
    ),
]
AppOption = Annotated[
    str | None,
    option(
        "--app",
        metavar="APPID",
        help="Application of the crawl: the appid of a service's request, or the BOT_NAME of a Scrapy project. Unset: "
        "any.",
        panel=options.WHERE,
        show_default=False,
    ),
]


@options.takes("resolve", "frontier", "data_dir")
def why(
    url: Annotated[str, argument(metavar="URL", help="The URL to explain.", show_default=False)],
    crawl_id: CrawlIdOption = None,
    app: AppOption = None,
    *,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Explain the state of a URL in a crawl. Shows scope rule, robots.txt verdict, position in the queue, result.

    gossamer why https://example.com/missing --crawl-id example.com-1a2b3c4d

    The crawl may be one of the command line, of a service (--app APPID) or of a Scrapy project (--app BOT_NAME), and it
    may be running.

    The command fetches the robots.txt of the site, but no page.
    """
    settings = options.load_settings(given)
    found = run_loop(_why(settings, _web_page(url), app, crawl_id))
    terminal.print_result(json_module.dumps(found) if json else "\n".join(_report(found)))


def _web_page(text: str) -> str:
    """Return the canonical URL. Raises BadScheme for links like `tel:110`, which would be a host and port as a seed."""
    scheme, colon, rest = text.strip().partition(":")
    if colon and scheme.lower() in _NO_WEB_SCHEMES and not rest.startswith("//"):
        raise BadScheme(text.strip())
    return from_user_input(text)


async def _why(settings: Settings, url: str, appid: str | None, crawl_id: str | None) -> dict[str, Any]:
    """Return all that is known of the URL, as one JSON object. Raises BadInput where there is no such crawl."""
    found: dict[str, Any] = {"url": url}
    holder = lock_holder(settings)
    async with frontier_here(settings, name="gossamer why") as frontier:
        crawl, known = await find_crawl(frontier, settings.data_dir, url, appid=appid, crawl_id=crawl_id)
        found |= {"appid": crawl.id.appid, "crawl_id": crawl.id.crawlid, "domain": registered_domain(host(url))}
        found["crawl"] = (
            state_of(crawl.info, crawl.note, holder)
            if crawl.info
            else "forgotten: it finished longer ago than the setting retention"
        )
        found["resume_command"] = ""
        if found["crawl"] == INTERRUPTED:
            found["resume_command"] = crawl.note.resume_command if crawl.note else ""
        found["run"] = crawl.info.run if crawl.info else None
        terms, refusal = _terms_for(crawl, known, url)
        found |= _scope(crawl, known, url, refusal)
        found["blacklisted"] = (await blacklisted_among(frontier, [found["domain"]])).get(found["domain"], "")
        if known is not None:
            found["known"] = _state(known)
            if crawl.info is not None:
                found["browser"] = await browser_to_start(frontier, crawl.info, known)
                found["login"] = await login_wait(frontier, crawl.info, known)
            found["waits"] = await _robots_wait(settings, frontier, crawl, terms, url)
    # A submitted URL is requested whatever the scope.
    is_requested = refusal is None or (known is not None and known.seen)
    found["robots"] = await _robots(settings, crawl, terms, url) if is_requested else "not checked: out of scope"
    records = records_of_url(crawl.note, url) if crawl.note is not None else RecordsOfUrl()
    found["record"] = _record(records.page, records.page_in)
    found["visits"] = _visits(settings, crawl, url)
    found["items"] = {_shown(output): count for output, count in records.items.items() if count}
    found["elsewhere"] = _elsewhere(crawl, records)
    found["assets"] = sorted({kind for terms in crawl.terms for kind in terms.assets})
    depths = [terms.maxdepth for terms in crawl.terms if terms.maxdepth is not None]
    found["maxdepth"] = max(depths) if depths and len(depths) == len(crawl.terms) else None
    found["links_dropped"] = crawl.info.total().links_dropped if crawl.info else {}
    if known is not None and known.place == "done" and not (found["record"] or known.failure or known.dropped):
        found["ends"] = _possible_ends(crawl, known, records)
    found["advice"] = _advice(found, crawl.info.pool if crawl.info else "")
    of_service = crawl.info is not None and workers_of(crawl.info.pool) == SHARED_POOL
    found["retry_command"] = f"gossamer crawls retry {crawl.id.appid}/{crawl.id.crawlid}" if of_service else ""
    return found


def _visits(settings: Settings, crawl: KnownCrawl, url: str) -> dict[str, Any] | None:
    """Return when a page of a crawl that is kept up to date is visited next, and by which figures. None: the crawl is
    not, or its index does not know the page."""
    from gossamer.wiring.recrawling import find_index  # imported late: few crawls have an index

    index = find_index(settings, crawl.id, crawl.note)
    if index is None:
        return None
    from gossamer.fresh.freshness import visits_of

    with closing(index):
        visits = visits_of(index, url)
    return None if visits is None else msgspec.to_builtins(visits)


def _visits_text(visits: dict[str, Any]) -> str:
    """Return when a page is visited next, for a person."""
    now = time.time()
    rate = visits["changes_a_day"]
    how = "no estimate of its changes yet" if rate is None else f"about {rate:.3g} changes a day"
    due = visits["due"] - now
    when = f"due in {duration_text(due)}" if due > 0 else "due"
    each = f"a visit each {duration_text(visits['interval'])}"
    if visits["weight"] > 1:  # a page without new links weighs 1
        how = f"{how}, {visits['weight'] - 1:.2g} new links a visit"
    ago = duration_text(max(now - visits["fetched"], 0))
    return f"{visits['state']}, fetched {ago} ago, {when} ({each}: {how})"


def _terms_for(crawl: KnownCrawl, known: UrlInfo | None, url: str) -> tuple[Terms, Refusal | None]:
    """Return the terms (options of one submission to the crawl) that the URL's request carries, and why they would
    refuse a link to it. Where they are not known: terms under which the URL is in scope; if there are none, the first
    terms and why they refuse it."""
    first: tuple[Terms, Refusal | None] | None = None
    for terms in [known.terms] if known is not None and known.terms is not None else crawl.terms:
        refusal = scope_of(terms).refusal(url)
        if refusal is None:
            return terms, None
        first = first or (terms, refusal)
    return first or (Terms(), None)


_IN_SCOPE = "inside"
"""Value of the field `scope` of a URL that the crawl may fetch. Part of the JSON: fixed."""
_PROJECT_RULES = "the Scrapy project's own rules"
"""Value of that field where only the project knows."""


def _scope(crawl: KnownCrawl, known: UrlInfo | None, url: str, refusal: Refusal | None) -> dict[str, Any]:
    """Return the field `scope`, and in `scopes` the number of the crawl's submissions by their verdict, where the
    verdicts differ and the URL's own submission is not known.

    `refusal`: of `_terms_for`. None: the URL is in scope."""
    if crawl.is_scrapy_project:
        return {"scope": _PROJECT_RULES, "scopes": {}}
    if known is not None and known.seen and known.spider == ASSET_SPIDER:
        return {"scope": f"{_IN_SCOPE}: a file that a page embeds or links", "scopes": {}}
    scopes: Counter[str] = Counter()
    if known is None or known.terms is None:
        scopes = Counter(_scope_text(scope_of(terms).refusal(url)) for terms in crawl.terms)
    return {"scope": _scope_text(refusal), "scopes": dict(scopes) if len(scopes) > 1 else {}}


def _scope_text(refusal: Refusal | None) -> str:
    """Return a scope's verdict. `refusal` None: the URL is in scope."""
    return _IN_SCOPE if refusal is None else f"{refusal.reason}: {refusal.rule}"


def _state(info: UrlInfo) -> dict[str, Any]:
    """Return the state of the URL in the frontier; times as seconds from now."""
    return {
        "seen": info.seen,
        "place": info.place,
        "behind": info.position,
        "priority": info.priority,
        "due_in_seconds": _seconds_until(info.due),
        "held_by": info.held_by,
        "blocked_for_seconds": _seconds_until(info.blocked_until),
        "rests": info.rests,
        "failed_attempts": info.failed_attempts,
        "deaths": info.deaths,
        "failure": info.failure,
        "dropped": info.dropped,
    }


def _seconds_until(moment: float | None) -> float | None:
    """Return the seconds from now until a moment (epoch seconds); 0 if it has passed, None for None."""
    return None if moment is None else round(max(0.0, moment - time.time()), 1)


async def _robots_wait(
    settings: Settings, frontier: ValkeyFrontier, crawl: KnownCrawl, terms: Terms, url: str
) -> dict[str, Any] | None:
    """Return why and how long the crawl waits for the site's robots.txt. None: it does not wait for it."""
    if _ignores_robots(settings, terms):
        return None
    patience = robots_patience(settings, crawl.note.run.crawl.pool if crawl.note is not None else SHARED_POOL)
    # It reads what the crawl's workers have stored.
    service = RobotsService(_no_fetch, FrontierRobotsStore(frontier), patience_seconds=patience)
    wait = await service.known_outage(url, insecure=terms.insecure)
    if wait is None:
        return None
    return {
        "reason": wait.reason,
        "asked_again_in_seconds": _seconds_until(wait.retry_at),
        "given_up_in_seconds": _seconds_until(wait.given_up_at),
    }


async def _no_fetch(exchange: FetchRequest) -> FetchResponse:
    """Stand in for a client where nothing may be fetched."""
    raise AssertionError(exchange.url)


def _ignores_robots(settings: Settings, terms: Terms) -> bool:
    """Return whether the crawl, or the operator for all crawls, ignores robots.txt."""
    return terms.ignore_robots or RobotsPolicy(settings.fetch.robots) is RobotsPolicy.IGNORE


async def _robots(settings: Settings, crawl: KnownCrawl, terms: Terms, url: str) -> str:
    """Fetch the site's robots.txt as the crawl would, and return its verdict as a sentence."""
    if _ignores_robots(settings, terms):
        return "not checked: the crawl ignores it"
    if crawl.note is not None:
        settings = _as_crawled(settings, crawl.note)
    resolver = make_resolver(settings)
    clients = make_clients(settings, resolver)
    robots = RobotsService(clients.fetch, MemoryRobotsStore())
    agent = terms.useragent or settings.fetch.full_user_agent
    template = FetchRequest(
        url,
        proxy=first_proxy(terms.proxy),
        insecure=terms.insecure,
        allow_private=host(url) in terms.private_hosts,
    )
    try:
        verdict = await robots.check(url, user_agent=agent, template=template, explain=True)
    except (BlockedAddress, DnsFailed) as error:
        return str(error)
    except FetchError as error:
        return f"cannot be fetched: {str(error).rstrip('.')}. {cause_advice(error.kind, error.detail)}".rstrip()
    finally:
        await robots.close()
        await clients.close()
        resolver.close()
    if isinstance(verdict, RobotsUnavailable):
        return f"cannot be fetched from here now ({verdict.reason}); a crawl would wait and fetch it again"
    project = ", if the Scrapy project obeys it" if crawl.is_scrapy_project else ""
    return f"{'allowed' if verdict.allowed else 'refused'}: {verdict.rule}{project}"


def _as_crawled(settings: Settings, note: CrawlNote) -> Settings:
    """Return the settings with the DNS overrides and certificates of the crawl, unless this command names others."""
    changed = {
        "resolve": {**note.resolve, **settings.fetch.resolve},
        "ca_file": settings.fetch.ca_file or note.ca_file,
    }
    return settings.copy(fetch=settings.fetch.copy(**changed))


def _record(page: PageRecord | None, output: str) -> dict[str, Any] | None:
    """Return the result of the URL, as it stands in this output of the crawl. None: no output has a record of it."""
    if page is None:
        return None
    return {
        "url": page.url,
        "response_url": page.response_url,
        "success": page.success,
        "status": page.status_code,
        "reason": page.reason,
        "exception": page.exception,
        "depth": page.depth,
        "timestamp": page.timestamp,
        "redirects": [{"url": hop.url, "status": hop.status} for hop in page.redirects],
        "output": _shown(output),
    }


def _elsewhere(crawl: KnownCrawl, records: RecordsOfUrl) -> list[str]:
    """Return where records of the crawl may be that this command has not read, in words."""
    if crawl.is_scrapy_project:
        return ["the feeds and pipelines of the Scrapy project"]
    if crawl.id.appid != APPID:
        return ["the outputs of the service's workers: its bus (gossamer dump), unless they were given others"]
    if crawl.note is None:
        return ["the outputs of the commands that crawl it"]
    return ["standard output" if output == "-" else _shown(output) for output in records.unread]


def _shown(output: str) -> str:
    """Return an output as a person names it: relative to this folder, without its secrets."""
    return hide_secrets(output.removeprefix(os.getcwd() + os.sep))


def _possible_ends(crawl: KnownCrawl, known: UrlInfo, records: RecordsOfUrl) -> dict[str, Any]:
    """Return how the request of a URL without a record may have ended: the number of the spider's requests that ended
    in each way, less those whose records were read. The frontier has only numbers, and only those of the latest
    run."""
    assert crawl.info is not None
    counts = crawl.info.spiders.get(known.spider, SpiderCounts())
    # Outputs have the records of earlier runs, too, which are not among the counts.
    recorded = records.ends_of(known.spider) if crawl.info.run == 1 else Counter[str]()
    if records.items.total():
        return {FETCHED: counts.fetched, "failed": {}, "dropped": {}, "earlier_run": crawl.info.run > 1}
    return {
        FETCHED: max(0, counts.fetched - recorded[FETCHED]),
        "failed": dict(Counter(counts.failed) - recorded),
        "dropped": dict(Counter(counts.dropped) - recorded),
        "earlier_run": crawl.info.run > 1,
    }


def _report(found: dict[str, Any]) -> list[str]:
    """Return what `_why` found as lines for a person."""
    name = found["crawl_id"] if found["appid"] == APPID else f"{found['appid']}/{found['crawl_id']}"
    lines = [f"{found['url']} in the crawl {name} ({found['crawl']})"]
    lines += _scope_lines(found)
    lines.append(f"  robots   {found['robots']}")
    if found["blacklisted"]:
        lines.append(f"  domain   on the operator's blacklist: its requests are {found['blacklisted']}")
    known = found.get("known")
    if known:
        lines.append(f"  found    {_seen_text(found)}")
        lines += [f"  {line}" for line in _place_lines(found, known)]
        if found.get("browser"):
            lines.append(f"           for a worker with a browser, and there is none. Start one: {found['browser']}")
        if found.get("login"):
            lines.append(f"  login    {found['login']}")
    lines += [f"  items    {counted(count, 'item')} in {output}" for output, count in found["items"].items()]
    if found["visits"]:
        lines.append(f"  visits   {_visits_text(found['visits'])}")
    record = found["record"]
    if record:
        reason = _reason_text(record["reason"], record["exception"])
        how = f"status {record['status']}" if record["success"] else reason
        lines.append(f"  record   {how}, at depth {record['depth']}, {record['timestamp']}")
        lines += [f"           {hop['status']} from {hop['url']}" for hop in record["redirects"]]
        if record["redirects"]:
            lines.append(f"           ended at {record['response_url']}")
        lines.append(f"           in {record['output']}")
    elif known and known["place"] == "done" and not known["failure"]:
        lines.append(f"  record   {_no_record_text(found)}")
    if found["advice"]:
        lines.append(f"  advice   {found['advice']}")
    if found["crawl"] == INTERRUPTED:
        lines.append(f"  resume   {found['resume_command'] or 'the same command or program resumes the crawl'}")
    return lines


def _advice(found: dict[str, Any], pool: str) -> str:
    """Return what a person can do about the failure of the URL; empty: nothing, or it has not failed. `pool`: the
    crawl's group of workers, for the names of options."""
    record, known = found["record"], found.get("known")
    if record is None:
        return explain(known["failure"], pool=pool).advice if known and known["failure"] else ""
    if record["success"] or record["reason"] in _DROPPED:
        return ""
    return cause_advice(record["reason"], record["exception"])


def _scope_lines(found: dict[str, Any]) -> list[str]:
    """Return the scope: of the submission that the URL's request belongs to, else of each submission."""
    scopes = found["scopes"]
    if not scopes:
        return [f"  scope    {found['scope']}"]
    total = sum(scopes.values())
    lines = [f"{scope} (of {number} of {counted(total, 'kind')} of submissions)" for scope, number in scopes.items()]
    return [f"  {'scope' if line == lines[0] else '':<8} {line}" for line in lines]


_DROPPED = frozenset(DropReason)
"""Reasons that are the crawl's own choice, on which there is no advice."""
_WITHOUT_RECORD = frozenset((DropReason.STOPPED, DropReason.EXPIRED, DropReason.BUDGET, DropReason.MAX_ASSETS))
"""Reasons for which the frontier itself drops requests: no worker gets them, so they have no record."""


def _no_record_text(found: dict[str, Any]) -> str:
    """Return why a request that is done has no record here, and where it may have one."""
    ends = found.get("ends") or {FETCHED: 0, "failed": {}, "dropped": {found["known"]["dropped"]: 1}}
    has_record = ends[FETCHED] or ends["failed"] or not ends["dropped"].keys() <= _WITHOUT_RECORD
    if ends["dropped"] and not has_record:
        return "none: the request was dropped before a worker got it"
    if found["elsewhere"]:
        return f"not read: it may be in {', '.join(found['elsewhere'])}"
    if found["items"]:
        return "none: these outputs take only items"
    return "none in the crawl's outputs here; tables of items have none, nor have other machines' pages"


_LIMITS = frozenset(
    (
        DropReason.DEPTH,
        DropReason.BUDGET,
        DropReason.PATTERN,
        DropReason.NOFOLLOW,
        DropReason.SITEMAP_LIMIT,
        DropReason.STOPPED,
        DropReason.EXPIRED,
    )
)
"""Reasons for which links are dropped though they are in scope and were not found before."""


def _seen_text(found: dict[str, Any]) -> str:
    """Return whether the crawl has found the URL, and if not, the reason."""
    in_scope = found["scope"].startswith(_IN_SCOPE) or found["scope"] == _PROJECT_RULES
    if found["known"]["seen"]:
        return "yes" if in_scope else "yes: it was submitted; the scope is for links and redirects"
    if found["visits"]:
        return "yes: the page index has it; it is no request of the last run"
    if found["scope"] == _PROJECT_RULES:
        return "no: no request for it has reached the scheduler"
    if not in_scope:
        as_asset = ", and no fetched page has it as an asset" if found["assets"] else ""
        return f"no: out of scope, so never queued{as_asset or ', whether or not a page links to it'}"
    limits = {reason: count for reason, count in found["links_dropped"].items() if reason in _LIMITS}
    dropped = f", or it is one of these dropped links: {_counts_text(limits)}" if limits else ""
    earlier = ", or an earlier run dropped it" if found["run"] and found["run"] > 1 else ""
    depth = f" of a depth below {found['maxdepth']}" if found["maxdepth"] is not None else ""
    return f"no: no fetched page{depth} has a link to it that the crawl follows{dropped}{earlier}"


def _counts_text(counts: dict[str, int]) -> str:
    """Return counts by reason: `robots 3, depth 1`."""
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items(), key=lambda one: -one[1]))


def _done_text(known: dict[str, Any], ends: dict[str, Any] | None, retry_command: str) -> str:
    """Return how a request ended. `ends`: of `_possible_ends`; None: the end is known, or the record has it.
    `retry_command`: empty where the next start of the crawl retries it."""
    if known["failure"]:
        again = retry_command or "the next start of the crawl"
        return f"failed: {_reason_text(known['failure'])}; {again} fetches it again"
    if known["dropped"]:
        return f"dropped: {_reason_text(known['dropped'])}"
    if ends is None:
        return "done"
    ways = [f"{ends[FETCHED]:,} fetched"] if ends[FETCHED] else []
    for end in ("failed", "dropped"):
        ways += [f"{count:,} {end} for {_reason_text(reason)}" for reason, count in ends[end].items()]
    if ends["earlier_run"]:
        ways.append("all those of earlier runs")
    if not ways:
        return "done"
    if len(ways) > 1:
        return f"done; its end is not kept, and it is one of these requests of the crawl: {', '.join(ways)}"
    if ends[FETCHED]:
        return "fetched"
    if ends["earlier_run"]:
        return "done in an earlier run of the crawl"
    end = "failed" if ends["failed"] else "dropped"
    return f"{end}: {_reason_text(next(iter(ends[end])))}"


def _reason_text(reason: str, exception: str = "") -> str:
    """Return a reason and its words, with the exception, which may begin with them."""
    title = explain(reason).title
    words = exception if exception.startswith(title) else ": ".join(filter(None, (title, exception)))
    return f"{reason} ({words})"


def _behind_text(behind: int | None) -> str:
    """Return how many requests of a queue are before one. None: not known."""
    if behind is None:
        return ""
    return f" behind {counted(behind, 'other request')} in its queue" if behind else "; it is the next in its queue"


def _place_lines(found: dict[str, Any], known: dict[str, Any]) -> list[str]:
    """Return where the request is now, and what it waits for. `found`: by `_why`; `known`: the field of that name."""
    lines = []
    waits = found["waits"]
    match known["place"]:
        case "queued":
            lines.append(f"now      waiting{_behind_text(known['behind'])}")
        case "later":
            lines.append("now      waiting for its next attempt")
        case "leased":
            lines.append(f"now      being fetched by {known['held_by']}")
        case "done":
            lines.append(f"now      {_done_text(known, found.get('ends'), found['retry_command'])}")
        case _ if known["seen"]:
            lines.append("now      waiting or done: more requests wait than are searched")
    if known["failed_attempts"]:
        failed = counted(known["failed_attempts"], "attempt")
        lines.append(f"         {failed} failed (the reason is not kept; gossamer fetch shows the answer now)")
    if known["deaths"]:
        lines.append(f"         {counted(known['deaths'], 'worker')} died while fetching it")
    if known["place"] in ("queued", "later"):
        if waits:
            again = duration_text(waits["asked_again_in_seconds"])
            given_up = duration_text(waits["given_up_in_seconds"])
            lines.append(
                f"         the site's robots.txt could not be fetched ({waits['reason']}); its pages wait for it"
            )
            lines.append(
                f"         next attempt in {again}; without success the site's pages are dropped in {given_up}"
            )
        if known["blocked_for_seconds"]:
            rest = "rests after a refusal" if known["rests"] else "is blocked (Retry-After)"
            lines.append(f"         its domain {rest} for {duration_text(known['blocked_for_seconds'])}")
        elif known["due_in_seconds"]:
            lines.append(f"         not due for {duration_text(known['due_in_seconds'])}")
    return lines
