"""`gossamer top`, `diagnose` and `bench`: what crawling processes wait for, what limits them, and a spider to learn it
from.

They read the recordings that processes keep in the data directory (telemetry/recordings.py). Fixed: flags, exit codes,
and the fields of `--json`, which are those of Measurement and Finding; fields may be added.
"""

import contextlib
import inspect
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec

from gossamer.cli import options, terminal
from gossamer.cli.parser import argument, option
from gossamer.cli.performance_report import (
    WIDEST,
    advice_lines,
    as_json,
    comparison_lines,
    latest_as_json,
    nothing_measured,
    process_rows,
    report,
)
from gossamer.errors import BadInput, GossamerError
from gossamer.extras import install_advice
from gossamer.fakeweb.benchmark import PIPELINE, PIPELINES, RESULTS, BenchmarkOptions
from gossamer.model import DATA_DIR
from gossamer.model.performance import Recording
from gossamer.policy.crawl_figures import Comparison, MeasuredRun, compare, is_same_crawl, overlap
from gossamer.policy.diagnosis import diagnose as find_limit
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.telemetry.recordings import (
    FOLDER,
    LOG_MARK,
    is_running,
    read_log,
    read_recording,
    recordings,
    running_processes,
)

_LIVE_SECONDS = 1.0
"""Interval in a terminal. Processes measure once a second."""
_PLAIN_SECONDS = 2.0
"""Interval where the output is not a terminal."""
_MEASURED = 10
"""Latest measurements of a process from which its figures come. More are steadier and later."""
_SHOWN = 30
"""Processes that are shown at most."""

