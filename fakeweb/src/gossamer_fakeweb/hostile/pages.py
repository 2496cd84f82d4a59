"""Pages that are costly to read: too many links, too deep, in no charset or in several.

Cases may be added freely. Lower numbers prove less, because simple parsers survive them. The names are fixed, and the
texts beside them are only for people.
"""

import random
from collections.abc import Callable
from functools import cache

from gossamer_fakeweb.hostile.case import Case, Cases, always, page

_BYTES = 2_000_000
"""Size of most pages: about what a browser still parses. Must stay below the largest body that crawlers accept, or
they would not parse it."""
_NOFOLLOW = b"<meta name=robots content=nofollow>"
"""Asks the crawler to follow no link, so that a case tests the extraction of links only."""


def _filled(
    about: str, piece: bytes, before: bytes = b"", after: bytes = b"", *, content_type: str | None = "text/html"
) -> Case:
    """Return a case whose page repeats the piece up to _BYTES."""
    return _made(about, lambda: before + piece * (_BYTES // len(piece)) + after, content_type=content_type)


def _counted(about: str, piece: bytes, times: int, before: bytes = b"") -> Case:
    """Return a case whose page repeats the piece, with the number of the repetition for `%d`."""
    return _made(about, lambda: before + b"".join(piece % number for number in range(times)))


def _made(about: str, make: Callable[[], bytes], *, content_type: str | None = "text/html") -> Case:
    """Return a case with the page that `make` returns, which is built once, when it is first needed."""
    body = cache(make)
    return Case(about, lambda asked: page(body(), content_type=content_type))


def _noise() -> bytes:
    return random.Random(1).randbytes(5_000_000)


# Text whose reading shows the charset that was chosen.
_GREETING = "<html><p>Grüße, привет, こんにちは</p></html>"

SIZES: Cases = {
    "links-many": _counted("100,000 links", b'<a href="/l/%d">x</a>\n', 100_000, _NOFOLLOW),
    "links-followed": _counted("100,000 links to follow", b'<a href="/l/%d">x</a>\n', 100_000),
    "links-everywhere": _counted(
        "30,000 links, each to a site of its own", b'<a href="http://w%d.invalid/">x</a>\n', 30_000, _NOFOLLOW
    ),
    "links-long-base": _counted(
        "100,000 links relative to a long URL",
        b'<a href="l/%d">x</a>',
        100_000,
        _NOFOLLOW + b"<base href='/" + b"b" * 1500 + b"/'>",
    ),
    "links-huge-base": _counted(
        "links relative to a URL of 200,000 bytes",
        b'<a href="l/%d">x</a>',
        50_000,
        b"<base href='/" + b"b" * 200_000 + b"/'>",
    ),
    "links-dots": _counted("links with 1,000 dots each", b'<a href="' + b"../" * 500 + b'%d">x</a>', 1200, _NOFOLLOW),
    "links-huge": _counted("links of 100,000 bytes", b'<a href="/' + b"x" * 100_000 + b'%d">x</a>', 20),
    "links-idn": _counted(
        "40,000 names of odd letters",
        b"<a href='http://%b%%d.test/'>" % ("ü" * 15).encode(),
        40_000,
        _NOFOLLOW,
    ),
    "links-schemes": _counted(
        "links to files and scripts",
        b"<a href='file:///etc/passwd?%d'><a href='javascript:x'><a href='gopher://x:70/_'>",
        9000,
    ),
    "page-long": _made("20 MB of text", lambda: b"<p>and on and on</p>\n" * 1_000_000),
    "page-noise": _made("5 MB of noise as HTML", _noise),
    "page-noise-untyped": _made("5 MB of noise without a type", _noise, content_type=None),
}
"""Too much of something."""

NESTING: Cases = {
    "deep-divs": _filled("400,000 elements in each other", b"<div>"),
    "deep-links": _filled("links in each other", b"<a href=/x><b>"),
    "deep-tables": _filled("tables in each other", b"<table>"),
    "deep-table-text": _filled("links in tables, where none may be", b"<table><b><a href=/x>"),
    "deep-formatting": _made(
        "formatting to open again in each paragraph",
        lambda: b"".join(b"<b id=%d>" % number for number in range(5000)) + b"<p>x" * 50_000,
    ),
    "deep-formatting-small": _made(
        "the same in 9 KB", lambda: b"".join(b"<b id=%d>" % number for number in range(480)) + b"<p>x" * 480
    ),
    "deep-templates": _filled("templates in each other", b"<template>"),
    "deep-svg": _filled("HTML in SVG in HTML", b"<svg><foreignObject><a href=/x>"),
    "deep-math": _filled("formulas in each other", b"<math><mi>"),
    "deep-lists": _filled("lists in each other", b"<ul><li>"),
    "deep-framesets": _filled("framesets", b"<frameset>"),
    "deep-options": _filled("options in options", b"<select><option><a href=/x>"),
    "open-comments": _filled("comments that never end", b"<!--"),
    "open-tags": _filled("nothing but <", b"<"),
    "open-quotes": _filled("attributes that never end", b'<a href="'),
    "open-scripts": _filled("scripts that never end", b"<script><!-- <script>"),
    "open-titles": _filled("titles that never end", b"<title><a>"),
    "attributes-many": _made(
        "one tag of 200,000 attributes",
        lambda: b"<a " + b"".join(b"a%d=1 " % number for number in range(200_000)) + b"href=/x>",
    ),
    "entities": _filled("entities", b"&amp;&#x110000;&notanentity;"),
    "nul-bytes": _filled("NUL bytes", b"\0"),
    "nul-tags": _filled("NUL bytes in tags", b"<a\0 hr\0ef=\0/x>"),
    "comment-row": always("a row of comments without a type", page(b"<!---->" * 150, content_type=None)),
    "comment-row-long": _filled("the same, longer", b"<!----> ", content_type=None),
    "declarations": _filled("a row of XML declarations without a type", b"<?xml ?>", content_type=None),
    "entity-bomb": always(
        "XML entities that multiply",
        page(
            b'<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY a0 "http://x.test/">'
            + b"".join(b'<!ENTITY a%d "%b">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 20))
            + b"]><urlset><url><loc>&a19;</loc></url></urlset>",
            content_type="application/xml",
        ),
    ),
}
"""Too deep, or not closed."""

CHARSETS: Cases = {
    f"charset-{label}": always(
        f"said to be in {label}", page(_GREETING.encode(), content_type=f"text/html; charset={label}")
    )
    for label in ("nonsense", "idna", "punycode", "utf-seven", "undefined", "zlib-codec", "rot13x", "unicode-escape")
} | {
    "charset-empty": always("an empty charset", page(_GREETING.encode(), content_type="text/html; charset=")),
    "charset-long": always(
        "a charset of 40,000 characters", page(_GREETING.encode(), content_type="text/html; charset=" + "x" * 40_000)
    ),
    "charset-nul": always(
        "a charset with a blank and quotes", page(_GREETING.encode(), content_type='text/html; charset="a\tb')
    ),
    "charset-contradicting": always(
        "header, mark and meta disagree",
        page(
            b"\xef\xbb\xbf<meta charset=koi8-r>" + _GREETING.encode("utf-16-le"),
            content_type="text/html; charset=shift_jis",
        ),
    ),
    "charset-two": always(
        "two types", page(_GREETING.encode(), ("Content-Type", "image/png"), content_type="text/html; charset=big5")
    ),
    "charset-wrong": always(
        "said to be UTF-8, is Latin", page(b"\xe4\xf6\xfc" * 99, content_type="text/html; charset=utf-8")
    ),
    "charset-wide": always("UTF-16 with half a character", page(_GREETING.encode("utf-16") + b"\xd8")),
    "charset-surrogates": always("surrogates in UTF-8", page(b"<p>" + b"\xed\xa0\x80" * 9999)),
    "charset-shifts": _filled("shift sequences", b"\x1b$B!!\x1b(B", content_type="text/html; charset=iso-2022-jp"),
    "charset-none": _made("5 MB of a guess", lambda: b"\xe4\xf6 \xdf" * 1_250_000),
}
"""In no charset, a wrong one, or several."""

CASES: Cases = {**SIZES, **NESTING, **CHARSETS}
