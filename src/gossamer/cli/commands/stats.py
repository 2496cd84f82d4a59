"""`gossamer stats`: shows the statistics of a running service.

Fixed: flags, exit codes, and the JSON of `--json`. That is the answer that Scrapy Cluster's clients get over the
message bus, so it is made by the service's own code (control) and not here.
"""

from typing import Annotated, Any

from gossamer.cli import options, tables, terminal
from gossamer.cli.parser import argument, option
from gossamer.cli.running import ask
from gossamer.control import stats as statistics
from gossamer.errors import BadInput
from gossamer.wiring.service import ServiceContext

_MAX_LISTED = 5
"""Entries that a cell with a list shows."""

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
