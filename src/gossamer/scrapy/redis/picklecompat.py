"""scrapy-redis's serializer module. `loads` accepts plain data only, so that reading a pickle never runs code."""

import pickle
from typing import Any

from gossamer.control.scrapy_redis import loads

__all__ = ["dumps", "loads"]


def dumps(obj: Any) -> bytes:
    """Return the object as a pickle. `loads` can read it only if it is plain data."""
    return pickle.dumps(obj, protocol=-1)
