"""Messages of a crawl to the Python program that runs it, in the log, and the way in which the program stops it.

Fixed: `stop` works before the crawl has begun its work, too.
"""

import logging
from collections.abc import Callable

from gossamer.crawling.background import BackgroundTask
from gossamer.crawling.work import UNFINISHED, CrawlResult, Snapshot
from gossamer.policy.words import CANNOT_FETCH, RETRYING

log = logging.getLogger("gossamer")


class ProgramControl:
    """The protocols `Observer`, by logging, and `WorkControl` of crawling/work.py, for the crawl of a program."""

    def __init__(self) -> None:
        self.drain: Callable[[], None] | None = None
        """Set by the work when it begins. None: it has not begun."""
        self.was_interrupted = False
        self.failures: list[str] = []
        """Sentences about URLs that failed for good, held back while there is no page: NothingFetched may say them."""

    def say(self, sentence: str) -> None:
        if sentence.startswith(CANNOT_FETCH) and RETRYING not in sentence:  # a text of `fetch_error`
            self.failures.append(sentence)
        elif UNFINISHED not in sentence or not self.was_interrupted:  # else the program left its loop, and knows it
            log.warning("%s", sentence)

    def update(self, snapshot: Snapshot) -> None:
        if snapshot.tally.pages:
            self.log_failures()

    def log_failures(self) -> None:
        """Log the sentences that were held back. Any thread may call it."""
        while self.failures:
            log.warning("%s", self.failures.pop(0))

    def set_ending(self) -> None:
        """Do nothing: `stop` is harmless at the end."""

    def set_working(self) -> None:
        """Do nothing: `stop` works at any time."""

    def limit_time(self) -> None:
        """Do nothing: the program decides how long it waits."""

    def stop(self, task: BackgroundTask[CrawlResult]) -> None:
        """Stop the work, or what comes before the work. Called in the event loop of the crawl."""
        self.was_interrupted = True
        if self.drain is not None:
            self.drain()
        else:
            task.cancel()
