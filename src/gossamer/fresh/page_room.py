"""Room for new pages in the index of a crawl that limits its pages. Blocking; for one thread.

The frontier holds the limit within a run. Rounds are runs, so without this each of them could add as many pages again.
"""

import time
from collections.abc import Iterable
from typing import Final

from gossamer.fresh.database import IndexDatabase

_READ_SECONDS: Final = 30.0
"""Time between two counts of all pages."""
_WAIT_SECONDS: Final = 600.0
"""Time for which a link holds the room of its page. One that was dropped later never becomes a page."""


class PageRoom:
    """Room for new pages, as one process knows it. Several of them may together let in some pages more."""

    def __init__(self, database: IndexDatabase, *, counted: str) -> None:
        """`counted`: condition by which a row of the table of pages counts."""
        self._database = database
        self._counted = counted
        self._read = -_READ_SECONDS
        self._pages: dict[str, int] = {}
        """Pages by domain, as they were counted."""
        self._entering: dict[str, dict[int, float]] = {}
        """Times at which links to new pages were let in since, by domain and key."""
        self._is_first = True
        """True: no round has ended, so the limit of the run is that of the index."""

    def admitted(self, links: Iterable[tuple[int, str]], *, most: int | None, domain_most: int | None) -> set[int]:
        """Return the keys of those links to new pages for which there is room. `links`: keys with domains. `most`,
        `domain_most`: limits of the pages in all, and of one domain; None: no limit."""
        self._count()
        if self._is_first:
            return {key for key, _ in links}
        found, now = set(), time.monotonic()
        total = sum(self._pages.values()) + sum(map(len, self._entering.values()))
        for key, domain in links:
            entering = self._entering.setdefault(domain, {})
            if key not in entering:
                of_domain = self._pages.get(domain, 0) + len(entering)
                if (most is not None and total >= most) or (domain_most is not None and of_domain >= domain_most):
                    continue
                entering[key] = now
                total += 1
            found.add(key)
        return found

    def _count(self) -> None:
        """Count the pages anew, now and then."""
        now = time.monotonic()
        if now - self._read < _READ_SECONDS:
            return
        self._read = now
        self._is_first = not self._database.rows("SELECT 1 FROM rounds WHERE ended IS NOT NULL LIMIT 1")
        keys = [key for entering in self._entering.values() for key in entering]
        condition, value = self._database.chosen("key", keys)
        known = {key for (key,) in self._database.rows(f"SELECT key FROM pages WHERE {condition}", [value])}
        self._entering = {
            domain: left
            for domain, entering in self._entering.items()
            if (left := {key: at for key, at in entering.items() if key not in known and now - at < _WAIT_SECONDS})
        }
        rows = self._database.rows(
            "SELECT d.name, count(*) FROM pages JOIN sites s ON s.number = pages.site "
            f"JOIN domains d ON d.number = s.domain WHERE {self._counted} GROUP BY d.name"
        )
        self._pages = {str(name): int(count) for name, count in rows}
