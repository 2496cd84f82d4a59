"""`gossamer info`, `gossamer stop` and `gossamer stats`: show the crawls of a running cluster, and stop one.

Fixed: flags, exit codes, and the JSON of `--json`. That of `info` and `stats` is the answer that Scrapy Cluster's
clients get over the message bus, so it is made by the service's own code (control) and not here.
"""

import secrets
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from gossamer.cli import options, tables, terminal
from gossamer.cli.parser import argument, option
from gossamer.cli.running import ask
from gossamer.control import stats as statistics
from gossamer.control.browsers import waiting_for_browsers
from gossamer.control.logins import login_trouble
from gossamer.control.stops import CrawlStop, stop_crawl
from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.policy.words import REPAIRED, browser_text, counted, retries_text
from gossamer.telemetry.patterns import growth_sentences
from gossamer.telemetry.refusals import refusals_text
from gossamer.wiring.frontier import list_running_first
from gossamer.wiring.service import ServiceContext

_ROWS = 20
"""Rows of a table that are shown. A note tells how many others there are."""
_MAX_CRAWLS = 1000
"""Crawls that are read from the frontier, the store of requests, for the list and its JSON. More take longer."""
_MAX_LISTED = 5
"""Entries that a cell with a list shows."""


@options.takes("frontier", "data_dir")
def info(
    appid: Annotated[
        str | None, argument(metavar="[APPID]", help="Application of the crawls. Unset: list all crawls.")
    ] = None,
    crawlid: Annotated[
        str | None, argument(metavar="[CRAWLID]", help="One crawl. Unset: all crawls of the application.")
    ] = None,
    spider: options.OneSpider = None,
    *,
    json: Annotated[bool, option("--json", help="Print the answer as it is sent over the bus.")] = False,
    **given: Any,
) -> None:
    """List the crawls of a running service, or show one of them. Shows the state and the queue of a crawl, or
    of all crawls of an application.

    gossamer info

    gossamer info mine first

    `gossamer crawls list` lists the crawls of a folder, also if nothing runs.

    Crawls of the command line belong to the application cli, those of a Scrapy project to its BOT_NAME.
    """
    settings = options.load_settings(given)

    if appid is None:
        _show_all(ask(settings, _all_crawls), as_json=json)
        return

    async def question(cluster: ServiceContext) -> tuple[dict[str, Any], CrawlInfo | None, list[str]]:
        """Return the service's answer to a request for information; the crawl itself if one is named, and sentences
        about what its requests wait for in vain."""
        message = {"uuid": secrets.token_hex(16), "appid": appid, "spiderid": spider or "link", "action": "info"}
        kind, request = cluster.dispatcher.read(message | ({"crawlid": crawlid} if crawlid else {}))
        if not spider:
            # A message has to name one spider; on the command line none stands for all.
            request = msgspec.structs.replace(request, spiderid="")
        # The tables need the newer format; JSON has that of the settings (None).
        [answer] = await cluster.dispatcher.handle(kind, request, format_1_0=None if json else False)
        crawl = await cluster.frontier.crawl_info(CrawlId(appid, crawlid)) if crawlid else None
        return answer, crawl, await _waits(cluster, crawl) if crawl else []

    answer, crawl, waits = ask(settings, question)
    if json:
        terminal.print_json(answer)
    elif crawlid:
        if crawl is None:
            raise BadInput(_no_crawl(appid, crawlid))
        _show_crawl(answer, crawl, waits)
    else:
        _show_app(answer)
    raise SystemExit(0 if crawl or not crawlid else 2)


async def _all_crawls(cluster: ServiceContext) -> tuple[list[CrawlInfo], bool]:
    """Return the crawls, running ones first, and whether there are more than were read."""
    crawls, more = await list_running_first(cluster.frontier, limit=_MAX_CRAWLS)
    return sorted(crawls, key=lambda crawl: (crawl.state is not CrawlState.RUNNING, -crawl.started)), more


def _show_all(found: tuple[list[CrawlInfo], bool], *, as_json: bool) -> None:
    """Print what `_all_crawls` found."""
    crawls, more = found
    if as_json:
        terminal.print_json({"crawls": crawls, "more": more})
        return
    table = tables.PlainTable("crawl", "state", "run", "fetched", "failed", "waiting", "in flight")
    for crawl in crawls[:_ROWS]:
        total = crawl.total()
        table.add_row(
            str(crawl.crawl),
            crawl.state.value,
            str(crawl.run),
            f"{total.fetched:,}",
            f"{sum(total.failed.values()):,}",
            f"{total.waiting:,}",
            f"{total.leased:,}",
        )
    tables.show(table if crawls else "There are no crawls.")
    left = len(crawls) - _ROWS
    if left > 0 or more:
        terminal.print_result(f"and {max(left, 0):,}{' or more' if more else ''} others")


