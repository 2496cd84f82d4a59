"""The web platform tests' vectors for URLs, where they are kept: $GOSSAMER_WHATWG_DATA, or `shared/data` beside the
repository. They are no part of the project; the tests that need them are skipped without."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

_FOLDER = Path(os.environ.get("GOSSAMER_WHATWG_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
_NAMES = ("urltestdata.json", "toascii.json")


def require_vectors() -> None:
    """Skip the calling test module where a file is missing: one line in the summary says so."""
    if missing := [name for name in _NAMES if not (_FOLDER / name).exists()]:
        pytest.skip(
            f"the URL standard's vectors are not tested: {' and '.join(missing)} (web platform tests) are missing; "
            "set GOSSAMER_WHATWG_DATA to the folder that holds them",
            allow_module_level=True,
        )


def vectors(name: str) -> list[dict[str, str]]:
    """Return the cases of a file, in its order, without its comments."""
    return [case for case in json.loads((_FOLDER / name).read_text("utf-8")) if isinstance(case, dict)]


@dataclass(frozen=True)
class UrlCase:
    """An input, alone or relative to a base, and what it means by the URL standard."""

    input: str
    base: str | None
    href: str | None
    """As serialised; None: it means nothing."""
    host: str
    """With the port, where it is not the scheme's own."""
    target: str
    """Path and query."""


def url_cases() -> list[UrlCase]:
    """All of urltestdata.json that has an http or https URL, or no base that is none, in it or as its result."""
    cases = []
    for case in vectors("urltestdata.json"):
        base, href = case.get("base"), case.get("href")
        web_base = base is None or base == "about:blank" or base.startswith(("http:", "https:"))
        if not web_base and not (href or "").startswith(("http:", "https:")):
            continue  # no page of ours has such a base
        relative = base if base is not None and base.startswith(("http:", "https:")) else None
        target = ""
        if href is not None:
            # Made of the serialised URL: `search` does not tell no query from an empty one.
            rest = href.partition("#")[0].partition("://")[2]
            target = rest[rest.find("/") :] if "/" in rest else ""
        cases.append(UrlCase(case["input"], relative, href, case.get("host", ""), target))
    return cases
