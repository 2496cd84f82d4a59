"""Memory of fingerprints that are in the frontier's seen-set, so that links to them need not be sent again.

The frontier is the cluster's store of requests; its seen-set has the fingerprints of all requests that a crawl has had.
Fixed: a fingerprint may be remembered only after the frontier has confirmed it, and until the frontier may have lost
what it confirmed (its next data epoch); otherwise pages are lost.
"""

import mmap
import secrets
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

_MAX_WORDS = 1 << 24
"""Bound of the table, 128 MB."""
_PLACES = 4  # words in which one fingerprint may be; a power of two
_BITS = (1 << 63) - 1
_TAKEN = 1 << 63
"""Bit that all words have but those of empty places, which are 0."""


class SeenTable:
    """Fingerprints that any worker process of one command knows to be in the seen-set, in memory that forked processes
    share. Without it, each process sends the frontier most links of a crawl once.

    The table has one word for each fingerprint, a hash of it, of its namespace (one seen-set of a crawl) and of the
    table's epoch. So all of them are forgotten when any process begins another epoch. Processes read and write single
    words without locks: a lost word costs a link that is sent again. With 200,000 fingerprints, the probability that a
    new link is found by chance, so that its page is missed, is 1 to 30 trillion.
    """

    def __init__(self, limit: int) -> None:
        """`limit`: fingerprints kept; rounded up to a power of two, at most 16 million. Each takes 8 bytes. Create the
        table before the processes are forked."""
        words = min(max(_PLACES, 1 << (limit - 1).bit_length()), _MAX_WORDS)
        self._words = memoryview(mmap.mmap(-1, 8 * (words + 1))).cast("Q")
        self._epoch_at = words
        self._mask = words - _PLACES  # of the first place of a fingerprint

    @property
    def epoch(self) -> int:
        """Number of the current epoch, below 2**62. No two epochs have the same."""
        return self._words[self._epoch_at]

    def begin_epoch(self) -> None:
        """Forget everything, in all processes. A process must call this when it has connected to the frontier, and
        again whenever the frontier may have lost what it confirmed, before it asks for fingerprints again: others may
        have entered some that are lost, and not know of the loss yet."""
        self._words[self._epoch_at] = secrets.randbits(62)  # not a counter: two processes may begin one at once

    def missing(self, namespace: Hashable, fingerprints: Sequence[int], positions: list[int], epoch: int) -> list[int]:
        """Return those of the positions whose fingerprints are not known in this epoch."""
        missing = []
        for position in positions:
            word, _, words = self._look_up(namespace, fingerprints[position], epoch)
            if word not in words:
                missing.append(position)
        return missing

    def enter(self, namespace: Hashable, fingerprints: Iterable[int], epoch: int) -> None:
        """Enter fingerprints that the frontier has confirmed. `epoch`: that in which they were sent to it; if it has
        ended since, they are not found."""
        for fingerprint in fingerprints:
            word, first, words = self._look_up(namespace, fingerprint, epoch)
            if word not in words:
                # In a full place, one of the four goes: which one depends on bits that choose nothing else.
                self._words[first + (words.index(0) if 0 in words else word >> 61 & 3)] = word

    def _look_up(self, namespace: Hashable, fingerprint: int, epoch: int) -> tuple[int, int, list[int]]:
        """Return the word of a fingerprint, the first of its places, and the words that are there."""
        word = hash((namespace, epoch, fingerprint)) & _BITS | _TAKEN
        first = word & self._mask
        return word, first, self._words[first : first + _PLACES].tolist()


