"""A bounded memory of fingerprints that the frontier has confirmed: a site's navigation links need not travel."""

from collections.abc import Collection, Hashable, Iterable


class SeenCache:
    """Fingerprints by part (a crawl's run and generation). What is in it is in the frontier's seen-set for certain;
    what is not may be there all the same.

    Two generations: when the young one holds half of `limit`, the old one is forgotten and the young takes its place.
    What is asked for again and again is entered again and so stays.
    """

    def __init__(self, limit: int = 200_000) -> None:
        """`limit`: fingerprints kept, all parts together."""
        self._half = max(1, limit // 2)
        self._young: dict[Hashable, set[int]] = {}
        self._old: dict[Hashable, set[int]] = {}
        self._count = 0

    def unknown(self, part: Hashable, fingerprints: Iterable[int]) -> list[int]:
        """Positions of those that are not known to be seen."""
        young, old = self._young.get(part, _EMPTY), self._old.get(part, _EMPTY)
        return [at for at, mark in enumerate(fingerprints) if mark not in young and mark not in old]

    def knows(self, part: Hashable, fingerprint: int) -> bool:
        return fingerprint in self._young.get(part, _EMPTY) or fingerprint in self._old.get(part, _EMPTY)

    def remember(self, part: Hashable, fingerprints: Collection[int]) -> None:
        """Only once the frontier has confirmed them: a fingerprint remembered too early is a page lost."""
        young = self._young.get(part)
        if young is None:
            young = self._young[part] = set()
        before = len(young)
        young.update(fingerprints)
        self._count += len(young) - before
        if self._count > self._half:
            self._old, self._young, self._count = self._young, {}, 0

    def clear(self) -> None:
        """Forget everything: after the frontier may have lost something (a failover)."""
        self._young, self._old, self._count = {}, {}, 0


_EMPTY: frozenset[int] = frozenset()
