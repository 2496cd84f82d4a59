"""Progress of a crawl in the terminal, and its summary at the end, for a person or as JSON for a program.

A tally has the counts of this command alone; an info (`CrawlInfo`) those of the whole crawl, with the shares of other
commands and machines. "leased" counts requests that a worker has, "later" those that wait for a retry, "waiting" these
and those in queues. For a person, and in the field `queued` of the JSON, a waiting request is "queued".

Fixed: the exit codes, and the names and meanings of the fields of `Summary.as_json`, because scripts read them; fields
may be added.
"""

import contextlib
import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from gossamer.cli import terminal
from gossamer.cli.terminal import cut
from gossamer.controls import without_controls
from gossamer.crawling.work import CrawlResult, Snapshot
from gossamer.model.crawl import CrawlState
from gossamer.model.info import CrawlInfo, NextRetry, SpiderCounts
from gossamer.model.request import DropReason
from gossamer.net.credentials import hide_secrets, hide_secrets_in
from gossamer.policy.words import bytes_text, counted, duration_text, explain, reason_counts, short_time
from gossamer.telemetry.filters import filter_sentences
from gossamer.telemetry.patterns import growth_sentence, leading_patterns
from gossamer.telemetry.refusals import mostly_refused, refusals_by_kind, refused_by_sites, refusing_lines
from gossamer.telemetry.tally import HostCount, Tally, rule_sentences

if TYPE_CHECKING:  # imported late: only a terminal needs it
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text


_PLAIN_SECONDS = 10.0
"""Interval of progress lines where standard error is not a terminal. Shorter fills logs."""
_RATE_SECONDS = 10.0
"""Time over which the rates of pages and bytes are measured. Shorter shows them less steady."""
_ESTIMATE_SECONDS = 3.0
"""Time over which a rate must be known for an estimate of what is left. Must stay below the time above."""
_FETCHING_LINES = 3
"""URLs in progress that the terminal shows. A worker reports few (`worker/worker.py`)."""


class _Sample(NamedTuple):
    """Counts at one update."""

    time: float
    """Monotonic seconds."""
    pages: int
    bytes: int
    done: int
    """Requests of the whole crawl that have ended."""
    added: int
    """All requests that the crawl has had."""


