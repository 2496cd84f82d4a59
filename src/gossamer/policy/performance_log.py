"""The lines with which a crawl logs its performance: written by the Scrapy extension, read by `gossamer diagnose`.

A log is read by its own headings, so columns may be added and moved. Fixed: their names.
"""

import math
import re
from collections.abc import Iterable

from gossamer.model.performance import MeasuredProcess, Measurement, Recording, StageLimits

COLUMNS = (
    "scheduler downloader  scraper pipelines     done      bytes |  items/s pages/s latency in_pipe   cpu blocked    "
    "lag | starved idle_cpus  fair pages empty dl_full bytes_full fastest fastest_item resp resp_s received"
)
"""Headings of the rows. The first six are the stages, as the queues of a crawl; the middle is for people; the rest is
for `gossamer diagnose`."""

_LINE = re.compile(r"Performance: (.*)$")
_LIMITS = re.compile(r"(\w+)=([\d.e+]+)")


def log_limits(process: MeasuredProcess) -> str:
    """Return the line of the log with the limits of a process, which precedes its rows."""
    limits = process.limits
    return (
        f"limits requests={limits.requests} site_requests={limits.site_requests} items={limits.items} "
        f"bytes={limits.bytes} delay={limits.delay:g} cpus={process.cpus}"
    )


def log_row(one: Measurement) -> str:
    """Return a row of the log under COLUMNS. Times are in seconds, shares in percent."""
    seconds = one.seconds
    return (
        f"{one.scheduler:9.0f} {one.downloader:10.1f} {one.scraper:8.1f} {one.pipelines:9.1f} {one.items_in_all:8d} "
        f"{one.held_bytes:10.0f} | {one.items / seconds:8.1f} {one.page_responses / seconds:7.1f} {one.latency:7.3f} "
        f"{one.pipeline_seconds:7.3f} {one.loop_cpu / seconds:5.0%} {one.blocked:7.0%} {one.lag:6.3f} | "
        f"{one.starved / seconds:7.0%} {one.idle_cpus:9.1f} {one.fair_cpu:5.2f} {one.pages:5.1f} "
        f"{one.scheduler_empty:5.0%} {one.downloader_full:7.0%} {one.bytes_full:10.0%} "
        f"{one.fastest_response:7.3f} {one.fastest_item:12.3f} "
        f"{one.responses / seconds:4.1f} {one.response_seconds:6.2f} {one.response_bytes:8d}"
    )


def read_log(lines: Iterable[str], *, seconds: float, name: str) -> Recording | None:
    """Return the recording in the lines of a log; None: it has none. `seconds`: interval of the rows, which the log
    does not have if its lines have no time."""
    headings: list[str] = []
    process = MeasuredProcess(name=name, kind="scrapy")
    measurements: list[Measurement] = []
    for line in lines:
        found = _LINE.search(line)
        if found is None:
            continue
        text = found[1].replace("|", " ")
        if text.startswith("limits "):
            process = _process(name, dict(_LIMITS.findall(text)))
            measurements = []  # another crawl begins in this log
        elif text.split()[:1] == ["scheduler"]:
            headings = text.split()
        else:
            values = _values(headings, text.split())
            if values:
                before = measurements[-1] if measurements else None
                measurements.append(_measurement(values, before, seconds))
    return Recording(process=process, measurements=measurements, ended=_end(measurements)) if measurements else None


def _end(measurements: list[Measurement]) -> float | None:
    return measurements[-1].at if measurements else None


def _process(name: str, limits: dict[str, str]) -> MeasuredProcess:
    def number(key: str) -> int:
        return int(float(limits.get(key, 0)))

    return MeasuredProcess(
        name=name,
        kind="scrapy",
        cpus=number("cpus") or 1,
        limits=StageLimits(
            requests=number("requests"),
            site_requests=number("site_requests"),
            items=number("items"),
            bytes=number("bytes"),
            delay=float(limits.get("delay", 0)),
        ),
    )


def _values(headings: list[str], words: list[str]) -> dict[str, float]:
    """Return the numbers of a row by heading; empty: it is no row."""
    if not headings or len(words) != len(headings):
        return {}
    try:
        numbers = [float(word.rstrip("%")) / (100 if word.endswith("%") else 1) for word in words]
    except ValueError:
        return {}
    return {} if any(math.isnan(number) for number in numbers) else dict(zip(headings, numbers, strict=True))


def _measurement(row: dict[str, float], before: Measurement | None, seconds: float) -> Measurement:
    """Return the measurement that a row was made of, with the digits that the row has."""
    get = row.get
    pages = round(get("pages/s", 0.0) * seconds)
    return Measurement(
        at=(before.at if before else 0.0) + seconds,
        seconds=seconds,
        scheduler=get("scheduler", 0.0),
        downloader=get("downloader", 0.0),
        pages=get("pages", get("downloader", 0.0)),
        transferring=get("downloader", 0.0),
        scraper=get("scraper", 0.0),
        pipelines=get("pipelines", 0.0),
        held_bytes=get("bytes", 0.0),
        scheduler_empty=get("empty", 0.0),
        downloader_full=get("dl_full", 0.0),
        bytes_full=get("bytes_full", 0.0),
        blocked=get("blocked", 0.0),
        requested=pages,
        page_responses=pages,
        responses=round(get("resp", get("pages/s", 0.0)) * seconds),
        response_seconds=get("resp_s", 0.0),
        response_bytes=int(get("received", 0)),
        items=round(get("items/s", 0.0) * seconds),
        loop_cpu=get("cpu", 0.0) * seconds,
        cpu=get("cpu", 0.0) * seconds,
        starved=get("starved", 0.0) * seconds,
        idle_cpus=get("idle_cpus", 0.0),
        fair_cpu=get("fair", 1.0),
        lag=get("lag", 0.0),
        longest_lag=get("lag", 0.0),
        fastest_response=get("fastest", 0.0),
        fastest_item=get("fastest_item", 0.0),
        items_in_all=int(get("done", 0)),
        pages_in_all=(before.pages_in_all if before else 0) + pages,
    )
