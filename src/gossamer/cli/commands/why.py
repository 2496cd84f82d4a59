"""`gossamer why`: explains the state of a URL in a crawl, and what the URL waits for.

It reads the frontier (the store of requests), the notes of earlier commands and robots.txt, and changes none of them.
Fixed: flags, and the fields of the JSON object that `_why` returns, which `--json` prints; fields may be added.
"""

import json as json_module
import time
from typing import Annotated, Any

import typer

from gossamer.cli import options, terminal
from gossamer.cli.commands.crawls import KnownCrawl, find_crawl, frontier_here
from gossamer.cli.running import run as run_loop
from gossamer.control.domains import Blacklist
from gossamer.errors import BadScheme, BlockedAddress, DnsFailed, FetchError
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.fetch.proxies import first_proxy
from gossamer.fetch.robots_service import RobotsService, RobotsUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import SHARED_POOL, Terms
from gossamer.model.info import UrlInfo
from gossamer.policy.robots import RobotsPolicy
from gossamer.policy.scope import Refusal
from gossamer.policy.urls import from_user_input, host, registered_domain
from gossamer.policy.words import counted, duration_text, explain
from gossamer.settings import Settings
from gossamer.wiring.frontier import CrawlNote, last_record
from gossamer.wiring.plan import APPID
from gossamer.wiring.worker import make_clients, make_resolver, robots_patience
from gossamer.worker.context import scope_of
from gossamer.worker.robots import FrontierRobotsStore, MemoryRobotsStore

_NO_WEB_SCHEMES = frozenset(("about", "blob", "callto", "data", "fax", "javascript", "mailto", "sms", "tel", "urn"))
"""Schemes that are common in links and never mean a host's name. A host of that name then needs `http://` before it."""

CrawlIdOption = Annotated[
    str | None,
    typer.Option(
        "--crawl-id",
        metavar="ID",
        help="Name of the crawl. Unset: the one that has queued or fetched the URL, else the latest one started here.",
        rich_help_panel=options.WHERE,
        show_default=False,
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="APPID",
        help="Application of the crawl: the appid of a service's request, or the BOT_NAME of a Scrapy project. Unset: "
        "any.",
        rich_help_panel=options.WHERE,
        show_default=False,
    ),
]