class Display:
    """Context manager that shows progress and sentences on standard error."""

    def __init__(
        self, title: str, *, quiet: bool = False, max_pages: int | None = None, console: "Console | None" = None
    ) -> None:
        """`max_pages`: limit of pages of the crawl. `console`: the terminal to use; None: standard error, if it is a
        terminal."""
        self._title = hide_secrets_in(title)
        self._quiet = quiet
        self._max_pages = max_pages
        self._console = console
        self._live: Live | None = None
        self._samples: deque[_Sample] = deque()
        """Counts at each of the latest updates, oldest first."""
        self._printed_at = float("-inf")

    def __enter__(self) -> Self:
        if not self._quiet and (self._console or sys.stderr.isatty()):
            from rich.console import Console
            from rich.live import Live

            self._console = self._console or Console(stderr=True, highlight=False)
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def say(self, sentence: str) -> None:
        """Show a line that stays, also when quiet, because a person should know it."""
        if self._live:
            from rich.text import Text

            with contextlib.suppress(OSError):
                self._live.console.print(
                    Text(without_controls(f"gossamer: {hide_secrets_in(sentence)}")), soft_wrap=True
                )
        else:
            terminal.say(sentence)

    def update(self, snapshot: Snapshot) -> None:
        """Show progress, if it is time to. After an error of the terminal, write no more to it."""
        now = time.monotonic()
        tally, total = snapshot.tally, snapshot.info.total() if snapshot.info else SpiderCounts()
        self._samples.append(_Sample(now, tally.pages, tally.bytes, total.done, total.added))
        while len(self._samples) > 2 and now - self._samples[0].time > _RATE_SECONDS:
            self._samples.popleft()
        if self._live:
            try:
                self._live.update(self._text(snapshot), refresh=True)
            except OSError:
                self._live, self._quiet = None, True
        elif not self._quiet and now - self._printed_at >= _PLAIN_SECONDS:
            if self._printed_at > float("-inf"):  # not at the first update, when nothing has been fetched yet
                terminal.print_stderr(" | ".join(line.strip() for line in self._lines(snapshot)))
            self._printed_at = now

    def _rates(self) -> tuple[float, float]:
        """Return pages and bytes per second."""
        first, last = self._samples[0], self._samples[-1]
        seconds = last.time - first.time
        return ((last.pages - first.pages) / seconds, (last.bytes - first.bytes) / seconds) if seconds else (0.0, 0.0)

    def _time_left(self, info: CrawlInfo) -> str:
        """Return the time that the queue needs at the rate of the last seconds; empty: not known, as where all that is
        left waits for a retry. While new URLs are found or retries wait, it is a lower bound."""
        total, assets = info.total(), info.assets
        if total.later and not total.queued:
            return ""
        left = total.waiting + total.leased
        if self._max_pages is not None:
            pages_left = max(0, self._max_pages - info.pages.fetched)
            assets_left = assets.added - assets.done  # the limit is one of pages: all assets will be fetched
            left = min(left, pages_left + assets_left)
        first, last = self._samples[0], self._samples[-1]
        done, seconds = last.done - first.done, last.time - first.time
        if done <= 0 or seconds < _ESTIMATE_SECONDS:
            return ""
        seconds_left = round(left * seconds / done)
        if not seconds_left:
            return ""
        words = duration_text(seconds_left) if seconds_left >= 60 else f"{seconds_left} s"
        is_growing = last.added > first.added
        return f"{'at least' if is_growing or total.later else 'about'} {words} left"

    def _text(self, snapshot: Snapshot) -> "Text":
        """Return the progress for a terminal, no line longer than it is wide."""
        from rich.text import Text

        assert self._console is not None
        width = self._console.width
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(cut(self._title, width), "bold")
        for line in self._lines(snapshot):
            text.append(f"\n{line}")
        text.append("\n  ")
        for name, count, style in response_classes(snapshot.tally):
            text.append(f"{name} {count:,}   ", style if count else "dim")
        for line in fetching_lines(snapshot.tally, width):
            text.append(f"\n{line}", "dim")
        return text

    def _lines(self, snapshot: Snapshot) -> list[str]:
        """Return the progress as a few lines of numbers."""
        tally, info = snapshot.tally, snapshot.info
        pages_rate, bytes_rate = self._rates()
        lines = [
            f"  {counted(tally.pages, 'page')}   {pages_rate:,.1f}/s   {bytes_text(tally.bytes)}   "
            f"{bytes_text(bytes_rate)}/s   {duration_text(snapshot.seconds)}   {tally.in_flight:,} in flight",
        ]
        if info is not None:
            total = info.total()
            # Both numbers: `waiting` includes `later`.
            later = f", {total.later:,} of them for a retry" if total.later else ""
            # `domains` is 0 while workers have all requests that are left.
            domains = f" on {counted(info.domains, 'domain')}" if info.domains else ""
            # `info` is older than the tally, so its total may be less than this command's own count.
            whole = max(info.pages.fetched, tally.pages)
            left = self._time_left(info) or retry_text(snapshot.next_retry)
            lines.append(
                f"  {total.waiting:,} queued{domains}{later}"
                + (f"; {left}" if left else "")
                + (f"   {counted(whole, 'page')} in all" if whole > tally.pages else "")
            )
        failures = reason_counts(tally.failed)
        if failures or tally.retries:
            why = f" ({reason_counts(tally.retried)})" if tally.retried else ""
            lines.append(f"  failed: {failures or 'none'}   retries: {tally.retries:,}{why}")
        elif snapshot.next_retry and info and (earlier := reason_counts(info.total().retried)):
            lines.append(f"  attempts that failed before: {earlier}")
        if tally.waits:
            lines.append(f"  waiting: {waiting_text(tally)}")
        if tally.rests:
            lines.append(f"  resting after a refusal: {resting_text(tally)}")
        return lines


def retry_text(retry: NextRetry | None) -> str:
    """Return `next retry in 12 s: a.test`. Empty: it is not known, or due."""
    seconds = retry.due - time.time() if retry else 0.0
    return f"next retry in {max(1.0, seconds):,.0f} s: {retry.domain}" if retry and seconds > 0 else ""


def response_classes(tally: Tally) -> list[tuple[str, int, str]]:
    """Return the number of responses of each class of status codes, and of requests that failed without one, with a
    style for numbers above 0."""
    counts = dict.fromkeys("2345", 0)
    for status, count in tally.responses.items():
        kind = str(status)[0]
        counts[kind] = counts.get(kind, 0) + count
    styles = {"2": "green", "4": "yellow", "5": "red"}
    rows = [(f"{kind}xx", count, styles.get(kind, "")) for kind, count in counts.items()]
    return [*rows, ("other failures", tally.failed_unanswered, "red")]


