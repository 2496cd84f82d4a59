"""Checks that a crawler wrote every page once: compares its JSON Lines file with the site."""

from collections.abc import Set
from pathlib import Path
from urllib.parse import urldefrag

import msgspec


class _Line(msgspec.Struct):
    url: str
    type: str = "page"
    body: str = ""
    success: bool = True


def complaint(path: Path, expected: Set[str], *, least_body: int) -> str:
    """Return the faults of the file in a few words; empty: none. `least_body`: characters of a whole page."""
    decoder = msgspec.json.Decoder(_Line)
    found: set[str] = set()
    records = failed = short = 0
    if not path.exists():
        return "no output"
    with path.open("rb") as lines:
        for text in lines:
            line = decoder.decode(text)
            if line.type == "item":
                continue
            if not line.success:
                failed += 1
                continue
            records += 1
            found.add(urldefrag(line.url).url)
            short += len(line.body) < least_body
    wrong = {
        "missing": len(expected - found),
        "not of the site": len(found - expected),
        "repeated": records - len(found),
        "failed": failed,
        "without their whole body": short,
    }
    return ", ".join(f"{count:,} {what}" for what, count in wrong.items() if count)
