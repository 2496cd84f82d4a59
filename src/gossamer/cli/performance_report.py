"""Texts of `gossamer top` and `gossamer diagnose`: a table of processes, a diagnosis, and a comparison of two runs."""

import shlex
import textwrap
import time
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gossamer.cli import terminal
from gossamer.model import DATA_DIR
from gossamer.model.performance import Measurement, Recording
from gossamer.policy.crawl_figures import Comparison, MeasuredRun
from gossamer.policy.diagnosis import diagnose
from gossamer.policy.words import duration_text
from gossamer.telemetry.recordings import is_running, is_stopped, recordings, silent_seconds

WIDEST = 132
"""Columns of a table that is complete."""
_NARROWEST = 50
"""Columns to which text is wrapped at least."""
_SILENT_SECONDS = 5.0
"""Time without a measurement from which a process is shown as silent. It measures once a second in its first hour."""
_ADVISED = 3
"""Pieces of advice that `top` shows."""
_NAMED = 3
"""Processes that `top` names before an advice."""


# --- top --------------------------------------------------------------------------------------------------------------


class _Seen(NamedTuple):
    """Latest figures of a process."""

    recording: Recording
    now: Measurement
    whole: Measurement
    """All of the latest measurements as one."""
    case: str

    @property
    def name(self) -> str:
        """Name and process id."""
        return f"{self.recording.process.name} {self.recording.process.pid}"


class _Column(NamedTuple):
    """Column of the table."""

    title: str
    width: int
    show: Callable[[_Seen], str]
    add: Callable[[_Seen], float] | None = None
    """Number that is summed in the last row; None: no sum."""


def _compact(number: float) -> str:
    """Return a number in at most five characters."""
    if number < 99_999.5:
        return f"{number:.0f}"
    return f"{number / 1e3:.0f}k" if number < 999_500 else f"{number / 1e6:.3g}M"


def _rate(number: float) -> str:
    return f"{number:.1f}" if number < 9_999.95 else _compact(number)


def _items_rate(seen: _Seen) -> float:
    return (seen.whole.items + seen.whole.lost_items) / seen.whole.seconds


def _pages_rate(seen: _Seen) -> float:
    return seen.whole.page_responses / seen.whole.seconds


def _downloader(seen: _Seen) -> str:
    limit = seen.recording.process.limits.requests
    text = f"{seen.now.downloader:.0f}/{limit}"
    return text if limit and len(text) <= 7 else _compact(seen.now.downloader)


def _in_browser(seen: _Seen) -> str:
    tabs = seen.recording.process.limits.tabs
    return f"{seen.now.browser:.0f}/{tabs}" if tabs else "-"


def _of_scrapy(seen: _Seen, number: float) -> str:
    """Return a number of a stage that a worker does not have."""
    return _compact(number) if seen.recording.process.kind == "scrapy" else "-"


def _done(seen: _Seen) -> float:
    return seen.now.items_in_all or seen.now.pages_in_all


_BROWSER = "browser"
"""Title of the column that is shown only where a process has browsers."""
_COLUMNS = (
    _Column("items/s", 7, lambda seen: _rate(_items_rate(seen)), _items_rate),
    _Column("pages/s", 7, lambda seen: _rate(_pages_rate(seen)), _pages_rate),
    _Column("sched", 5, lambda seen: _of_scrapy(seen, seen.now.scheduler)),
    _Column("downl", 7, _downloader),
    _Column(_BROWSER, 7, _in_browser),
    _Column("scrap", 5, lambda seen: _of_scrapy(seen, seen.now.scraper)),
    _Column("pipes", 5, lambda seen: _compact(seen.now.pipelines)),
    _Column("done", 5, lambda seen: _compact(_done(seen)), _done),
    _Column("MB", 4, lambda seen: f"{seen.now.held_bytes / 1e6:.{1 if seen.now.held_bytes < 99.95e6 else 0}f}"),
    _Column("CPU", 4, lambda seen: f"{seen.whole.loop_cpu / seen.whole.seconds:.0%}"),
    _Column("block", 5, lambda seen: f"{seen.whole.blocked:.0%}"),
    _Column("lag", 7, lambda seen: f"{seen.whole.lag * 1000:.0f} ms"),
    _Column("latency", 7, lambda seen: f"{seen.whole.latency:.2f} s"),
    _Column("in pipes", 8, lambda seen: f"{seen.whole.pipeline_seconds:.2f} s"),
)
"""The first six stages come first: a narrow terminal has no room for the columns to the right."""
_NAME_WIDTH, _LONGEST_NAME = 11, 40
_CASE_WIDTH = 15


