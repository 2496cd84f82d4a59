"""scrapy-redis's serializer by its name there. Reading runs no code: only plain data is taken."""

import pickle
from typing import Any

from gossamer.control.scrapy_redis import loads

__all__ = ["dumps", "loads"]


def dumps(obj: Any) -> bytes:
    """Return the object as a pickle. `loads` reads it again if it is plain data."""
    return pickle.dumps(obj, protocol=-1)
