"""`gossamer crawls changes`, `fresh` and `history`: what a crawl that is kept up to date has found, how up to date it
is, and the versions of its pages.

They read the page index of the crawl, and may run beside it. Fixed: flags, exit codes, and the fields of `--json`.
"""

import time
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from gossamer.cli import options, terminal
from gossamer.cli.parser import argument, option
from gossamer.errors import BadInput
from gossamer.fresh.freshness import freshness_of
from gossamer.fresh.index import PageIndex
from gossamer.fresh.main_text import text_difference
from gossamer.fresh.page import Change
from gossamer.fresh.rounds import shortfall_sentence
from gossamer.model.crawl import CrawlId
from gossamer.policy.urls import from_user_input
from gossamer.policy.words import counted, duration_text
from gossamer.settings import Settings
from gossamer.wiring.frontier import CrawlNote, known_crawls, read_note
from gossamer.wiring.plan import APPID
from gossamer.wiring.recrawling import index_store, open_noted_index

_CHANGES_AT_ONCE = 1000
"""Changes that are read from the index at a time."""

CrawlName = Annotated[
    str | None,
    argument(
        metavar="[CRAWL]",
        help="Name of the crawl, as the list shows it. Unset: the latest one that was started here with --recrawl or "
        "--recrawl-once.",
    ),
]


@options.takes("data_dir")
def changes(
    name: CrawlName = None,
    since: Annotated[
        int, option("--since", metavar="CURSOR", help="Only changes behind this cursor, the number of a change.")
    ] = 0,
    *,
    diff: Annotated[
        bool,
        option(
            "--diff",
            help="Also print how the main texts differ, where --versions has kept them.",
            panel=options.DISPLAY,
        ),
    ] = False,
    json: Annotated[bool, option("--json", help="Print one JSON object a line.", panel=options.DISPLAY)] = False,
    **given: Any,
) -> None:
    """List what is new, changed, gone or back in a crawl.

    The crawl is kept up to date (--recrawl); the oldest change comes first.

    gossamer crawls changes

    gossamer crawls changes shop/prices --since 1200 --json

    With --json, times (at, since) are epoch seconds.

    A reader remembers the cursor of the last change that it has read. A change that is told twice has the same id.
    """
    index = _open(options.load_settings(given), name)
    lacks_versions = False
    try:
        while found := index.changes(since, _CHANGES_AT_ONCE):
            for change in found:
                lines = _difference(index, change) if diff else []
                lacks_versions = lacks_versions or (diff and not lines and "text" in change.what)
                terminal.print_result(_json_line(change, "\n".join(lines) if diff else None) if json else _line(change))
                for line in () if json else lines:
                    terminal.print_result(f"       {line}")
            since = found[-1].cursor
    finally:
        index.close()
    if lacks_versions:
        terminal.say(
            "Of some changes, the versions of the page are not kept. A crawl with --versions N keeps the last N."
        )


@options.takes("data_dir")
def history(
    url: Annotated[str, argument(metavar="URL", help="The page.", show_default=False)],
    name: CrawlName = None,
    hash: Annotated[str, option("--show", metavar="HASH", help="Print the version with this hash.")] = "",
    *,
    json: Annotated[bool, option("--json", help="Print one JSON object a line.", panel=options.DISPLAY)] = False,
    **given: Any,
) -> None:
    """List the versions of a page that a crawl with --versions has kept, the latest first.

    gossamer crawls history https://example.com/

    gossamer crawls history https://example.com/ --show 5d41402abc4b2a76
    """
    index = _open(options.load_settings(given), name)
    try:
        found = index.versions(from_user_input(url))
    finally:
        index.close()
    if not found:
        raise BadInput(
            f"no version of {url} is kept. A crawl with --versions N keeps the last N versions of its pages."
        )
    if hash:
        chosen = [version for version in found if version.hash == hash]
        if not chosen:
            raise BadInput(f"no version of {url} has the hash {hash}. There are: {', '.join(v.hash for v in found)}")
        terminal.print_result(chosen[0].content.decode(chosen[0].encoding or "utf-8", "replace"))
        raise SystemExit(0)
    for version in found:
        row = {"at": version.at, "hash": version.hash, "bytes": len(version.content)}
        text = f"{datetime.fromtimestamp(version.at, UTC).isoformat()}  {version.hash}  {len(version.content):,} bytes"
        terminal.print_result(msgspec.json.encode(row).decode() if json else text)
    raise SystemExit(0)


