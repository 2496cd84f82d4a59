"""Scrapy processes for tests: spiders of ours, in processes of their own, on a frontier of ours."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.servers.nursery import Reared

ROOT = Path(__file__).parents[2]
SPIDERS = ROOT / "tests" / "integration" / "scrapy_lane" / "spiders.py"

QUIET = {
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "LOG_LEVEL": "INFO",
    "STATS_DUMP": False,
    "EXTENSIONS": '{"tests.integration.scrapy_lane.spiders.StatsFile": 0}',
}


FAST_ENGINE = os.environ.get("GOSSAMER_TEST_FAST_ENGINE", "True")
"""Whether requests take the add-on's shorter way through Scrapy's engine. False: Scrapy's own way."""

_PROGRAM = "tests.servers.run_spider"


@dataclass
class Scraped:
    """One process's part."""

    exit_code: int
    items: list[dict[str, Any]]
    stats: dict[str, Any]
    log: str


class Scraper:
    """A running `scrapy runspider`. `settings` as with -s, `arguments` as with -a."""

    def __init__(
        self,
        folder: Path,
        spider: str,
        *,
        frontier: str | None,
        name: str = "one",
        settings: Mapping[str, Any] | None = None,
        arguments: Mapping[str, str] | None = None,
        file: Path = SPIDERS,
        measured: bool = False,
    ) -> None:
        """`measured`: it loads all that it needs itself, and counts as a child of this process."""
        folder.mkdir(exist_ok=True)
        self._base = folder / name
        given: dict[str, Any] = {**QUIET}
        if frontier is not None:
            given |= {"SCHEDULER": "gossamer.scrapy.Scheduler", "GOSSAMER_FRONTIER": frontier}
            given["GOSSAMER_FAST_ENGINE"] = FAST_ENGINE
        given |= settings or {}
        more = [str(file), spider, f"--output={self._base}.jsonl"]
        more += [part for key, value in given.items() for part in ("-s", f"{key}={value}")]
        more += [part for key, value in (arguments or {}).items() for part in ("-a", f"{key}={value}")]
        environment = {**os.environ, "SPIDER_STATS": f"{self._base}.stats"}
        log = Path(f"{self._base}.log")
        self.process = (_begin if measured else Reared)(_PROGRAM, more, environment=environment, log=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log(self) -> str:
        """Return what the process has logged so far: nothing before it has made the file."""
        path = Path(f"{self._base}.log")
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def items(self) -> list[dict[str, Any]]:
        """Whole lines only: a killed process leaves a torn one."""
        path = Path(f"{self._base}.jsonl")
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [msgspec.json.decode(line) for line in lines]

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """As a crash: nothing is said. Repeatable."""
        self.process.kill()
        self.process.wait()

    def finish(self, timeout_seconds: float = 60.0) -> Scraped:
        """Wait for its end."""
        try:
            code = self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end; its log:\n{self.log[-4000:]}") from None
        stats = Path(f"{self._base}.stats")
        return Scraped(code, self.items, msgspec.json.decode(stats.read_bytes()) if stats.exists() else {}, self.log)


def _begin(
    module: str, arguments: Sequence[str], *, environment: Mapping[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments], cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT
        )


def together(scrapers: Sequence[Scraper], timeout_seconds: float = 60.0) -> list[Scraped]:
    """All of them to their end."""
    return [scraper.finish(timeout_seconds) for scraper in scrapers]
