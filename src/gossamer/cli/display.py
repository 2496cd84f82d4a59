"""Live progress: a few lines that renew themselves on a terminal, a line every ten seconds elsewhere."""

import contextlib
import sys
import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gossamer.cli import standard
from gossamer.model.info import CrawlInfo
from gossamer.telemetry.tally import Tally

if TYPE_CHECKING:  # for those who sit at a terminal; others need not wait until it is loaded
    from rich.console import Console
    from rich.live import Live

PLAIN_EVERY_SECONDS = 10.0
_RATE_SECONDS = 10.0


@dataclass(slots=True)
class Snapshot:
    """What is known at one moment. `info` None: of no crawl in particular, or not known yet."""

    tally: Tally
    info: CrawlInfo | None
    seconds: float


class Display:
    """Shows snapshots and sentences on standard error. A context manager."""

    def __init__(self, title: str, *, quiet: bool = False, console: "Console | None" = None) -> None:
        """`console`: the terminal; None: standard error, where that is one."""
        self._title = standard.shown(title)
        self._quiet = quiet
        self._console = console
        self._live: Live | None = None
        self._samples: deque[tuple[float, int, int]] = deque()
        self._said_at = float("-inf")

    def __enter__(self) -> Self:
        if not self._quiet and (self._console or sys.stderr.isatty()):
            from rich.console import Console
            from rich.live import Live

            console = self._console or Console(stderr=True, highlight=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def say(self, sentence: str) -> None:
        """One line that stays. Said even when quiet: it is always about something a person should know."""
        if self._live:
            from rich.text import Text

            with contextlib.suppress(OSError):
                self._live.console.print(Text(f"gossamer: {standard.shown(sentence)}"), soft_wrap=True)
        else:
            standard.say(sentence)

    def update(self, snapshot: Snapshot) -> None:
        """Show it, if it is time. A terminal that went away is not written to again."""
        now = time.monotonic()
        tally = snapshot.tally
        self._samples.append((now, tally.pages, tally.bytes))
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_SECONDS:
            self._samples.popleft()
        if self._live:
            from rich.text import Text

            try:
                self._live.update(Text("\n".join(self._lines(snapshot))), refresh=True)
            except OSError:
                self._live, self._quiet = None, True
        elif not self._quiet and now - self._said_at >= PLAIN_EVERY_SECONDS:
            if self._said_at > float("-inf"):
                standard.note(" | ".join(line.strip() for line in self._lines(snapshot)[1:]))
            self._said_at = now

    def _rates(self) -> tuple[float, float]:
        (first, pages, size), (last, pages_now, size_now) = self._samples[0], self._samples[-1]
        seconds = last - first
        return ((pages_now - pages) / seconds, (size_now - size) / seconds) if seconds > 0 else (0.0, 0.0)

    def _lines(self, snapshot: Snapshot) -> list[str]:
        tally, info = snapshot.tally, snapshot.info
        pages_rate, bytes_rate = self._rates()
        lines = [
            self._title,
            f"  {counted(tally.pages, 'page')}   {pages_rate:,.1f}/s   {size(tally.bytes)}   {size(bytes_rate)}/s   "
            f"{span(snapshot.seconds)}   {tally.in_flight:,} in flight",
        ]
        if info is not None:
            total = info.total()
            later = f" ({total.later:,} of them later)" if total.later else ""
            # Counted are domains whose queues hold something now: none, while all that is left waits for a retry.
            domains = f" on {counted(info.domains, 'domain')}" if info.domains else ""
            # Asked a moment before the tally: with it the whole would seem less than this command's part.
            whole = max(total.fetched, tally.pages)
            lines.append(f"  {total.queued + total.later:,} queued{domains}{later}   {counted(whole, 'page')} in all")
        failures = reasons(tally.failed)
        if failures or tally.retries:
            why = f" ({reasons(tally.retried)})" if tally.retried else ""
            lines.append(f"  errors: {failures or 'none'}   retries: {tally.retries:,}{why}")
        if tally.waits:
            lines.append(f"  waiting: {awaited(tally)}")
        return lines


def awaited(tally: Tally) -> str:
    """What requests wait for: `robots.txt of http://a.test (503; asked again in 42.0 s), and of 3 more`."""
    (origin, wait), *others = sorted(tally.waits.items(), key=lambda pair: pair[1].until)
    again = span(max(0.0, wait.until - time.time()))
    more = f", and of {len(others)} more" if others else ""
    return f"robots.txt of {origin} ({wait.reason}; asked again in {again}){more}"


def reasons(counts: dict[str, int]) -> str:
    """`http_404 12, dns 3`, the most frequent first; empty for none."""
    return ", ".join(
        f"{reason} {count:,}" for reason, count in sorted(counts.items(), key=lambda pair: -pair[1]) if count
    )


def counted(count: int, word: str) -> str:
    """`1 page`, `2,000 pages`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def size(count: float) -> str:
    """Bytes for a person: `3.4 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def span(seconds: float) -> str:
    """Time for a person: `4.2 s`, `12 min 5 s`, `3 h 20 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"
