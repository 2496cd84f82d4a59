"""A stand-in for the platform's runner that starts in a moment, and Gossamer's command line with it.

    python -m tests.jobs.stand_in node …      the node, whose jobs are run by this file
    python stand_in.py list|crawl FOLDER      what the node starts

A job notes its begin, its beats and its end in the file that its argument `judge` names; so does a spider of
real Scrapy (`SPIDER`), which is what this file stands in for. Only the standard library may be used where a job runs.
"""

import json
import os
import sys
import time

BEAT_SECONDS = 0.1
STRAY_SECONDS = 600.0
"""A child that was left behind and that nobody kills goes on for so long."""

SPIDER = """
import asyncio, json, os, subprocess, sys, time
import scrapy


class Real(scrapy.Spider):
    name = "quick"

    async def start(self):
        attempt = os.path.basename(os.environ["GOSSAMER_ATTEMPT"])
        def note(event):
            line = {"event": event, "job": self.title, "attempt": attempt, "pid": os.getpid(), "at": time.monotonic()}
            with open(self.judge, "ab", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\\n")
        note("begin")
        last = time.monotonic() + float(self.seconds)
        if self.end == "escape":
            subprocess.Popen([sys.executable, "-c", STRAY, self.judge, self.title, attempt], start_new_session=True)
        yield {"job": self.title, "attempt": attempt}
        while time.monotonic() < last:
            await asyncio.sleep(0.1)
            note("beat")
        note("end")
        if self.end == "code":
            os._exit(3)
        if self.end == "silent":
            os._exit(0)
"""
"""Module of a spider that does the same under real Scrapy. `STRAY` is put before it."""

STRAY = """
import json, os, sys, time
judge, job, attempt = sys.argv[1:]
last = time.monotonic() + 600
while time.monotonic() < last:
    line = {"event": "stray", "job": job, "attempt": attempt, "pid": os.getpid(), "at": time.monotonic()}
    with open(judge, "ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\\n")
    time.sleep(0.1)
"""
"""Program of a child that leaves its group and its session, and would outlive its job."""


def note(judge: str, event: str, job: str, attempt: str) -> None:
    """Add a line with the time of the machine, which all processes share.

    One write to a file that is open for appending is never mixed with another's. No lock: a process that is frozen
    while it has one would stop all others.
    """
    line = {"event": event, "job": job, "attempt": attempt, "pid": os.getpid(), "at": time.monotonic()}
    file = os.open(judge, os.O_WRONLY | os.O_APPEND)
    os.write(file, json.dumps(line).encode() + b"\n")
    os.close(file)


def crawl(folder: str) -> None:
    """Run for the argument `seconds`; end as the argument `end` says."""
    with open(os.path.join(folder, "job.json")) as file:
        found = json.load(file)
    arguments, items = found["arguments"], found.get("items")
    judge, name, end = arguments["judge"], arguments["title"], arguments["end"]
    attempt = os.path.basename(os.environ["GOSSAMER_ATTEMPT"])
    note(judge, "begin", name, attempt)
    print(f"{name}, {attempt} begins", flush=True)
    last = time.monotonic() + float(arguments["seconds"])
    if end == "escape":
        _leave_a_child(judge, name, attempt)
    if items:
        with open(items, "a") as file:
            file.write(json.dumps({"job": name, "attempt": attempt}) + "\n")
    while time.monotonic() < last:
        time.sleep(BEAT_SECONDS)
        note(judge, "beat", name, attempt)
    note(judge, "end", name, attempt)
    print(f"{name}, {attempt} ends", flush=True)
    if end == "code":
        os._exit(3)
    if end != "silent":
        with open(os.path.join(folder, "report.json"), "w") as file:
            # `big`: more than a job may report, in bytes that grow sixfold on the way.
            stats = {f"{number}": "\u00e4" * 1000 for number in range(600)} if end == "big" else {}
            json.dump({"finish_reason": "finished", "stats": {**stats, "item_scraped_count": 5}}, file)


def _leave_a_child(judge: str, job: str, attempt: str) -> None:
    """Start a child in a session of its own, whose parent ends at once."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    last = time.monotonic() + STRAY_SECONDS
    while time.monotonic() < last:
        note(judge, "stray", job, attempt)
        time.sleep(BEAT_SECONDS)
    os._exit(0)


def list_spiders(folder: str) -> None:
    """Every project has one spider."""
    with open(os.path.join(folder, "spiders.json"), "w") as file:
        json.dump(["quick"], file)


def main() -> None:
    """Run the command line of Gossamer with this file as the runner."""
    from tests.servers import quick_runner

    quick_runner.main(__file__)


if __name__ == "__main__":
    if sys.argv[1] in ("crawl", "list"):
        {"crawl": crawl, "list": list_spiders}[sys.argv[1]](sys.argv[2])
    else:
        main()
