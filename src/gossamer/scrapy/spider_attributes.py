"""Finds attributes of a spider that change while pages are handled, such as a counter of pages.

Every process has its own spider, so in a crawl of several processes such an attribute covers a part of the pages.

Fixed: an attribute that only Scrapy, an add-on or `start()` sets is not reported.
"""

import inspect
import itertools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

from scrapy import Spider

_WATCHED_PAGES: Final = 200
"""Pages that are compared. More find attributes that change later, and cost some microseconds each."""
_SMALL: Final = 32
"""Containers of at most this many entries are compared with their entries, larger ones by their number."""

_VALUES: Final = frozenset((int, float, complex, str, bytes, bool, type(None), Decimal, date, datetime, timedelta))
_ITERATED: Final = frozenset((list, tuple, deque))
_MAPPINGS: Final = frozenset((dict, defaultdict, Counter, OrderedDict))
_CONTAINERS: Final = _ITERATED | _MAPPINGS | {set, frozenset, bytearray}

Snapshot = dict[str, Any]
"""Summary of each attribute that is compared, by name."""


class SpiderAttributes:
    """Compares the attributes of a spider before and after pages."""

    def __init__(self, spider: Spider) -> None:
        self._spider = spider
        self._shared = [name for name, value in _class_attributes(type(spider)) if type(value) in _CONTAINERS]
        """Names of containers in the spider's classes, such as `seen = set()`."""
        self._pages_left = _WATCHED_PAGES
        self.changed: dict[str, None] = {}
        """Names of the attributes that have changed, in the order of their discovery."""

    def before_page(self) -> Snapshot | None:
        """Return what the attributes are before a page is handled. None: enough pages were compared."""
        if self._pages_left <= 0:
            return None
        self._pages_left -= 1
        return self._snapshot()

    def after_page(self, before: Snapshot) -> bool:
        """Compare the attributes with those before the page. Return whether a further one has changed."""
        known = len(self.changed)
        for name, value in self._snapshot().items():
            old = before.get(name, _summary)  # `_summary` stands for an attribute that did not exist
            if old is not value and old != value and name not in self.changed and not self._is_cached(name):
                self.changed[name] = None
        return len(self.changed) > known

    def _snapshot(self) -> Snapshot:
        """Return a summary of each attribute that has one. Others are objects: connections, clients, extractors."""
        spider = self._spider
        found = {name: _summary(getattr(spider, name, None)) for name in self._shared}
        found.update((name, _summary(value)) for name, value in vars(spider).items())
        return {name: summary for name, summary in found.items() if summary is not _summary}

    def _is_cached(self, name: str) -> bool:
        """Return whether the attribute is the value of a cached property, which is the same in every process."""
        return isinstance(inspect.getattr_static(type(self._spider), name, None), cached_property)


def _class_attributes(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the attributes of a class and of its bases."""
    for one in kind.__mro__:
        if one is not object:
            yield from vars(one).items()


def _summary(value: Any, *, entries: bool = True) -> Any:
    """Return what tells a value from a changed one. `_summary`: nothing does. `entries`: look into small containers."""
    kind = type(value)
    if kind in _VALUES:
        return value
    if kind is itertools.count:
        return repr(value)
    if kind not in _CONTAINERS:
        return _summary
    if not entries or len(value) > _SMALL or kind not in _ITERATED | _MAPPINGS:
        return kind, len(value)
    inner = value.values() if kind in _MAPPINGS else value
    return kind, [_summary(one, entries=False) for one in inner]