def fetching_lines(tally: Tally, width: int) -> list[str]:
    """Return the URLs that are being fetched now, and for how long, in lines of this width."""
    lines: list[str] = []
    for url, seconds in list(tally.fetching.items())[:_FETCHING_LINES]:
        since = f" ({duration_text(seconds)})" if seconds >= 1 else ""
        label = "     " if lines else "  now"
        lines.append(f"{label} {cut(hide_secrets(url), width - len(label) - 1 - len(since))}{since}")
    return lines


def waiting_text(tally: Tally) -> str:
    """Return what requests wait for: `robots.txt of http://a.test (503; asked again in 42.0 s), and of 3 more`."""
    (origin, wait), *others = sorted(tally.waits.items(), key=lambda pair: pair[1].until)
    again = duration_text(max(0.0, wait.until - time.time()))
    more = f", and of {len(others)} more" if others else ""
    return f"robots.txt of {origin} ({wait.reason}; asked again in {again}){more}"


def resting_text(tally: Tally) -> str:
    """Return which domains rest, and how long: `shop.test (for 42.0 s), and 3 more`."""
    (domain, until), *others = sorted(tally.rests.items(), key=lambda pair: pair[1])
    more = f", and {len(others)} more" if others else ""
    return f"{domain} (for {duration_text(max(0.0, until - time.time()))}){more}"


_LOST_DATA_EXIT_CODE = 3
"""Exit code of a command whose frontier, the store of requests, lost its data. Scripts test for it; must not change."""