def process_rows(folder: Path, which: list[str] | None, found: list[Recording], width: int) -> list[str]:
    """Return the table of these processes, or sentences if there are none."""
    if found:
        return _process_table(found, width)
    if which:
        ended = [f"{' and '.join(which)} {'runs' if len(which) == 1 else 'run'} no longer."]
        return [*ended, f"What limited the last run: gossamer diagnose {which[0]}"]
    directory = folder.parent
    if not directory.exists():
        return [f"There is no data directory {directory}. Another one: --data-dir DIR."]
    lines = [
        f"No crawling process runs in the data directory {directory}. Another one: --data-dir DIR.",
        "Scrapy processes are shown if they have the extension gossamer.scrapy.PerformanceView.",
    ]
    if recordings(folder):
        named = "" if directory == Path(DATA_DIR) else f" --data-dir {shlex.quote(str(directory))}"
        lines.append(f"What limited the last run: gossamer diagnose{named}")
    return lines


def _process_table(found: Sequence[Recording], width: int) -> list[str]:
    """Return headings and a line for each process, as many columns as fit, and their sums."""
    columns, used = [], _NAME_WIDTH + 1 + _CASE_WIDTH
    has_browsers = any(one.process.limits.tabs for one in found)
    for column in _COLUMNS:
        if column.title == _BROWSER and not has_browsers:
            continue
        used += 1 + column.width
        if used > width:
            used -= 1 + column.width
            break
        columns.append(column)
    names = [f"{one.process.name} {one.process.pid}" for one in found]
    room = min(_NAME_WIDTH + max(0, width - used), max([_NAME_WIDTH, *map(len, names)]), _LONGEST_NAME)
    titles = " ".join(f"{column.title:>{column.width}s}" for column in columns)
    lines = [f"{'process':{room}s} {'limited by':{_CASE_WIDTH}s} {titles}".rstrip()]
    seen = [_seen(one) for one in found]
    for one, each in zip(found, seen, strict=True):
        name = _name(one, room)
        if each is None:
            lines.append(f"{name} started {duration_text(max(0.0, time.time() - one.process.started))} ago")
            continue
        values = " ".join(f"{column.show(each):>{column.width}s}" for column in columns)
        lines.append(f"{name} {each.case:{_CASE_WIDTH}s} {values}")
    known = [each for each in seen if each is not None]
    if len(known) > 1:
        sums = [_sum(column, known) for column in columns]
        text = " ".join(f"{value:>{column.width}s}" for value, column in zip(sums, columns, strict=True))
        lines.append(f"{'all':{room}s} {f'{len(found)} processes':{_CASE_WIDTH}s} {text}".rstrip())
    return lines


def _sum(column: _Column, seen: Sequence[_Seen]) -> str:
    """Return the sum of a column; empty: it has none."""
    if column.add is None:
        return ""
    total = sum(map(column.add, seen))
    return _rate(total) if column.title.endswith("/s") else _compact(total)


def _name(recording: Recording, room: int) -> str:
    """Return name and id of a process in so many columns. The id is kept, the name is cut."""
    pid = str(recording.process.pid)
    return f"{terminal.cut(recording.process.name, max(1, room - len(pid) - 1))} {pid}".ljust(room)


def _seen(recording: Recording) -> _Seen | None:
    """Return the latest figures of a process; None: it has not measured yet."""
    measurements = recording.measurements
    if not measurements:
        return None
    finding = diagnose(recording)
    case = finding.case.replace("_", " ") if finding is not None else "-"
    if silence := _silence(recording):
        case = silence
    return _Seen(recording, measurements[-1], reduce(Measurement.plus, measurements), case)


def _silence(recording: Recording) -> str:
    """Return why a running process measures nothing now, in a few words; empty: it does."""
    silent = silent_seconds(recording)
    interval = recording.measurements[-1].seconds if recording.measurements else 1.0
    if silent < max(_SILENT_SECONDS, 3 * interval):
        return ""
    return f"{'stopped' if is_stopped(recording.process.pid) else 'silent'} {_short_duration(silent)}"


def _short_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else "long"


