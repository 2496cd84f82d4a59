"""`gossamer why`: what became of a URL in a crawl, and what it waits for."""

import json as json_module
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from gossamer.cli import options, standard
from gossamer.cli import options as inputs
from gossamer.cli.crawl_search import KnownCrawl, find_crawl, last_record, no_crawl_with
from gossamer.cli.running import run as run_loop
from gossamer.cli.summary import span
from gossamer.control.domains import Blacklist
from gossamer.errors import BadInput, BadScheme, BlockedAddress, DnsFailed, FetchError
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.fetch.robots_service import MemoryRobotsStore, RobotsService, RobotsUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Terms
from gossamer.model.info import UrlInfo
from gossamer.policy.robots import RobotsPolicy
from gossamer.policy.scope import Refusal
from gossamer.policy.urls import from_user_input, host, registered_domain
from gossamer.settings import Settings, load
from gossamer.valkey.datadir import running_address
from gossamer.wiring.frontier import CrawlNote, connect, frontier_address
from gossamer.wiring.plan import APPID
from gossamer.wiring.worker import make_clients, make_resolver
from gossamer.worker.context import scope_of
from gossamer.worker.robots import FrontierRobotsStore

_NO_WEB = frozenset(("about", "blob", "callto", "data", "fax", "javascript", "mailto", "sms", "tel", "urn"))
"""Schemes that links of web pages have and that nobody means as a host's name."""

CrawlIdArgument = Annotated[
    str | None,
    typer.Option(
        "--crawl-id",
        metavar="ID",
        help="Id of the crawl. Unset: the crawl that has queued or fetched the URL, else the one begun last here.",
        rich_help_panel=options.RUN,
        show_default=False,
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="APPID",
        help="Application of the crawl: of a service's request, or the BOT_NAME of a Scrapy project. Unset: any.",
        rich_help_panel=options.RUN,
        show_default=False,
    ),
]


def why(
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL in question.", show_default=False)],
    crawl_id: CrawlIdArgument = None,
    app: AppOption = None,
    resolve: options.Resolve = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: options.Json = False,
) -> None:
    """Explain the state of a URL in a crawl: scope rule, robots.txt verdict, position in the queue, result.

    gossamer why https://example.com/missing --crawl-id example.com-1a2b3c4d

    The crawl may be one of the command line, of a service (--app APPID) or of a Scrapy project (--app BOT_NAME).

    It may be asked while the crawl runs. It asks the site's robots.txt, and nothing else of the site.
    """
    settings = load(
        {"fetch.resolve": inputs.overrides(resolve), "frontier": frontier, "data_dir": data_dir}, config=config
    )
    found = run_loop(_why(settings, _web_page(url), app, crawl_id))
    standard.show(json_module.dumps(found) if json else "\n".join(_told(found)))
    raise typer.Exit(0)


def _web_page(text: str) -> str:
    """The canonical URL that is meant. Unlike a seed it may be pasted from a link: `tel:110` is no host with a port."""
    scheme, colon, rest = text.strip().partition(":")
    if colon and scheme.lower() in _NO_WEB and not rest.startswith("//"):
        raise BadScheme(text.strip())
    return from_user_input(text)


async def _why(settings: Settings, url: str, appid: str | None, crawl_id: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"url": url}
    async with _asked(settings) as frontier:
        crawl, known = await find_crawl(frontier, settings.data_dir, url, appid=appid, crawl_id=crawl_id)
        found |= {"appid": crawl.id.appid, "crawl_id": crawl.id.crawlid, "domain": registered_domain(host(url))}
        found["crawl"] = crawl.info.state.value if crawl.info else "forgotten: its retention is over"
        terms, refusal = _judged(crawl, url)
        found["scope"] = _scope(crawl, refusal)
        found["blacklisted"] = (await Blacklist(frontier).among([found["domain"]])).get(found["domain"], "")
        if known is not None:
            found["known"] = _known(known)
            found["waits"] = await _waits(settings, frontier, terms, url)
    found["robots"] = await _robots(settings, crawl, terms, url) if refusal is None else "not asked: out of scope"
    found["record"] = _record(crawl.note, url) if crawl.note is not None else None
    return found


def _judged(crawl: KnownCrawl, url: str) -> tuple[Terms, Refusal | None]:
    """The terms under which the URL is in scope; where it is under none, the first ones with their refusal."""
    first: tuple[Terms, Refusal | None] | None = None
    for terms in crawl.terms:
        refusal = scope_of(terms).refusal(url)
        if refusal is None:
            return terms, None
        first = first or (terms, refusal)
    return first or (Terms(), None)


def _scope(crawl: KnownCrawl, refusal: Refusal | None) -> str:
    if crawl.is_scrapys:
        return "the Scrapy project's own rules"
    return "inside" if refusal is None else f"{refusal.reason}: {refusal.rule}"


@asynccontextmanager
async def _asked(settings: Settings) -> AsyncIterator[ValkeyFrontier]:
    """The frontier that is named or runs; else the data directory's own, started for as long as the question takes."""
    address = settings.frontier or running_address(settings.data_dir)
    if not address and not settings.data_dir.exists():
        raise BadInput(no_crawl_with(settings.data_dir))
    if address:
        frontier = await connect(settings, address)
        try:
            yield frontier
        finally:
            await frontier.close()
        return
    async with frontier_address(settings, name="gossamer why") as own:
        frontier = await connect(settings, own)
        try:
            yield frontier
        finally:
            await frontier.close()


