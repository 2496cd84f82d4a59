"""Types of the frontier's calls: submissions, results, answers, lanes.

The frontier is the store of the URLs that wait, which leases them to workers and limits how fast each domain is
fetched: `ValkeyFrontier` in `frontier/valkey/`. Values of the enumerations may change only where their docstring allows
it.
"""

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

import msgspec

from gossamer.errors import FrontierError
from gossamer.model.crawl import Crawl, Run, Terms
from gossamer.model.request import Batch, Outcome


class AddResult(msgspec.Struct):
    """Result of one `add`: `added + duplicates + len(rejected)` is the number of its URLs.

    A URL that is not rejected is in the run's seen-set.
    """

    added: int = 0
    duplicates: int = 0
    rejected: dict[tuple[int, int], str] = {}
    """(batch, position) of every URL that was dropped, and the reason: `budget` (domain_max_pending), `stopped`,
    `expired`. These URLs are not in the seen-set and may be found again. The reasons are stored, so they are fixed."""
    duplicate_positions: list[tuple[int, int]] = []
    """(batch, position) of every duplicate. For seeds only."""
    has_other_terms: bool = False
    """True: some duplicates are URLs that were queued under other terms. For seeds only."""

    @property
    def rejected_by_reason(self) -> dict[str, int]:
        """The number of rejected URLs by reason."""
        return dict(Counter(self.rejected.values()))


class Submission(msgspec.Struct):
    """One request to crawl something, as `submit` takes it."""

    crawl: Crawl
    terms: Terms
    batches: Sequence[Batch]
    expires: float | None = None
    """When the parts of the spiders of `batches` expire, in epoch seconds; 0: never. None: unchanged."""
    fresh: bool = False
    """True: a finished crawl begins a run with an empty seen-set; a running crawl is joined."""
    idempotency_key: str = ""
    """Key of a fresh submission, the same on each repetition within an hour: all begin or join one run. Empty: none."""


class SubmissionResult(msgspec.Struct):
    """Result of a submission."""

    run: Run
    """The run that the submission joined."""
    added: AddResult
    joined_running: bool = False
    """True: the submission asked for a fresh run, and joined the one that is running."""
    exceeds_earlier_terms: bool = False
    """True: this run took in some of its duplicates under a smaller maxdepth or a narrower scope."""


class RestoredRequest(NamedTuple):
    """A request that was done before the frontier lost it, or a URL that one was redirected to."""

    spider: str
    domain: str
    fingerprint: int
    outcome: Outcome | None
    """FETCHED, FAILED or DROPPED. None: the URL of a redirect, which is known and no request of its own."""
    reason: str = ""
    """Reason of a request that failed or was dropped."""
    render: bool = False
    priority: int = 0
    depth: int = 0
    kept_url: str = ""
    """URL of a request that is kept for `retry_failed`. Empty: it is not."""


class FailureFilter(NamedTuple):
    """Choice among the failed requests of a crawl."""

    reason: str = ""
    """Only those that failed for this reason. Empty: for any."""
    url: str = ""
    """Only those of this canonical URL. Empty: of any."""


EVERY_FAILURE: Final = FailureFilter()


class RedirectPermit(StrEnum):
    """Answer to a worker that wants to follow a redirect inside a domain. The values are free: nothing stores them."""

    GRANTED = "granted"
    """A hit was charged: fetch the target now."""
    WAIT = "wait"
    """No hit is free, or the answer came too late: settle as `forwarded`. The target is already marked as seen."""
    SEEN = "seen"
    """The target was seen in this run: the request ends here, with a record that shows the redirects."""


class RunFinished(FrontierError):
    """The run has finished."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"{run.crawl.id}, run {run.number}")
        self.run = run


class Lane(StrEnum):
    """A kind of worker: Gossamer's own (fast), or a Scrapy process. A spider runs in one lane or in both.

    The values are in keys of running frontiers, so they are fixed.
    """

    FAST = "fast"
    SCRAPY = "scrapy"


MOST_COOKIES = 50
"""Cookies of a site in one session. RFC 6265bis asks for 50 of a domain at least; more let a site take more memory of
the server."""


class ClaimResult(IntEnum):
    """Answer to a claim of a task that one process does once in a crawl. The values are those of claim.lua."""

    HELD_BY_OTHER = -1
    """Another process is doing it."""
    DONE = 0
    """The task is done: the caller does not do it."""
    GRANTED = 1
    """The caller does the task."""
