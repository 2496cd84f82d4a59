"""Checks the steps of rendered pages, and selectors for a browser, where they enter: long before a browser gets them.

Selectors are those of fields (`extract/selectors.py`), as far as browsers have them: without `::text`, `::attr()` and
what only lexbor knows.
"""

import re
from collections.abc import Iterable

from gossamer.errors import BadInput
from gossamer.extract.selectors import ITSELF, compile_css
from gossamer.model.rendering import MOST_STEPS, RenderStep, parse_step

_STRING = re.compile(r"""\\.|"[^"]*"|'[^']*'""")
_NO_BROWSER_HAS = re.compile(
    r":(?:lexbor-[\w-]*|contains|(?:blank|current)\b)|\|\||#[0-9]|[\w-]\|(?!=)|=[^\]]*[\s\"]s\s*\]", re.IGNORECASE
)
"""Parts of selectors that the library of the house may accept, and browsers do not: its own pseudo-classes and those
that no browser has, columns of tables, names that begin with a digit, prefixes of namespaces, and the flag `s` of an
attribute."""


def check_browser_selector(text: str) -> None:
    """Raise BadInput for a selector that does not parse, or that a browser does not have."""
    if found := _NO_BROWSER_HAS.search(_STRING.sub('""', text)):
        raise BadInput(f"{text!r:.100} has {found[0]}, which browsers do not have. Write another selector.")
    selector = compile_css(text)
    if text.strip() == ITSELF or selector.takes_text or selector.attribute is not None:
        raise BadInput(f"{text!r:.100} does not select an element for a browser. Write it without ::text and ::attr().")


def read_steps(texts: Iterable[str], *, page_seconds: float, limit: str) -> tuple[RenderStep, ...]:
    """Return the steps that a person has written. `page_seconds`: time in which a page is built; `limit`: the name of
    what sets it. Raises BadInput for what is no step, a selector that does not parse, and waits that are too long."""
    steps = tuple(map(parse_step, texts))
    if len(steps) > MOST_STEPS:
        raise BadInput(f"{len(steps)} steps; at most {MOST_STEPS} are taken.")
    for step in steps:
        if step.selector:
            check_browser_selector(step.selector)
    longest = max(
        sum(step.seconds for step in steps if not step.selector), max((step.seconds for step in steps), default=0.0)
    )
    if longest >= page_seconds:
        raise BadInput(f"the steps wait {longest:g} s, but a page has only {page_seconds:g} s. Increase {limit}.")
    return steps
