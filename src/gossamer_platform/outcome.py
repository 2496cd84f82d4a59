"""Decides from an attempt's traces whether it succeeded, and names the reason if not. Pure: no I/O.

The exit code alone does not tell: Scrapy exits with 0 when `start()` raises and when it is terminated. So success needs
exit code 0 and a finish_reason that the runner has reported. The words in `reason` are stored and shown, and must not
change.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from gossamer_platform.values import Real

GOOD_FINISH_REASONS: Final = frozenset(
    {"finished", "closespider_itemcount", "closespider_pagecount", "closespider_timeout"}
)
"""Reasons with which Scrapy closes a spider that did what it should: nothing was left, or the limit that the project
itself set was reached. Reasons of the project's own count as failures unless they are listed."""

MAX_REASON: Final = 1000
"""Characters of a finish_reason."""
MAX_FAULT: Final = 4000
"""Characters of other reasons."""
_MAX_COUNTERS: Final = 300
"""Counters of an attempt that are kept. Scrapy itself has about fifty."""
_MAX_COUNTER_CHARACTERS: Final = 200
"""Characters of the name of a counter, and of one that is text."""
_JUDGED: Final = ("item_scraped_count", "log_count/ERROR", "log_count/CRITICAL", "response_received_count")
"""Counters that are kept however many there are, because others depend on them."""

WRONG_USAGE: Final = 2
"""Exit code of a process whose settings or arguments are wrong, as Scrapy and Gossamer use it: another attempt would
fail as well."""

_MEANINGS: Final = {
    f"exit_code: {WRONG_USAGE}": (
        "A setting or an argument is wrong, as the end of its log says. Such a job is not tried again."
    ),
    "exit_code": "Its process ended with the exit code {}.",
    "signal": "The signal {} ended its process. 9 is often a lack of memory.",
    "finish_reason": "Scrapy closed the spider with the reason {}.",
    "no_reason": "Its process ended without a closed spider, probably before the spider was opened.",
    "errors": "Its log has {} errors, more than its limit.",
    "few_items": "It scraped {} items, fewer than its limit.",
    "timed_out": "It took longer than its time limit.",
    "out_of_memory": "Its processes took more memory than its limit.",
    "file_limit": "Its {} became longer than its limit.",
    "pending_limit": "No node had a free slot for it within its limit.",
    "node_lost": "Its node could not be reached for too long.",
    "fenced": "Its node heard from no manager for too long, and killed it.",
    "shim_lost": "The process that supervises it was killed, and the job with it.",
    "machine_restarted": "Its machine was restarted while it ran.",
    "no_version": "Its version does not exist any more.",
}
"""Meaning of a job's reason, or of its first word. docs/howto/from-scrapyd.md lists the words."""

_Int32 = Annotated[int, Meta(gt=-(2**31), lt=2**31)]


class AttemptEnd(Struct, frozen=True):
    """Traces that an attempt left."""

    exit_code: _Int32 | None = None
    """Exit code of the job's main process. None: a signal ended it, or it never ran."""
    signal: _Int32 | None = None
    """Number of the signal that ended the main process. None: it exited by itself, or it never ran."""
    finish_reason: str | None = None
    """Reason with which Scrapy closed the spider. None: none was reported."""
    fault: str = ""
    """Reason why there are no traces, or why the attempt was ended: `shim_lost`, `start_failed: …`, `fenced`,
    `timed_out`, `out_of_memory`, `file_limit: …`."""
    ago_seconds: Real = 0.0
    """Time since the end. A duration, because the clocks of two machines differ."""
    stopped: bool = False
    """True: a stop of this attempt was asked for before it ended."""
    stats: Mapping[str, Any] = {}
    """Scrapy's counters. Empty: none were reported."""

    def bounded(self) -> "AttemptEnd":
        """Return it as it is kept: a job may report anything, of any length."""
        reason = None if self.finish_reason is None else self.finish_reason[:MAX_REASON]
        return replace(self, finish_reason=reason, fault=self.fault[:MAX_FAULT], stats=bounded_counters(self.stats))


class Expectation(NamedTuple):
    """Conditions for an attempt to count as a success."""

    good_reasons: Collection[str] = GOOD_FINISH_REASONS
    min_items: int = 0
    """Fewest items."""
    max_errors: int = 0
    """Number of errors in the log from which on it has failed. 0: any number is allowed."""


_USUAL: Final = Expectation()


def failure_of(end: AttemptEnd, expected: Expectation = _USUAL) -> str:
    """Return the reason why an attempt failed, as `word` or `word: detail`. Empty: it succeeded."""
    if end.fault:
        return end.fault
    if end.signal is not None:
        return f"signal: {end.signal}"
    if end.exit_code != 0:
        return f"exit_code: {end.exit_code}"
    if end.finish_reason is None:
        return "no_reason"
    if end.finish_reason not in expected.good_reasons:
        return f"finish_reason: {end.finish_reason}"
    errors = counter(end.stats, "log_count/ERROR") + counter(end.stats, "log_count/CRITICAL")
    if expected.max_errors and errors >= expected.max_errors:
        return f"errors: {errors}"
    items = counter(end.stats, "item_scraped_count")
    if items < expected.min_items:
        return f"few_items: {items}"
    return ""


def meaning_of(reason: str) -> str:
    """Return what the reason of a failed job means, as a sentence for people. Empty: the reason says so itself."""
    word, _, detail = reason.partition(": ")
    meaning = _MEANINGS.get(reason) or _MEANINGS.get(word, "")
    return meaning.format(detail) if meaning else ""


def bounded_counters(found: Any) -> dict[str, Any]:
    """Return a bounded number of plain, short values of what a job has reported as its counters."""
    if not isinstance(found, Mapping):
        return {}
    kept = {}
    for name in dict.fromkeys((*_JUDGED, *found)):
        value = found.get(name)
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            continue
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            continue
        kept[name[:_MAX_COUNTER_CHARACTERS]] = value[:_MAX_COUNTER_CHARACTERS] if isinstance(value, str) else value
        if len(kept) == _MAX_COUNTERS:
            break
    return kept


def counter(stats: Mapping[str, Any], name: str) -> int:
    """Return one of Scrapy's counters. 0: there is none, or a project has put something else in its place."""
    value = stats.get(name, 0)
    return value if isinstance(value, int) else 0
