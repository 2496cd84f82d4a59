"""Guard before the HTML parser, against pages on which a standard parser takes quadratic time or memory.

The HTML standard makes a parser walk its stack of open elements at most start tags, and reopen formatting elements in
every paragraph. 500 KB of `<div>` take 15 seconds that way, 30 KB of nested `<b id=…>` before `<p>`s 1.5 GB. Such
pages, and pages of many tags, are parsed without the elements that links do not need, so that nothing nests.

`flatten` reads the tags as the compiled extension does (`native/src/scan.rs`), rule by rule, and a test compares both.

Fixed: `flatten` keeps every tag that readers of links want and
cuts no tag in two, or links are lost; and every expression takes time proportional to the page (hence the possessive
quantifiers, `++` and `*+`, which never give a character back), or a page could stop a worker.
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

_HARMLESS_TAGS = 1000
"""A page with at most this many tags is parsed as it is: at worst half of them open elements that the other half
reopens, a quarter of a million in all. A quarter of its square must not exceed MAX_REOPENED."""

_MAX_TAGS = 10_000
"""Beyond this many tags the stack of open elements alone may cost too much: a tenth of a second here, growing with the
square. More lets a page block the event loop longer, fewer flattens more pages that do no harm."""

MAX_REOPENED = 500_000
"""Formatting elements (`b`, `font` and the like) that a parser may reopen on one page. Each takes about 360 bytes while
the page is parsed."""

MAX_TAG_BYTES = 4096
"""Longest tag that is left as it is. A page with a longer one is flattened, and the tag gets only the attributes that
matter, because a parser compares all attributes of a tag with each other."""

# Every formatting element begins like this (an element that is added to _FORMATTING must, too), and few others do.
# Counting these takes a third of the time that _FORMATTING takes.
_PERHAPS_FORMATTING = re.compile(rb"<[bcefinstuBCEFINSTU][\s/>imotIMOT]")
_FORMATTING = re.compile(rb"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])[^>]*", re.IGNORECASE)
_TAG_START = re.compile(rb"<[a-zA-Z/]")
_MAX_TRIES = 16
"""Number of `>` that `_has_huge_tag` tries in a stretch. A page with more quoted ones may count as costly."""
_BLANKS = 32
"""Number of blanks that `_may_be_quoted` expects between `=` and a quote."""

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

_SPACE = rb"\t\n\f\r "
"""White space of HTML, for expressions."""
# One comment, beginning of a CDATA section, declaration, or tag; of a tag that the page ends in, `closed` is missing.
_WALKED = re.compile(
    rb"<!--(?:>|->|.*?(?:--!?>|\Z))"
    rb"|<!(?P<cdata>\[CDATA\[)"
    rb"|<(?:[!?][^>]*+>?|/(?:>|[^a-zA-Z>][^>]*+>?))"
    rb"|<(?P<end>/?)(?P<name>[a-zA-Z][^%b/>]*+)"
    rb"(?:[%b/]++|[^%b/>][^%b/>=]*+(?:[%b]*+=[%b]*+"
    rb"""(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^%b>"'][^%b>]*+)?+)?+)*+(?:(?P<closed>>)|\Z)""" % ((_SPACE,) * 8),
    re.DOTALL,
)
_ATTRIBUTE = re.compile(
    rb"""(?P<name>[^%b/>][^%b/>=]*+)(?:[%b]*+=[%b]*+(?P<value>"[^"]*+"|'[^']*+'|[^%b>"'][^%b>]*+)?+)?+"""
    % ((_SPACE,) * 6),
    re.DOTALL,
)
_SCRIPT_MARK = re.compile(rb"<(?P<end>/?)script(?=[%b/>])|<!(?=--)|(?P<closing>--+>)" % _SPACE, re.IGNORECASE)
"""Place in a script where the states of the HTML standard change ("script data escaped" and "double escaped")."""

_PIECE_BYTES = 128 * 1024
"""Size from which a piece ends. Larger pieces take memory while they are parsed, smaller ones calls."""
_BORDER = b"\0<border>\0"
"""Separator of two pieces. A page that contains it is cut there, too, which does no harm."""

LINK_TAGS = frozenset((b"a", b"area", b"base", b"link", b"meta", b"iframe", b"frame"))
"""Elements that readers of links want."""
_INNER_TAGS = frozenset((b"a", b"area", b"iframe", b"frame"))
"""Those that count in a document inside of the page."""


