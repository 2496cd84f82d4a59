"""Filters' expressions, matched in time linear in the URL wherever they can be: by RE2. Pure."""

import re
import warnings
from collections.abc import Callable

import re2

from gossamer.errors import BadInput

MAX_LENGTH = 1000
"""Characters of one expression."""

_MEMORY_BYTES = 1024 * 1024
"""Of one compiled expression: `(x{100}){100}` is short and large."""

_READ_OTHERWISE = re.compile(r"\{,\d*\}|\[:\^?[a-z]+:\]|(?<!\\)(?:\\\\)*\\[1-9]\d")
"""What both take and mean differently: `{,9}` is no repetition to RE2, `[:alpha:]` in a class is one to RE2 only, and
`\\10` is the tenth group to Python and a character to RE2."""


def searcher(text: str, kind: str) -> Callable[[str], object]:
    """What says of a canonical URL (ASCII) whether the expression is found in it: a match, or None.

    Python's `re` syntax, matched by RE2 (https://github.com/google/re2/wiki/Syntax), which finds the same in ASCII.
    What RE2 cannot match in linear time (look-around, back-references) or reads otherwise is left to `re`, at its
    price: a person's own crawl may have it, `check_regex` tells who may not. Raises BadInput; `kind` says which filter
    it is.
    """
    check_regex(text, kind, linear=False)
    if _READ_OTHERWISE.search(text):
        return _compiled(text, kind).search
    try:
        found: Callable[[str], object] = re2.compile(text, _options()).search
    except re2.error:
        return _compiled(text, kind).search
    return found


def check_regex(text: str, kind: str, *, linear: bool) -> None:
    """Raises BadInput for what is no expression, is too long, or (`linear`) may take exponential time."""
    if len(text) > MAX_LENGTH:
        raise BadInput(f"{kind} expression of {len(text)} characters; at most {MAX_LENGTH} are taken")
    _compiled(text, kind)
    if linear:
        if odd := _READ_OTHERWISE.search(text):
            raise BadInput(
                f"{kind} expression {text!r:.200}: {odd[0]} means different things to different matchers; "
                "write {0,9} for {,9}, [a-z] for [:lower:], and no back-references"
            )
        try:
            re2.compile(text, _options())
        except re2.error as fault:
            reason = fault.args[0].decode() if isinstance(fault.args[0], bytes) else str(fault)
            raise BadInput(
                f"{kind} expression {text!r:.200}: {reason}; only what RE2 can match in linear time is taken "
                "(no look-around, no back-references)"
            ) from None


def _compiled(text: str, kind: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            # What `re` may read otherwise one day is no fault of the crawl's.
            warnings.simplefilter("ignore")
            return re.compile(text)
    except re.error as fault:
        raise BadInput(f"{kind} expression {text!r}: {fault}") from None
    except (RecursionError, OverflowError):
        raise BadInput(f"{kind} expression {text!r} is too deep or counts too far") from None


def _options() -> "re2.Options":
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    return options