@options.takes("data_dir")
def fresh(name: CrawlName = None, *, json: options.Json = False, **given: Any) -> None:
    """Show how up to date the pages of a crawl are.

    gossamer crawls fresh

    Shows, domain by domain, how many pages there are, are gone and are due, and how long ago they were fetched. With
    --recrawl also the share of pages that is expected to be up to date, now and at twice the budget, and the budget
    that visits each page in time.
    """
    with closing(_open(options.load_settings(given), name)) as index:
        found, longest_age = freshness_of(index, time.time()), index.schedule.limits.longest
    if json:
        terminal.print_json(msgspec.to_builtins(found))
        return
    terminal.print_result(f"{counted(found.rounds, 'round')}; the last change has the cursor {found.cursor}.")
    for one in found.domains:
        terminal.print_result(
            f"{one.domain}: {counted(one.live, 'page')}, {one.gone:,} gone, {one.due:,} due; fetched "
            f"{duration_text(one.mean_age)} ago on average, at most {duration_text(one.longest_age)}"
        )
        if one.visits_a_day is not None:
            terminal.print_result(
                f"  {one.visits_a_day:,.0f} visits a day keep {one.freshness:.0%} of them up to date, twice as many "
                f"{one.freshness_at_twice_the_budget:.0%}"
            )
        if one.visits_a_day_needed:
            sentence = shortfall_sentence(one.domain, one.pages - one.gone, one.visits_a_day_needed, longest_age)
            terminal.print_result(f"  {sentence}")


def _open(settings: Settings, name: str | None) -> PageIndex:
    """Open the index of the crawl of this name, APPID/ID of a service or ID; None: of the latest one that was started
    here and has an index. Raises BadInput where there is none."""
    appid, slash, crawl_id = (name or "").rpartition("/")
    if slash and appid != APPID:
        return _open_of_service(settings, CrawlId(appid, crawl_id))
    names = [crawl_id] if name else list(reversed(known_crawls(settings.data_dir)))
    notes: list[CrawlNote] = [note for one in names if (note := read_note(settings.data_dir, one)) and note.index]
    if not notes:
        which = f"the crawl {name}" if name else f"no crawl of {settings.data_dir}"
        raise BadInput(
            f"{which} {'is not' if name else 'is'} kept up to date. Start one with gossamer crawl URL "
            "--recrawl-once, name one of a service as APPID/ID, or another directory with --data-dir."
        )
    return open_noted_index(notes[0])


def _open_of_service(settings: Settings, crawl: CrawlId) -> PageIndex:
    """Open the index of a service's crawl. Raises BadInput where there is none."""
    store = index_store(settings)
    if store is None:
        raise BadInput("the database of the page indexes is not named. Set crawl.index to that of the service.")
    return store.find(crawl)


def _difference(index: PageIndex, change: Change) -> list[str]:
    """Return how the main text has changed; empty: a version is not kept."""
    if not change.old_hash or not change.new_hash:
        return []
    kept = {version.hash: version for version in index.versions(change.url)}
    old, new = kept.get(change.old_hash), kept.get(change.new_hash)
    return text_difference(change.url, old, new) if old is not None and new is not None else []


def _json_line(change: Change, difference: str | None) -> str:
    """Return a change as a JSON object with all fields, in the form that messages have: times are epoch seconds.
    `difference`: of the main texts; None: it is not asked for."""
    row = {
        "cursor": change.cursor,
        "id": change.id,
        "url": change.url,
        "change": change.change,
        "at": change.at,
        "since": change.since or None,
        "what": change.what,
        "share": change.share,
        "status": change.status,
        "old_hash": change.old_hash,
        "new_hash": change.new_hash,
        "target": change.target,
        "pattern": change.pattern,
    }
    if difference is not None:
        row["diff"] = difference
    return msgspec.json.encode(row).decode()


def _line(change: Change) -> str:
    share = "" if change.share is None else f"; {change.share:.0%} of the text"
    more = f" ({', '.join(change.what)}{share})" if change.what else ""
    target = f" -> {change.target}" if change.target else ""
    return f"{change.cursor:>6} {change.change:<9} {change.pattern or change.url}{target}{more}"