def _known(info: UrlInfo) -> dict[str, Any]:
    return {
        "seen": info.seen,
        "place": info.place,
        "behind": info.position,
        "priority": info.priority,
        "due_in_seconds": None if info.due is None else round(max(0.0, info.due - time.time()), 1),
        "held_by": info.held_by,
        "blocked_for_seconds": None
        if info.blocked_until is None
        else round(max(0.0, info.blocked_until - time.time()), 1),
    }


async def _waits(settings: Settings, frontier: ValkeyFrontier, terms: Terms, url: str) -> dict[str, Any] | None:
    """What the crawl itself knows of a robots.txt that cannot be had. None: it waits for none."""
    if _ignores_robots(settings, terms):
        return None
    known = RobotsService(_nothing_is_asked, FrontierRobotsStore(frontier))
    wait = await known.known_outage(url, insecure=terms.insecure)
    if wait is None:
        return None
    now = time.time()
    return {
        "reason": wait.reason,
        "asked_again_in_seconds": round(max(0.0, wait.retry_at - now), 1),
        "given_up_in_seconds": round(max(0.0, wait.given_up_at - now), 1),
    }


async def _nothing_is_asked(exchange: FetchRequest) -> FetchResponse:
    raise AssertionError(exchange.url)


def _ignores_robots(settings: Settings, terms: Terms) -> bool:
    return terms.ignore_robots or RobotsPolicy(settings.fetch.robots) is RobotsPolicy.IGNORE


async def _robots(settings: Settings, crawl: KnownCrawl, terms: Terms, url: str) -> str:
    if _ignores_robots(settings, terms):
        return "not asked: the crawl ignores it"
    if crawl.note is not None:
        settings = _as_crawled(settings, crawl.note)
    resolver = make_resolver(settings)
    clients = make_clients(settings, resolver)
    robots = RobotsService(clients.fetch, MemoryRobotsStore())
    agent = terms.useragent or settings.fetch.user_agent
    template = FetchRequest(
        url,
        proxy=terms.proxy,
        insecure=terms.insecure,
        allow_private=host(url) in terms.private_hosts,
    )
    try:
        verdict = await robots.check(url, user_agent=agent, template=template, explain=True)
    except (BlockedAddress, DnsFailed) as error:
        return str(error)
    except FetchError as error:
        return f"cannot be had: {error}"
    finally:
        await robots.close()
        await clients.close()
        resolver.close()
    if isinstance(verdict, RobotsUnavailable):
        return f"cannot be had from here now ({verdict.reason}); a crawl that meets this waits and asks again"
    project = ", where the Scrapy project obeys it" if crawl.is_scrapys else ""
    return f"{'allowed' if verdict.allowed else 'refused'}: {verdict.rule}{project}"


def _as_crawled(settings: Settings, note: CrawlNote) -> Settings:
    """With the crawl's own overrides and authorities, where this command names no others."""
    changed = {
        "resolve": {**note.resolve, **settings.fetch.resolve},
        "ca_file": settings.fetch.ca_file or note.ca_file,
    }
    return settings.model_copy(update={"fetch": settings.fetch.model_copy(update=changed)})


def _record(note: CrawlNote, url: str) -> dict[str, Any] | None:
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


def _told(found: dict[str, Any]) -> list[str]:
    name = found["crawl_id"] if found["appid"] == APPID else f"{found['appid']}/{found['crawl_id']}"
    lines = [f"{found['url']} in the crawl {name} ({found['crawl']})"]
    lines.append(f"  scope    {found['scope']}")
    lines.append(f"  robots   {found['robots']}")
    if found["blacklisted"]:
        lines.append(f"  domain   on the operator's blacklist: its requests are {found['blacklisted']}")
    known = found.get("known")
    if known:
        lines.append(f"  found    {_seen(known['seen'], found['scope'])}")
        lines += [f"  {line}" for line in _place(known, found["waits"])]
    record = found["record"]
    if record:
        how = f"status {record['status']}" if record["success"] else f"{record['reason']} {record['exception']}".strip()
        lines.append(f"  record   {how}, at depth {record['depth']}, {record['timestamp']}")
        lines += [f"           {hop['status']} from {hop['url']}" for hop in record["redirects"]]
        if record["redirects"]:
            lines.append(f"           ended at {record['response_url']}")
    elif known and known["place"] == "done":
        lines.append(
            "  record   not in this crawl's outputs here: it is on the bus or in another output, or a redirect to"
        )
        lines.append("           another domain became a request of its own")
    return lines


def _seen(seen: bool, scope: str) -> str:
    if seen:
        return "yes"
    if scope != "inside":
        return "no: out of scope, so never queued, whether or not a page links to it"
    return "no: no page that was fetched has a link to it that is followed, or a cap dropped it"


def _place(known: dict[str, Any], waits: dict[str, Any] | None) -> list[str]:
    lines = []
    match known["place"]:
        case "queued":
            behind = known["behind"]
            lines.append("now      waiting" + (f" behind {behind:,} others of its queue" if behind is not None else ""))
        case "later":
            lines.append("now      waiting for its next attempt")
        case "leased":
            lines.append(f"now      being fetched by {known['held_by']}")
        case "done":
            lines.append("now      done")
    if known["place"] in ("queued", "later"):
        if waits:
            again, given_up = span(waits["asked_again_in_seconds"]), span(waits["given_up_in_seconds"])
            lines.append(
                f"         its site's robots.txt could not be had ({waits['reason']}); without it nothing is fetched"
            )
            lines.append(
                f"         asked again in {again}; the site's pages are dropped if there is none in {given_up}"
            )
        if known["blocked_for_seconds"]:
            lines.append(f"         its domain is blocked for {span(known['blocked_for_seconds'])} (Retry-After)")
        elif known["due_in_seconds"]:
            lines.append(f"         not due for {span(known['due_in_seconds'])}")
    return lines
