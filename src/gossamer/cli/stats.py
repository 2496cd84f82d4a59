"""`gossamer stats`: what the cluster has done in the last quarter of an hour, hour, day and week."""

from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from gossamer.cli import options
from gossamer.cli.asking import ask
from gossamer.control import stats as bodies
from gossamer.errors import BadInput
from gossamer.settings import load
from gossamer.wiring.service import Parts

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

    async def question(cluster: Parts) -> dict[str, Any]:
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