_RAW = frozenset((b"style", b"textarea", b"title", b"xmp", b"noembed", b"iframe"))
"""Elements whose content is text up to their own end tag, besides scripts and `noframes`."""
_VOID = frozenset((b"area", b"base", b"link", b"meta", b"img", b"image", b"input", b"embed", b"source", b"track"))
"""Elements without an end tag."""
_NEEDED_ATTRIBUTES = frozenset(
    b"href rel src srcdoc name content http-equiv alt title type as data imagesrcset srcset poster data-src data-srcset"
    b"".split()
)
"""Attributes that a tag keeps if it is longer than MAX_TAG_BYTES."""
_BREAKS_OUT = frozenset(
    b"b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta "
    b"nobr ol p pre ruby s small span strong strike sub sup table tt u ul var".split()
)
"""Elements of HTML that end a drawing (HTML standard, "the rules for parsing tokens in foreign content")."""
_FONT_ATTRIBUTES = frozenset((b"color", b"face", b"size"))
"""Attributes with which a `font` ends a drawing, too."""
_HTML_IN_SVG = frozenset((b"foreignobject", b"desc", b"title"))
_HTML_IN_MATH = frozenset((b"mi", b"mo", b"mn", b"ms", b"mtext"))
_HTML_TYPES = frozenset((b"text/html", b"application/xhtml+xml"))
_ENDS_FRAMES = frozenset(
    b"body pre listing li dd dt button applet marquee object table area br embed img image keygen wbr hr textarea xmp "
    b"iframe select input".split()
)
"""Start tags after which a page is no frameset any more."""
_IN_HEAD = frozenset(
    b"html head base basefont bgsound link meta title style script noscript noframes template frameset".split()
)
"""Start tags that do not begin the body."""
_SLASH = ord("/")
_MAX_OPEN = 128
"""Open elements of drawings whose names are remembered, as in the compiled extension."""
_MAX_LOOKS = 16
"""Number of times that a page is looked through for an open element, as there."""


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


def flatten(html: bytes, kept: frozenset[bytes] = LINK_TAGS) -> list[bytes]:
    """Return the page's tags of the elements `kept`, in lower case, and its text, in pieces. Linear in its size.

    As nothing nests, each piece (of _PIECE_BYTES or a little more) can be parsed by itself, so that the tree of the
    whole page, which may take forty times its size, is never in memory at once. What is no tag to a parser, and what a
    page does not show (comments, scripts, templates), is left out; what `noframes` holds is not.
    """
    return b"".join(_TagWalk(html, kept).walk()).split(_BORDER)


class _Open(NamedTuple):
    """Open element of a drawing or formula."""

    name: bytes
    is_html_inside: bool
    """True: the elements in it are those of HTML again."""
    is_math: bool


class _Frames(Enum):
    """State of a page that may be a frameset: a page of frames, in which nothing but frames counts."""

    POSSIBLE = 0
    NO = 1
    YES = 2


