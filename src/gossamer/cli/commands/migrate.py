"""`gossamer migrate`: imports what another crawler left, into the frontier, the store of the requests to fetch.

control/scrapy_redis.py does the work; this command only names the keys. Fixed: the default keys, which are
scrapy-redis's; flags, exit codes and the fields of `--json`; and how the crawl is named from spider and key, because
the moved project (scrapy/redis) names it so, too.
"""

from typing import Annotated, Any

import msgspec

from gossamer.cli import options, terminal
from gossamer.cli.parser import CommandGroup, option
from gossamer.cli.running import run as run_loop
from gossamer.cli.terminal import Interruption
from gossamer.control.scrapy_redis import (
    ImportResult,
    ScrapyRedisImport,
    SpiderLeftovers,
    crawl_of,
    find_leftovers,
    find_spiders,
)
from gossamer.errors import BadInput
from gossamer.model.crawl import Crawl, Order
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.telemetry import logs
from gossamer.wiring.frontier import connect, connect_shards

_HELP = "Import the queue of another crawler: scrapy-redis."
app = CommandGroup(help=_HELP)

_SPIDERS_NAMED = 20
"""Spiders that are named where the wanted one has left nothing."""
_QUEUE_KEY = "%(spider)s:requests"
"""scrapy-redis's default for the key of the queue: fixed."""


@app.command("scrapy-redis")
@options.takes("frontier")
def scrapy_redis(
    spider: Annotated[str, option("--spider", metavar="NAME", help="The spider that left the requests.")],
    redis: Annotated[
        str, option("--redis", metavar="ADDRESS", help="The server that scrapy-redis used (REDIS_URL).")
    ] = "redis://localhost:6379",
    *,
    bot: Annotated[
        str, option("--bot", metavar="NAME", help="The project's BOT_NAME, or its GOSSAMER_APPID.")
    ] = "scrapybot",
    crawl: Annotated[
        str, option("--crawl", metavar="ID", help="Its GOSSAMER_CRAWL_ID. Default: the spider's name.")
    ] = "",
    lifo: Annotated[bool, option("--lifo", help="Its SCHEDULER_QUEUE_CLASS is LifoQueue.")] = False,
    queue_key: Annotated[str, option("--queue-key", metavar="KEY", help="Its SCHEDULER_QUEUE_KEY.")] = _QUEUE_KEY,
    dupefilter_key: Annotated[
        str, option("--dupefilter-key", metavar="KEY", help="Its SCHEDULER_DUPEFILTER_KEY.")
    ] = "%(spider)s:dupefilter",
    start_urls_key: Annotated[
        str, option("--start-urls-key", metavar="KEY", help="Its REDIS_START_URLS_KEY.")
    ] = "%(name)s:start_urls",
    dry_run: Annotated[bool, option("--dry-run", help="Read everything, but change nothing.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **given: Any,
) -> None:
    """Import the queue that a scrapy-redis spider left, so that gossamer.scrapy.redis continues with it.

    gossamer migrate scrapy-redis --spider dmoz --bot example --redis redis://localhost:6379 --dry-run

    Stop the old spiders first. Nothing is deleted; a repeated import adds only new requests. Requests that cannot be
    read go to `<key>:dead`, with the reason.
    """
    settings = options.load_settings({**given, "frontier": given["frontier"] or redis})
    logs.set_up(settings.log_level, style=settings.log_format)
    keys, any_keys = (
        {
            "queue": _key(queue_key, "--queue-key", name),
            "dupefilter": _key(dupefilter_key, "--dupefilter-key", name),
            "start_urls": _key(start_urls_key, "--start-urls-key", name),
        }
        for name in (spider, "\0")
    )
    uses_default_queue = keys["queue"] == _key(_QUEUE_KEY, "--queue-key", spider)
    crawlid = crawl or (spider if uses_default_queue else keys["queue"])
    target = crawl_of(appid=bot, crawlid=crawlid, order=Order.LIFO if lifo else Order.FIFO)
    left, done = run_loop(
        _import(settings, redis, keys, any_keys, target, spider=spider, dry=dry_run, show_progress=not (quiet or json))
    )
    if json:
        report = {"dry_run": dry_run, "left": msgspec.to_builtins(left), "imported": msgspec.to_builtins(done)}
        terminal.print_json(report)
    elif not quiet:
        _print_report(left, done, dry=dry_run)
    raise SystemExit(2 if done.dead else 0)


async def _import(
    settings: Settings,
    redis: str,
    keys: dict[str, str],
    any_keys: dict[str, str],
    target: Crawl,
    *,
    spider: str,
    dry: bool,
    show_progress: bool,
) -> tuple[SpiderLeftovers, ImportResult]:
    """Return what the spider left, and what was imported of it. Raises BadInput if it left nothing. `any_keys`: the
    keys with \0 for the spider's name."""

    def show(done: ImportResult) -> None:
        if show_progress:
            terminal.print_stderr(f"{done.read:,} read, {done.added:,} {'would be added' if dry else 'added'} ...")

    with Interruption(drain=None, show=terminal.say):  # the first Ctrl-C cancels the import, which may be repeated
        shards = await connect_shards(settings, redis, option="--redis")
        try:
            left = await find_leftovers(shards, **keys)
            if not (left.requests or left.fingerprints or left.start_url_count):
                raise BadInput(_nothing_text(keys, await find_spiders(shards, any_keys.values()), spider))
            frontier = await connect(settings, settings.frontier)
            try:
                work = ScrapyRedisImport(shards, left, frontier, target, spider=spider)
                return left, await work.run(dry_run=dry, on_progress=show)
            finally:
                await frontier.close()
        finally:
            await shards.close()


def _key(template: str, option: str, spider: str) -> str:
    """Return the key for this spider. Raises BadInput for a template that names anything else."""
    try:
        return template % {"spider": spider, "name": spider}
    except (KeyError, ValueError, TypeError):
        raise BadInput(
            f"{option}: cannot use {template!r}. Write a key, with %(spider)s for the spider's name."
        ) from None


def _nothing_text(keys: dict[str, str], found: list[str], spider: str) -> str:
    """Return what to do where none of the keys of a spider exists. `found`: names of spiders that have left some."""
    names = ", ".join(found[:_SPIDERS_NAMED]) + ", …" * (len(found) > _SPIDERS_NAMED)
    advice = f"Spiders with such keys are: {names}." if found else "No other spider has such keys there, either."
    return f"--spider: nothing is left under the name {spider}: none of {', '.join(keys.values())} exists. {advice}"


def _print_report(left: SpiderLeftovers, done: ImportResult, *, dry: bool) -> None:
    """Print the result for a person. `dry` True: nothing was changed."""
    would = "would be added" if dry else "added"
    terminal.print_result(
        f"{left.queue}: {done.read:,} requests, {done.added:,} {would}, {done.known:,} seen already, "
        f"{done.imported_before:,} imported before."
    )
    terminal.print_result(f"{left.dupefilter}: {left.fingerprints:,} fingerprints. They stay there and count as seen.")
    terminal.print_result(f"{left.start_urls}: {left.start_url_count:,} start messages. The spider reads them there.")
    if done.dead:
        where = "" if dry else f"; see {left.queue}:dead"
        terminal.print_stderr(f"{counted(done.dead, 'request')} cannot be read{where}")
        for reason, count in done.reasons.items():
            terminal.print_stderr(f"  {count:,}: {reason}")
        if others := done.dead - sum(done.reasons.values()):
            terminal.print_stderr(f"  {others:,}: other reasons")
