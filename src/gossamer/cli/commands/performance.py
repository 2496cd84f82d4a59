"""`gossamer top`, `diagnose` and `bench spider`: what crawling processes wait for, what limits them, and a spider to
learn it from.

They read the recordings that processes keep in the data directory (telemetry/recordings.py). Safe to change: help
texts (then regenerate docs/reference), tables and sentences. Fixed: flags, exit codes, and the fields of `--json`,
which are those of Measurement and Finding; fields may be added.
"""

import contextlib
import inspect
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import typer

from gossamer.cli import options, terminal
from gossamer.errors import BadInput
from gossamer.fakeweb.benchmark import PIPELINE, PIPELINES, RESULTS, BenchmarkOptions
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
        metavar="NAME|PID|FILE",
        help="Processes to show, each by its spider or crawl, its process id, or the file that it records. Unset: all "
        "that run in the data directory.",
        show_default=False,
    ),
]


@options.takes("data_dir")
def top(
    which: Which = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Show the table once and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the latest figures once, as JSON.")] = False,
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            metavar="ADDRESS:PORT",
            help="Also serve the figures to Prometheus at http://ADDRESS:PORT/metrics.",
        ),
    ] = "",
    **given: Any,
) -> None:
    """Show what the crawling processes of a data directory wait for, stage by stage, until Ctrl-C.

    gossamer top

    gossamer top --data-dir shop/.gossamer prices

    Run it in the folder of the crawl. It shows the processes of gossamer crawl, up, worker and bench spider, and Scrapy
    processes with the extension gossamer.scrapy.PerformanceView. A narrow terminal shows the first columns.
    """
    folder = options.load_settings(given).data_dir / FOLDER
    _check_names(folder, which)
    if once or json:
        terminal.print_result(_as_json(_running(folder, which)) if json else "\n".join(_rows(folder, which)))
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
            terminal.print_result("\n".join(_rows(folder, which)))
            time.sleep(_PLAIN_SECONDS)
    with Live(console=console, auto_refresh=False, screen=False) as live:
        while True:
            rows = "\n".join(_rows(folder, which))
            live.update(Text(rows, no_wrap=True, overflow="ellipsis"), refresh=True)
            time.sleep(_LIVE_SECONDS)


def _check_names(folder: Path, which: list[str] | None) -> None:
    """Raise BadInput for a name that no process of the folder has or had."""
    known = [one for one in (read_recording(path, last=0) for path in recordings(folder)) if one is not None]
    for name in which or ():
        if not any(_is_meant(one, [name]) for one in known):
            names = ", ".join(sorted({one.process.name for one in known}))
            others = f"Processes of this folder: {names}" if names else f"Nothing is recorded in {folder}"
            raise BadInput(f"no crawling process is called {name!r:.80}. {others}. Another folder: --data-dir DIR.")


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


def _rows(folder: Path, which: list[str] | None) -> list[str]:
    """Return the headings and a line for each process. What a narrow terminal cuts off is to the right."""
    found = _running(folder, which)
    if found:
        return [_HEADINGS, *(_row(one) for one in found)]
    if which:
        ended = [f"{' and '.join(which)} {'runs' if len(which) == 1 else 'run'} no longer."]
        return [*ended, f"What limited the last run: gossamer diagnose {which[0]}"]
    return [
        f"No crawling process runs in the data directory {folder.parent}. Another one: --data-dir DIR.",
        "Scrapy processes are shown if they have the extension gossamer.scrapy.PerformanceView.",
    ]


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

_LEAST_INTERVAL = 0.1
"""Shortest interval of the lines of a log, in seconds. May be smaller, but must be above 0."""


@options.takes("data_dir")
def diagnose(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|PID|FILE",
            help="A process, running or ended: by its spider or crawl, its process id, or the file of its recording or "
            "log. Unset: the one that measured last.",
            show_default=False,
        ),
    ] = None,
    *,
    pages: Annotated[
        int | None,
        typer.Option("--pages", metavar="N", help="Also predict the time that so many pages take."),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            help="For a log: time between its lines, GOSSAMER_PERFORMANCE_LOG of the crawl. Default: 5.",
            show_default=False,
        ),
    ] = 5.0,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Find out what limits a crawl, what to change, and what that should give; then compare with the run before.

    gossamer diagnose

    gossamer diagnose prices --pages 50000

    gossamer diagnose scrapy.log

    The processes are those of gossamer top. Run it again after the change: it compares the throughput with what it
    predicted from the run before, if both are runs of the same spider in the same data directory.
    """
    if pages is not None and pages < 1:
        raise BadInput(f"--pages: {pages} is no number of pages. Write 1 or more.")
    if not _LEAST_INTERVAL <= interval < float("inf"):
        raise BadInput(f"--interval: {interval:g} is no time between lines. Write {_LEAST_INTERVAL} or more seconds.")
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


def _with_knobs(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of BenchmarkOptions that are numbers, which it gets as `**given`. Those of the site
    and the spider come before its own, because the help keeps this order."""
    knobs = []
    for field in msgspec.structs.fields(BenchmarkOptions):
        if get_origin(field.type) is not Annotated:
            continue
        kind, meta = get_args(field.type)
        shown = f"{field.default:{'g' if kind is float else ','}}"
        option = typer.Option(
            f"--{field.name.replace('_', '-')}", help=f"{meta.description}. Default: {shown}.", show_default=False,
            metavar=meta.extra["metavar"], rich_help_panel=meta.extra["panel"],
        )  # fmt: skip
        knobs.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[kind, option]
            )
        )
    signature = inspect.signature(command)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    at = next(at for at, one in enumerate(knobs) if one.name == "pipeline_time")
    command.__signature__ = signature.replace(parameters=[*knobs[:at], *own, *knobs[at:]])  # type: ignore[attr-defined]
    return command


