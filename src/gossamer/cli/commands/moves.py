"""`gossamer crawls pause`, `resume`, `stop`, `export` and `import`: stop a crawl for a time or for good, and move it to
another frontier, the store of requests.

Fixed: flags, exit codes and the fields of `--json`; and that a crawl is paused before it is read, and stays paused
where it was, or two frontiers would work on it.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from gossamer.cli import options, terminal
from gossamer.cli.frontier_here import with_frontier
from gossamer.cli.parser import argument, option
from gossamer.cli.running import run as run_loop
from gossamer.cli.terminal import Interruption
from gossamer.control.stops import CrawlStop, stop_crawl
from gossamer.crawling.crawl_file import CrawlFileWriter, check_file, read_lines
from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState, Terms
from gossamer.model.info import CrawlInfo
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.valkey.datadir import running_address
from gossamer.wiring.frontier import connect, crawls_named, frontier_address
from gossamer.wiring.recrawling import service_indexes

_FLIGHT_CHECKS, _FLIGHT_PAUSE_SECONDS = 240, 0.25
"""Number of checks whether requests of a paused crawl are in flight, and the pause between two."""

CrawlName = Annotated[str, argument(metavar="CRAWL", help="Name of the crawl, as the list shows it.")]
FileName = Annotated[Path, argument(metavar="FILE", help="File of the export: .zst or .gz.")]


@options.takes("frontier", "data_dir")
def pause(name: CrawlName, *, json: options.Json = False, **given: Any) -> None:
    """Pause a crawl: hand out none of its requests until it is resumed. Requests in flight are finished.

    gossamer crawls pause shop/prices

    It waits up to a minute for those in flight, because they may lead to parts of the frontier that the crawl has not
    used yet. Where requests lead there that are submitted later, repeat it.
    """

    async def change(frontier: ValkeyFrontier) -> tuple[CrawlId, int]:
        crawl = await _set_paused(name, frontier, paused=True)
        info = await _when_idle(frontier, crawl)
        return crawl, info.total().leased if info else 0

    crawl, in_flight = run_loop(with_frontier(options.load_settings(given), change))
    if json:
        _print_state(crawl, paused=True, in_flight=in_flight)
        return
    left = f" {counted(in_flight, 'request')} in flight: repeat this when they are finished." if in_flight else ""
    terminal.print_result(f"{crawl} is paused.{left}")


@options.takes("frontier", "data_dir")
def resume(name: CrawlName, *, json: options.Json = False, **given: Any) -> None:
    """Let a paused crawl go on. Also one that was exported, if it is not to be moved after all.

    gossamer crawls resume shop/prices
    """
    crawl = run_loop(with_frontier(options.load_settings(given), partial(_set_paused, name, paused=False)))
    if json:
        _print_state(crawl, paused=False)
        return
    terminal.print_result(f"{crawl} goes on.")


def _print_state(crawl: CrawlId, **state: Any) -> None:
    terminal.print_json({"appid": crawl.appid, "crawl_id": crawl.crawlid, **state})


@options.takes("frontier", "data_dir")
def stop(name: CrawlName, spider: options.OneSpider = None, *, json: options.Json = False, **given: Any) -> None:
    """Stop a crawl: its queued requests are dropped. It accepts no new ones. Requests in flight are finished.

    The pages of a crawl that is kept up to date are not visited any more.

    gossamer crawls stop shop/prices
    """
    settings = options.load_settings(given)
    crawl, found, states = run_loop(with_frontier(settings, partial(_stop, settings, name, spider)))
    if json:
        terminal.print_json({"appid": crawl.appid, "crawl_id": crawl.crawlid, "dropped": found.purged})
    elif found.ended_visits:
        terminal.print_result(
            f"Stopped the visits of {crawl}. A new request with recrawl begins them again; its changes stay."
        )
    elif states == {CrawlState.FINISHED}:
        terminal.print_result(f"{crawl} has finished; nothing is left to stop. A new request begins another run of it.")
    else:
        part = f" for the spider {spider}" if spider else ""
        terminal.print_result(
            f"Stopped {crawl}{part}; {counted(found.purged, 'waiting request')} dropped.\n"
            f"It accepts no more requests{part}. To crawl again, use another crawlid."
        )


async def _stop(
    settings: Settings, name: str, spider: str | None, frontier: ValkeyFrontier
) -> tuple[CrawlId, CrawlStop, set[CrawlState]]:
    """Stop the crawl of this name. Return it with the result, and its states before and after. Raises BadInput if there
    is no such crawl."""
    crawl = await _named(name, frontier, known=False)
    before = await frontier.crawl_info(crawl)
    indexes = service_indexes(settings)
    try:
        found = await stop_crawl(frontier, indexes, crawl, spider=spider)
    finally:
        if indexes is not None:
            indexes.close()
    states = {state for state in (before and before.state, found.state) if state}
    if not states:
        raise BadInput(_no_crawl(name))
    return crawl, found, states


async def _set_paused(name: str, frontier: ValkeyFrontier, *, paused: bool) -> CrawlId:
    """Pause the crawl of this name on the shards that it has touched, or let it go on. Raises BadInput."""
    crawl = await _named(name, frontier)
    if not await frontier.set_paused(crawl, paused=paused):
        raise BadInput(f"{crawl} does not run, so nothing of it waits.")
    return crawl


@options.takes("frontier", "data_dir")
def export(
    name: CrawlName,
    file: FileName,
    *,
    force: Annotated[bool, option("--force", "-f", help="Replace FILE if it exists.")] = False,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Write a crawl with its queue into a file, to move it to another frontier. The crawl is paused first.

    gossamer crawls export shop/prices prices.zst

    Sessions and logins are not in the file. The crawl stays paused here.
    """
    settings = options.load_settings(given)
    if file.exists() and not force:
        raise BadInput(f"{file} exists. Name another file, or replace it with -f.")
    info, lines = run_loop(export_from(settings, name, file))
    _print(f"in {file}", info, lines, as_json=json)
    if not json:
        crawl = name
        terminal.print_result(
            f"It is paused here. Import it elsewhere with gossamer crawls import {file}; then gossamer crawls delete "
            f"{crawl} --stop removes it here. gossamer crawls resume {crawl} lets it go on here instead."
        )


