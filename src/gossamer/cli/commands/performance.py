"""`gossamer top`, `diagnose` and `bench spider`: what crawling processes wait for, what limits them, and a spider to
learn it from.

They read the recordings that processes keep in the data directory (telemetry/recordings.py). Safe to change: help
texts (then regenerate docs/reference), tables and sentences. Fixed: flags, exit codes, and the fields of `--json`,
which are those of Measurement and Finding; fields may be added.
"""

import contextlib
import inspect
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from gossamer.cli import options, terminal
from gossamer.errors import BadInput
from gossamer.fakeweb.benchmark import BenchmarkOptions
from gossamer.model.performance import Measurement, Recording
from gossamer.policy.diagnosis import Finding
from gossamer.policy.diagnosis import diagnose as find_limit
from gossamer.policy.performance_log import read_log
from gossamer.policy.words import duration_text
from gossamer.telemetry.recordings import FOLDER, read_recording, recordings, running_processes

_LIVE_SECONDS = 1.0
"""Interval in a terminal. May be changed freely: processes measure once a second."""
_PLAIN_SECONDS = 2.0
"""Interval where the output is not a terminal. May be changed freely."""
_MEASURED = 10
"""Latest measurements of a process from which its figures come. May be changed: more are steadier and later."""
_SHOWN = 30
"""Processes that are shown at most. May be changed freely."""

Which = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME|PID|FILE]...",
        help="Processes: the name of a spider or pool, a process id, or a recording. Unset: all of the data directory.",
        show_default=False,
    ),
]


@options.takes("data_dir")
def top(
    which: Which = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Show the processes once and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print them once, as JSON.")] = False,
    metrics: Annotated[
        str,
        typer.Option("--metrics", metavar="ADDRESS:PORT", help="Also serve the figures to Prometheus at this address."),
    ] = "",
    **given: Any,
) -> None:
    """Show what the crawling processes of a data directory wait for, stage by stage, until Ctrl-C.

    gossamer top

    gossamer top --data-dir shop/.gossamer prices

    It shows the processes of gossamer crawl, up and worker, and Scrapy processes with the extension
    gossamer.scrapy.PerformanceView.
    """
    folder = options.load_settings(given).data_dir / FOLDER
    if once or json:
        found = _running(folder, which)
        terminal.print_result(_as_json(found) if json else "\n".join(_rows(found)))
        return
    terminal.exit_on_signal("", 0)
    with _metrics_served(folder, metrics):
        _show_until_signal(folder, which)


@contextlib.contextmanager
def _metrics_served(folder: Path, address: str) -> Iterator[None]:
    """Serve the figures of the folder to Prometheus. Empty: serve nothing."""
    if not address:
        yield
        return
    from gossamer.telemetry.metrics import Metrics  # late: its library takes time to load

    metrics = Metrics()
    metrics.add_performance(folder)
    with metrics.serve(address) as bound:
        terminal.say(f"Metrics are at http://{bound}/metrics.")
        yield


