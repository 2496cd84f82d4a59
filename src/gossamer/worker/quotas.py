"""Bounds of pages that may have no end: how many URLs of one pattern a worker process passes on for a crawl.

A process counts for itself, so several processes of a crawl together may pass on more.
Fixed: a URL that was passed on once is passed on again, because the frontier may not have got it.
"""

from collections.abc import Hashable

from gossamer.policy.cache import BoundedCache
from gossamer.policy.patterns import url_pattern

_BYTES = 16 * 1024 * 1024
"""Memory for all crawls of a process. When it is used up, the patterns used least recently are counted anew."""
_PATTERN_BYTES = 400
_URL_BYTES = 70


class PatternQuotas:
    """Counts the URLs of each pattern."""

    def __init__(self) -> None:
        self._passed: BoundedCache[tuple[Hashable, str], set[int]] = BoundedCache(_BYTES)
        """By crawl and pattern: fingerprints of the URLs that were passed on."""

    def allows(self, crawl: Hashable, url: str, fingerprint: int, most: int) -> bool:
        """Return whether a URL may be passed on, where at most so many of its pattern may be; if so, count it."""
        key = (crawl, url_pattern(url))
        passed = self._passed.get(key)
        if passed is None:
            passed = set()
        elif fingerprint in passed:
            return True
        if len(passed) >= most:
            return False
        passed.add(fingerprint)
        self._passed.put(key, passed, _PATTERN_BYTES + _URL_BYTES * len(passed))
        return True
