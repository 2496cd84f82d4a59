"""Title, author, date and language of a page, from what it declares: JSON-LD, OpenGraph, meta elements and headings.

It replaces trafilatura's metadata, which takes twice the time of the text itself. Never raises, whatever the page has.
Dates that are not certain (`04/03/2026`) must be left out.
"""

import json
import re
from collections.abc import Iterator
from datetime import date, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from lxml.etree import _Element

# Names of meta elements in lower case, the best first.
_TITLES = ("og:title", "twitter:title", "citation_title", "dc.title", "dcterms.title")
_AUTHORS = ("author", "article:author", "citation_author", "dc.creator", "dcterms.creator", "parsely-author", "byl")
_DATES = (
    "article:published_time", "datepublished", "date", "pubdate", "publishdate", "publish_date", "citation_date",
    "citation_publication_date", "dc.date", "dc.date.issued", "dcterms.date", "dcterms.created", "dcterms.issued",
    "parsely-pub-date", "article:modified_time", "og:updated_time", "last-modified", "dcterms.modified",
)  # fmt: skip

# Limits of the JSON-LD that is read. More takes longer on large pages.
_MAX_SCRIPT_CHARACTERS = 512 * 1024
_MAX_OBJECTS = 1000
_MAX_DEPTH = 20
_MAX_LISTED_AUTHORS = 20

# Limits of what is read of the page itself.
_MAX_CHARACTERS = 500
"""Longest title or author."""
_MAX_AUTHORS = 5
"""Authors that are taken from elements of the page."""
_MAX_DATES = 50
"""Texts in which a date is looked for."""
_MAX_DATE_CHARACTERS = 100
"""Beginning of such a text that is looked at."""
_FIRST_YEAR = 1990
"""Earlier dates, and those after next year, count as mistakes."""
_MIN_TITLE_CHARACTERS = 4
"""Shortest title before a separator; a shorter one is kept with the name of the site."""
_SEPARATOR = " | "
"""Separator of the title of a page and the name of its site. Dashes and colons are not: titles have them, too."""

_MONTHS = {
    name: number
    for number, names in enumerate(
        ("jan january", "feb february", "mar march", "apr april", "may", "jun june", "jul july", "aug august",
         "sep sept september", "oct october", "nov november", "dec december"), 1
    )
    for name in names.split()
}  # fmt: skip
# Dates as numbers, `March 4, 2026`, `4 March 2026`, and `/2026/03/04/` in a URL.
_ISO = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})(?!\d)|\b(\d{4})(\d{2})(\d{2})\b|\b(\d{4})/(\d{1,2})/(\d{1,2})\b")
_MONTH_FIRST = re.compile(r"\b([A-Za-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})\b")
_DAY_FIRST = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)? ([A-Za-z]{3,9})\.?,? (\d{4})\b")
_URL_DATE = re.compile(r"/(\d{4})/(\d{2})/(\d{2})(?=[/-])")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8}){0,3}")
_SPACES = re.compile(r"\s+")


class DeclaredFacts(NamedTuple):
    """Facts as in `model.content.PageContent`. Empty: not found."""

    title: str
    author: str
    date: str
    language: str


def read_facts(tree: _Element, url: str) -> DeclaredFacts:
    """Return what a page tells about itself. `tree`: from lxml's HTML parser, not changed."""
    metas = _metas(tree)
    linked = list(_linked_data(tree))
    return DeclaredFacts(
        _title(tree, metas, linked)[:_MAX_CHARACTERS],
        _author(tree, metas, linked)[:_MAX_CHARACTERS],
        _date(tree, metas, linked, url),
        _language(tree, metas),
    )


def _metas(tree: _Element) -> dict[str, list[str]]:
    """Return the contents of meta elements by name in lower case."""
    found: dict[str, list[str]] = {}
    for meta in tree.iter("meta"):
        name = meta.get("property") or meta.get("name") or meta.get("itemprop") or meta.get("http-equiv")
        content = _clean(meta.get("content"))
        if name and content:
            found.setdefault(name.strip().lower(), []).append(content)
    return found


def _title(tree: _Element, metas: dict[str, list[str]], linked: list[dict[str, Any]]) -> str:
    """Return the title: of meta elements, else of JSON-LD, else the only heading of the first level if the title of the
    document begins or ends with it, else the title of the document without the name of the site."""
    for name in _TITLES:
        if name in metas:
            return metas[name][0]
    for thing in linked:
        if isinstance(headline := thing.get("headline"), str) and (headline := _clean(headline)):
            return headline
    headings = [_text_of(heading) for heading in tree.iter("h1")]
    heading = headings[0].rstrip("¶#§ ") if len(headings) == 1 else ""
    # `iter` would also find the titles of SVG images.
    title = next((_text_of(found) for found in tree.iterfind("head/title")), "")
    if heading and (not title or title.startswith(heading) or title.endswith(heading)):
        return heading
    before, found, _ = title.partition(_SEPARATOR)
    if found and len(before) >= _MIN_TITLE_CHARACTERS:
        return before.strip()
    return title or (headings[0] if headings else "")