def _no_crawl(appid: str, crawlid: str) -> str:
    """Return the message about a crawl that the frontier does not know."""
    return (
        f"there is no crawl {appid}/{crawlid}, or it finished longer ago than the setting retention. "
        "gossamer info lists the crawls."
    )


async def _waits(cluster: ServiceContext, crawl: CrawlInfo) -> list[str]:
    """Return sentences about what requests of a crawl wait for in vain: a browser that no worker has, or an account."""
    without_browser = await waiting_for_browsers(cluster.frontier, crawl)
    found = [browser_text(without_browser, crawl.pool), await login_trouble(cluster.frontier, crawl)]
    return list(filter(None, found))


def _show_crawl(answer: dict[str, Any], crawl: CrawlInfo, waits: Sequence[str]) -> None:
    """Print one crawl. `waits`: as `_waits` returns them."""
    total = crawl.total()
    lines = [
        f"{answer['appid']}/{answer['crawlid']}: {crawl.state.value}, run {crawl.run}",
        f"  fetched {total.fetched:,}, failed {sum(total.failed.values()):,}, dropped {sum(total.dropped.values()):,}, "
        f"in flight {total.leased:,}",
        f"  waiting {answer['total_pending']:,} on {counted(answer['total_domains'], 'domain')}"
        f"{retries_text(total.later, total.retried)}",
    ]
    lines += [f"  {sentence}" for sentence in (*waits, *growth_sentences(crawl))]
    if refused := refusals_text(crawl.pages.failed, fetched=crawl.pages.fetched, pool=crawl.pool):
        lines.append(f"  {refused}")
    if crawl.repairs:
        lines.append(f"  {REPAIRED}")
    terminal.print_result("\n".join(lines))
    if answer["domains"]:
        tables.show(_domains(answer["domains"]))


def _domains(domains: dict[str, Any]) -> tables.PlainTable:
    """Return the domains with the longest queues. `domains`: the part of the answer, by domain."""
    table = tables.PlainTable("domain", "waiting", "priorities", "")
    longest = sorted(domains.items(), key=lambda pair: -pair[1]["total"])
    for domain, share in longest[:_ROWS]:
        blacklisted = f"blacklisted: {share['blacklisted']}" if "blacklisted" in share else ""
        high, low = share["high_priority"], share["low_priority"]
        table.add_row(domain, f"{share['total']:,}", f"{high} to {low}" if high != low else str(high), blacklisted)
    if len(longest) > _ROWS:
        table.add_row(f"and {len(longest) - _ROWS:,} more", "", "", "")
    return table


def _show_app(answer: dict[str, Any]) -> None:
    """Print the crawls of an application that have waiting requests."""
    terminal.print_result(
        f"{answer['appid']}: {answer['total_pending']:,} waiting in {counted(answer['total_crawlids'], 'crawl')} "
        f"on {counted(answer['total_domains'], 'domain')}"
    )
    table = tables.PlainTable("crawl", "waiting", "domains")
    for crawlid, crawl in sorted(answer["crawlids"].items(), key=lambda pair: -pair[1]["total"])[:_ROWS]:
        table.add_row(crawlid, f"{crawl['total']:,}", f"{crawl['distinct_domains']:,}")
    if answer["crawlids"]:
        tables.show(table)