async def export_from(settings: Settings, name: str, file: Path) -> tuple[CrawlInfo, int]:
    """Export a crawl from the frontier of the settings. Returns it, and the number of lines. Raises BadInput."""
    return await with_frontier(settings, partial(_export, settings, name, file))


async def _export(settings: Settings, name: str, file: Path, frontier: ValkeyFrontier) -> tuple[CrawlInfo, int]:
    """Pause a crawl, wait until none of its requests is in flight, and write it. Raises BadInput."""
    crawl = await _set_paused(name, frontier, paused=True)
    if not settings.frontier and not running_address(settings.data_dir):
        await frontier.reclaim_all()
    info = await _when_idle(frontier, crawl)
    if info is None or info.total().leased:
        raise BadInput(f"requests of {crawl} are still in flight. It is paused; try again when they are finished.")
    export = await frontier.export(crawl)
    with CrawlFileWriter(file) as writer:
        async for line in export.lines():
            writer.write(line)
    return info, writer.lines


async def _when_idle(frontier: ValkeyFrontier, crawl: CrawlId) -> CrawlInfo | None:
    """Return the paused crawl when no worker has a request of it, or after a minute. None: it is gone."""
    for check in range(_FLIGHT_CHECKS):
        await frontier.set_paused(crawl, paused=True)  # also on shards to which the last links lead
        await frontier.maintain()  # takes requests from workers that died
        info = await frontier.crawl_info(crawl)
        if info is None or not info.total().leased:
            break
        if check == 0:
            terminal.say(f"Waiting for {counted(info.total().leased, 'request')} in flight …")
        await asyncio.sleep(_FLIGHT_PAUSE_SECONDS)
    return info


@options.takes("frontier", "data_dir")
def import_crawl(
    file: FileName,
    *,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Take over a crawl from a file of gossamer crawls export. It goes on where it was.

    gossamer crawls import prices.zst --frontier redis://new.example:6379

    An import that was interrupted is repeated.
    """
    settings = options.load_settings(given)
    info, lines = run_loop(import_into(settings, file))
    _print("imported", info, lines, as_json=json)


async def import_into(settings: Settings, file: Path) -> tuple[CrawlInfo, int]:
    """Import a file. Raises BadInput, and what the frontier raises."""
    header = await asyncio.to_thread(check_file, file)
    crawl = CrawlId(header.appid, header.crawlid)
    with Interruption(drain=None, show=terminal.say) as interruption:
        interruption.message_before_work = "the import is not complete; repeat the command"
        address = settings.frontier or running_address(settings.data_dir)
        if address:
            return await _import_into(settings, address, file, crawl)
        async with frontier_address(settings, name="gossamer crawls") as address:
            return await _import_into(settings, address, file, crawl)


async def _import_into(settings: Settings, address: str, file: Path, crawl: CrawlId) -> tuple[CrawlInfo, int]:
    frontier = await connect(settings, address)
    try:
        header = await asyncio.to_thread(check_file, file)
        importer = frontier.importer(header)
        await frontier.adopt_secret(int(header.secret))
        run = await importer.open()
        if await importer.is_complete():
            raise BadInput(f"{file} was imported before, and the crawl {crawl} may have gone on since.")
        restorer = frontier.restorer(run.crawl, Terms())
        await restorer.hold(run)
        number = 0
        for number, line in read_lines(file):
            await importer.enter(number, line)
        await restorer.release(run)
        info = await frontier.crawl_info(crawl)
        assert info is not None
        return info, number
    finally:
        await frontier.close()


async def _named(name: str, frontier: ValkeyFrontier, *, known: bool = True) -> CrawlId:
    """Return the crawl of this name, APPID/ID or an ID. Raises BadInput unless the frontier has exactly one. `known`
    False: it need not know that of a full name."""
    appid, slash, crawl_id = name.rpartition("/")
    if slash and not known:
        return CrawlId(appid, crawl_id)
    found = [CrawlId(appid, crawl_id)] if slash else await crawls_named(frontier, crawl_id)
    found = [crawl for crawl in found if await frontier.crawl_info(crawl) is not None]
    if len(found) > 1:
        raise BadInput(f"several crawls have the name {name}. Write one of {', '.join(map(str, found))}.")
    if not found:
        raise BadInput(_no_crawl(name))
    return found[0]


def _no_crawl(name: str) -> str:
    """Return the message where the frontier knows no crawl of this name."""
    return (
        f"there is no crawl {name}, or it finished longer ago than the setting retention. gossamer crawls list shows "
        "all."
    )


def _print(what: str, info: CrawlInfo, lines: int, *, as_json: bool) -> None:
    total = info.total()
    if as_json:
        terminal.print_json(
            {
                "appid": info.crawl.appid,
                "crawl_id": info.crawl.crawlid,
                "fetched": total.fetched,
                "failed": total.failed,
                "dropped": total.dropped,
                "waiting": total.waiting,
                "seen": info.seen,
                "lines": lines,
            }
        )
        return
    counts = f"{total.fetched:,} fetched, {total.waiting:,} waiting, {counted(info.seen, 'URL')} known"
    terminal.print_result(f"{info.crawl} is {what}: {counts}.")
