"""Finds out whether a part of Scrapy is Scrapy's own code, so that a shorter way has the same effect.

Fixed: a part that may be the project's counts as the project's.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, Final

import scrapy
import twisted
from scrapy.statscollectors import MemoryStatsCollector

OLDEST: Final = (2, 16)
NEWEST: Final = (2, 19)
"""Versions of Scrapy whose code was compared with this package."""

_LIBRARIES: Final = tuple(f"{Path(str(module.__file__)).parent}/" for module in (scrapy, twisted))
"""Folders of Scrapy, and of Twisted, whose decorators Scrapy uses."""


def is_known_version() -> bool:
    """Return whether the installed Scrapy was compared with this package."""
    return OLDEST <= scrapy.version_info[:2] <= NEWEST


def is_stock(part: object, kind: type, names: Iterable[str] = ()) -> bool:
    """Return whether an object is of exactly this class of Scrapy, and these methods are those that Scrapy defines:
    not overridden, not replaced in the class, and not in the object."""
    if type(part) is not kind:
        return False
    own = getattr(part, "__dict__", {})
    return not any(name in own or not is_scrapys(inspect.getattr_static(kind, name, None)) for name in names)


def is_stock_method(method: object, kind: type) -> bool:
    """Return whether a bound method is one that Scrapy defines for exactly this class."""
    if type(method) is not MethodType or type(method.__self__) is not kind:
        return False
    function = method.__func__
    defined = inspect.getattr_static(kind, getattr(function, "__name__", ""), None)
    return function is defined and is_scrapys(function)


def owns_none_of(part: object, names: Iterable[str]) -> bool:
    """Return whether an object has none of these attributes of its own, so that its class's are used."""
    own = getattr(part, "__dict__", {})
    return not any(name in own for name in names)


@lru_cache(maxsize=256)  # one for each method that is checked
def is_scrapys(function: Any) -> bool:
    """Return whether the code of a function, and of all its decorators, is in Scrapy or Twisted."""
    while True:
        if type(function) in (staticmethod, classmethod):
            function = function.__func__
        if type(function) is not FunctionType or not function.__code__.co_filename.startswith(_LIBRARIES):
            return False
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            return function.__code__.co_filename.startswith(_LIBRARIES[0])
        function = inner


def counter_of(stats: Any) -> Callable[..., None]:
    """Return a function that does what `stats.inc_value(key, count)` does."""
    if not is_stock(stats, MemoryStatsCollector, ("inc_value", "__getattribute__")):
        return stats.inc_value  # type: ignore[no-any-return]
    read = object.__getattribute__  # Scrapy's looks for a wrapper of each attribute

    def inc_value(key: str, count: int = 1) -> None:
        values = read(stats, "_stats")
        values[key] = values.get(key, 0) + count

    return inc_value


def without_decorator(method: MethodType) -> Any:
    """Return a stock method without the decorator that warns of an argument which is never passed here."""
    function = method.__func__
    inner = getattr(function, "__wrapped__", function)
    return MethodType(inner, method.__self__)
