"""`gossamer info`: all crawls, or what waits of an application or of one crawl."""

import secrets
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from gossamer.cli import options
from gossamer.cli.asking import ask
from gossamer.cli.summary import counted
from gossamer.control import stats as bodies
from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.settings import load
from gossamer.wiring.service import ServiceContext

_ROWS = 20
_MOST_CRAWLS = 1000


def info(
    appid: Annotated[
        str | None, typer.Argument(metavar="[APPID]", help="Application of the crawls; unset: all crawls.")
    ] = None,
    crawlid: Annotated[
        str | None, typer.Argument(metavar="[CRAWLID]", help="One crawl; unset: all of the application.")
    ] = None,
    spider: options.OneSpider = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: Annotated[bool, typer.Option("--json", help="The answer as it goes over the bus.")] = False,
) -> None:
    """List all crawls, or show what waits of an application or a crawl; of one crawl also what was done.

    gossamer info

    gossamer info mine first

    Crawls of the command line belong to the application cli, those of a Scrapy project to its BOT_NAME.
    """
    settings = load({"frontier": frontier, "data_dir": data_dir}, config=config)

    if appid is None:
        _show_all(ask(settings, _all_crawls), as_json=json)
        raise typer.Exit(0)

    async def question(cluster: ServiceContext) -> tuple[dict[str, Any], CrawlInfo | None]:
        request = {"uuid": secrets.token_hex(16), "appid": appid, "spiderid": spider or "link", "action": "info"}
        kind, read = cluster.dispatcher.read(request | ({"crawlid": crawlid} if crawlid else {}))
        # Messages name one spider; a person who names none asks for all.
        read = read if spider else msgspec.structs.replace(read, spiderid="")
        [answer] = await cluster.dispatcher.handle(kind, read, format_1_0=None if json else False)
        known = await cluster.frontier.crawl_info(CrawlId(appid, crawlid)) if crawlid else None
        return answer, known

    answer, known = ask(settings, question)
    if json:
        print(msgspec.json.encode(answer).decode())
    elif crawlid:
        _show_crawl(answer, known)
    else:
        _show_app(answer)
    raise typer.Exit(0 if known or not crawlid else 2)


async def _all_crawls(cluster: ServiceContext) -> tuple[list[CrawlInfo], bool]:
    """The crawls, the running ones first, and whether there are more than were looked at."""
    infos, cursor = await cluster.frontier.list_crawls(limit=_MOST_CRAWLS)
    return sorted(infos, key=lambda one: (one.state is not CrawlState.RUNNING, -one.started)), bool(cursor)


def _show_all(found: tuple[list[CrawlInfo], bool], *, as_json: bool) -> None:
    crawls, more = found
    if as_json:
        print(msgspec.json.encode({"crawls": crawls, "more": more}).decode())
        return
    console = Console(highlight=False)
    table = Table("crawl", "state", "run", "fetched", "waiting", "in flight", box=None, padding=(0, 1))
    table.columns[0].overflow = "fold"  # a name that is cut short cannot be used
    for one in crawls[:_ROWS]:
        total = one.total()
        table.add_row(
            str(one.crawl),
            one.state.value,
            str(one.run),
            f"{total.fetched:,}",
            f"{total.queued + total.later:,}",
            f"{total.leased:,}",
        )
    console.print(table if crawls else "There is no crawl.")
    left = len(crawls) - _ROWS
    if left > 0 or more:
        console.print(f"and {max(left, 0):,}{' or more' if more else ''} others")


def _show_crawl(answer: dict[str, Any], known: CrawlInfo | None) -> None:
    console = Console(highlight=False)
    if known is None:
        console.print(f"There is no crawl {answer['crawlid']} of {answer['appid']}, or its retention is over.")
        return
    total = known.total()
    console.print(f"{answer['appid']}/{answer['crawlid']}: {known.state.value}, run {known.run}", markup=False)
    console.print(
        f"  fetched {total.fetched:,}, failed {sum(total.failed.values()):,}, dropped {sum(total.dropped.values()):,}, "
        f"being fetched {total.leased:,}"
    )
    console.print(f"  waiting {answer['total_pending']:,} on {counted(answer['total_domains'], 'domain')}")
    if answer["domains"]:
        console.print(_domains(answer["domains"]))


def _domains(domains: dict[str, Any]) -> Table:
    table = Table("domain", "waiting", "priorities", "", box=None, padding=(0, 2))
    longest = sorted(domains.items(), key=lambda pair: -pair[1]["total"])
    for domain, share in longest[:_ROWS]:
        blacklisted = f"blacklisted: {share['blacklisted']}" if "blacklisted" in share else ""
        table.add_row(
            domain, f"{share['total']:,}", f"{share['high_priority']} to {share['low_priority']}", blacklisted
        )
    if len(longest) > _ROWS:
        table.add_row(f"and {len(longest) - _ROWS:,} more", "", "", "")
    return table


