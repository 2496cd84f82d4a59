"""`gossamer stop`: end a crawl, or one spider's part of it."""

from typing import Annotated

import msgspec
import typer

from gossamer.cli import options
from gossamer.cli.asking import ask
from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlId
from gossamer.settings import load
from gossamer.wiring.service import Parts


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

    async def question(cluster: Parts) -> int | None:
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
