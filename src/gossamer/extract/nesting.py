"""Second look at pages with many tags: which of them a standard parser can parse as a whole all the same.

`flatten.py` counts tags, which is cheap, and flattens every page with very many. Links can be read from a flattened
page, fields cannot. Most such pages are long tables and indexes, whose elements do not nest deeply; they are found here
by walking through the tags.

Safe to change: the limits, and that more pages count as nested deeply. Fixed: the depth that is counted here must never
be less than a parser's, whatever the page; each rule below says why it is not. A test compares with the parser.
"""

import re

from gossamer.extract.flatten import MAX_REOPENED, MAX_TAG_BYTES, TOKEN

_MAX_TAGS = 100_000
"""Beyond this many tags a page is not walked through. May be changed: each takes one or two microseconds."""

_MAX_DEPTH = 500
"""Elements that may be open at once. May be changed: the parser's time grows with this times the tags, 0.1 s for each
50 million."""

# In the body, the parser ignores these outside of tables and selects, or closes an open one first. So there is at most
# one of each between two elements that are counted.
_UNCOUNTED = frozenset(b"p option td th tr tbody thead tfoot caption colgroup html head body".split())
_VOID = frozenset(
    b"area base basefont bgsound br col command embed frame hr img input keygen link meta param source track wbr"
    b"".split()
)
_ENDED_BY: dict[bytes, frozenset[bytes]] = {
    b"li": frozenset((b"li",)),
    b"dd": frozenset((b"dd", b"dt")),
    b"dt": frozenset((b"dd", b"dt")),
}
"""Elements that an open element of these names ends, if it is the innermost one."""
_IMPLIED = frozenset((b"li", b"dd", b"dt"))
# The end tags of these close all open _IMPLIED ones inside them (HTML standard, "generate implied end tags").
_BLOCKS = frozenset(
    b"address article aside blockquote button center details dialog dir div dl fieldset figcaption figure footer "
    b"header hgroup main menu nav ol pre section summary ul".split()
)
_FORMATTING = frozenset(b"b big code em font i nobr s small strike strong tt u".split())
_FOREIGN = frozenset((b"svg", b"math"))
# Within these alone, `/>` ends an element.
_DRAWING = frozenset(
    b"svg g path use circle rect line polygon polyline ellipse defs symbol clippath mask lineargradient radialgradient "
    b"stop".split()
)
_ESCAPED_SCRIPT = re.compile(rb"<!--.*?<script", re.IGNORECASE | re.DOTALL)


def is_nested_deeply(html: bytes) -> bool:
    """Return whether the elements of a page may nest so deeply that parsing it would take far too long or much memory.

    In doubt True. Takes one or two microseconds a tag.
    """
    if html.count(b"<") > _MAX_TAGS or b"<![CDATA[" in html:  # in drawings, tags in CDATA are text
        return True
    walk = _Walk()
    for match in TOKEN.finditer(html):
        name = match[2]
        if name is None:
            if match[1] is not None and walk.is_doubtful(match):
                return True
            continue
        if match.end() - match.start() > MAX_TAG_BYTES:  # a parser compares all attributes of a tag with each other
            return True
        if html[match.start() + 1] == 0x2F:  # a slash
            walk.end(name.lower())
        else:
            walk.start(name.lower(), is_closed=html[match.end() - 2] == 0x2F)
        if len(walk.open) > _MAX_DEPTH or walk.reopened > MAX_REOPENED:
            return True
    return False


class _Walk:
    """Elements that may be open at one place of a page."""

    def __init__(self) -> None:
        self.open: list[bytes] = []
        """Names, the innermost last. The parser may have closed some of them."""
        self.reopened = 0
        """Upper bound of the formatting elements that the parser has reopened."""
        self._formatting = 0
        self._foreign = 0
        """Number of open `svg` and `math`: in them no element is void or uncounted."""
        self._only_drawings = True
        """False: something else was in a drawing, so the parser may have left it."""

    def is_doubtful(self, raw: re.Match[bytes]) -> bool:
        """Return whether an element of raw text may hold elements after all: in a drawing, where its text is none, and
        a script whose end is not its first end tag."""
        text = raw[0]
        if self._foreign and text.count(b"<") > 2:
            return True
        return raw[1].lower() == b"script" and _ESCAPED_SCRIPT.search(text) is not None

    def start(self, name: bytes, *, is_closed: bool) -> None:
        """Note a start tag. `is_closed`: it ends with a slash."""
        innermost = self.open[-1] if self.open else b""
        if self._foreign:
            if name not in _DRAWING:
                self._only_drawings = False
            elif is_closed and self._only_drawings and innermost in _DRAWING:
                return
        elif name in _VOID:
            return
        elif name in _UNCOUNTED:
            self.reopened += self._formatting
            return
        elif innermost and name in _ENDED_BY and innermost in _ENDED_BY[name]:
            self._pop()
        self.open.append(name)
        self._formatting += name in _FORMATTING
        self._foreign += name in _FOREIGN

    def end(self, name: bytes) -> None:
        """Note an end tag. It counts only where its element is the innermost one, because the parser may ignore it
        otherwise."""
        at = len(self.open) - 1
        if name in _BLOCKS and not self._foreign:
            while at >= 0 and self.open[at] in _IMPLIED:
                at -= 1
        if at >= 0 and self.open[at] == name:
            while len(self.open) > at:
                self._pop()
        else:
            self.reopened += self._formatting

    def _pop(self) -> None:
        name = self.open.pop()
        self._formatting -= name in _FORMATTING
        self._foreign -= name in _FOREIGN
