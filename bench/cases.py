"""`python -m bench.cases`: does `gossamer diagnose` name the right case, and does its advice give what it predicts?

Seven spiders of `gossamer bench`: six that are each made for one case, and a healthy one. Each runs and is
diagnosed. Then it runs again, without and with the advice followed at the same time. Right: the case is the spider's,
and the throughput with the advice is what was predicted, within 30 %: as a number, or, because other programs disturb
both runs alike, as the factor between the two. The spiders are slow (a response takes a second), because this is not
about speed.
"""

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gossamer.telemetry.recordings import recordings

TOLERANCE = 0.3
Knobs = dict[str, Any]


@dataclass(frozen=True)
class MadeCase:
    """A spider that is made for one case."""

    name: str
    knobs: Knobs
    rate: float
    """Items per second that are expected of it, about: they give the length of the run."""


CASES = (
    MadeCase("healthy", {"response_time": 2.0, "links": 300}, 7),
    MadeCase("cpu", {"response_time": 0.5, "pipeline": "cpu", "pipeline_time": 0.1, "starts": 20}, 8),
    MadeCase("blocking", {"response_time": 1.0, "pipeline": "block", "pipeline_time": 0.25}, 3.5),
    MadeCase("other_requests", {"response_time": 2.0, "api_calls": 1, "api_time": 4.0}, 2.5),
    MadeCase(
        "large_responses", {"response_time": 1.0, "page_bytes": 40_000, "held_bytes": 500_000, "pipeline": "wait",
         "pipeline_time": 3.0}, 4
    ),
    MadeCase(
        "items_too_few",
        {"response_time": 1.5, "page_bytes": 20_000, "held_bytes": 200_000, "items_per_page": 12,
         "item_concurrency": 2, "pipeline": "wait",
         "pipeline_time": 1.0},
        18,
    ),
    MadeCase("scheduler_empty", {"response_time": 0.5, "links": 1}, 1.8),
)  # fmt: skip


def follow(knobs: Knobs, advice: dict[str, Any]) -> Knobs:
    """Return the knobs of a spider with the advice followed."""
    after = int(advice["after"])
    changed: Knobs = {
        "CONCURRENT_REQUESTS": {"concurrency": after},
        "processes": {"processes": after},
        "machines": {"processes": after},
        "threads": {"pipeline": "threads", "slots": after},
        "SCRAPER_SLOT_MAX_ACTIVE_SIZE": {"held_bytes": after},
        "CONCURRENT_ITEMS": {"item_concurrency": after},
        "start requests (times)": {"starts": knobs.get("starts", 1) * after},
    }[advice["setting"]]
    return knobs | changed


def run(knobs: Knobs, folder: Path, items: int) -> list[dict[str, Any]]:
    """Run the spider, and return the diagnosis of each of its processes."""
    flags = [part for name, value in knobs.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "gossamer"]
    spider = [*command, "bench", "--log-seconds", "0", "--items", str(items), *flags]
    subprocess.run([*spider, "--data-dir", str(folder)], check=True, stdout=subprocess.DEVNULL)
    found = []
    for path in recordings(folder / "performance"):
        shown = subprocess.run([*command, "diagnose", str(path), "--json"], capture_output=True)
        if not shown.returncode:  # else this process has got nothing to do
            found.append(msgspec.json.decode(shown.stdout))
    return found


def try_case(case: MadeCase, seconds: float) -> bool:
    """Run a case before and after its advice, print a line for it, and return whether both are right."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        (before,) = run(case.knobs, folder / "before", int(case.rate * seconds))
        advice = before["advice"]
        if not advice["setting"]:
            print(f"{case.name:16s} {before['case']:16s} {before['rate']:8.1f}  nothing to change", flush=True)
            return bool(before["case"] == case.name)
        items = int(before["rate"] * seconds)
        unchanged = pool.submit(run, case.knobs, folder / "unchanged", items)
        changed = follow(case.knobs, advice)
        followed = pool.submit(run, changed, folder / "followed", int(items * advice["factor"]))
        rate = unchanged.result()[0]["rate"]
        after = sum(one["rate"] for one in followed.result())
    differences = after / before["predicted"] - 1, after / rate / advice["factor"] - 1
    is_right = before["case"] == case.name and min(map(abs, differences)) <= TOLERANCE
    print(
        f"{case.name:16s} {before['case']:16s} {before['rate']:8.1f} {before['predicted']:9.1f} {after:8.1f} "
        f"{differences[0]:+7.0%} {advice['factor']:6.1f} {after / rate:6.1f} {differences[1]:+7.0%}  "
        f"{'' if is_right else 'WRONG: '}{advice['setting']} {advice['before']:g} -> {advice['after']:g}; "
        f"then: {followed.result()[0]['case']}",
        flush=True,
    )
    return is_right


def main() -> int:
    """Try the cases. Returns the exit code: 0 if all are right."""
    parser = argparse.ArgumentParser(prog="python -m bench.cases", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"only these: {', '.join(c.name for c in CASES)}")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each run (default: 30)")
    given = parser.parse_args()
    print(
        f"{'spider':16s} {'diagnosis':16s} {'items/s':>8s} {'predicted':>9s} {'followed':>8s} {'':7s} {'factor':>6s} "
        f"{'was':>6s} {'':7s}  change",
        flush=True,
    )
    chosen = [case for case in CASES if not given.cases or case.name in given.cases]
    results = [try_case(case, given.seconds) for case in chosen]
    return 0 if not results.count(False) else 1


if __name__ == "__main__":
    sys.exit(main())
