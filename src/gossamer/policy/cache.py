"""A cache that is bounded by bytes. Pure."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values with their estimated sizes. When all values together exceed `max_bytes`, those used longest ago are
    forgotten; the one entered last always stays."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.bytes = 0
        """Estimated size of all values."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The value of this key, which counts as used now. None: there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Enter a value of `size` bytes, in place of the one that the key has."""
        old = self._entries.pop(key, None)
        self._entries[key] = (value, size)
        self.bytes += size - (old[1] if old else 0)
        while self.bytes > self._max_bytes and len(self._entries) > 1:
            _, (_, freed) = self._entries.popitem(last=False)
            self.bytes -= freed

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.bytes = 0
