"""Commands of the model of a cluster: `python -m bench.cluster measure|simulate|check|plot`.

measure: measure service times on this machine, and store them in costs.json (five minutes).
simulate: simulate one cluster, or without options all those of docs/explanation/scale.md (figures.json, some minutes).
check: compare the model with a real cluster of 8 workers and 8 shards on this machine (check.json, two minutes).
plot: draw the plots of docs/explanation/scale.md, and write its tables, from costs.json, figures.json and check.json.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.cluster import costs, figures, model, plots, real


def main(words: Sequence[str]) -> int:
    """Run a command. Returns 1 if the check found too large a deviation, 2 for bad options, else 0."""
    if words[:1] == ["work"]:  # a worker process of `real`
        return real.work(words[2:], Path(words[1]))
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("measure", "check", "plot"):
        commands.add_parser(name)
    simulate = commands.add_parser("simulate")
    for name in ("workers", "shards", "concurrency", "domains", "batch_pages"):
        simulate.add_argument(f"--{name.replace('_', '-')}", type=int)
    for name in ("links", "latency_seconds", "round_trip_seconds", "fsync_seconds", "batch_linger_seconds"):
        simulate.add_argument(f"--{name.replace('_', '-')}", type=float)
    simulate.add_argument("--series", action="append", choices=figures.SERIES, help="only this one of all clusters")
    given = vars(parser.parse_args(words))
    command = given.pop("command")
    changes = {name: value for name, value in given.items() if value is not None}
    return {"measure": _measure, "check": _check, "plot": _plot, "simulate": lambda: _simulate(changes)}[command]()


def _write(path: Path, value: object) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value)) + b"\n")
    print(f"wrote {path}")


def _measure() -> int:
    from bench.cluster.measure import measure

    _write(costs.COSTS, measure())
    return 0


def _simulate(changes: dict[str, Any]) -> int:
    measured = costs.load()
    names = changes.pop("series", ())
    if changes:
        outcome = model.simulate(msgspec.structs.replace(model.Scenario(), **changes), measured)
        print(msgspec.json.format(msgspec.json.encode(outcome)).decode())
        return 0
    figures.sweep(measured, names)
    return 0


def _check() -> int:
    from bench.cluster import check

    compared, used = check.check()
    for one in compared:
        print(f"{one.name:<36} {one.modelled:10.2f} {one.measured:10.2f} {100 * one.deviation:+7.1f} %")
    modelled = {one.name: round(one.modelled, 3) for one in compared}
    measured = {one.name: round(one.measured, 3) for one in compared}
    checked = check.Checked(time.strftime("%Y-%m-%d"), round(os.getloadavg()[0], 1), modelled, measured, used)
    _write(check.CHECK, checked)
    return int(any(abs(one.deviation) > check.ALLOWED for one in compared))


def _plot() -> int:
    from bench.cluster import check, tables

    found, measured = figures.load(), costs.load()
    for path in plots.draw(found, measured):
        print(f"wrote {path}")
    page = tables.with_figures(tables.PAGE.read_text(), measured, found, check.load())
    tables.PAGE.write_text(page)
    print(f"wrote {tables.PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
