"""One crawl of the hostile web and a healthy one by the command, watched from outside."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gossamer.fakeweb import FakeWeb, Record, html
from tests.hostile.canary import Canary
from tests.hostile.targets import Target
from tests.scale.sampling import Sampler, cpu_of, memory_of
from tests.servers.crawling import command

_EVERY_SECONDS = 0.1
_IDLE_CPU_SECONDS = 0.5
_QUIET_SECONDS = 5.0
"""With nothing new for so long, what is left waits for robots.txt."""


INTERRUPTED = 130
"""The exit code of a crawl that was interrupted and finished what was under way."""


class Line(msgspec.Struct):
    """What is read of a record."""

    url: str
    success: bool
    reason: str
    exception: str
    truncated: bool
    timings: dict[str, float]
    redirects: list[dict[str, Any]]
    response_url: str


@dataclass(frozen=True, slots=True)
class Pace:
    """Limits that the crawl is given."""

    total_seconds: float
    first_byte_seconds: float
    connect_seconds: float
    domain_pages: int
    """At most so many of one domain: what ends a trap."""
    give_up_seconds: float
    """The crawl is interrupted when it still runs after so long."""


@dataclass(slots=True)
class Crawled:
    """What came of it."""

    seconds: float
    exit_code: int
    said: str
    """On standard error."""
    summary: dict[str, Any]
    lines: list[Line]
    memory: list[int]
    """Resident bytes of the worker, sampled."""
    log: list[Record] = field(default_factory=list)


def crawl(
    web: FakeWeb, targets: Sequence[Target], names: Sequence[Target], healthy: Sequence[str], pace: Pace, folder: Path
) -> Crawled:
    """Crawl targets and healthy hosts, and `names` by way of links, to the end.

    That is when only hosts are left whose robots.txt cannot be had. Begins the web's log anew and makes `folder`.
    """
    folder.mkdir(parents=True)
    links = "".join(f'<a href="{target.url}">{target.case}</a>\n' for target in names)
    web.mount("names.test", "/", html(links))
    (folder / "seeds").write_text(
        "\n".join([*healthy, web.url("names.test", "/"), *(target.url for target in targets)]) + "\n"
    )
    output = folder / "pages.jsonl"
    arguments = ["crawl", "--seeds", "seeds", "--scope", "any", "-o", output.name, "--json", "--concurrency", "64"]
    arguments += ["--resolve", "*.test:127.0.0.1", "--rate", "10000/1", "--domain-concurrency", "8", "--retries", "1"]
    arguments += ["--timeout", str(pace.total_seconds), "--domain-max-pages", str(pace.domain_pages)]
    environment = {
        **os.environ,
        "GOSSAMER_LOG_LEVEL": "warning",
        "GOSSAMER_FETCH__RETRY_BASE": "0.2",
        "GOSSAMER_FETCH__CONNECT_TIMEOUT": str(pace.connect_seconds),
        "GOSSAMER_FETCH__FIRST_BYTE_TIMEOUT": str(pace.first_byte_seconds),
    }
    web.reset()
    began = time.monotonic()
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            command(*arguments), cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment
        )
        try:
            with Sampler(lambda: {"memory": memory_of(process.pid)}, every_seconds=_EVERY_SECONDS) as sampler:
                _wait(process, web, output, pace)
        finally:
            process.kill()
            process.wait()
    seconds = time.monotonic() - began
    said = (folder / "out").read_text().strip()
    decoder = msgspec.json.Decoder(Line)
    lines = []
    if output.exists():
        with output.open("rb") as file:
            lines = [decoder.decode(text) for text in file]
    return Crawled(
        seconds=seconds,
        exit_code=process.returncode,
        said=(folder / "err").read_text().strip(),
        summary=json.loads(said) if said.startswith("{") else {},
        lines=lines,
        memory=[int(value) for value in sampler.column("memory")],
        log=web.log(),
    )


def _wait(process: "subprocess.Popen[bytes]", web: FakeWeb, output: Path, pace: Pace) -> None:
    """Until it ends. A robots.txt that cannot be had is asked for again for a day: when nothing else happens any more,
    the crawl is interrupted as by a person."""
    deadline = time.monotonic() + pace.give_up_seconds
    quiet_since, before, worked = time.monotonic(), (-1, -1), 0.0
    # Longer than anything may take at which nobody works: an exchange, or two attempts to connect.
    quiet_seconds = max(pace.total_seconds, 3 * pace.connect_seconds) + _QUIET_SECONDS
    while process.poll() is None:
        now = (web.stats().requests, output.stat().st_size if output.exists() else 0)
        cpu = cpu_of(process.pid)
        if not now[0] or now != before or cpu - worked > _IDLE_CPU_SECONDS:
            quiet_since, before, worked = time.monotonic(), now, cpu
        if time.monotonic() - quiet_since > quiet_seconds or time.monotonic() > deadline:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(pace.total_seconds + 30)
            except subprocess.TimeoutExpired:
                return
        time.sleep(0.2)


def visited(canary: Canary) -> list[str]:
    """Who came to the canary, as text."""
    return [f"{visit.address}:{visit.port} {visit.line}" for visit in canary.visits]