_Kind = Annotated[
    str,
    typer.Option(
        "--pipeline",
        metavar="KIND",
        help=f"Work for each item. {'; '.join(f'{kind}: {work}' for kind, work in PIPELINES.items())}. Default: none.",
        show_default=False,
        rich_help_panel=PIPELINE,
    ),
]
_Direct = Annotated[
    bool,
    typer.Option(
        "--direct",
        help="Send the requests of --api-calls without Scrapy's downloader: they do not count in --concurrency.",
        rich_help_panel=PIPELINE,
    ),
]
_DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Folder for the recordings, which gossamer top and diagnose read. Default: .gossamer.",
        show_default=False,
        rich_help_panel=RESULTS,
    ),
]


@bench.command("spider")
@_with_knobs
def bench_spider(
    *, pipeline: _Kind = "none", direct: _Direct = False, data_dir: _DataDir = Path(".gossamer"), **given: Any
) -> None:
    """Run a Scrapy spider against a server of its own, print its figures line by line, and diagnose it.

    gossamer bench spider --items 5000 --concurrency 32

    gossamer bench spider --pipeline block --pipeline-time 0.1 --items 100

    The spider takes items from detail pages, which it finds on index pages. Make each case that gossamer diagnose knows
    with these options, and watch it in another terminal with gossamer top. Needs the extra scrapy.
    """
    if pipeline not in PIPELINES:
        *others, last = PIPELINES
        raise BadInput(f"--pipeline: cannot read {pipeline!r:.40}. Write {', '.join(others)} or {last}.")
    values = {**given, "pipeline": pipeline, "direct": direct, "data_dir": str(data_dir)}
    for name, value in given.items():
        try:
            msgspec.convert({name: value if value < float("inf") else -1}, BenchmarkOptions)
        except msgspec.ValidationError:
            least = get_args(BenchmarkOptions.__annotations__[name])[1].ge
            raise BadInput(f"--{name.replace('_', '-')}: cannot use {value}. Write {least} or more.") from None
    if find_spec("scrapy") is None:
        raise BadInput("gossamer bench spider needs Scrapy. Install gossamer-crawl[scrapy].")
    chosen = BenchmarkOptions(**values)
    code = _BenchmarkRun(chosen).finish()
    if code:
        raise typer.Exit(code)
    recording = _chosen(data_dir / FOLDER, "bench", chosen.log_seconds)
    finding = find_limit(recording)
    if finding is not None:
        terminal.print_result("\n".join(_report(recording, finding, None)))


class _BenchmarkRun:
    """The server and the spiders of a benchmark.

    They are in process groups of their own, so that Ctrl-C reaches this command only, which then ends the spiders in
    order and the server after them. If this command is killed, the server ends, and the spiders because of that.
    """

    def __init__(self, options: BenchmarkOptions) -> None:
        self._options = options
        self._spiders: list[subprocess.Popen[bytes]] = []
        self._signals = 0
        """Signals so far that were to end the command."""

    def finish(self) -> int:
        """Start the processes, wait for their end, and return the exit code of the command."""
        text = msgspec.json.encode(self._options).decode()
        terminal.call_on_signal(self._stop)
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "gossamer.fakeweb.benchmark", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            command = [sys.executable, "-P", "-m", "gossamer.scrapy.benchmark", url, text]
            for number in range(self._options.processes):
                if not self._signals:
                    self._spiders.append(
                        subprocess.Popen([*command, str(number)], stdin=subprocess.DEVNULL, process_group=0)
                    )
            codes = [abs(spider.wait()) for spider in self._spiders]
        finally:
            server.stdin.close()
            server.wait()
        return terminal.INTERRUPTED_EXIT_CODE if self._signals else max(codes)

    def _stop(self) -> None:
        """End the spiders: after their requests in flight; at the second signal without waiting for these; at the third
        at once. Runs in a signal handler."""
        self._signals += 1
        if self._signals == 1:
            terminal.write_now("Finishing requests in flight; press Ctrl-C again to stop at once.")
        for spider in self._spiders:
            # Not SIGINT: while a spider still loads its modules, it would print a traceback.
            spider.send_signal(signal.SIGTERM if self._signals < 3 else signal.SIGKILL)
