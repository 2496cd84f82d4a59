"""Values of fields: from what a selector finds on a page to text, numbers, prices, dates and URLs.

Every function returns None for a text that has no such value, and never raises for the content of a page. Prices and
dates are read by optional packages, which `converter` needs when it is called, before the crawl.

Fixed: what a given text becomes, because a crawl that runs again is compared with the earlier one; so no value depends
on the time or on the machine.
"""

import math
import re
import warnings
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Protocol
from urllib.parse import quote

from gossamer.errors import BadInput, BadUrl
from gossamer.extras import install_advice
from gossamer.model.extraction import FieldType
from gossamer.policy.urls import join

_READ_CHARACTERS = 500
"""Beginning of a text in which a number or price is looked for. A longer text is no price."""
_DATE_CHARACTERS = 100
"""Longest text that is read as a date. The parser of dates takes time that grows with it."""
_SHORTEST_ISO = len("20260401")
"""Shorter texts are no date in ISO 8601 with a day."""
_SHORTEST_DATE = len("1.4.")
"""Shorter texts are not given to the parser of dates in words."""
_LARGEST_INTEGER = 2**63 - 1
"""Larger integers become floating-point numbers, because outputs have 64 bits for them."""


class LinkBase(Protocol):
    """Page on which a value was found."""

    @property
    def base(self) -> str:
        """URL that relative links are resolved against."""


Converter = Callable[[Any, LinkBase], Any]
"""Returns the value of what was found (a text, or a scalar of JSON-LD) on a page; None: it has no value."""


def converter(kind: FieldType, argument: str) -> Converter:
    """Return the function that makes values of a type. Raises BadInput for an argument that is not valid, and if the
    type needs a package that is not installed."""
    match kind:
        case FieldType.TEXT | FieldType.HTML:
            return (
                _text_converter(argument) if kind is FieldType.TEXT else lambda found, _page: clean(str(found)) or None
            )
        case FieldType.NUMBER:
            mark = argument or "."
            return lambda found, _page: read_number(found, mark)
        case FieldType.PRICE | FieldType.CURRENCY:
            return _price_converter(kind, argument or None)
        case FieldType.DATE:
            return _date_converter(argument)
        case FieldType.URL:
            return absolute_url
        case _:
            raise BadInput(f"the type {kind} is no type of a single value")


# --- text -------------------------------------------------------------------------------------------------------------

_CASES: dict[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper, "title": str.title}
"""Arguments of the type text."""


def _text_converter(argument: str) -> Converter:
    """Return the converter of texts, in the case that the argument names. Raises BadInput."""
    if not argument:
        return lambda found, _page: read_text(found)
    change = _CASES.get(argument)
    if change is None:
        raise BadInput(f"text:{argument} is unknown; write one of {', '.join(f'text:{name}' for name in _CASES)}")
    return lambda found, _page: None if (text := read_text(found)) is None else change(text)


def read_text(found: object) -> str | None:
    """Return a text without surplus white space."""
    if isinstance(found, bool):
        found = "true" if found else "false"  # as JSON-LD writes it
    elif not isinstance(found, str):
        found = str(found)
    return " ".join(clean(found).split()) or None