class Summary(CrawlResult):
    """Result of a command, as text for a person or JSON for a program.

    The fields are those of CrawlResult (crawling/work.py). These decide the exit code: `lost` (the frontier lost its
    data), `interrupted`, `unwritten` (an output could not be finished), `lacks_report` (a report was asked for and
    could not be written), `missing_records` (number of records that vanished from outputs).
    """

    @classmethod
    def of(cls, result: CrawlResult) -> Self:
        """Return the summary of a result."""
        return cls(**{name: getattr(result, name) for name in CrawlResult.__struct_fields__})

    def exit_code(self) -> int:
        """Return 0: finished; 1: no page could be fetched, sites refused more pages than they sent, an output or the
        report could not be written, or records are missing; 3: the frontier lost its data, or a part of
        them; 130: interrupted."""
        if self.lost:
            return _LOST_DATA_EXIT_CODE
        if self.interrupted and not self.finished:
            return terminal.INTERRUPTED_EXIT_CODE
        incomplete = self.unwritten or self.lacks_report or self.missing_records
        refused = mostly_refused(self._failed(), fetched=self._fetched())
        return 0 if self.has_enough and not incomplete and not refused else 1

    def _fetched(self) -> int:
        """Return the number of pages that all commands of the crawl have fetched."""
        return self.info.pages.fetched if self.info else self.tally.pages

    def _refused(self) -> dict[str, int]:
        """Return the number of pages that sites have refused in all commands of the crawl, by kind."""
        return refusals_by_kind(self._failed())

    def _failed(self) -> dict[str, int]:
        """Return the number of pages that have failed in all commands of the crawl, by reason."""
        return self.info.pages.failed if self.info else self.tally.failed

    def as_json(self) -> str:
        """Return the summary as one JSON object on one line."""
        pages, assets = (self.info.pages, self.info.assets) if self.info else (None, None)
        examples = self.tally.examples
        values: dict[str, Any] = {
            "crawl_id": self.crawl_id,
            "state": self._state(),
            "run": self.info.run if self.info else None,
            "already_finished": self.already_finished,
            "pages": self.tally.pages,
            "pages_in_all": pages.fetched if pages else None,
            "failed": pages.failed if pages else self.tally.failed,
            "dropped": pages.dropped if pages else self.tally.dropped,
            "links_dropped": pages.links_dropped if pages else {},
            "filters": {name: msgspec.to_builtins(count) for name, count in self.tally.filters.items()},
            "growing": {pattern: msgspec.to_builtins(count) for pattern, count in self.tally.growing.items()},
            "queued": pages.waiting if pages else None,
            "retries": self.tally.retries,
            "proxy_failures": self.tally.proxies,
            "faulty_responses": self.tally.faulty_responses,
            "items": self.tally.items,
            "repeated_items": self.tally.repeated_items,
            "assets": self.tally.assets,
            "assets_to": self.asset_folder,
            "assets_in_all": assets.fetched if assets else None,
            "assets_failed": assets.failed if assets else {},
            "assets_dropped": assets.dropped if assets else {},
            "unread": self.tally.unread,
            "without_text": self.tally.no_content,
            "rules": {name: msgspec.to_builtins(count) for name, count in self.tally.rules.items()},
            "bytes": self.tally.bytes,
            "sitemaps": sorted(self.tally.sitemaps.values()),
            "unlinked_pages": self.tally.unlinked,
            "status_codes": {str(status): count for status, count in sorted(self.tally.responses.items())},
            "slowest_hosts": [
                {"host": name, "responses": count.responses, "seconds": round(count.mean_seconds, 3)}
                for name, count in slowest_hosts(self.tally)
            ],
            "failing_hosts": [{"host": name, "failed": count.failed} for name, count in failing_hosts(self.tally)],
            "errors": [
                {"reason": reason, "text": explain(reason).title, "count": count, "example": examples.get(reason)}
                for reason, count in sorted((pages.failed if pages else self.tally.failed).items(), key=_by_count)
            ],
            "seconds": round(self.seconds, 3),
            "pages_per_second": round(self.tally.pages / self.seconds, 3) if self.seconds else 0.0,
            "missing_records": self.missing_records,
            "refused_pages": self._refused(),
            "refusing_hosts": self.tally.refusing,
            "refused_rows": self.tally.refused,
            "outputs": [hide_secrets(path) for path in self.outputs],
            "report": self.report,
            "notes": [hide_secrets_in(note) for note in self.notes],
            "exit_code": self.exit_code(),
        }
        import json  # imported late: few commands need it

        return json.dumps(values)

    def _state(self) -> str:
        """Return `finished`, `expired`, `stopped` or `running` (the crawl's own), or `lost`, `interrupted`,
        `unknown`."""
        if self.lost:
            return "lost"
        if self.interrupted and (self.is_endless or not self.finished):
            return "interrupted"
        return self.info.state if self.info else "unknown"

    def as_text(self) -> str:
        """Return the summary as a few lines."""
        lines = [self._headline(), *([f"  begun at {hide_secrets_in(self.begun_at)}"] if self.begun_at else [])]
        tally = self.tally
        if not self.already_finished:
            rate = tally.pages / self.seconds if self.seconds else 0.0
            assets = f" and {counted(tally.assets, 'asset')}" if tally.assets else ""
            lines.append(
                f"  {counted(tally.pages, 'page')}{assets}, {bytes_text(tally.bytes)}, "
                f"in {duration_text(self.seconds)} ({rate:,.1f} pages/s)"
                + (f"; {counted(tally.items, 'item')}" if tally.items else "")
                + (f" ({tally.repeated_items:,} more repeat their keys)" if tally.repeated_items else "")
            )
            lines += response_lines(tally)
        # A round over nothing has the counts of the round before.
        if self.info is not None and not (self.already_finished and self.may_be_empty):
            pages = self.info.pages
            if self._state() == "interrupted" and (tally.abandoned or pages.fetched < tally.pages):
                lines.append(f"  written in all: {counted(pages.fetched, 'page')}; pages not written are fetched again")
            elif pages.fetched != tally.pages:
                lines.append(f"  in all: {counted(pages.fetched, 'page')}")
            lines += self._failure_lines(pages.failed)
            if dropped := _not_fetched(pages.dropped):
                lines.append(f"  not fetched: {dropped}")
            # A count of 0 hides its reason: the line about assets, below, has this one.
            if links := reason_counts(pages.links_dropped | {DropReason.MAX_ASSETS.value: 0}):
                lines.append(f"  links not followed: {links}")
            by_expression = filter_sentences(tally.filters, are_all=pages.fetched == tally.pages)
            lines += [f"    {hide_secrets_in(line)}" for line in by_expression]
            lines += [f"  {hide_secrets_in(line)}" for line in growth_lines(tally)]
            if tally.unread:
                lines.append(f"  pages whose links were not all read: {reason_counts(tally.unread)}")
                lines += [f"    {line}" for line in error_lines(tally.unread, tally.examples)]
            beyond = self.info.total().links_dropped.get(DropReason.MAX_ASSETS, 0)
            lines += asset_lines(self.info.assets, tally, self.asset_folder, beyond=beyond)
            # Only a command that has fetched the whole crawl itself has seen all links.
            if tally.unlinked and self.finished and pages.fetched == tally.pages:
                lines.append(
                    f"  no fetched page links to {counted(tally.unlinked, 'page')} of the sitemap, for example "
                    f"{tally.unlinked_example}"
                )
            if not self.finished:
                lines.append(f"  still queued: {self.info.total().waiting:,}")  # with assets
        lines += self._output_lines()
        lines += [f"  the report is {self.report}"] if self.report else []
        if tally.no_content:
            lines.append(f"  without text: {reason_counts(tally.no_content)}")
        if not self.already_finished:
            lines += [f"  {line}" for line in rule_sentences(tally.rules)]
        if self.missing_records:
            records = counted(self.missing_records, "record")
            lines.append(f"  missing from the output: {records}; the file was deleted or cut short")
        if tally.refused:
            lines.append(f"  refused by a database: {counted(tally.refused, 'row')}; see refused in the data directory")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)

    def _failure_lines(self, failed: dict[str, int]) -> list[str]:
        """Return the failures of the crawl by reason, the refusals among them, examples and hosts. Empty: none."""
        if not failed:
            return []
        refused = reason_counts(refused_by_sites(self._failed()))
        return [
            f"  failed: {reason_counts(failed)}",
            *([f"    refused by the site: {refused}"] if refused else []),
            *(f"    {line}" for line in refusing_lines(self.tally.refusing)),
            *(f"    {line}" for line in error_lines(failed, self.tally.examples)),
            *failing_lines(self.tally),
        ]

    def _output_lines(self) -> list[str]:
        """Return where the pages and the items are. Empty: nothing was written, or an output could not be finished."""
        tally = self.tally
        if self.unwritten or not (self.already_finished or tally.pages or tally.failed or tally.dropped):
            return []
        files = [path for path in self.outputs if path != "-"]
        of_items = [path for path in files if path in self.item_outputs and path not in self.without_items]
        mixed = [path for path in files if path in self.mixed_outputs]
        others = [path for path in files if path not in (*self.item_outputs, *mixed)]
        kind_of_others = "pages" if self._fetched() or not self.info else "records of failures"
        rows = ((kind_of_others, others), (f"{kind_of_others} and items", mixed), ("items", of_items))
        lines = [f"  {kind} are in {', '.join(map(hide_secrets, paths))}" for kind, paths in rows if paths]
        found = "no items were found" if self.finished else "no items were found yet"
        return [*lines, *(f"  {found}: {path} {why}" for path, why in self.without_items.items())]

    def _headline(self) -> str:
        """Return the first line: how the command, or its crawl, has ended."""
        if self.pool:
            return f"The worker for the pool {self.pool} has stopped; other workers get its unfinished requests."
        if self.lost and self.info is not None and self.info.state is CrawlState.FINISHED:
            return (
                f"The crawl {self.crawl_id} has ended, but may be incomplete: the frontier's server lost a part of its "
                "writes."
            )
        if self.lost:
            return f"The crawl {self.crawl_id} is not finished: the frontier lost its data."
        state = self.info.state if self.info else None
        if state is CrawlState.EXPIRED:
            return f"The crawl {self.crawl_id} has {'already ' if self.already_finished else ''}expired."
        if self.is_endless and self.interrupted and self.finished:
            return f"The crawl {self.crawl_id} was interrupted; nothing is lost."
        if self.already_finished:
            is_round = self.may_be_empty
            return f"The crawl {self.crawl_id} {'has nothing to fetch now' if is_round else 'is already finished'}."
        if state is CrawlState.FINISHED:
            failed = "" if self.has_enough else ", but no page could be fetched"
            if not failed and mostly_refused(self._failed(), fetched=self._fetched()):
                failed = ", but sites refused more pages than they sent"
            if refused := sum(refused_by_sites(self._failed()).values()):
                failed += f"; {counted(refused, 'page')} {'was' if refused == 1 else 'were'} refused by the site"
            return f"The crawl {self.crawl_id} is finished{failed}."
        if state is CrawlState.STOPPED:
            return f"The crawl {self.crawl_id} was stopped."
        if not self.interrupted:
            # The work ends by itself only when its run is over, or when an output fails (`unwritten`). So a crawl that
            # is running nevertheless has another run.
            if state is CrawlState.RUNNING and not self.unwritten:
                return f"The crawl {self.crawl_id} ended; another command has started it again meanwhile."
            return f"The crawl {self.crawl_id} ended; its state is unknown."
        return f"The crawl {self.crawl_id} was interrupted{'.' if self.missing_records else '; nothing is lost.'}"