def _author(tree: _Element, metas: dict[str, list[str]], linked: list[dict[str, Any]]) -> str:
    """Return the names of the authors: of the first meta element that has any, else of JSON-LD, else of elements that
    are marked as author."""
    names: list[str] = []
    for name in _AUTHORS:
        names = [value for value in metas.get(name, ()) if not value.startswith(("http://", "https://", "@"))]
        if names:
            break
    for thing in linked:
        if names:
            break
        names = list(_person_names(thing.get("author")))
    if not names:
        names = [_text_of(link) for link in tree.iter("a", "span") if _is_author(link)][:_MAX_AUTHORS]
    return "; ".join(dict.fromkeys(name for name in map(_clean, names) if name))


def _is_author(element: _Element) -> bool:
    words = f"{element.get('rel') or ''} {element.get('itemprop') or ''}".lower().split()
    return "author" in words


def _person_names(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the names in an author of JSON-LD: a text, an object with a name, or a list of them."""
    if isinstance(value, str):
        if not value.startswith(("http://", "https://")):
            yield value
    elif isinstance(value, dict) and depth < _MAX_DEPTH:
        yield from _person_names(value.get("name"), depth + 1)
    elif isinstance(value, list) and depth < _MAX_DEPTH:
        for one in value[:_MAX_LISTED_AUTHORS]:
            yield from _person_names(one, depth + 1)


def _date(tree: _Element, metas: dict[str, list[str]], linked: list[dict[str, Any]], url: str) -> str:
    """Return the first valid date: of publication, else of the last change, else of a `time` element, else in the
    URL."""
    candidates: list[str] = [thing["datePublished"] for thing in linked if "datePublished" in thing]
    for name in _DATES:
        candidates += metas.get(name, ())
    candidates += [thing["dateModified"] for thing in linked if "dateModified" in thing]
    for time in tree.iter("time"):
        candidates += [time.get("datetime") or "", _text_of(time)]
    for candidate in candidates[:_MAX_DATES]:
        if found := as_date(candidate):
            return found
    match = _URL_DATE.search(url)
    return _valid(*match.groups()) if match else ""


def as_date(text: object) -> str:
    """Return the date in a text as YYYY-MM-DD. Empty: there is none, or its order is uncertain."""
    if not isinstance(text, str):
        return ""
    text = text.strip()[:_MAX_DATE_CHARACTERS]
    if match := _ISO.search(text):
        year, month, day = (part for part in match.groups() if part is not None)
        return _valid(year, month, day)
    if match := _MONTH_FIRST.search(text):
        month, day, year = match.groups()
        return _valid(year, str(_MONTHS.get(month.lower(), 0)), day)
    if match := _DAY_FIRST.search(text):
        day, month, year = match.groups()
        return _valid(year, str(_MONTHS.get(month.lower(), 0)), day)
    try:
        return parsedate_to_datetime(text).date().isoformat()
    except (TypeError, ValueError, IndexError, OverflowError):
        return ""


def _valid(year: str, month: str, day: str) -> str:
    """Return the date as YYYY-MM-DD; empty if there is no such day, or it is not plausible."""
    try:
        found = date(int(year), int(month), int(day))
    except ValueError:
        return ""
    return found.isoformat() if _FIRST_YEAR <= found.year <= datetime.now().year + 1 else ""


def _language(tree: _Element, metas: dict[str, list[str]]) -> str:
    """Return the language tag that the page declares: of its root, else of its body, else of meta elements."""
    candidates = [tree.get("lang"), tree.get("{http://www.w3.org/XML/1998/namespace}lang"), tree.get("xml:lang")]
    body = tree.find("body")
    candidates.append(body.get("lang") if body is not None else None)
    for name in ("content-language", "language", "dc.language", "og:locale", "inlanguage"):
        candidates += metas.get(name, [])[:1]
    for candidate in candidates:
        if candidate and _LANGUAGE.fullmatch(candidate.strip()):
            return candidate.strip().replace("_", "-")
    return ""


def _linked_data(tree: _Element) -> Iterator[dict[str, Any]]:
    """Yield the objects of the page's JSON-LD in the page's order, an outer one before those in it."""
    left = _MAX_OBJECTS
    for script in tree.iter("script"):
        if not (script.get("type") or "").strip().lower().startswith("application/ld+json"):
            continue
        text = script.text or ""
        if len(text) > _MAX_SCRIPT_CHARACTERS:
            continue
        try:
            value = json.loads(text.strip().removesuffix(";"), strict=False)
        except (ValueError, RecursionError):
            continue
        waiting = [(value, 0)]  # values and their levels; the next one is the last
        while waiting and left:
            thing, depth = waiting.pop()
            if depth > _MAX_DEPTH:
                continue
            if isinstance(thing, list):
                waiting += [(one, depth + 1) for one in reversed(thing[:_MAX_OBJECTS])]
            elif isinstance(thing, dict):
                left -= 1
                yield thing
                waiting += [(thing[name], depth + 1) for name in ("mainEntity", "@graph") if name in thing]


def _text_of(element: _Element) -> str:
    """Return the text of an element on one line."""
    return _clean("".join(map(str, element.itertext())))


def _clean(text: str | None) -> str:
    """Return a text with single spaces, cut where it is far too long for a title."""
    return _SPACES.sub(" ", text[: 4 * _MAX_CHARACTERS]).strip() if text else ""