def _show_until_signal(folder: Path, which: list[str] | None) -> None:
    """Show the processes again and again: a picture that is renewed, or lines."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        while True:
            terminal.print_result("\n".join(_rows(_running(folder, which))))
            time.sleep(_PLAIN_SECONDS)
    with Live(console=console, auto_refresh=False, screen=False) as live:
        while True:
            rows = "\n".join(_rows(_running(folder, which)))
            live.update(Text(rows, no_wrap=True, overflow="ellipsis"), refresh=True)
            time.sleep(_LIVE_SECONDS)


def _running(folder: Path, which: list[str] | None) -> list[Recording]:
    """Return the processes that run, with their latest measurements."""
    return [one for one in running_processes(folder, last=_MEASURED) if _is_meant(one, which)][:_SHOWN]


def _is_meant(recording: Recording, which: list[str] | None) -> bool:
    process = recording.process
    return not which or any(name in (process.name, str(process.pid), recording.source) for name in which)


_HEADINGS = (
    "process              limited by        items/s  pages/s schedul. downl.  scraper pipel.     done   MB   cpu block."
    "    lag latency in pipes"
)


def _rows(found: list[Recording]) -> list[str]:
    """Return the headings and a line for each process. What a narrow terminal cuts off is to the right."""
    if not found:
        return ["No crawling process with a performance view runs here."]
    return [_HEADINGS, *(_row(one) for one in found)]


def _row(recording: Recording) -> str:
    process, measurements = recording.process, recording.measurements
    name = f"{terminal.cut(process.name, 12)} {process.pid}"
    if not measurements:
        return f"{name:20s} starts"
    now, whole = measurements[-1], reduce(Measurement.plus, measurements)
    seconds = whole.seconds
    finding = find_limit(recording)
    downloader = f"{now.downloader:.0f}/{process.limits.requests or '-'}"
    return (
        f"{name:20s} {finding.case.replace('_', ' ') if finding else '-':16s} "
        f"{(whole.items + whole.lost_items) / seconds:8.1f} {whole.page_responses / seconds:8.1f} "
        f"{now.scheduler:8.0f} {downloader:>7s} {now.scraper:7.0f} {now.pipelines:6.0f} "
        f"{now.items_in_all or now.pages_in_all:8d} {now.held_bytes / 1e6:4.1f} {whole.loop_cpu / seconds:5.0%} "
        f"{whole.blocked:6.0%} {whole.lag * 1000:3.0f} ms {whole.latency:6.2f}s {whole.pipeline_seconds:7.2f}s"
    )


def _as_json(found: list[Recording]) -> str:
    return msgspec.json.encode(
        [msgspec.structs.replace(one, measurements=one.measurements[-1:]) for one in found]
    ).decode()


# --- diagnose ---------------------------------------------------------------------------------------------------------


@options.takes("data_dir")
def diagnose(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|PID|FILE]",
            help="A process, running or ended: the name of its spider, its id, its recording, or its log. Unset: the "
            "latest.",
            show_default=False,
        ),
    ] = None,
    *,
    pages: Annotated[
        int | None,
        typer.Option("--pages", metavar="N", help="Also predict the time of a job of so many pages.", min=1),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Interval of the lines of a log.", min=0.1)
    ] = 5.0,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Find out what limits a crawl, what to change, and what that should give; then compare with the run before.

    gossamer diagnose

    gossamer diagnose prices --pages 50000

    gossamer diagnose scrapy.log

    Run it again after the change: it compares the throughput with what it predicted from the run before, if both are
    runs of the same spider in the same data directory.
    """
    folder = options.load_settings(given).data_dir / FOLDER
    recording = _chosen(folder, which, interval)
    finding = find_limit(recording)
    if finding is None:
        raise BadInput(f"{recording.source}: no responses were measured yet; wait some seconds, or crawl more pages.")
    earlier = _before(Path(recording.source).parent, recording)
    if json:
        terminal.print_result(msgspec.json.encode(_result(recording, finding, earlier)).decode())
        return
    terminal.print_result("\n".join(_report(recording, finding, pages)))
    if earlier is not None:
        terminal.print_result("\n".join(_comparison(finding, earlier)))


def _chosen(folder: Path, which: str | None, interval: float) -> Recording:
    """Return the recording that is meant. Raises BadInput."""
    if which is not None and Path(which).is_file():
        recording = read_recording(Path(which))
        if recording is None:
            with Path(which).open(encoding="utf-8", errors="replace") as lines:
                recording = read_log(lines, seconds=interval, name=which)
        if recording is None:
            raise BadInput(f"{which}: neither a recording nor a log with lines of gossamer.scrapy.PerformanceView.")
        return recording if recording.source else msgspec.structs.replace(recording, source=which)
    for path in recordings(folder):
        recording = read_recording(path)
        if recording is not None and _is_meant(recording, [which] if which else None):
            return recording
    what = f"recording of {which}" if which else "recording"
    raise BadInput(
        f"there is no {what} in {folder}. Processes of gossamer keep one; a Scrapy process does so with EXTENSIONS = "
        '{"gossamer.scrapy.PerformanceView": 0}.'
    )