Which = Annotated[
    list[str] | None,
    argument(
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
    once: Annotated[bool, option("--once", help="Show the table once and end.")] = False,
    json: Annotated[bool, option("--json", help="Print the latest figures once, as JSON.")] = False,
    metrics: Annotated[
        str,
        option(
            "--metrics",
            metavar="ADDRESS:PORT",
            help="Also serve the figures to Prometheus at http://ADDRESS:PORT/metrics, until Ctrl-C.",
        ),
    ] = "",
    **given: Any,
) -> None:
    """Show what crawling processes wait for, until Ctrl-C. Those of a data directory are shown, stage by stage.

    gossamer top

    gossamer top --data-dir shop/.gossamer prices

    Run it in the folder of the crawl. It shows gossamer's processes, and those of Scrapy with the extension
    gossamer.scrapy.PerformanceView.
    """
    if metrics and (once or json):
        ending = "--once" if once else "--json"
        raise BadInput(f"--metrics serves the figures until Ctrl-C, but {ending} ends at once. Leave out one of them.")
    folder = options.load_settings(given).data_dir / FOLDER
    _check_names(folder, which)
    if once or json:
        found = _running(folder, which)
        width = terminal.width() or WIDEST
        terminal.print_result(latest_as_json(found) if json else "\n".join(process_rows(folder, which, found, width)))
        return
    terminal.exit_below_picture()
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
    with metrics.serve(address, option="--metrics") as bound:
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
            if not terminal.print_result("\n".join(process_rows(folder, which, _running(folder, which), WIDEST))):
                return
            time.sleep(_PLAIN_SECONDS)
    with Live(console=console, auto_refresh=False, screen=False) as live:
        while True:
            found = _running(folder, which)
            rows = [*process_rows(folder, which, found, console.width), *advice_lines(found, console.width)]
            # A table is cut at the edge; the sentences that stand in its place are wrapped.
            text = Text("\n".join(rows[: max(2, console.height - 1)]), no_wrap=bool(found), overflow="ellipsis")
            if found:
                text.stylize("bold", 0, len(rows[0]))
            live.update(text, refresh=True)
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
    names = (process.name, str(process.pid), recording.source, str(Path(recording.source).resolve()))
    return not which or any(name in names or str(Path(name).resolve()) in names for name in which)


def _waiting_for_browsers(settings: Settings) -> list[str]:
    """Return a sentence for each running crawl of the data directory that waits for a worker with a browser."""
    from gossamer.cli.running import run as run_loop
    from gossamer.control.browsers import crawls_without_browsers
    from gossamer.policy.words import browser_text
    from gossamer.valkey.datadir import running_address
    from gossamer.wiring.frontier import connect  # imported late, as those above: gossamer top needs none of them

    address = running_address(settings.data_dir)
    if not address:
        return []

    async def find() -> list[str]:
        frontier = await connect(settings, address)
        try:
            found = await crawls_without_browsers(frontier)
        finally:
            await frontier.close()
        return [f"{info.crawl}: {browser_text(count, info.pool)}" for info, count in found]

    try:
        return run_loop(find())
    except GossamerError:
        return []  # the frontier is ending, or another program has taken its place


# --- diagnose ---------------------------------------------------------------------------------------------------------

_LEAST_INTERVAL = 0.1
"""Shortest interval of the lines of a log, in seconds. May be smaller, but must be above 0."""


@options.takes("data_dir")
def diagnose(
    which: Annotated[
        str | None,
        argument(
            metavar="NAME|PID|FILE",
            help="A process, running or ended: by its spider or crawl, its process id, or the file of its recording or "
            "log. Unset: the one that measured last.",
            show_default=False,
        ),
    ] = None,
    *,
    pages: Annotated[
        int | None,
        option("--pages", metavar="N", help="Also predict the time that so many pages take."),
    ] = None,
    interval: Annotated[
        float,
        option(
            "--interval",
            metavar="SECONDS",
            help="For a log: time between its lines, GOSSAMER_PERFORMANCE_LOG of the crawl. Default: 5.",
            show_default=False,
        ),
    ] = 5.0,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Find out what limits a crawl, and what to change. Predicts the gain, and compares with the run before.

    gossamer diagnose

    gossamer diagnose prices --pages 50000

    gossamer diagnose scrapy.log

    The processes are those of gossamer top. Run it again after the change: it compares the throughput with what it
    predicted from the run before.
    """
    if pages is not None and pages < 1:
        raise BadInput(f"--pages: {pages} is no number of pages. Write 1 or more.")
    if not _LEAST_INTERVAL <= interval < float("inf"):
        raise BadInput(f"--interval: {interval:g} is no time between lines. Write {_LEAST_INTERVAL} or more seconds.")
    settings = options.load_settings(given)
    waiting = _waiting_for_browsers(settings)
    try:
        chosen = _chosen(settings.data_dir / FOLDER, which, interval)
        run = _measured_run(chosen)
    except BadInput as error:
        raise BadInput(" ".join((error.detail, *waiting))) from None
    comparison = _comparison(Path(chosen.run[0].source).parent, run) if chosen.is_recorded else None
    if json:
        terminal.print_result(as_json(run, comparison))
        return
    lines = [*chosen.notes, *waiting, *report(run, pages, terminal.width())]
    if comparison is not None:
        lines += comparison_lines(run, comparison, terminal.width())
    terminal.print_result("\n".join(lines))


class _Chosen(NamedTuple):
    """Recordings that are meant."""

    run: tuple[Recording, ...]
    """The first is the process to diagnose; the others have its name and ran at the same time."""
    is_recorded: bool = True
    """False: they come from a log."""
    notes: tuple[str, ...] = ()
    """Sentences about the choice."""


def _chosen(folder: Path, which: str | None, interval: float) -> _Chosen:
    """Return the recording that is meant. Raises BadInput."""
    path = Path(which) if which is not None else None
    if path is not None and path.is_file():
        recording = read_recording(path)
        return _with_others(path.parent, recording) if recording is not None else _from_log(path, interval)
    for file in recordings(folder):
        recording = read_recording(file)
        if recording is not None and _is_meant(recording, [which] if which else None):
            chosen = _with_others(folder, recording)
            if which in (None, recording.process.name):  # and not one process: those with few pages come last
                most = max(one.page_responses for one in chosen.run)
                chosen = chosen._replace(run=tuple(sorted(chosen.run, key=lambda one: one.page_responses < most / 2)))
            return chosen
    if path is not None and (path.exists() or path.suffix in (".log", ".jsonl") or len(path.parts) > 1):
        fault = f"{which}: this is no file. --data-dir names a folder."
        raise BadInput(fault if path.exists() else f"there is no file {which}")
    what = f"recording of {which}" if which else "recording"
    raise BadInput(
        f"there is no {what} in {folder}. Processes of gossamer keep one; a Scrapy process does so with EXTENSIONS = "
        '{"gossamer.scrapy.PerformanceView": 0}.'
    )


_LONGEST_LINE = 65536
"""Bytes of a line of a log that are read at once. The lines of the performance view are shorter."""


def _measured_run(chosen: _Chosen) -> MeasuredRun:
    """Return the run with what limits each of its processes. Raises BadInput if the first has measured nothing."""
    found = [find_limit(one) for one in chosen.run]
    if found[0] is None:
        raise BadInput(f"{chosen.run[0].source}: {nothing_measured(chosen.run[0])}")
    return MeasuredRun(chosen.run, tuple(one for one in found if one is not None))


def _from_log(path: Path, interval: float) -> _Chosen:
    """Return the latest run of a log. Raises BadInput."""

    def lines() -> Iterator[str]:
        with path.open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                if LOG_MARK in line:
                    yield line.decode(errors="replace")

    try:
        runs, unreadable = read_log(lines(), seconds=interval, name=path.name)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None
    if not runs:
        many = f" ({counted(unreadable, 'line')} of it are incomplete or of another release)" if unreadable else ""
        what = "lines of gossamer.scrapy.PerformanceView, which writes one every GOSSAMER_PERFORMANCE_LOG seconds (5)"
        raise BadInput(f"{path}: neither a recording nor a log with {what}{many}.")
    notes = []
    if len(runs) > 1:
        notes.append(f"The log has {len(runs)} runs; this is the one with the latest line.")
    if unreadable:
        notes.append(f"{counted(unreadable, 'line')} of the log could not be read.")
    return _Chosen((msgspec.structs.replace(runs[-1], source=str(path)),), is_recorded=False, notes=tuple(notes))


def _with_others(folder: Path, recording: Recording) -> _Chosen:
    """Return a recording with those of the other processes that worked for the same crawl at the same time."""
    others = [
        other
        for path in recordings(folder)
        if path.name != Path(recording.source).name
        and (head := read_recording(path, last=1)) is not None
        and is_same_crawl(head, recording)
        and overlap(head, recording)
        and (other := read_recording(path)) is not None
    ]
    return _Chosen((recording, *others))


def _comparison(folder: Path, now: MeasuredRun) -> Comparison | None:
    """Compare a run with the latest earlier one of the same crawl that can be compared. None: there is no earlier one.
    If none can be compared, the comparison with the latest has the reason."""
    began = min(one.process.started for one in now.recordings)
    known = {Path(one.source).name for one in now.recordings}
    heads = [
        head
        for path in recordings(folder)
        if path.name not in known
        and (head := read_recording(path, last=1)) is not None
        and is_same_crawl(head, now.recordings[0])
        and head.process.started < began
        and not is_running(head)
    ]
    refused: Comparison | None = None
    for head in sorted(heads, key=lambda one: -one.process.started):
        if head.source in known:
            continue
        earlier = read_recording(Path(head.source))
        finding = find_limit(earlier) if earlier is not None else None
        if earlier is None or finding is None:
            continue
        group = _with_others(folder, earlier).run
        known.update(one.source for one in group)
        others = tuple(found for one in group[1:] if (found := find_limit(one)) is not None)
        comparison = compare(now, MeasuredRun(group, (finding, *others)))
        if not comparison.refused:
            return comparison
        refused = refused or comparison
    return refused


# --- bench ------------------------------------------------------------------------------------------------------------


def _with_knobs(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of BenchmarkOptions that are numbers, which it gets as `**given`. Those of the site
    and the spider come before its own, because the help keeps this order."""
    knobs = []
    for field in msgspec.structs.fields(BenchmarkOptions):
        if get_origin(field.type) is not Annotated:
            continue
        kind, meta = get_args(field.type)
        shown = f"{field.default:{'g' if kind is float else ','}}"
        described = option(
            f"--{field.name.replace('_', '-')}", help=f"{meta.description}. Default: {shown}.", show_default=False,
            metavar=meta.extra["metavar"], panel=meta.extra["panel"],
        )  # fmt: skip
        knobs.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[kind, described]
            )
        )
    signature = inspect.signature(command)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    at = next(at for at, one in enumerate(knobs) if one.name == "pipeline_time")
    command.__signature__ = signature.replace(parameters=[*knobs[:at], *own, *knobs[at:]])  # type: ignore[attr-defined]
    return command


