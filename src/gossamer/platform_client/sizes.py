"""Numbers of bytes as people write them: `512MB`, `1.5 GB`, `1048576`."""

import re
from typing import Final

BYTES_BY_UNIT: Final = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?(B|kB|MB|GB)?", re.ASCII)
"""A number, with one of these units or none."""


def read_size(text: str) -> float | None:
    """Return the number of bytes that a text stands for. None: it stands for none."""
    found = SIZE.fullmatch(text)
    return None if found is None else float(found[1]) * BYTES_BY_UNIT[found[2] or "B"]


def exact_size(count: int) -> str:
    """Return a number of bytes in the largest unit of which it is a multiple, as `read_size` reads it."""
    unit = next((unit for unit in ("GB", "MB", "kB") if count and count % BYTES_BY_UNIT[unit] == 0), "")
    return f"{count // BYTES_BY_UNIT[unit]} {unit}" if unit else str(count)
