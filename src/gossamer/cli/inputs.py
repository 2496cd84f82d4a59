"""From what stands on the command line to values; every fault is one line."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gossamer.cli import standard
from gossamer.errors import BadInput
from gossamer.fetch.resolve import parse_override
from gossamer.sinks.open import check_outputs
from gossamer.wiring.checks import MOST_NESTED, check_attrs

SEEDS_BYTES = 256 * 1024 * 1024
"""Of a seed file."""


def pairs(texts: Iterable[str] | None) -> dict[str, str] | None:
    """`K:V` of --header. None for none."""
    if not texts:
        return None
    found: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise BadInput(f"{text!r} is no header; write NAME:VALUE")
        found[name.strip()] = value.strip()
    return found


def overrides(texts: Iterable[str] | None) -> dict[str, str] | None:
    """`HOST:ADDRESS` of --resolve. None for none."""
    return dict(map(parse_override, texts)) if texts else None


def attrs(text: str | None) -> dict[str, Any] | None:
    """The JSON object of --attrs. None for none."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except RecursionError:
        raise BadInput(f"--attrs is nested more than {MOST_NESTED} levels deep; make it flatter") from None
    except ValueError as error:
        raise BadInput(f"--attrs is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(f'--attrs must be a JSON object like {{"name": "value"}}, not {text!r:.80}')
    check_attrs(value)
    return value


def outputs(paths: Sequence[str]) -> None:
    """Whether pages can be written there. Raises BadInput."""
    if "-" in paths and 1 in standard.missing:
        raise BadInput("the output - is standard output, which is closed; name a file")
    check_outputs(paths)


def seed_lines(source: str) -> list[str]:
    """The URLs of a local file or of standard input (`-`), one a line; empty lines and those with # are skipped."""
    if source == "-":
        return _lines(sys.stdin.buffer.read(SEEDS_BYTES + 1), "standard input")
    path = Path(source)
    try:
        with path.open("rb") as file:
            return _lines(file.read(SEEDS_BYTES + 1), source)
    except OSError as error:
        raise BadInput(f"the seeds {source} cannot be read: {error.strerror}") from None


def seed_text(body: bytes, source: str) -> list[str]:
    """The URLs of a fetched seed list."""
    return _lines(body, source)


def _lines(content: bytes, source: str) -> list[str]:
    if len(content) > SEEDS_BYTES:
        raise BadInput(f"the seeds {source} are longer than {SEEDS_BYTES // 2**20} MiB")
    lines = content.decode("utf-8-sig", "replace").splitlines()
    urls = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not urls:
        raise BadInput(f"the seeds {source} name no URL")
    return urls
