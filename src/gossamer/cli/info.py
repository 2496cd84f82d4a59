"""`gossamer info`: what waits of a crawl or an application."""

import secrets
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from gossamer.cli import options
from gossamer.cli.asking import ask
from gossamer.cli.display import counted
from gossamer.model.crawl import CrawlId
from gossamer.model.info import CrawlInfo
from gossamer.settings import load
from gossamer.wiring.service import Parts

_ROWS = 20


def info(
    appid: options.AppId,
    crawlid: Annotated[
        str | None, typer.Argument(metavar="[CRAWLID]", help="One crawl; unset: all of the application.")
    ] = None,
    spider: options.OneSpider = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: Annotated[bool, typer.Option("--json", help="The answer as it goes over the bus.")] = False,
) -> None:
    """Say what waits, by crawl, domain and priority; of one crawl also what was done.

    gossamer info mine first
    """
    settings = load({"frontier": frontier, "data_dir": data_dir}, config=config)

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
    table = Table("domain", "waiting", "priorities", box=None, padding=(0, 2))
    longest = sorted(domains.items(), key=lambda pair: -pair[1]["total"])
    for domain, share in longest[:_ROWS]:
        table.add_row(domain, f"{share['total']:,}", f"{share['high_priority']} to {share['low_priority']}")
    if len(longest) > _ROWS:
        table.add_row(f"and {len(longest) - _ROWS:,} more", "", "")
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