def _before(folder: Path, recording: Recording) -> tuple[Recording, Finding] | None:
    """Return the latest earlier run of the same spider, and what was found in it. None: there is none."""
    for path in recordings(folder):
        earlier = read_recording(path)
        if earlier is None or earlier.process.name != recording.process.name:
            continue
        if earlier.ended is None or earlier.ended > recording.process.started:
            continue
        finding = find_limit(earlier)
        if finding is not None:
            return earlier, finding
    return None


def _result(recording: Recording, finding: Finding, earlier: tuple[Recording, Finding] | None) -> dict[str, Any]:
    """Return the JSON of a diagnosis."""
    result = {
        "process": recording.process,
        "source": recording.source,
        **finding._asdict(),
        "advice": finding.advice._asdict(),
        "predicted": finding.predicted,
        "stages": [{**stage._asdict(), "seconds": stage.seconds} for stage in finding.stages],
        "job": {**finding.job._asdict(), "seconds": finding.job.seconds},
    }
    if earlier is not None:
        before = earlier[1]
        result["before"] = {
            "source": earlier[0].source, "case": before.case, "rate": before.rate, "predicted": before.predicted,
            "advice": before.advice._asdict(),
        }  # fmt: skip
    return result


def _report(recording: Recording, finding: Finding, pages: int | None) -> list[str]:
    """Return the diagnosis in sentences."""
    job, advice = finding.job, finding.advice
    lines = [
        f"{recording.process.name}: {finding.summary}.",
        f"  case         {finding.case.replace('_', ' ')}; bottleneck: {finding.bottleneck}",
        f"  throughput   {finding.rate:.1f} {finding.unit}/s",
        *(f"  {'shown by' if not at else '':12s} {text}" for at, text in enumerate(finding.figures)),
        f"  advice       {advice.text}",
    ]
    if advice.factor > 1:
        lines.append(f"  should give  {finding.predicted:.1f} {finding.unit}/s, {advice.factor:.1f} times as many")
    lines.append("  stage         inside (N) = per second (T) x seconds (S)")
    lines += [
        f"  {stage.name:12s} {stage.number:11.1f}   {stage.rate:14.1f}   {stage.seconds:11.3f}"
        for stage in finding.stages
    ]
    lines.append(
        f"  time         {job.pages:,} pages x ({job.response:.3f} s response + {job.overhead:.3f} s overhead) / "
        f"{job.concurrency:.1f} + {job.start_stop:.1f} s = {duration_text(job.seconds)}"
    )
    if pages is not None:
        now = job._replace(pages=pages)
        then = (now.seconds - now.start_stop) / advice.factor + now.start_stop
        after = f"; after the change: {duration_text(then)}" if advice.factor > 1 else ""
        lines.append(f"  a job of {pages:,} pages would take {duration_text(now.seconds)}{after}")
    return lines


def _comparison(finding: Finding, earlier: tuple[Recording, Finding]) -> list[str]:
    """Return how this run compares with the one before."""
    recording, before = earlier
    started = time.strftime("%H:%M:%S", time.localtime(recording.process.started))
    lines = [f"The run before (started {started}): {before.case.replace('_', ' ')}, {before.rate:.1f} {before.unit}/s."]
    if before.advice.factor > 1 and before.unit == finding.unit:
        difference = finding.rate / before.predicted - 1
        lines.append(
            f"  predicted for {before.advice.setting} {before.advice.before:g} -> {before.advice.after:g}: "
            f"{before.predicted:.1f} {before.unit}/s; this run: {finding.rate:.1f} ({difference:+.0%})"
        )
    return lines


# --- bench ------------------------------------------------------------------------------------------------------------

bench = typer.Typer(
    help="Measure a spider that is as slow as you ask for, against a server of its own.",
    no_args_is_help=True,
    add_completion=False,
)


@bench.callback()
def _bench() -> None:
    """Keep `spider` a command of its own."""


