"""`gossamer info`: all crawls, or what waits of an application or of one crawl."""

import secrets
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from gossamer.cli import options
from gossamer.cli.asking import ask
from gossamer.cli.display import counted
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.settings import load
from gossamer.wiring.service import Parts

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

    async def question(cluster: Parts) -> tuple[dict[str, Any], CrawlInfo | None]:
        request = {"uuid": secrets.token_hex(16), "appid": appid, "spiderid": spider or "link", "action": "info"}
        kind, read = cluster.desk.read(request | ({"crawlid": crawlid} if crawlid else {}))
        # Messages name one spider; a person who names none asks for all.
        read = read if spider else msgspec.structs.replace(read, spiderid="")
        [answer] = await cluster.desk.handle(kind, read, old=None if json else False)
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


async def _all_crawls(cluster: Parts) -> tuple[list[CrawlInfo], bool]:
    """The crawls, the running ones first, and whether there are more than were looked at."""
    infos, cursor = await cluster.frontier.crawl_page(limit=_MOST_CRAWLS)
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