@options.takes("frontier", "data_dir")
def stop(
    appid: options.AppId,
    crawlid: Annotated[str, argument(metavar="CRAWLID", help="Crawl to stop.")],
    spider: options.OneSpider = None,
    *,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Stop a crawl: its queued requests are dropped. It accepts no new ones. Requests in flight are finished.

    The pages of a crawl that is kept up to date are not visited any more.

    gossamer stop mine first
    """
    settings = options.load_settings(given)

    async def question(cluster: ServiceContext) -> tuple[CrawlStop, set[CrawlState]]:
        """Stop the crawl. Return the result, and the states of the crawl before and after; empty: there is no such
        crawl."""
        crawl = CrawlId(appid, crawlid)
        before = await cluster.frontier.crawl_info(crawl)
        found = await stop_crawl(cluster.frontier, cluster.indexes, crawl, spider=spider)
        return found, {state for state in (before and before.state, found.state) if state}

    found, states = ask(settings, question)
    dropped = found.purged
    if not states:
        raise BadInput(_no_crawl(appid, crawlid))
    if json:
        terminal.print_json({"appid": appid, "crawlid": crawlid, "total_purged": dropped})
    elif found.ended_visits:
        terminal.print_result(
            f"Stopped the visits of {appid}/{crawlid}. A new request with recrawl begins them again; its changes stay."
        )
    elif states == {CrawlState.FINISHED}:
        terminal.print_result(
            f"{appid}/{crawlid} has finished; nothing is left to stop. A new request begins another run of it."
        )
    else:
        part = f" for the spider {spider}" if spider else ""
        terminal.print_result(f"Stopped {appid}/{crawlid}{part}; {counted(dropped, 'waiting request')} dropped.")
        terminal.print_result(f"It accepts no more requests{part}. To crawl again, use another crawlid.")


_HEADINGS = ("15 min", "1 h", "6 h", "12 h", "1 day", "1 week")
_WINDOWS = {str(window[0]): heading for window, heading in zip(statistics.WINDOWS, _HEADINGS, strict=True)}
"""Headings of the time windows that the statistics count in, by their seconds. _HEADINGS must name the windows of
control/stats.py, in their order."""

_PLAIN_KINDS = {statistics.INTAKE: "intake", statistics.ACTIONS: "actions"}
"""Words for kinds of statistics that have the names of Scrapy Cluster's parts, which read requests from Kafka and
answer actions in Redis; here neither needs to be there. The names themselves are accepted, too."""
_KINDS = {_PLAIN_KINDS.get(kind, kind): kind for kind in statistics.KINDS}
"""Kinds of statistics by the word on the command line."""


@options.takes("frontier", "data_dir")
def stats(
    kind: Annotated[
        str,
        argument(metavar=f"[{'|'.join(_KINDS)}]", help="Statistics to show.", show_default=False),
    ] = "all",
    *,
    json: Annotated[bool, option("--json", help="Print the answer as it is sent over the bus.")] = False,
    **given: Any,
) -> None:
    """Show counts of requests, responses, processes and the queue.

    gossamer stats crawler
    """
    kind = _KINDS.get(kind, kind)
    if kind not in statistics.KINDS:
        raise BadInput(f"there are no statistics {kind!r}. Write one of {', '.join(_KINDS)}.")
    settings = options.load_settings(given)

    async def question(cluster: ServiceContext) -> dict[str, Any]:
        return await statistics.body(cluster.frontier, cluster.counters, kind)

    body = ask(settings, question)
    if json:
        terminal.print_json({**body, "stats": kind})
    else:
        parts = _tables({_PLAIN_KINDS.get(name, name): part for name, part in body.items()}, "")
        tables.show(*(_table(title, rows) for title, rows in parts))


def _tables(part: dict[str, Any], title: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (title, rows) of each part that has something to show: first the part's own rows, then its parts.

    The statistics are nested objects. What holds only counts by time window is a row, any other object a part.
    """
    inner = []
    rows = {}
    for name, value in part.items():
        if isinstance(value, dict) and value and not _is_windows(value):
            inner += _tables(value, f"{title} {name}".strip())
        elif value or value == 0:
            rows[name] = value
    return ([(title, rows)] if rows else []) + inner


def _is_windows(value: dict[str, Any]) -> bool:
    """Return whether an object holds only counts by time window."""
    return all(name in _WINDOWS or name == "lifetime" for name in value)


def _table(title: str, rows: dict[str, Any]) -> tables.PlainTable:
    """Return a table of counts by time window, of lists and of single numbers."""
    has_windows = any(isinstance(value, dict) for value in rows.values())
    headings = [*_WINDOWS.values(), "ever"] if has_windows else [""]
    table = tables.PlainTable(title, *headings)
    for name, value in rows.items():
        if isinstance(value, dict):
            table.add_row(name, *(f"{value.get(window, 0):,}" for window in (*_WINDOWS, "lifetime")))
        elif isinstance(value, list):
            shown = [f"{item['domain']} {item['backlog']:,}" if isinstance(item, dict) else str(item) for item in value]
            more = f" and {len(shown) - _MAX_LISTED:,} more" if len(shown) > _MAX_LISTED else ""
            table.add_row(name, ", ".join(shown[:_MAX_LISTED]) + more)
        else:
            table.add_row(name, f"{value:,}")
    return table
