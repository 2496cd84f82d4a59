"""Guard before the HTML parser, against pages on which a standard parser takes quadratic time or memory.

The HTML standard makes a parser walk its stack of open elements at most start tags, and reopen formatting elements in
every paragraph. 500 KB of `<div>` take 15 seconds that way, 30 KB of nested `<b id=…>` before `<p>`s 1.5 GB. Such
pages, and very large ones, are parsed without the elements that links do not need, so that nothing nests.
"""

import re

_HARMLESS_TAGS = 1000
"""A page with at most this many tags is parsed as it is: at worst a quarter of a million nodes."""

_MAX_TAGS = 10_000
"""Beyond this many tags the stack of open elements alone may cost too much: a tenth of a second here, growing with the
square."""

_MAX_REOPENED = 500_000
"""Formatting elements that a parser may reopen, at about 360 bytes each."""

_MAX_TAG_BYTES = 4096
"""Attributes are compared with each other, so a tag that is longer than this loses them all."""

# Every formatting element begins like this, and few other elements. Counting these costs a third.
_PERHAPS_FORMATTING = re.compile(rb"<[bcefinstuBCEFINSTU][\s/>imotIMOT]")
_FORMATTING = re.compile(rb"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])[^>]*", re.IGNORECASE)
_TAG_START = re.compile(rb"<[a-zA-Z/]")

# Possessive throughout, so that matching never backtracks.
_ATTRIBUTES = (
    rb"""(?:[\s/]++|[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\s>"'][^\s>]*+)?+)?+)*+(?:>|\Z)"""
)
_RAW_TEXT = rb"(script|style|textarea|title|xmp|iframe|noembed|noframes)(?=[\s/>])"

# Comments and raw text come first, because text in them that looks like a tag is none.
_TOKEN = re.compile(
    rb"<!--(?:>|->|.*?(?:--!?>|\Z))"
    rb"|<" + _RAW_TEXT + _ATTRIBUTES + rb".*?(?:</\1(?=[\s/>])" + _ATTRIBUTES + rb"|\Z)"
    rb"|<(?:[!?]|/[^a-zA-Z>])[^>]*+>?"
    rb"|</?+([a-zA-Z][^\s/>]*+)" + _ATTRIBUTES,
    re.IGNORECASE | re.DOTALL,
)

_PIECE_BYTES = 128 * 1024
_BORDER = b"\0<border>\0"
"""Separator of two pieces. A page that contains it is cut there, too, which does no harm."""

_KEPT = frozenset((b"a", b"area", b"base", b"link", b"meta"))


def is_costly(html: bytes) -> bool:
    """Return whether a parser might take far more than the page's size suggests. Cheap, and errs on the safe side."""
    tags = html.count(b"<")
    if tags > _MAX_TAGS:
        return True
    if tags > _HARMLESS_TAGS and len(_PERHAPS_FORMATTING.findall(html)) * tags > _MAX_REOPENED:
        # Each distinct element is reopened up to three times (the standard's "Noah's Ark clause").
        formatting = _FORMATTING.findall(html)
        if (
            len(formatting) * tags > _MAX_REOPENED
            and min(len(formatting), 3 * len(set(formatting))) * tags > _MAX_REOPENED
        ):
            return True
    return len(html) > _MAX_TAG_BYTES and _has_huge_tag(html)


def flatten(html: bytes) -> list[bytes]:
    """Return the page's `a`, `area`, `base`, `link` and `meta` tags and its text, in pieces. Linear in its size.

    As nothing nests, each piece of 128 KiB or more can be parsed by itself, so that the tree of the whole page, which
    may take forty times its size, is never in memory at once. Comments, scripts and other raw text are left out. The
    content of a `template` becomes visible, and so may the end of a script that contains `<!-- <script>` (the one state
    of the standard that is not followed here).
    """
    begun = 0

    def kept(match: re.Match[bytes]) -> bytes:
        nonlocal begun
        name = match[2]
        if name is None or name.lower() not in _KEPT or match.end() - match.start() > _MAX_TAG_BYTES:
            return b" "
        tag = match[0]
        if match.start() - begun >= _PIECE_BYTES and not tag.startswith(b"</"):
            begun = match.start()
            return _BORDER + tag
        return tag

    return _TOKEN.sub(kept, html).split(_BORDER)


def _has_huge_tag(html: bytes) -> bool:
    # Nearly every page has a `>` in each stretch of this length, so this takes a handful of searches.
    at, last = 0, len(html) - _MAX_TAG_BYTES
    while at < last:
        at = html.rfind(b">", at, at + _MAX_TAG_BYTES + 1) + 1
        if not at:
            break
    else:
        return False
    for piece in html.split(b">"):
        if len(piece) > _MAX_TAG_BYTES:
            start = _TAG_START.search(piece)
            if start is not None and len(piece) - start.start() > _MAX_TAG_BYTES:
                return True
    return False
