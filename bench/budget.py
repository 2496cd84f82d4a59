"""`python -m bench.budget`: the CPU time that a page costs the built-in worker, by stage, from one crawl.

A worker crawls a site on nginx (see `bench.websites`) with a durable Valkey, and writes the body of every page.
Timers around the functions in `STAGES` share out the CPU time of the worker's threads: each microsecond counts for the
innermost stage, and what no stage has is the rest: the event loop, its tasks, and the code between the stages. What
the timers themselves take is measured before and taken off. The start-up is apart.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from functools import wraps
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from bench import measure
from bench.crawl import ENVIRONMENT
from bench.crawlers import CRAWLERS, Job, Store
from bench.store import disk_folder, running
from bench.webserver import ADDRESS, serve, site_of
from bench.websites import websites

STAGES: dict[str, Sequence[tuple[str, str]]] = {
    "lease": (
        ("gossamer.frontier.valkey.leaseholder", "ValkeyLeaseholder.lease"),
        ("gossamer.worker.worker", "WorkerSlots.give"),
    ),
    "robots.txt, pacing": (
        ("gossamer.worker.robots", "RobotsChecker.allows_at_once"),
        ("gossamer.worker.fetcher", "Pacing.next_start"),
    ),
    "fetch": (("gossamer.fetch.client", "HttpClient.fetch"),),
    "response": (
        ("gossamer.fetch.connection", "HttpConnection.data_received"),
        ("gossamer.fetch.client", "_response"),
    ),
    "decode": (("gossamer.worker.page", "PageReader.decode"),),
    "links": (("gossamer.worker.context", "Context.extract_links"), ("gossamer.worker.page", "_add_all_links")),
    "record": (("gossamer.worker.page", "page_record"), ("gossamer.worker.page", "output_size")),
    "JSON": (("gossamer.sinks.jsonl", "encode_lines"), ("gossamer.sinks.jsonl", "_with_bodies")),
    "write": (("gossamer.sinks.append", "AppendFile.append"),),
    "request and page": (("gossamer.worker.fetcher", "Fetcher._fetch"),),
    "commit": (
        ("gossamer.commit.committer", "Committer._commit"),
        ("gossamer.commit.committer", "Committer.put_at_once"),
        ("gossamer.commit.committer", "Committer._take"),
    ),
    "Valkey's connection": (
        ("gossamer.valkey.connection", "ValkeyConnection.data_received"),
        ("gossamer.valkey.connection", "ValkeyConnection._flush"),
    ),
}
"""Functions of each stage: the module that calls or has them, and the name there. To measure another part, add it."""
_CALIBRATIONS = 20_000
"""Calls by which the cost of a timer is measured."""


class Clock:
    """CPU nanoseconds by stage, of all threads."""

    def __init__(self) -> None:
        self.stages: dict[str, int] = {}
        self.entries: dict[str, int] = {}
        self._threads = threading.local()

    def enter(self, name: str) -> None:
        """Begin a stage."""
        open_stages = self._open()
        now = time.thread_time_ns()
        if len(open_stages) > 1:
            self._count(open_stages, now)
        open_stages.append(name)
        open_stages[0] = now
        self.entries[name] = self.entries.get(name, 0) + 1

    def leave(self) -> None:
        """End the innermost stage."""
        open_stages = self._open()
        self._count(open_stages, time.thread_time_ns())
        open_stages.pop()

    def _open(self) -> list[Any]:
        """Return the time since which the innermost stage counts, and the stages that are open in this thread."""
        try:
            found: list[Any] = self._threads.open
        except AttributeError:
            found = self._threads.open = [0]
        return found

    def _count(self, open_stages: list[Any], now: int) -> None:
        stage = open_stages[-1]
        self.stages[stage] = self.stages.get(stage, 0) + now - open_stages[0]
        open_stages[0] = now


class _Steps:
    """Awaitable that counts the steps of another one for a stage, not its waits."""

    def __init__(self, awaitable: Awaitable[Any], clock: Clock, name: str) -> None:
        self._awaitable = awaitable
        self._clock = clock
        self._name = name

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaitable.__await__()
        step: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            self._clock.enter(self._name)
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value
            finally:
                self._clock.leave()
            try:
                yield waits_for
                step = lambda: next(steps)  # noqa: E731
            except BaseException as error:
                step = lambda thrown=error: steps.throw(thrown)  # type: ignore[misc] # noqa: E731


def timed(function: Callable[..., Any], clock: Clock, name: str) -> Callable[..., Any]:
    """Return a function that also counts for a stage."""
    if iscoroutinefunction(function):

        @wraps(function)
        async def stepped(*arguments: Any, **named: Any) -> Any:
            return await _Steps(function(*arguments, **named), clock, name)

        return stepped

    @wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        clock.enter(name)
        try:
            return function(*arguments, **named)
        finally:
            clock.leave()

    return called


def install(clock: Clock) -> None:
    """Put a timer around each function of `STAGES`."""
    for stage, places in STAGES.items():
        for module, path in places:
            owner: Any = import_module(module)
            *classes, name = path.split(".")
            for one in classes:
                owner = getattr(owner, one)
            found = vars(owner)[name]
            if isinstance(found, staticmethod):
                setattr(owner, name, staticmethod(timed(found.__func__, clock, stage)))
            else:
                setattr(owner, name, timed(found, clock, stage))


def timer_seconds() -> float:
    """Return the CPU seconds that a timer takes for each call."""
    clock = Clock()
    function = timed(lambda: None, clock, "calibration")
    began = time.thread_time()
    for _ in range(_CALIBRATIONS):
        function()
    return (time.thread_time() - began) / _CALIBRATIONS


def crawl_timed(arguments: Sequence[str], output: Path) -> int:
    """Run a command of Gossamer with timers, and write what they counted. Returns its exit code."""
    from gossamer.__main__ import run
    from gossamer.fetch.client import HttpClient

    started: list[float] = []
    clock, cost = Clock(), timer_seconds()
    install(clock)
    first_fetch = HttpClient.fetch

    async def fetch(*given: Any, **named: Any) -> Any:
        if not started:
            started.append(time.process_time())
            clock.stages.clear()
            clock.entries.clear()
        return await first_fetch(*given, **named)

    HttpClient.fetch = fetch  # type: ignore[method-assign, assignment]
    code = run(arguments)
    used = time.process_time() - started[0]
    spent = {name: [nanoseconds / 1e9, clock.entries[name]] for name, nanoseconds in clock.stages.items()}
    output.write_text(json.dumps({"start": started[0], "used": used, "timer": cost, "stages": spent}))
    return code


def budget(figures: dict[str, Any], pages: int) -> list[tuple[str, float, float]]:
    """Return the rows of the table: stage, microseconds a page, entries a page. The last two are the rest and the sum,
    both without the timers."""
    rows = []
    timers = 0.0
    for name in STAGES:
        seconds, entries = figures["stages"].get(name, (0.0, 0))
        cost = entries * figures["timer"]
        timers += cost
        # About half of a timer's time falls into its own stage, and the rest into the one around it.
        rows.append((name, 1e6 * max(0.0, seconds - cost / 2) / pages, entries / pages))
    total = 1e6 * (figures["used"] - timers) / pages
    rows.append(("rest", total - sum(microseconds for _, microseconds, _ in rows), 0.0))
    rows.append(("all", total, 0.0))
    return rows


def measure_budget(site: str, pages: int) -> tuple[float, list[tuple[str, float, float]]]:
    """Return the CPU seconds of the start-up, and the rows of the table."""
    website = next(one for one in websites(quick=False) if one.name == site)
    if pages:
        website = replace(website, spec=replace(website.spec, pages=max(1, pages // website.spec.hosts)))
    crawler = next(one for one in CRAWLERS if one.name == "gossamer")
    with serve(website) as served, disk_folder() as folder, running(Store.DURABLE) as valkey:
        (folder / "seeds").write_text("".join(f"{url}\n" for url in site_of(website, served).seeds()))
        (folder / "own").mkdir()
        job = Job(folder / "seeds", folder / "pages.jsonl", f"{ADDRESS}:{served.port}", folder / "own", valkey.address)
        _, _, _, *arguments = crawler.command(job)  # without the interpreter and its `-m gossamer`
        command = [sys.executable, "-m", "bench.budget", f"--figures={folder / 'figures'}", *arguments]
        measure.run(command, environment=ENVIRONMENT, log=folder / "said", timeout_seconds=900.0)
        figures = json.loads((folder / "figures").read_text())
    return figures["start"], budget(figures, website.pages)


def main(words: Sequence[str] | None = None) -> int:
    """Print the table, or be the measured crawl."""
    parser = argparse.ArgumentParser(prog="python -m bench.budget", description=__doc__)
    parser.add_argument("--site", choices="ABC", default="A", help="site of the comparison; A has pages of 12 KB")
    parser.add_argument("--pages", type=int, default=6000, help="pages of the site; 0: as many as in the comparison")
    parser.add_argument("--figures", type=Path, help=argparse.SUPPRESS)
    arguments, command = parser.parse_known_args(words)
    if arguments.figures:
        code = crawl_timed(command, arguments.figures)
        os._exit(code)  # as the command does
    start, rows = measure_budget(arguments.site, arguments.pages)
    total = rows[-1][1]
    print(f"{'CPU of a page on site ' + arguments.site:<28} {'µs':>8} {'share':>7} {'entries':>9}")
    for name, microseconds, entries in rows:
        entered = f"{entries:9.2f}" if entries else ""
        print(f"{name:<28} {microseconds:8.1f} {100 * microseconds / total:6.1f}% {entered}")
    print(f"start-up: {start:.3f} s CPU, timers included")
    return 0


if __name__ == "__main__":
    sys.exit(main())