_Kind = Annotated[
    str,
    option(
        "--pipeline",
        metavar="KIND",
        help=f"Work for each item. {'; '.join(f'{kind}: {work}' for kind, work in PIPELINES.items())}. Default: none.",
        show_default=False,
        panel=PIPELINE,
    ),
]
_Direct = Annotated[
    bool,
    option(
        "--direct",
        help="Send the requests of --api-calls without Scrapy's downloader: they do not count in --concurrency.",
        panel=PIPELINE,
    ),
]
_DataDir = Annotated[
    Path,
    option(
        "--data-dir",
        metavar="DIR",
        help=f"Folder for the recordings, which gossamer top and diagnose read. Default: {DATA_DIR}.",
        show_default=False,
        panel=RESULTS,
    ),
]


@_with_knobs
def bench(
    *, pipeline: _Kind = "none", direct: _Direct = False, data_dir: _DataDir = Path(DATA_DIR), **given: Any
) -> None:
    """Measure a spider that is as slow as you ask for. Its server is on this machine, and its figures are printed line
    by line and diagnosed.

    gossamer bench --items 5000 --concurrency 32

    gossamer bench --pipeline block --pipeline-time 0.1 --items 100

    The spider takes items from detail pages, which it finds on index pages. Watch it in another terminal with gossamer
    top. Needs the extra scrapy.
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
        raise BadInput(f"gossamer bench needs Scrapy: {install_advice('scrapy')}")
    chosen = BenchmarkOptions(**values)
    code = _BenchmarkRun(chosen).finish()
    if code:
        raise SystemExit(code)
    recorded = _chosen(data_dir / FOLDER, "bench", chosen.log_seconds).run[: chosen.processes]
    findings = [(one, found) for one in recorded if (found := find_limit(one)) is not None]
    if findings:
        run = MeasuredRun(tuple(one for one, _ in findings), tuple(found for _, found in findings))
        terminal.print_result("\n".join(report(run, None, terminal.width())))


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
