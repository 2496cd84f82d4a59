"""A bounded memory of fingerprints that the frontier has confirmed: a site's navigation links need not travel."""

from collections.abc import Callable, Collection, Hashable, Iterable


class SeenCache:
    """Fingerprints by part (a crawl's run and generation). What is in it is in the frontier's seen-set for certain;
    what is not may be there all the same. In a new era of the frontier it knows nothing.

    Two generations: when the young one holds half of `limit`, the old one is forgotten and the young takes its place.
    What is asked for again and again is entered again and so stays.
    """

    def __init__(self, limit: int = 200_000, *, era: Callable[[], int] = lambda: 0) -> None:
        """`limit`: fingerprints kept, all parts together; each part counts as `PART_WEIGHT` more. `era`: the
        frontier's."""
        self._half = max(1, limit // 2)
        self._ask_era = era
        self._era = 0
        self._young: dict[Hashable, set[int]] = {}
        self._old: dict[Hashable, set[int]] = {}
        self._count = 0

    @property
    def era(self) -> int:
        """The frontier's, now."""
        self._enter_era()
        return self._era

    def _enter_era(self) -> None:
        era = self._ask_era()
        if era != self._era:
            self._era = era
            self._young, self._old, self._count = {}, {}, 0

    def unknown(self, part: Hashable, fingerprints: Iterable[int]) -> list[int]:
        """Positions of those that are not known to be seen."""
        self._enter_era()
        young, old = self._young.get(part, _EMPTY), self._old.get(part, _EMPTY)
        return [at for at, mark in enumerate(fingerprints) if mark not in young and mark not in old]

    def knows(self, part: Hashable, fingerprint: int) -> bool:
        """Whether it is known to be seen."""
        self._enter_era()
        return fingerprint in self._young.get(part, _EMPTY) or fingerprint in self._old.get(part, _EMPTY)

    def remember(self, part: Hashable, fingerprints: Collection[int], *, since: int | None = None) -> None:
        """Only once the frontier has confirmed them: a fingerprint remembered too early is a page lost.

        `since`: the era before they were sent to it; in another one nothing is remembered."""
        if since is not None and since != self.era:
            return
        young = self._young.get(part)
        if young is None:
            young = self._young[part] = set()
            self._count += PART_WEIGHT
        before = len(young)
        young.update(fingerprints)
        self._count += len(young) - before
        if self._count > self._half:
            self._old, self._young, self._count = self._young, {}, 0


_EMPTY: frozenset[int] = frozenset()
PART_WEIGHT = 8
"""A part takes about as much memory as so many fingerprints."""
