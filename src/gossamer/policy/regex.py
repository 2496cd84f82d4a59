"""Filters' expressions, matched in time linear in the URL wherever they can be: by RE2. Pure."""

import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import re2

from gossamer.errors import BadInput

MAX_LENGTH = 1000
"""Characters of one expression."""

_MEMORY_BYTES = 1024 * 1024
"""Of one compiled expression: `(x{100}){100}` is short and large."""

_SET_MEMORY_BYTES = 4 * _MEMORY_BYTES
"""Of all of one filter together, the states that matching makes included."""

_PATTERN_BYTES = 5000
_INSTRUCTION_BYTES = 32
"""About what a compiled expression takes, in both forms, and each of its instructions. Measured."""

Search = Callable[[str], object]

_READ_OTHERWISE = re.compile(r"\{,\d*\}|\[:\^?[a-z]+:\]|(?<!\\)(?:\\\\)*\\[1-9]\d")
"""What both take and mean differently: `{,9}` is no repetition to RE2, `[:alpha:]` in a class is one to RE2 only, and
`\\10` is the tenth group to Python and a character to RE2."""


class Expressions:
    """Expressions that are looked for together: one pass over a URL, however many there are.

    Python's `re` syntax, matched by RE2 (https://github.com/google/re2/wiki/Syntax), which finds the same in ASCII.
    What RE2 cannot match in linear time (look-around, back-references) or reads otherwise is left to `re`, at its
    price: a person's own crawl may have it, `check_regex` tells who may not.
    """

    def __init__(self, texts: Iterable[str], kind: str) -> None:
        """Raises BadInput; `kind` says which filter it is."""
        self.texts = tuple(texts)
        self._alone: list[Search] = []
        """Of those that are searched one by one."""
        self._singly: list[Search] = []
        """What stands in for the set where that does not fit into its memory."""
        self.bytes = 0
        """About how much memory the compiled expressions take."""
        together: list[str] = []
        for text in self.texts:
            check_regex(text, kind, linear=False)
            found = _linear(text)
            if found is None:
                self._alone.append(_compiled(text, kind).search)
                self.bytes += _PATTERN_BYTES + _INSTRUCTION_BYTES * len(text)
            else:
                together.append(text)
                self._singly.append(found.search)
                self.bytes += _PATTERN_BYTES + _INSTRUCTION_BYTES * found.programsize
        self._set = _set(together) if together else None

    def find(self, url: str) -> bool:
        """Whether one of them is found in this canonical URL."""
        if self._singly:
            # The empty expression is among them, so nothing found means that the memory did not suffice.
            found = () if self._set is None else self._set.Match(url)
            if len(found) > 1 or (not found and any(search(url) for search in self._singly)):
                return True
        return any(search(url) for search in self._alone) if self._alone else False

    def first(self, url: str) -> str:
        """The text of the first that is found; empty: none is. For people: slower than `find`."""
        return next((text for text in self.texts if Expressions((text,), "").find(url)), "")


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


def _linear(text: str) -> Any:
    """What RE2 makes of it; None: it cannot, or would read it otherwise."""
    if _READ_OTHERWISE.search(text):
        return None
    try:
        return re2.compile(text, _options())
    except re2.error:
        return None


def _set(texts: Iterable[str]) -> "re2.Set | None":
    """None: together they are too large."""
    options = _options()
    options.max_mem = _SET_MEMORY_BYTES
    try:
        matcher = re2.Set.SearchSet(options)
        for text in ("", *texts):
            matcher.Add(text)
        matcher.Compile()
    except re2.error:
        return None
    return matcher


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