_NAMED = 3
"""Hosts, and kinds of errors, that a line of the summary names. More make the summary longer."""


def _by_count(row: tuple[str, int]) -> tuple[int, str]:
    """Return the key that sorts reasons by their counts, the most frequent first."""
    return -row[1], row[0]


def slowest_hosts(tally: Tally) -> list[tuple[str, HostCount]]:
    """Return the hosts that answered, the slowest first."""
    rows = [(name, count) for name, count in tally.hosts.items() if count.responses]
    return sorted(rows, key=lambda row: -row[1].mean_seconds)


def failing_hosts(tally: Tally) -> list[tuple[str, HostCount]]:
    """Return the hosts on which requests failed, those with most failures first."""
    rows = [(name, count) for name, count in tally.hosts.items() if count.failed]
    return sorted(rows, key=lambda row: -row[1].failed)


def response_lines(tally: Tally) -> list[str]:
    """Return the failures of proxies, the responses by status code, those with faults, and the slowest hosts if there
    are several."""
    proxies = [f"  failures of proxies: {reason_counts(tally.proxies)}"] if tally.proxies else []
    responses = sum(tally.responses.values())
    if not responses:
        return proxies
    codes = ", ".join(f"{status} {count:,}" for status, count in sorted(tally.responses.items()))
    of_all = " of pages and assets" if tally.assets or tally.assets_failed else ""
    lines = [f"  status codes{of_all}: {codes}; {short_time(tally.response_seconds / responses)} on average"]
    if tally.faulty_responses:
        lines.append(f"  responses with faults: {reason_counts(tally.faulty_responses)}")
    hosts = slowest_hosts(tally)
    if len(hosts) > 1:
        slowest = ", ".join(f"{name} {short_time(count.mean_seconds)}" for name, count in hosts[:_NAMED])
        lines.append(f"  slowest hosts: {slowest}")
    return lines + proxies


