"""Guard before the HTML parser, against pages on which a standard parser takes quadratic time or memory.

The HTML standard makes a parser walk its stack of open elements at most start tags, and reopen formatting elements in
every paragraph. 500 KB of `<div>` take 15 seconds that way, 30 KB of nested `<b id=…>` before `<p>`s 1.5 GB. Such
pages, and pages of many tags, are parsed without the elements that links do not need, so that nothing nests.

Safe to change: the limits below, as far as they say. Fixed: `flatten` keeps every tag that `links.py` reads and cuts no
tag in two, or links are lost; and every expression takes time proportional to the page (hence the possessive
quantifiers, `++` and `*+`, which never give a character back), or a page could stop a worker.
"""

import re

_HARMLESS_TAGS = 1000
"""A page with at most this many tags is parsed as it is: at worst half of them open elements that the other half
reopens, a quarter of a million in all. May be changed; a quarter of its square must not exceed MAX_REOPENED."""

_MAX_TAGS = 10_000
"""Beyond this many tags the stack of open elements alone may cost too much: a tenth of a second here, growing with the
square. Tuning only: more lets a page block the event loop longer, fewer flattens more pages that do no harm."""

MAX_REOPENED = 500_000
"""Formatting elements (`b`, `font` and the like) that a parser may reopen on one page. Tuning only: each takes
about 360 bytes while the page is parsed."""

MAX_TAG_BYTES = 4096
"""Longest tag. A page with a longer one is flattened, and the tag is dropped, because a parser compares all attributes
of a tag with each other. Tuning only: a link with a longer tag is lost."""

# Every formatting element begins like this (an element that is added to _FORMATTING must, too), and few others do.
# Counting these takes a third of the time that _FORMATTING takes.
_PERHAPS_FORMATTING = re.compile(rb"<[bcefinstuBCEFINSTU][\s/>imotIMOT]")
_FORMATTING = re.compile(rb"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])[^>]*", re.IGNORECASE)
_TAG_START = re.compile(rb"<[a-zA-Z/]")
_MAX_TRIES = 16
"""Number of `>` that `_has_huge_tag` tries in a stretch. Tuning only: a page with more quoted ones may count as
costly."""
_BLANKS = 32
"""Number of blanks that `_may_be_quoted` expects between `=` and a quote. Tuning only, as above."""

_ATTRIBUTES = (
    rb"""(?:[\s/]++|[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\s>"'][^\s>]*+)?+)?+)*+(?:>|\Z)"""
)
"""Attributes of a tag, to its end or that of the page."""
_RAW_TEXT = rb"(script|style|textarea|title|xmp|iframe|noembed|noframes)(?=[\s/>])"

# One comment, element of raw text, declaration, or tag. The order matters: comments and raw text come first, because
# text in them that looks like a tag is none.
TOKEN = re.compile(
    rb"<!--(?:>|->|.*?(?:--!?>|\Z))"
    rb"|<" + _RAW_TEXT + _ATTRIBUTES + rb".*?(?:</\1(?=[\s/>])" + _ATTRIBUTES + rb"|\Z)"
    rb"|<(?:[!?]|/[^a-zA-Z>])[^>]*+>?"
    rb"|</?+([a-zA-Z][^\s/>]*+)" + _ATTRIBUTES,
    re.IGNORECASE | re.DOTALL,
)

RAW_NAME, TAG_NAME = 1, 2
"""Groups of TOKEN: the name of an element of raw text, such as a script, and that of any other tag."""

_PIECE_BYTES = 128 * 1024
"""Least size of the input for a piece. Tuning only: larger pieces take memory while they are parsed, smaller ones
calls."""
_BORDER = b"\0<border>\0"
"""Separator of two pieces. A page that contains it is cut there, too, which does no harm."""

_KEPT = frozenset((b"a", b"area", b"base", b"link", b"meta"))
"""Elements that `links.py` reads. One may be added when it reads another; none may nest deeply."""