def _show_app(answer: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console.print(
        f"{answer['appid']}: {answer['total_pending']:,} waiting in {counted(answer['total_crawlids'], 'crawl')} "
        f"on {counted(answer['total_domains'], 'domain')}",
        markup=False,
    )
    table = Table("crawl", "waiting", "domains", box=None, padding=(0, 2))
    for crawlid, crawl in sorted(answer["crawlids"].items(), key=lambda pair: -pair[1]["total"])[:_ROWS]:
        table.add_row(crawlid, f"{crawl['total']:,}", f"{crawl['distinct_domains']:,}")
    if answer["crawlids"]:
        console.print(table)


def stop(
    appid: options.AppId,
    crawlid: Annotated[str, typer.Argument(metavar="CRAWLID", help="The crawl.")],
    spider: options.OneSpider = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: Annotated[bool, typer.Option("--json", help="What was done as one JSON object.")] = False,
) -> None:
    """Stop a crawl: nothing of it is fetched any more, and what waits is dropped. What is being fetched ends by itself.

    gossamer stop mine first
    """
    settings = load({"frontier": frontier, "data_dir": data_dir}, config=config)

    async def question(cluster: ServiceContext) -> int | None:
        crawl = CrawlId(appid, crawlid)
        if await cluster.frontier.crawl_info(crawl) is None:
            return None
        return await cluster.frontier.stop_crawl(crawl, spider=spider)

    purged = ask(settings, question)
    if purged is None:
        raise BadInput(f"there is no crawl {crawlid} of {appid}, or its retention is over")
    if json:
        print(msgspec.json.encode({"appid": appid, "crawlid": crawlid, "total_purged": purged}).decode())
    else:
        part = f" for the spider {spider}" if spider else ""
        print(f"Stopped {appid}/{crawlid}{part}; waiting requests dropped: {purged:,}.")
        print(f"It takes no more requests{part}: what is fed to it is refused. Another crawlid begins anew.")
    raise typer.Exit(0)


_WINDOWS = {"900": "15 min", "3600": "1 h", "21600": "6 h", "43200": "12 h", "86400": "1 day", "604800": "1 week"}


def stats(
    kind: Annotated[
        str, typer.Argument(metavar=f"[{'|'.join(bodies.KINDS)}]", help="Which statistics.", show_default=False)
    ] = "all",
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: Annotated[bool, typer.Option("--json", help="The answer as it goes over the bus.")] = False,
) -> None:
    """Show requests taken, answers by status code, processes alive, and what waits.

    gossamer stats crawler
    """
    if kind not in bodies.KINDS:
        raise BadInput(f"{kind!r} are no statistics; there are {', '.join(bodies.KINDS)}")
    settings = load({"frontier": frontier, "data_dir": data_dir}, config=config)

    async def question(cluster: ServiceContext) -> dict[str, Any]:
        return await bodies.body(cluster.frontier, cluster.counters, kind)

    body = ask(settings, question)
    if json:
        print(msgspec.json.encode({**body, "stats": kind}).decode())
    else:
        console = Console(highlight=False)
        for title, rows in _tables(body, ""):
            console.print(_table(title, rows))
    raise typer.Exit(0)


def _tables(part: dict[str, Any], title: str) -> list[tuple[str, dict[str, Any]]]:
    """Every part that has something to show, as (title, rows)."""
    found = []
    rows = {}
    for name, value in part.items():
        if isinstance(value, dict) and value and not _is_windows(value):
            found += _tables(value, f"{title} {name}".strip())
        elif value or value == 0:
            rows[name] = value
    return ([(title, rows)] if rows else []) + found


def _is_windows(value: dict[str, Any]) -> bool:
    return all(name in _WINDOWS or name == "lifetime" for name in value)


def _table(title: str, rows: dict[str, Any]) -> Table:
    windows = any(isinstance(value, dict) for value in rows.values())
    headings = [*_WINDOWS.values(), "ever"] if windows else [""]
    table = Table(title, *headings, box=None, padding=(0, 2))
    for name, value in rows.items():
        if isinstance(value, dict):
            table.add_row(name, *(f"{value.get(window, 0):,}" for window in (*_WINDOWS, "lifetime")))
        elif isinstance(value, list):
            shown = [f"{item['domain']} {item['backlog']:,}" if isinstance(item, dict) else str(item) for item in value]
            table.add_row(name, ", ".join(shown[:5]) + (f" and {len(shown) - 5:,} more" if len(shown) > 5 else ""))
        else:
            table.add_row(name, f"{value:,}")
    return table