def error_lines(failed: dict[str, int], examples: dict[str, str]) -> list[str]:
    """Return the commonest errors in words, each with its count, an example where one is known, and advice."""
    lines = []
    for reason, count in sorted(failed.items(), key=_by_count)[:_NAMED]:
        title, advice = explain(reason)
        example = f", for example {hide_secrets(examples[reason])}" if reason in examples else ""
        lines.append(f"{title}: {count:,}{example}" + (f" ({advice})" if advice else ""))
    return lines


def growth_lines(tally: Tally) -> list[str]:
    """Return sentences about pages that may have no end."""
    return [growth_sentence(*pair) for pair in list(leading_patterns(tally.growing).items())[:_NAMED]]


def failing_lines(tally: Tally) -> list[str]:
    """Return the hosts on which most requests failed, if there are several hosts and more failures than examples."""
    hosts = failing_hosts(tally)
    if len(tally.hosts) == 1 or sum(count.failed for _, count in hosts) <= _NAMED:
        return []
    named = ", ".join(f"{name} {count.failed:,}" for name, count in hosts[:_NAMED])
    return [f"    most on: {named}"]


def asset_lines(assets: SpiderCounts, tally: Tally, folder: str, *, beyond: int = 0) -> list[str]:
    """Return lines about the assets of the whole crawl, the files that pages embed or link, in this folder (empty:
    none). `beyond`: links to assets that --max-assets cut off."""
    reasons = reason_counts(assets.failed | assets.dropped | _CONTINUED)
    faults = ", ".join(filter(None, [reasons, f"{beyond:,} beyond --max-assets" if beyond else ""]))
    lines = []
    if assets.added or tally.assets:
        place = f", in {folder}" if folder else ""
        lines.append(f"  assets: {max(assets.fetched, tally.assets):,} fetched{place}")  # the tally may be newer
    if faults:
        lines.append(f"  assets not fetched: {faults}")
    return lines


def _not_fetched(dropped: dict[str, int]) -> str:
    """Return the counts by reason, and in words what the limit of pages cut off. Empty: nothing that counts."""
    # A count of 0 hides its reason.
    others = reason_counts(dropped | _CONTINUED | {DropReason.BUDGET.value: 0})
    beyond = dropped.get(DropReason.BUDGET, 0)
    return ", ".join(filter(None, [others, f"{beyond:,} beyond the limit of pages" if beyond else ""]))


_CONTINUED = {DropReason.MOVED.value: 0}
"""Merged into counts, it hides these reasons, because `reason_counts` leaves out counts of 0: requests that a redirect
continues under another domain are not of interest to a person."""