@options.takes("resolve", "frontier", "data_dir")
def why(
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL to explain.", show_default=False)],
    crawl_id: CrawlIdOption = None,
    app: AppOption = None,
    *,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Explain the state of a URL in a crawl: scope rule, robots.txt verdict, position in the queue, result.

    gossamer why https://example.com/missing --crawl-id example.com-1a2b3c4d

    The crawl may be one of the command line, of a service (--app APPID) or of a Scrapy project (--app BOT_NAME), and it
    may be running.

    The command fetches the robots.txt of the site, but no page.
    """
    settings = options.load_settings(given)
    found = run_loop(_why(settings, _web_page(url), app, crawl_id))
    terminal.print_result(json_module.dumps(found) if json else "\n".join(_report(found)))
    raise typer.Exit(0)


def _web_page(text: str) -> str:
    """Return the canonical URL. Raises BadScheme for links like `tel:110`, which would be a host and port as a seed."""
    scheme, colon, rest = text.strip().partition(":")
    if colon and scheme.lower() in _NO_WEB_SCHEMES and not rest.startswith("//"):
        raise BadScheme(text.strip())
    return from_user_input(text)


async def _why(settings: Settings, url: str, appid: str | None, crawl_id: str | None) -> dict[str, Any]:
    """Return all that is known of the URL, as one JSON object. Raises BadInput where there is no such crawl."""
    found: dict[str, Any] = {"url": url}
    async with frontier_here(settings, name="gossamer why") as frontier:
        crawl, known = await find_crawl(frontier, settings.data_dir, url, appid=appid, crawl_id=crawl_id)
        found |= {"appid": crawl.id.appid, "crawl_id": crawl.id.crawlid, "domain": registered_domain(host(url))}
        found["crawl"] = (
            crawl.info.state.value if crawl.info else "forgotten: it finished longer ago than the setting retention"
        )
        terms, refusal = _terms_for(crawl, url)
        found["scope"] = _scope_text(crawl, refusal)
        found["blacklisted"] = (await Blacklist(frontier).among([found["domain"]])).get(found["domain"], "")
        if known is not None:
            found["known"] = _state(known)
            found["waits"] = await _robots_wait(settings, frontier, crawl, terms, url)
    found["robots"] = await _robots(settings, crawl, terms, url) if refusal is None else "not checked: out of scope"
    found["record"] = _record(crawl.note, url) if crawl.note is not None else None
    return found


def _terms_for(crawl: KnownCrawl, url: str) -> tuple[Terms, Refusal | None]:
    """Return the terms (options of one submission to the crawl) under which the URL is in scope; if there are none, the
    first terms and why they refuse it."""
    first: tuple[Terms, Refusal | None] | None = None
    for terms in crawl.terms:
        refusal = scope_of(terms).refusal(url)
        if refusal is None:
            return terms, None
        first = first or (terms, refusal)
    return first or (Terms(), None)


_IN_SCOPE = "inside"
"""Value of the field `scope` of a URL that the crawl may fetch. Part of the JSON: fixed."""


def _scope_text(crawl: KnownCrawl, refusal: Refusal | None) -> str:
    """Return the field `scope`. `refusal` None: the URL is in scope."""
    if crawl.is_scrapy_project:
        return "the Scrapy project's own rules"
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
        "failed_attempts": info.failed_attempts,
        "deaths": info.deaths,
        "failure": info.failure,
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
        return f"cannot be fetched: {error}"
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


def _record(note: CrawlNote, url: str) -> dict[str, Any] | None:
    """Return the result of the URL, as it stands in the crawl's outputs. None: they have no record of it."""
    last = last_record(note, url)
    if last is None:
        return None
    return {
        "url": last.url,
        "response_url": last.response_url,
        "success": last.success,
        "status": last.status_code,
        "reason": last.reason,
        "exception": last.exception,
        "depth": last.depth,
        "timestamp": last.timestamp,
        "redirects": [{"url": hop.url, "status": hop.status} for hop in last.redirects],
    }


def _report(found: dict[str, Any]) -> list[str]:
    """Return what `_why` found as lines for a person."""
    name = found["crawl_id"] if found["appid"] == APPID else f"{found['appid']}/{found['crawl_id']}"
    lines = [f"{found['url']} in the crawl {name} ({found['crawl']})"]
    lines.append(f"  scope    {found['scope']}")
    lines.append(f"  robots   {found['robots']}")
    if found["blacklisted"]:
        lines.append(f"  domain   on the operator's blacklist: its requests are {found['blacklisted']}")
    known = found.get("known")
    if known:
        lines.append(f"  found    {_seen_text(known['seen'], found['scope'])}")
        lines += [f"  {line}" for line in _place_lines(known, found["waits"])]
    record = found["record"]
    if record:
        how = f"status {record['status']}" if record["success"] else f"{record['reason']} {record['exception']}".strip()
        lines.append(f"  record   {how}, at depth {record['depth']}, {record['timestamp']}")
        lines += [f"           {hop['status']} from {hop['url']}" for hop in record["redirects"]]
        if record["redirects"]:
            lines.append(f"           ended at {record['response_url']}")
    elif known and known["place"] == "done" and not known["failure"]:
        lines.append(
            "  record   not in this crawl's outputs here: it is on the bus, in another output, or a redirect to"
        )
        lines.append("           another domain became a request of its own")
    return lines


def _seen_text(seen: bool, scope: str) -> str:
    """Return whether the crawl has found the URL, and if not, the reason. `scope`: the field of that name."""
    if seen:
        return "yes"
    if scope != _IN_SCOPE:
        return "no: out of scope, so never queued, whether or not a page links to it"
    return "no: no fetched page has a link to it that the crawl follows, or a limit dropped it"


def _behind_text(behind: int | None) -> str:
    """Return how many requests of a queue are before one. None: not known."""
    if behind is None:
        return ""
    return f" behind {counted(behind, 'other request')} in its queue" if behind else "; it is the next in its queue"


def _place_lines(known: dict[str, Any], waits: dict[str, Any] | None) -> list[str]:
    """Return where the request is now, and what it waits for. `known`, `waits`: these fields of what `_why` found."""
    lines = []
    match known["place"]:
        case "queued":
            lines.append(f"now      waiting{_behind_text(known['behind'])}")
        case "later":
            lines.append("now      waiting for its next attempt")
        case "leased":
            lines.append(f"now      being fetched by {known['held_by']}")
        case "done" if known["failure"]:
            title = explain(known["failure"]).title
            lines.append(f"now      failed: {known['failure']} ({title}); the next start of the crawl fetches it again")
        case "done":
            lines.append("now      done")
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
            lines.append(
                f"         its domain is blocked for {duration_text(known['blocked_for_seconds'])} (Retry-After)"
            )
        elif known["due_in_seconds"]:
            lines.append(f"         not due for {duration_text(known['due_in_seconds'])}")
    return lines
