"""`python -m tests.soak`: crawl half a million pages with one worker and see whether anything grows."""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from tests import proof
from tests.command import at_least, run_command
from tests.scale.sampling import Sample
from tests.soak.chart import Line, Panel, draw
from tests.soak.run import Soaked, soak
from tests.soak.verdict import TELLING_PAGES, WARM_UP, faults, growth, slope

FOLDER = Path(__file__).parents[2] / ".cache" / "soak"
_MIB = 2**20


def main(words: Sequence[str] | None = None) -> int:
    """0: nothing failed and nothing grows. 1: not so; the last lines say what."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--pages", type=at_least(100), default=500_000, metavar="N", help="default: 500000")
    parser.add_argument(
        "--hosts", type=at_least(0), default=0, metavar="N", help="that share them; default: 10000 pages each"
    )
    parser.add_argument(
        "--page-bytes", type=at_least(200), default=12_000, metavar="N", help="of each page; default: 12000"
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="where soak.png and soak.json go; default: .cache/soak"
    )
    arguments = parser.parse_args(words)
    soaked = soak(
        arguments.pages, hosts=arguments.hosts, page_bytes=arguments.page_bytes, say=partial(print, flush=True)
    )
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write(soaked, arguments.folder)
    print(described(soaked))
    print(f"The chart is {arguments.folder / 'soak.png'}")
    wrong = faults(soaked) + growth(soaked)
    _prove(soaked, wrong)
    grows = "nothing grows with the pages" if soaked.pages >= TELLING_PAGES else "the run was too short to see growth"
    print(*(wrong or [f"Nothing failed, and {grows}."]), sep="\n")
    return int(bool(wrong))


def _prove(soaked: Soaked, wrong: Sequence[str]) -> None:
    """Write the verdict as JSON."""
    most = max(_column(soaked.samples, "worker_memory")) / _MIB
    grown = {name: round(slope(soaked.samples, f"{name}_memory"), 2) for name in ("worker", "valkey")}
    proof.write(
        "soak",
        title=f"soak, {soaked.pages:,} pages by one worker",
        showed=f"the worker took {most:.0f} MiB at most; after the warm-up its memory changed by "
        f"{grown['worker']:+.1f} bytes a page, Valkey's by {grown['valkey']:+.1f}; {len(soaked.failures)} errors",
        seconds=soaked.samples[-1].seconds,
        failures=wrong,
        figures={
            "pages": soaked.records,
            "worker_mib_at_most": round(most, 1),
            "worker_bytes_a_page": grown["worker"],
            "valkey_bytes_a_page": grown["valkey"],
        },
    )


def write(soaked: Soaked, folder: Path) -> None:
    """soak.json, all samples; soak.png, the chart."""
    rows = [{"seconds": round(sample.seconds, 2), **sample.figures} for sample in soaked.samples]
    (folder / "soak.json").write_text(json.dumps({"summary": soaked.summary, "samples": rows}) + "\n")
    samples = soaked.samples
    pages = _column(samples, "pages")
    memory = [
        Line("worker, resident", [value / _MIB for value in _column(samples, "worker_memory")]),
        Line("Valkey, resident", [value / _MIB for value in _column(samples, "valkey_memory")]),
        Line("Valkey, used", [value / _MIB for value in _column(samples, "valkey_used")]),
    ]
    cpu = [
        Line(name.partition("_")[0], _rate(samples, name, 100.0)) for name in ("worker_cpu", "valkey_cpu", "web_cpu")
    ]
    draw(
        folder / "soak.png",
        "pages fetched; the upright line is the end of the warm-up",
        pages,
        [
            Panel("Memory, MiB", memory),
            Panel("CPU, % of one core", cpu),
            Panel("Pages a second", [Line("pages", _rate(samples, "pages", 1.0))]),
        ],
        mark=pages[-1] * WARM_UP if pages else None,
    )


def described(soaked: Soaked) -> str:
    """The figures, a few lines."""
    samples = soaked.samples
    late = samples[len(samples) // 2 :] or samples
    first, last = samples[0].figures, samples[-1].figures
    pages = max(1, soaked.records)
    lines = [f"{soaked.records:,} pages, {soaked.output_bytes / 1e9:.2f} GB of records, in {samples[-1].seconds:.0f} s"]
    for name, label in (
        ("worker_memory", "worker"),
        ("valkey_memory", "Valkey, resident"),
        ("valkey_used", "Valkey, used"),
    ):
        values = _column(samples, name)
        lines.append(
            f"  {label}: {max(values) / _MIB:.1f} MiB at most, {_column(late, name)[-1] / _MIB:.1f} MiB at the end, "
            f"{slope(samples, name):+.1f} bytes a page after the warm-up"
        )
    lines.append(f"  Valkey, used: {(last['valkey_used'] - first['valkey_used']) / pages:.1f} bytes a page over all")
    for name, label in (("worker_cpu", "worker"), ("valkey_cpu", "Valkey"), ("web_cpu", "fake web")):
        lines.append(f"  CPU of {label}: {last[name] / pages * 1000:.3f} ms a page")
    return "\n".join(lines)


def _column(samples: Sequence[Sample], name: str) -> list[float]:
    return [sample.figures[name] for sample in samples]


def _rate(samples: Sequence[Sample], name: str, factor: float) -> list[float]:
    """By how much a figure grew each second, smoothed over ten samples; as many values as there are samples."""
    steps = [
        (after.figures[name] - before.figures[name]) / (after.seconds - before.seconds) * factor
        for before, after in pairwise(samples)
    ]
    smooth = [sum(steps[max(0, at - 9) : at + 1]) / len(steps[max(0, at - 9) : at + 1]) for at in range(len(steps))]
    return [smooth[0] if smooth else 0.0, *smooth]


if __name__ == "__main__":
    run_command(main)