def is_costly(html: bytes) -> bool:
    """Return whether a parser might take far more time or memory than the page's size suggests: because it has many
    tags, may reopen many formatting elements, or has a huge tag.

    Cheap; in doubt True, which costs a page little."""
    tags = html.count(b"<")
    if tags > _MAX_TAGS:
        return True
    # At worst, every tag reopens all formatting elements. First the cheap upper estimate of their number.
    if tags > _HARMLESS_TAGS and len(_PERHAPS_FORMATTING.findall(html)) * tags > MAX_REOPENED:
        formatting = _FORMATTING.findall(html)
        # Of equal elements, at most three are reopened (the standard's "Noah's Ark clause").
        reopened_at_once = min(len(formatting), 3 * len(set(formatting)))
        if reopened_at_once * tags > MAX_REOPENED:
            return True
    return len(html) > MAX_TAG_BYTES and _has_huge_tag(html)


def flatten(html: bytes) -> list[bytes]:
    """Return the page's `a`, `area`, `base`, `link` and `meta` tags and its text, in pieces. Linear in its size.

    As nothing nests, each piece (made of _PIECE_BYTES or more) can be parsed by itself, so that the tree of the whole
    page, which may take forty times its size, is never in memory at once. Comments, scripts and other raw text are left
    out. The content of a `template` becomes visible, and so may the end of a script that contains `<!-- <script>` (the
    one state of the standard that is not followed here).
    """
    piece_start = 0

    def kept(match: re.Match[bytes]) -> bytes:
        """Return the replacement of a token: itself, with a border where a piece begins, or a blank."""
        nonlocal piece_start
        name = match[TAG_NAME]
        if name is None or name.lower() not in _KEPT or match.end() - match.start() > MAX_TAG_BYTES:
            return b" "
        tag = match[0]
        if match.start() - piece_start >= _PIECE_BYTES and not tag.startswith(b"</"):
            piece_start = match.start()
            return _BORDER + tag
        return tag

    return TOKEN.sub(kept, html).split(_BORDER)


def _has_huge_tag(html: bytes) -> bool:
    """Return whether a tag may be longer than MAX_TAG_BYTES. In doubt True.

    Goes from one `>` that is certainly in no quoted value, where no tag can continue, to the next. Nearly every page
    has one in each stretch of MAX_TAG_BYTES, so this takes a handful of searches.
    """
    begin, last = 0, len(html) - MAX_TAG_BYTES
    while begin < last:
        # The last such `>` in the stretch.
        stretch_end = begin + MAX_TAG_BYTES + 1
        at = html.rfind(b">", begin, stretch_end)
        tries = 0
        while at >= 0 and _may_be_quoted(html, begin, at):
            tries += 1
            at = html.rfind(b">", begin, at) if tries < _MAX_TRIES else -1
        if at < 0:
            # None was found: the first one after the stretch. A tag that begins far enough before it may be huge.
            at = _first_certain_end(html, begin, stretch_end)
            if at < 0 or _TAG_START.search(html, begin, at - MAX_TAG_BYTES + 1) is not None:
                return True
        begin = at + 1
    return False


def _first_certain_end(html: bytes, begin: int, start: int) -> int:
    """Return the position of the first `>` from `start` on that is certainly in no quoted value of a tag that starts at
    `begin` or later; the length of the page if there is none; -1 after _MAX_TRIES."""
    at = html.find(b">", start)
    tries = 0
    while at >= 0 and _may_be_quoted(html, begin, at):
        tries += 1
        if tries == _MAX_TRIES:
            return -1
        at = html.find(b">", at + 1)
    return at if at >= 0 else len(html)


def _may_be_quoted(html: bytes, begin: int, at: int) -> bool:
    """Return whether position `at` may be in a quoted value of a tag that starts at `begin` or later.

    It is not if neither the last `"` nor the last `'` before it follows a `=`, as the one that opens a value does.
    """
    for quote in (b'"', b"'"):
        quote_at = html.rfind(quote, begin, at)
        if quote_at >= 0:
            before = html[max(begin, quote_at - _BLANKS) : quote_at].rstrip()
            if before.endswith(b"=") or (not before and quote_at - begin > _BLANKS):
                return True
    return False
