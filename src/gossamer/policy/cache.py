"""A least-recently-used cache that is bounded by the estimated size of its values. It does no input or output.

Fixed: the value that was entered last stays, however large it is, so that a value larger than the cache is not computed
again and again.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Cache of values with their estimated sizes.

    When the values together exceed `max_bytes`, the least recently used ones are removed.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.bytes = 0
        """Estimated size of all values together."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key, and mark it as used just now. None: the cache does not have the key."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Enter a value of about `size` bytes in place of the key's old value. `size` must be above 0: values
        of size 0 would fill the memory without limit."""
        old = self._entries.pop(key, None)
        self._entries[key] = (value, size)
        _, old_size = old or (None, 0)
        self.bytes += size - old_size
        while self.bytes > self._max_bytes and len(self._entries) > 1:
            _, (_, freed) = self._entries.popitem(last=False)
            self.bytes -= freed

    def clear(self) -> None:
        """Remove all values."""
        self._entries.clear()
        self.bytes = 0