def clean(text: str) -> str:
    """Return the text without lone surrogates, which JSON can produce and no output can hold."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def absolute_url(found: object, page: LinkBase) -> str | None:
    """Return the http or https URL of a link on a page, with its fragment. None for other schemes."""
    href = clean(str(found)).strip()
    if not href:
        return None
    try:
        url = join(page.base, href)
    except BadUrl:
        return None
    fragment = href.partition("#")[2]
    return f"{url}#{quote(fragment, safe=_FRAGMENT_CHARACTERS)}" if fragment else url


_FRAGMENT_CHARACTERS = "%!$&'()*+,;=:@/?~-._"  # RFC 3986, section 3.5


# --- numbers ----------------------------------------------------------------------------------------------------------

_THIN = "\u00a0\u202f\u2009"
"""Blanks that only stand inside of numbers: no-break, narrow no-break and thin space."""
_NUMBER = re.compile(
    rf"""
    (?<![\w.,])(?P<sign>[-−+]?)                              # `A4`, `3-5`: no sign, and no number within a word
    (?P<number>
        \d{{1,3}}+(?:[{_THIN}'’]\d{{3}}+)++(?:[.,]\d++)?+     # 1'234.5
        |\d{{1,3}}+(?:[ ]\d{{3}})++(?=[.,]\d\d?\b)[.,]\d\d?   # 1 234,50
        |\d++(?:[.,]\d++)*+
        |[.,]\d++
    )
    """,
    re.VERBOSE,
)


def read_number(found: object, mark: str = ".") -> int | float | None:
    """Return the first number of a text.

    `mark`: the decimal mark, `.` or `,`. It decides only where the number leaves it open: `1,234` is 1234 with `.`, and
    1.234 with `,`. In `1.234,5` the last mark is the decimal one; in `1.234.567` no mark is."""
    if isinstance(found, bool):
        return None
    if isinstance(found, int | float):
        return _in_range(found)
    for match in _NUMBER.finditer(str(found)[:_READ_CHARACTERS]):
        value = _number(match["number"], mark)
        if value is not None:
            return -value if match["sign"] in ("-", "−") else value
    return None


def _number(text: str, mark: str) -> int | float | None:
    """Return the value of digits with separators. None: they are no number, as in `22.11.2026`."""
    marked = re.sub(rf"[{_THIN}'’ ]", "", text)  # without blanks and quotes, which only group digits
    points, commas = marked.count("."), marked.count(",")
    decimal = ""  # the decimal mark of this number; empty: it has none
    if points and commas:
        decimal = "." if marked.rfind(".") > marked.rfind(",") else ","
        if marked.count(decimal) > 1:
            return None
    elif points + commas == 1:
        used = "." if points else ","
        whole, _, fraction = marked.partition(used)
        # `1,234` might be a group of thousands; `0,234`, `1234,567` and `1 234,567` cannot.
        may_group = len(fraction) == 3 and 1 <= len(whole) <= 3 and not whole.startswith("0") and marked == text
        decimal = "" if may_group and used != mark else used
    whole, _, fraction = marked.partition(decimal) if decimal else (marked, "", "")
    groups = re.split(r"[.,]", whole)
    if len(groups) > 1 and not _groups_digits([len(group) for group in groups], is_comma=decimal == "." or not points):
        return None
    digits = "".join(groups)
    if fraction:
        return _in_range(float(f"{digits or '0'}.{fraction}"))
    return _in_range(int(digits)) if digits else None


def _groups_digits(lengths: list[int], *, is_comma: bool) -> bool:
    """Return whether groups of digits of these lengths make one number: `12,345,678`, or as in India `1,23,45,678`,
    which is written with commas only."""
    if lengths[-1] != 3:
        return False
    inner = set(lengths[1:-1])
    return (lengths[0] <= 3 and inner <= {3}) or (is_comma and lengths[0] <= 2 and inner == {2})


def _in_range(value: int | float) -> int | float | None:
    """Return a number that outputs can hold; None: it is not finite."""
    if isinstance(value, int):
        if abs(value) <= _LARGEST_INTEGER:
            return value
        try:
            value = float(value)
        except OverflowError:
            return None
    return value if math.isfinite(value) else None


def _price_converter(kind: FieldType, mark: str | None) -> Converter:
    """Return the converter of the type PRICE or CURRENCY. `mark`: the decimal mark; None: price-parser decides. Raises
    BadInput."""
    try:
        from price_parser.parser import Price
    except ImportError:
        raise BadInput(f"the type {kind} needs price-parser: {install_advice('prices')}") from None

    def price(found: object, _page: LinkBase) -> Any:
        if isinstance(found, int | float) and not isinstance(found, bool):
            return _in_range(found) if kind is FieldType.PRICE else None
        text = " ".join(str(found)[:_READ_CHARACTERS].split())
        try:
            parsed = Price.fromstring(text, decimal_separator=mark)
        except (ValueError, ArithmeticError):
            return None
        if kind is FieldType.CURRENCY:
            return clean(parsed.currency) if parsed.currency else None
        return None if parsed.amount is None else _in_range(float(parsed.amount))

    return price


# --- dates ------------------------------------------------------------------------------------------------------------


def _date_converter(argument: str) -> Converter:
    """Return the converter for ISO 8601 and, beyond it, for a format or for languages. Raises BadInput."""
    if "%" in argument:
        _check_format(argument)
        return lambda found, _page: _iso(str(found)) or _formatted(str(found), argument)
    languages = [language.strip() for language in argument.split(",") if language.strip()]
    if not languages:
        return lambda found, _page: _iso(str(found))
    parse = _date_parser(languages)
    return lambda found, _page: _iso(str(found)) or parse(str(found))


def _iso(text: str) -> str | None:
    """Return a date or time that is in ISO 8601 already."""
    text = text.strip()
    if not _SHORTEST_ISO <= len(text) <= _DATE_CHARACTERS or not text[0].isdigit():
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).isoformat()
    except ValueError:
        return None


def _formatted(text: str, pattern: str) -> str | None:
    """Return a date or time that is written in a format of `strptime`, in ISO 8601."""
    try:
        return _without_midnight(datetime.strptime(" ".join(text.split())[:_DATE_CHARACTERS], pattern), pattern)
    except ValueError:
        return None


_ANY_TIME = datetime(2031, 11, 23, 21, 45, 56)
"""A time whose year, month and day differ from those that `strptime` takes where a format has none. May be another."""


def _check_format(pattern: str) -> None:
    """Raise BadInput for a format of `strptime` that is not valid, or that reads no complete date."""
    text = _ANY_TIME.strftime(pattern)
    try:
        with warnings.catch_warnings():  # from Python 3.13 on, a format without a year is one that warns
            warnings.simplefilter("ignore", DeprecationWarning)
            is_complete = datetime.strptime(text, pattern).date() == _ANY_TIME.date()
    except (ValueError, re.error) as fault:  # re.error: a part that stands twice
        raise BadInput(f"the format {pattern!r} of the type date is not valid: {fault}") from None
    if not is_complete:
        raise BadInput(
            f"the format {pattern!r} of the type date lacks the year, the month or the day; %d.%m.%Y has all of them"
        )


def _without_midnight(moment: datetime, source: str) -> str:
    """Return the date alone if `source` (a text, or a format) has no time of day."""
    has_time = any(part in source for part in (":", "%H", "%I", "%c", "%X", "%s", "%T"))
    return moment.isoformat() if has_time or moment.time() != datetime.min.time() else moment.date().isoformat()


def _date_parser(languages: list[str]) -> Callable[[str], str | None]:
    """Return a parser of dates in words. Relative ones (`yesterday`) and incomplete ones (`March 2026`) have no value,
    because it would depend on the day of the crawl. Raises BadInput."""
    try:
        from dateparser.date import DateDataParser
    except ImportError:
        raise BadInput(f"dates in words need dateparser: {install_advice('dates')}") from None
    regions = [language for language in languages if "-" in language]
    settings = {"PARSERS": ["absolute-time"], "REQUIRE_PARTS": ["day", "month", "year"]}
    try:
        parser = DateDataParser(
            languages=None if regions else languages,
            locales=regions + [language for language in languages if "-" not in language] if regions else None,
            settings=settings,
        )
        parser.get_date_data("1 January 2030")  # loads the languages, or fails
    except (ValueError, TypeError) as fault:
        raise BadInput(f"the type date: {fault}") from None

    def parse(text: str) -> str | None:
        text = " ".join(text.split())
        if not _SHORTEST_DATE <= len(text) <= _DATE_CHARACTERS or not any(character.isdigit() for character in text):
            return None
        try:
            moment = parser.get_date_data(text).date_obj
        except Exception:  # a fault of the library for an odd text
            return None
        return None if moment is None else _without_midnight(moment, text)

    return parse