def advice_lines(found: Sequence[Recording], width: int) -> list[str]:
    """Return what to change, below a table of processes. Processes with the same advice share its lines."""
    advised: dict[str, list[str]] = {}  # advice: names of processes
    for one in found:
        finding = diagnose(one)
        if finding is not None and not _silence(one):
            text = f"{finding.summary}. {finding.advice.text}"
            advised.setdefault(text, []).append(f"{one.process.name} {one.process.pid}")
    lines: list[str] = []
    for text, names in list(advised.items())[:_ADVISED]:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        whole = f"{', '.join(names[:_NAMED])}{more}: {text}"
        lines += ["", *textwrap.wrap(whole, max(_NARROWEST, width - 1), subsequent_indent="  ")]
    return lines


def latest_as_json(found: Sequence[Recording]) -> str:
    """Return processes, each with its latest measurement, as JSON."""
    return msgspec.json.encode(
        [msgspec.structs.replace(one, measurements=one.measurements[-1:]) for one in found]
    ).decode()


# --- diagnose ---------------------------------------------------------------------------------------------------------

_LABEL = 16
"""Columns of a label, with the space around it."""


def _labelled(label: str, text: str, width: int | None) -> list[str]:
    """Return a text behind a label, wrapped to the terminal."""
    first = f"  {label}".ljust(_LABEL)
    if width is None:
        return [first + text]
    wide = min(max(_NARROWEST, width - 1), 110)
    return textwrap.wrap(
        text, wide, initial_indent=first, subsequent_indent=" " * _LABEL, break_long_words=False, break_on_hyphens=False
    )


def number_text(number: float) -> str:
    """Return a rounded number with all of its digits."""
    return f"{number:,.6f}".rstrip("0").rstrip(".") if number else "0"


def report(run: MeasuredRun, pages: int | None, width: int | None) -> list[str]:
    """Return the diagnosis in sentences. `pages`: also predict the time of a job of so many. `width`: columns of the
    terminal; None: there is none."""
    recording, finding = run.recordings[0], run.finding
    advice = finding.advice

    def part(label: str, text: str) -> list[str]:
        return _labelled(label, text, width)

    lines = textwrap.wrap(f"{recording.process.name}: {finding.summary}.", width or 10_000)
    lines += part("process", _process_text(recording))
    lines += part("measured", f"{duration_text(finding.measured_seconds)} with {finding.measured_pages:,} pages")
    for note in (*finding.notes, *_live_notes(recording)):
        lines += part("note", note)
    lines += part("case", f"{finding.case.replace('_', ' ')}; bottleneck: {finding.bottleneck}")
    lines += part("throughput", f"{number_text(finding.rate)} {finding.unit}/s")
    if len(run.findings) > 1:
        rates = " + ".join(number_text(one.rate) for one in run.findings)
        lines += part("", f"{len(run.findings)} processes: {rates} = {number_text(run.rate)} {finding.unit}/s")
    for at, text in enumerate(finding.figures):
        lines += part("" if at else "shown by", text)
    lines += part("advice", advice.text)
    if advice.factor > 1:
        times = f"{number_text(finding.rate)} x {number_text(advice.factor)} = {number_text(finding.predicted)}"
        lines += part("should give", f"{times} {finding.unit}/s")
    lines += ["", "  stage         inside (N) = per second (T) x seconds (S)"]
    lines += [
        f"  {stage.name:12s}{number_text(stage.number):>12s}{number_text(stage.rate):>17s}{stage.seconds:>14.4g}"
        for stage in finding.stages
    ]
    return lines + _job_lines(run, pages, width)


def _job_lines(run: MeasuredRun, pages: int | None, width: int | None) -> list[str]:
    """Return the time of the job by its formula, and that of a job of so many pages, which all processes share."""
    job, processes = run.finding.job, len(run.findings)
    if not job.pages:
        return []
    text = (
        f"{job.pages:,} pages x ({number_text(job.response)} s response + {number_text(job.overhead)} s overhead) / "
        f"{number_text(job.concurrency)} + {number_text(job.start_stop)} s = {duration_text(job.seconds)}"
    )
    lines = ["", *_labelled("job time", f"of this process: {text}" if processes > 1 else text, width)]
    if pages is not None:
        seconds, factor = pages / sum(one.job.rate for one in run.findings), run.finding.advice.factor
        shared = f" with {processes} processes" if processes > 1 else ""
        after = f"; after the change: {duration_text(seconds / factor + job.start_stop)}" if factor > 1 else ""
        text = f"a job of {pages:,} pages would take {duration_text(seconds + job.start_stop)}{shared}{after}"
        lines += _labelled("", text, width)
    return lines