class _TagWalk:
    """Walk through the tags of a page, or of a document inside of it, that keeps those of some elements."""

    def __init__(self, html: bytes, kept: frozenset[bytes], *, is_inner: bool = False) -> None:
        """`is_inner`: the HTML is that of `noframes`."""
        self._html = html
        self._kept = kept
        self._is_inner = is_inner
        self._parts: list[bytes] = []
        self._size = 0
        """Size of the parts since the last border."""
        self._templates = 0
        self._open: list[_Open] = []
        """Open elements of drawings and formulas, the innermost last."""
        self._deeper = 0
        """Number of open elements inside of these, whose names are not remembered."""
        self._drawing_start = 0
        """Position of the outermost drawing that is open."""
        self._looks = _MAX_LOOKS
        self._frames = _Frames.POSSIBLE
        self._framesets = 0
        self._head_parts: int | None = None
        """Number of parts before the body. None: it has not begun."""

    def walk(self) -> list[bytes]:
        """Return the kept tags and the text between them, with borders between pieces."""
        html, at = self._html, 0
        while (match := _WALKED.search(html, at)) is not None:
            self._text(at, match.start())
            at = self._token(match)
        self._text(at, len(html))
        return self._parts

    def _text(self, start: int, end: int) -> None:
        """Add a text. With any but white space, the page is no frameset."""
        if start == end:
            return
        text = self._html[start:end]
        if self._frames is _Frames.POSSIBLE and text.strip(b"\t\n\f\r \0"):
            self._frames = _Frames.NO
        if not self._templates and self._frames is not _Frames.YES:
            self._add(text)

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)

    def _token(self, match: re.Match[bytes]) -> int:
        """Read a token. Returns the position behind it."""
        if match["cdata"] is not None:
            mark, start = (b"]]>", match.end()) if self._is_foreign else (b">", match.start())
            at = self._html.find(mark, start)
            return len(self._html) if at < 0 else at + len(mark)
        name = (match["name"] or b"").lower()
        if name != b"a" or not match["end"]:
            self._add(b" ")
        if match["closed"] is None:
            return match.end()
        if match["end"]:
            self._end_tag(name)
            return match.end()
        if self._is_foreign:
            self._foreign_start(name, match)
            return match.end()
        return self._frameset_start(name, match) if self._frames is _Frames.YES else self._html_start(name, match)

    def _end_tag(self, name: bytes) -> None:
        if self._open:
            self._close_foreign(name)
        if self._templates and name == b"template" and not self._is_foreign:
            self._templates -= 1
            self._open.clear()
            self._deeper = 0
        elif self._framesets and name == b"frameset":
            self._framesets -= 1
        elif name == b"a" and not self._templates and self._frames is not _Frames.YES:
            self._add(b"</a>")

    def _html_start(self, name: bytes, match: re.Match[bytes]) -> int:
        """Read a start tag of HTML. Returns the position behind it, or behind its element if that holds only text."""
        end = match.end()
        if self._frames is _Frames.POSSIBLE:
            if name in _ENDS_FRAMES:
                self._frames = _Frames.NO
            elif self._head_parts is None and name not in _IN_HEAD:
                self._head_parts = len(self._parts)
        if name in self._kept and name != b"frame":
            self._keep(name, match)
        if name in _RAW:
            return self._raw_end(name, end)
        if name == b"script":
            return self._script_end(end)
        if name == b"plaintext":
            return len(self._html)
        if name == b"noframes":
            return self._noframes(end)
        if name == b"template":
            self._templates += 1
        elif name in (b"svg", b"math"):
            if not self._closes_itself(match):
                if not self._open:
                    self._drawing_start = match.start()
                self._push(_Open(name, False, name == b"math"))
        elif name == b"frameset" and self._frames is _Frames.POSSIBLE and not self._templates:
            self._frames, self._framesets = _Frames.YES, 1
            if self._head_parts is not None:  # the frameset replaces the body that seemed to have begun
                del self._parts[self._head_parts :]
        return end

    def _frameset_start(self, name: bytes, match: re.Match[bytes]) -> int:
        """Read a start tag in or behind the framesets of a page of frames, as `_html_start` does."""
        if name == b"noframes":
            return self._noframes(match.end())
        if self._framesets and name == b"frame" and name in self._kept:
            self._keep(name, match)
        elif self._framesets and name == b"frameset":
            self._framesets += 1
        return match.end()

    def _noframes(self, start: int) -> int:
        """Keep the links of what a page shows where frames are not supported. Returns the position of its end tag."""
        end = self._raw_end(b"noframes", start)
        if not self._templates and not self._is_inner:
            for part in _TagWalk(self._html[start:end], self._kept & _INNER_TAGS, is_inner=True).walk():
                self._add(part)
        return end

    @staticmethod
    def _with_href(match: re.Match[bytes]) -> bytes | None:
        """Return a tag for an `a` in a drawing or formula that has an xlink:href and no href; None for another."""
        attributes = {found["name"].lower(): found for found in reversed([*_TagWalk._attributes(match)])}
        own, xlink, rel = (attributes.get(name) for name in (b"href", b"xlink:href", b"rel"))
        if xlink is None or xlink["value"] is None or (own is not None and own["value"] is not None):
            return None
        return b"<a href=%b%b>" % (xlink["value"], b" " + rel[0] if rel else b"")

    def _keep(self, name: bytes, match: re.Match[bytes], *, instead: bytes | None = None) -> None:
        """Keep a tag, in a new piece if this one is long enough. `instead`: tag to keep for it."""
        if self._templates:
            return
        tag = match[0]
        shown = b"iframe" if name == b"frame" else name  # outside of framesets, a parser leaves out frames
        if instead is not None:
            tag = instead
        elif len(tag) > MAX_TAG_BYTES:
            needed = {found["name"].lower(): found[0] for found in reversed([*self._attributes(match)])}
            tag = b" ".join([b"<" + shown, *(needed[one] for one in needed.keys() & _NEEDED_ATTRIBUTES), b">"])
        else:
            tag = b"<" + shown + tag[1 + len(name) :]
        if name not in _VOID and name != b"a":
            tag += b"</" + shown + b">"
        if self._size >= _PIECE_BYTES:
            self._parts.append(_BORDER)
            self._size = 0
        self._add(tag)

    # --- text in which tags do not count ------------------------------------------------------------------------------

    def _raw_end(self, name: bytes, start: int) -> int:
        """Return the position of the next end tag of this name, or the end of the page."""
        match = re.compile(rb"</%b(?=[%b/>])" % (name, _SPACE), re.IGNORECASE).search(self._html, start)
        return len(self._html) if match is None else match.start()

    def _script_end(self, start: int) -> int:
        """Return the position of a script's end tag, or the end of the page. Behind `<!--`, a `<script` hides the next
        end tag."""
        escaped = doubly = False
        at = start
        while (match := _SCRIPT_MARK.search(self._html, at)) is not None:
            at = match.end()
            if match["closing"]:
                escaped = doubly = False
            elif match["end"] is None:
                escaped = True
            elif match["end"]:
                if not doubly:
                    return match.start()
                doubly = False
            elif escaped:
                doubly = True
        return len(self._html)

    # --- drawings and formulas ----------------------------------------------------------------------------------------

    @property
    def _is_foreign(self) -> bool:
        """True: tags are those of a drawing or formula."""
        return bool(self._open) and not self._open[-1].is_html_inside

    def _foreign_start(self, name: bytes, match: re.Match[bytes]) -> None:
        """Read a start tag whose parent belongs to a drawing or formula."""
        attributes: dict[bytes, bytes] = {}
        if name in (b"font", b"annotation-xml"):
            for found in self._attributes(match):
                attributes.setdefault(found["name"].lower(), (found["value"] or b"").strip(b"'\""))
        if name in _BREAKS_OUT or (name == b"font" and not _FONT_ATTRIBUTES.isdisjoint(attributes)):
            self._leave_foreign()
            if name == b"meta" and name in self._kept:
                self._keep(name, match)
            if self._frames is _Frames.POSSIBLE and name in _ENDS_FRAMES:
                self._frames = _Frames.NO
            return
        if name == b"a" and name in self._kept:
            self._keep(name, match, instead=self._with_href(match))
        if self._closes_itself(match):
            return
        parent = self._open[-1]
        if not parent.is_math:
            is_html_inside = name in _HTML_IN_SVG
        else:
            is_html_inside = name in _HTML_IN_MATH or attributes.get(b"encoding", b"").lower() in _HTML_TYPES
        # An `svg` in a formula is an element of the formula, but in an annotation it is a drawing.
        is_drawing = name == b"svg" and parent.name == b"annotation-xml"
        self._push(_Open(name, is_html_inside, parent.is_math and not is_drawing))

    @staticmethod
    def _attributes(match: re.Match[bytes]) -> Iterator[re.Match[bytes]]:
        """Yield the attributes of a tag."""
        return _ATTRIBUTE.finditer(match.string, match.end("name"), match.end() - 1)

    @staticmethod
    def _closes_itself(match: re.Match[bytes]) -> bool:
        """Return whether a tag ends with a slash that belongs to no value."""
        if match.string[match.end() - 2] != _SLASH:
            return False
        attributes = [*_TagWalk._attributes(match)]
        return not attributes or attributes[-1].end() < match.end() - 1

    def _push(self, element: _Open) -> None:
        if len(self._open) < _MAX_OPEN:
            self._open.append(element)
        else:
            self._deeper += 1

    def _leave_foreign(self) -> None:
        """Close elements until HTML counts again."""
        self._deeper = 0
        while self._is_foreign:
            self._open.pop()

    def _close_foreign(self, name: bytes) -> None:
        """Read an end tag while elements of a drawing are open: it closes the innermost one of its name."""
        if self._deeper:
            self._deeper -= 1
            return
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at].name == name:
                del self._open[at:]
                return
        # The end of an element around a drawing that was left open; `</p>` and `</br>` end it in any case.
        if self._is_foreign and (name in (b"p", b"br") or self._is_open_in_html(name)):
            self._leave_foreign()

    def _is_open_in_html(self, name: bytes) -> bool:
        """Return whether an element of HTML of this name is open around the drawing: more of its tags began than ended.

        Looks through the page so far; it matters only where a drawing has no end tag, so only a few times."""
        if not self._looks or name in (b"body", b"html"):
            return False
        self._looks -= 1
        count = 0
        tags = re.compile(rb"<(/?)%b(?=[%b/>])" % (re.escape(name), _SPACE), re.IGNORECASE)
        for match in tags.finditer(self._html, 0, self._drawing_start):
            count = max(0, count - 1) if match[1] else count + 1
        return count > 0


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