class SeenCache:
    """Cache of fingerprints that are in the frontier's seen-set, by namespace (one seen-set of a crawl).

    A fingerprint in the cache is in the seen-set for certain; one that is missing may be there all the same. The cache
    is emptied when the frontier's data epoch changes, a number that grows whenever it may have lost what it confirmed
    last, and when any process begins another epoch of the shared table.

    The cache has two halves: when the young one is full, the old one is dropped, and the young one becomes the old.
    Fingerprints that keep occurring are remembered again and so stay.
    """

    def __init__(
        self,
        limit: int = 200_000,
        *,
        data_epoch: Callable[[], int] = lambda: 0,
        table: SeenTable | None = None,
    ) -> None:
        """`limit`: fingerprints kept, all namespaces together; each namespace counts as `NAMESPACE_WEIGHT` more. With
        fewer, more known links are sent to the frontier again. `data_epoch` returns the frontier's data epoch.
        `table`: the fingerprints that other processes know, too; this process must be connected to the frontier."""
        self._half_limit = max(1, limit // 2)
        self._frontier_epoch = data_epoch
        self._filled_in = 0
        """Data epoch of the frontier in which the cache was filled."""
        self._table = table
        self._table_epoch = 0
        """Epoch of the table in which the cache was filled. 0: there is no table."""
        self._young: dict[Hashable, set[int]] = {}
        self._old: dict[Hashable, set[int]] = {}
        self._count = 0  # of the young half
        if table is not None:
            table.begin_epoch()

    @property
    def data_epoch(self) -> int:
        """Number of the current data epoch of the frontier, or of its epoch and that of the table."""
        self._enter_data_epoch()
        return self._filled_in ^ self._table_epoch

    def _enter_data_epoch(self) -> None:
        epoch = self._frontier_epoch()
        if epoch != self._filled_in:
            self._filled_in = epoch
            if self._table is None:
                self._forget()
            else:
                self._table.begin_epoch()
        if self._table is not None:
            table_epoch = self._table.epoch
            if table_epoch != self._table_epoch:
                # Also where another process has begun it. A link that only this process knows is not sent again with
                # its page, and would be entered in the table together with the other links of that page.
                self._table_epoch = table_epoch
                self._forget()

    def _forget(self) -> None:
        self._young, self._old, self._count = {}, {}, 0

    def unseen_positions(
        self, namespace: Hashable, fingerprints: Sequence[int], *, data_epoch: int | None = None
    ) -> list[int]:
        """Return the positions of the fingerprints that are not known to be in the seen-set. `data_epoch`: that of this
        cache, where the caller has read it since the last await; None: it is read here."""
        if data_epoch is None:
            self._enter_data_epoch()
        young, old = self._young.get(namespace, _EMPTY), self._old.get(namespace, _EMPTY)
        unseen = [at for at, value in enumerate(fingerprints) if value not in young and value not in old]
        if unseen and self._table is not None:
            return self._table.missing(namespace, fingerprints, unseen, self._table_epoch)
        return unseen

    def view(self, namespace: Hashable) -> tuple[Collection[int], Collection[int]]:
        """Return two collections whose fingerprints are known to be in the seen-set. They are valid until the next
        await: when the data epoch changes, they say too much."""
        self._enter_data_epoch()
        return self._young.get(namespace, _EMPTY), self._old.get(namespace, _EMPTY)

    def has_seen(self, namespace: Hashable, fingerprint: int) -> bool:
        """Return whether this fingerprint is known to be in the seen-set."""
        self._enter_data_epoch()
        return fingerprint in self._young.get(namespace, _EMPTY) or fingerprint in self._old.get(namespace, _EMPTY)

    def remember(self, namespace: Hashable, fingerprints: Collection[int], *, since: int | None = None) -> None:
        """Remember fingerprints that the frontier has confirmed. Must not be called earlier: if the frontier did not
        get them, the pages are never fetched.

        `since`: data epoch in which they were sent to the frontier; in another data epoch nothing is remembered.
        """
        if since is not None and since != self.data_epoch:
            return
        young = self._young.get(namespace)
        if young is None:
            young = self._young[namespace] = set()
            self._count += NAMESPACE_WEIGHT
        if self._table is not None:
            self._table.enter(namespace, fingerprints, self._table_epoch)
        before = len(young)
        young.update(fingerprints)
        self._count += len(young) - before
        if self._count > self._half_limit:
            self._old, self._young, self._count = self._young, {}, 0


_EMPTY: frozenset[int] = frozenset()
NAMESPACE_WEIGHT = 8
"""Fingerprints that take about as much memory as one namespace. Measured; change it when a measurement differs. The
bound of the cache depends on it."""
