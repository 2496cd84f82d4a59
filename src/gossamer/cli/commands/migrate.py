"""`gossamer migrate`: bring in what another crawler left."""

import sys
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from gossamer.cli import options, standard
from gossamer.cli.interruption import Interruption
from gossamer.cli.running import run as run_loop
from gossamer.control.scrapy_redis import ImportResult, ScrapyRedisImport, SpiderLeftovers, crawl_of, find_leftovers
from gossamer.errors import BadInput
from gossamer.model.crawl import Order
from gossamer.settings import load
from gossamer.telemetry import logs
from gossamer.valkey.shards import Shards
from gossamer.wiring.frontier import connect

app = typer.Typer(
    help="Bring what another crawler left into the frontier: the queue of scrapy-redis.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Bring what another crawler left into the frontier: the queue of scrapy-redis."""


@app.command("scrapy-redis")
def scrapy_redis(
    spider: Annotated[str, typer.Option("--spider", metavar="NAME", help="The spider whose requests these are.")],
    redis: Annotated[
        str, typer.Option("--redis", metavar="ADDRESS", help="The server that scrapy-redis used (REDIS_URL).")
    ] = "redis://localhost:6379",
    frontier: options.FrontierOption = None,
    bot: Annotated[
        str, typer.Option("--bot", metavar="NAME", help="The project's BOT_NAME, or its GOSSAMER_APPID.")
    ] = "scrapybot",
    crawl: Annotated[
        str, typer.Option("--crawl", metavar="ID", help="Its GOSSAMER_CRAWL_ID. Default: the spider's name.")
    ] = "",
    lifo: Annotated[bool, typer.Option("--lifo", help="Its SCHEDULER_QUEUE_CLASS is LifoQueue.")] = False,
    queue_key: Annotated[
        str, typer.Option("--queue-key", metavar="KEY", help="Its SCHEDULER_QUEUE_KEY.")
    ] = "%(spider)s:requests",
    dupefilter_key: Annotated[
        str, typer.Option("--dupefilter-key", metavar="KEY", help="Its SCHEDULER_DUPEFILTER_KEY.")
    ] = "%(spider)s:dupefilter",
    start_urls_key: Annotated[
        str, typer.Option("--start-urls-key", metavar="KEY", help="Its REDIS_START_URLS_KEY.")
    ] = "%(name)s:start_urls",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read all of it, and change nothing.")] = False,
    config: options.Config = None,
    json: Annotated[bool, typer.Option("--json", help="What was done as one JSON object.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Import the queue that a scrapy-redis spider left, so that gossamer.scrapy.redis goes on with it.

    Stop the old spiders first. Nothing is deleted; repeated, it imports what is new. Fingerprints and start URLs stay
    where they are: the moved spider reads them there. What cannot be read goes to `<key>:dead`, with the reason.
    """
    settings = load({"frontier": frontier or redis}, config=config)
    logs.set_up(settings.log_level, style=settings.log_format)
    keys = {
        "queue": _named(queue_key, "--queue-key", spider),
        "dupefilter": _named(dupefilter_key, "--dupefilter-key", spider),
        "start_urls": _named(start_urls_key, "--start-urls-key", spider),
    }
    crawlid = crawl or (spider if keys["queue"] == f"{spider}:requests" else keys["queue"])
    console = Console(stderr=True, highlight=False)

    def say(done: ImportResult) -> None:
        if not (quiet or json):
            console.print(f"{done.read:,} read, {done.added:,} added ...")

    async def work() -> tuple[SpiderLeftovers, ImportResult]:
        with Interruption(None, standard.say):
            shards = await Shards.connect(redis)
            try:
                left = await find_leftovers(shards, **keys)
                found = await connect(settings, settings.frontier)
                try:
                    order = Order.LIFO if lifo else Order.FIFO
                    target = crawl_of(appid=bot, crawlid=crawlid, order=order)
                    return left, await ScrapyRedisImport(shards, left, found, target, spider=spider).run(
                        dry_run=dry_run, on_progress=say
                    )
                finally:
                    await found.close()
            finally:
                await shards.close()

    left, done = run_loop(work())
    if json:
        print(msgspec.json.encode(_report(left, done, dry_run)).decode())
    elif not quiet:
        _tell(left, done, spider=spider, dry=dry_run)
    raise typer.Exit(2 if done.dead else 0)


def _named(key: str, option: str, spider: str) -> str:
    try:
        return key % {"spider": spider, "name": spider}
    except (KeyError, ValueError, TypeError):
        raise BadInput(f"{option}: {key!r} is no key; %(spider)s stands for the spider's name") from None


def _report(left: SpiderLeftovers, done: ImportResult, dry: bool) -> dict[str, Any]:
    return {"dry_run": dry, "left": msgspec.to_builtins(left), "imported": msgspec.to_builtins(done)}


def _tell(left: SpiderLeftovers, done: ImportResult, *, spider: str, dry: bool) -> None:
    would = "would be added" if dry else "added"
    print(
        f"{left.queue}: {done.read:,} requests, {done.added:,} {would}, {done.known:,} seen already, "
        f"{done.before:,} imported before."
    )
    print(f"{left.dupefilter}: {left.fingerprints:,} fingerprints; they count as seen, where they are.")
    print(f"{left.start_urls}: {left.messages:,} start messages; the spider reads them there.")
    if not (left.requests or left.fingerprints or left.messages):
        print(f"None of these keys is there; is {spider} the spider's name?", file=sys.stderr)
    if done.dead:
        where = "" if dry else f"; see {left.queue}:dead"
        print(f"{done.dead:,} requests cannot be read{where}", file=sys.stderr)