def _process_text(recording: Recording) -> str:
    """Return which process this is, and whether it runs."""
    process, source = recording.process, recording.source
    where = f"{process.pid} on {process.host}" if process.host else f"{process.pid or 'unknown'}, from {source}"
    if not process.started:
        return where
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(process.started))
    latest = recording.measurements[-1].at if recording.measurements else process.started
    if recording.ended is not None:
        return f"{where}, started {started}, ended after {duration_text(recording.ended - process.started)}"
    lasted = duration_text(max(0.0, latest - process.started))
    return f"{where}, started {started}, {'runs for' if is_running(recording) else 'was killed after'} {lasted}"


def _live_notes(recording: Recording) -> list[str]:
    """Return sentences about a process that runs and measures nothing now."""
    if not is_running(recording) or not (silence := _silence(recording)):
        return []
    silent = duration_text(silent_seconds(recording))
    if silence.startswith("stopped"):
        pid = recording.process.pid
        return [f"the process is stopped; the figures are {silent} old. It goes on after: kill -CONT {pid}"]
    return [f"the process has measured nothing for {silent}; the figures are older than that"]


def nothing_measured(recording: Recording) -> str:
    """Return why there is no diagnosis of a process, and what to do."""
    started = recording.process.started
    measured = sum(each.seconds for each in recording.measurements)
    waiting = recording.measurements[-1].downloader if recording.measurements else 0.0
    if started and is_running(recording):
        if note := _live_notes(recording):
            return f"no response was measured: {note[0]}."
        if waiting >= 1:
            return (
                f"no response was measured in {duration_text(measured)}: {waiting:.0f} requests are in the downloader. "
                "The site does not answer so far."
            )
        return f"no response was measured in {duration_text(measured)}. Wait some seconds."
    return f"no response was measured in the {duration_text(measured)} of this crawl."


def comparison_lines(run: MeasuredRun, comparison: Comparison, width: int | None) -> list[str]:
    """Return how this run compares with an earlier one."""
    before, advice = comparison.before, comparison.before.finding.advice
    unit, case = before.finding.unit, before.finding.case.replace("_", " ")
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(before.recordings[0].process.started))
    of = f" of {len(before.findings)} processes" if len(before.findings) > 1 else ""
    lines = ["", f"The run before{of} (started {started}): {case}, {number_text(before.rate)} {unit}/s."]
    if comparison.refused:
        return lines + _labelled("not compared", comparison.refused, width)
    change = f"{comparison.change}: " if comparison.change else ""
    if comparison.is_predicted:
        what = f"{advice.setting} {advice.before:g} -> {advice.after:g}: {number_text(before.predicted)} {unit}/s"
        text = f"{what}; this run: {number_text(run.rate)} ({comparison.difference:+.0%})"
        return lines + _labelled("predicted", f"{text}, {comparison.change}" if change else text, width)
    text = (
        f"{change}{number_text(before.rate)} {unit}/s then, {number_text(run.rate)} now ({comparison.difference:+.0%})"
    )
    return lines + _labelled("compared", text, width)


def as_json(run: MeasuredRun, comparison: Comparison | None) -> str:
    """Return a diagnosis as JSON."""
    finding = run.finding
    result: dict[str, Any] = {
        "process": run.recordings[0].process,
        "source": run.recordings[0].source,
        **finding._asdict(),
        "advice": finding.advice._asdict(),
        "predicted": finding.predicted,
        "stages": [{**stage._asdict(), "seconds": stage.seconds} for stage in finding.stages],
        "job": {**finding.job._asdict(), "seconds": finding.job.seconds},
        "processes": len(run.findings),
        "rate_of_all": run.rate,
    }
    if comparison is not None:
        before = comparison.before
        result["before"] = {
            "source": before.recordings[0].source, "case": before.finding.case, "rate": before.rate,
            "predicted": before.predicted, "advice": before.finding.advice._asdict(), "refused": comparison.refused,
            "change": comparison.change, "is_predicted": comparison.is_predicted, "difference": comparison.difference,
        }  # fmt: skip
    return msgspec.json.encode(result).decode()