_KNOBS = {
    "items": (int, 1, "Items to scrape."),
    "items_per_page": (int, 1, "Items of a page."),
    "links": (int, 1, "Details that an index page lists."),
    "starts": (int, 1, "Chains of index pages, each with a start request."),
    "response_time": (float, 0, "Seconds of a response."),
    "page_bytes": (int, 0, "Size of a response."),
    "concurrency": (int, 1, "CONCURRENT_REQUESTS."),
    "item_concurrency": (int, 1, "CONCURRENT_ITEMS."),
    "held_bytes": (int, 1, "SCRAPER_SLOT_MAX_ACTIVE_SIZE."),
    "pipeline_time": (float, 0, "Seconds that the pipeline takes for an item."),
    "slots": (int, 1, "Threads of --pipeline threads; places of --pipeline store."),
    "api_calls": (int, 0, "Calls of an API that the pipeline makes for an item."),
    "api_time": (float, 0, "Seconds of a call."),
    "log_seconds": (float, 0, "Interval of the lines; 0: none."),
}
"""Options with a number: type, least value and meaning. Their defaults are those of BenchmarkOptions."""


def _with_knobs(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of _KNOBS, which it gets as `**given`."""
    defaults = BenchmarkOptions()
    knobs = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(defaults, name),
            annotation=Annotated[
                kind, typer.Option(f"--{name.replace('_', '-')}", metavar="N", help=meaning, min=least)
            ],
        )
        for name, (kind, least, meaning) in _KNOBS.items()
    ]
    signature = inspect.signature(command)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*knobs, *own])  # type: ignore[attr-defined]
    return command


@bench.command("spider")
@_with_knobs
def bench_spider(
    *,
    pipeline: Annotated[
        str,
        typer.Option(
            "--pipeline",
            metavar="none|wait|block|cpu|threads|store",
            help="Work of the pipeline for each item: none; wait; block the event loop; use the CPU; block a thread; "
            "wait for one of a store's places.",
        ),
    ] = "none",
    direct: Annotated[bool, typer.Option("--direct", help="Call the API without Scrapy's downloader.")] = False,
    processes: Annotated[
        int,
        typer.Option("--processes", metavar="N", help="Processes, each with its part of the start requests.", min=1),
    ] = 1,
    data_dir: Annotated[Path, typer.Option("--data-dir", metavar="DIR", help="Folder of the recordings.")] = Path(
        ".gossamer"
    ),
    **given: Any,
) -> None:
    """Run a Scrapy spider against a server of its own, print its figures line by line, and diagnose it.

    gossamer bench spider --items 5000 --concurrency 32

    gossamer bench spider --pipeline block --pipeline-time 0.1 --items 100

    It needs the extra scrapy. The options are the knobs with which each case of gossamer diagnose can be made.
    """
    kinds = ("none", "wait", "block", "cpu", "threads", "store")
    if pipeline not in kinds:
        raise BadInput(f"--pipeline: {pipeline!r} is none of {', '.join(kinds)}.")
    chosen = BenchmarkOptions(**given, pipeline=pipeline, direct=direct, processes=processes, data_dir=str(data_dir))
    if find_spec("scrapy") is None:
        raise BadInput("gossamer bench spider needs Scrapy. Install gossamer-crawl[scrapy].")
    code = _run_benchmark(chosen)
    if code:
        raise typer.Exit(code)
    recording = _chosen(data_dir / FOLDER, "bench", chosen.log_seconds)
    finding = find_limit(recording)
    if finding is not None:
        terminal.print_result("\n".join(_report(recording, finding, None)))


def _run_benchmark(chosen: BenchmarkOptions) -> int:
    """Run the server and the spider to the end, and return the spider's exit code."""
    text = msgspec.json.encode(chosen).decode()
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "gossamer.fakeweb.benchmark", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    terminal.exit_on_signal("")  # Ctrl-C ends the spiders, too; the server ends when its standard input is closed
    try:
        url = server.stdout.readline().strip()
        command = [sys.executable, "-P", "-m", "gossamer.scrapy.benchmark", url, text]
        spiders = [subprocess.Popen([*command, str(number)]) for number in range(chosen.processes)]
        return max(abs(spider.wait()) for spider in spiders)
    finally:
        server.stdin.close()
        server.wait()
