"""Finds the assets of a page or style sheet: URLs of the files that it embeds or links, with their kinds.

`model/assets.py` has the kinds. Fixed: no content makes a function raise, and the time grows with the length of the
content only.
"""

import re
from collections.abc import Collection, Generator, Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode

from gossamer.errors import BadUrl
from gossamer.extract.document import HtmlDocument
from gossamer.extract.encoding import is_utf8
from gossamer.extract.links import base_of, with_encoded_query
from gossamer.model.assets import LINKED_KINDS, kind_of_type, kind_of_url
from gossamer.policy.urls import BaseUrl

MAX_ASSETS = 10_000
"""Assets of one page or style sheet that are taken. More of them take memory in the frontier."""
_MAX_CSS_BYTES = 2 * 1024 * 1024
"""Part of a style sheet, or of all styles of a page, that is read. More takes longer."""

# Patterns of CSS and HTML, with possessive quantifiers (`*+`), which never backtrack. The first is a string of CSS: the
# end of the file closes it, as in browsers, and `{0}` begins the names of its groups.
_STRING = r"""(?:"(?P<{0}double>(?:[^"\\\n]|\\.|\\\Z)*+)(?:"|\Z)|'(?P<{0}single>(?:[^'\\\n]|\\.|\\\Z)*+)(?:'|\Z))"""
_TEXT = r"""(?:"(?:[^"\\\n]|\\.|\\\Z)*+(?:"|\Z|(?=\n))|'(?:[^'\\\n]|\\.|\\\Z)*+(?:'|\Z|(?=\n)))"""
"""A string of which nothing is taken. A line end ends it, too."""
_COMMENT = re.compile(rf"(?P<text>{_TEXT})|/\*.*?(?:\*/|\Z)", re.DOTALL)
_URL = rf"""url\(\s*+
    (?:{_STRING.format("")}|(?P<bare>(?:[^"'()\s\\]|\\[0-9a-f]{{1,6}}\s?|\\.)++))\s*+(?:\)|\Z)"""
_CSS_URL = re.compile(
    rf"@import\s++{_STRING.format('import_')} | (?P<import>@import\s++)?{_URL} | (?P<set>image-set\() | {_TEXT}",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""The text of an `@import`, a `url(…)`, the beginning of an `image-set(…)`, or another text."""
_SET_PART = re.compile(
    rf"{_URL} | {_STRING.format('set_')} | (?P<mark>[();}}])", re.VERBOSE | re.IGNORECASE | re.DOTALL
)
"""Parts of an `image-set(…)` that count: `url(…)`, texts, parentheses, and the marks that end a declaration."""
_CSS_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})[ \t\r\n\f]?|\n|(.))", re.DOTALL)

# The elements that `_read_element` knows, and all others with a style or a background. Must name each that it handles.
_SELECTOR = (
    "img,source,picture,input,link,script,video,audio,track,object,embed,iframe,image,a,area,style,[style],[background]"
)
_PIECE_TAGS = frozenset(b"img source input link script video audio track object embed iframe image a area base".split())
"""Those of them that pieces of a page have, and `base`."""
_CANDIDATE = re.compile(r"[\s,]*+(\S++)")
"""URL of the next candidate of a `srcset`. It may hold commas; if it ends with some, no descriptor (`2x`) follows."""
# Values of the attribute `rel` for icons; kinds of `source` elements by the element around them, and of preloaded files
# by the attribute `as`.
_ICONS = frozenset(("icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon", "fluid-icon"))
_KINDS_OF_SOURCES = {"video": "video", "audio": "audio", "picture": "images"}
_PRELOADED = {
    "image": "images", "style": "css", "script": "js", "font": "fonts", "video": "video", "audio": "audio",
    "track": "video",
}  # fmt: skip


class _Found:
    """Collects the assets of one document, by URL, with the kind of the first place that names it."""

    def __init__(self, base: str, kinds: Collection[str], charset: str | None) -> None:
        self._join = BaseUrl(base).join
        self._kinds = kinds
        self._charset = charset
        self.assets: dict[str, str] = {}

    def add(self, href: str | None, kind: str) -> None:
        """Add a reference, if it is of a kind that is wanted. `kind` empty: its ending decides."""
        if not href or href[0] == "#" or href[:5].lower() == "data:":
            return
        if kind and kind not in self._kinds:
            return
        if len(self.assets) >= MAX_ASSETS:
            return
        try:
            url = self._join(href if self._charset is None else with_encoded_query(href, self._charset))
        except BadUrl:
            return
        kind = kind or kind_of_url(url)
        if kind in self._kinds:
            self.assets.setdefault(url, kind)

    def add_set(self, srcset: str | None, kind: str) -> None:
        """Add the candidates of a `srcset`."""
        if not srcset or kind not in self._kinds:
            return
        at = 0
        while (match := _CANDIDATE.match(srcset, at)) is not None:
            candidate = match[1]
            self.add(candidate.rstrip(","), kind)
            at = match.end()
            if not candidate.endswith(","):  # a descriptor follows, up to a comma
                comma = srcset.find(",", at)
                at = comma if comma >= 0 else len(srcset)

    def add_css(self, css: str | None) -> None:
        """Add what a piece of CSS names."""
        if css:
            for href, is_import in css_references(css[:_MAX_CSS_BYTES]):
                self.add(href, "css" if is_import else _kind_in_css(href))


def find_assets(document: HtmlDocument, page: str, kinds: Collection[str], *, encoding: str | None) -> dict[str, str]:
    """Return the assets of a page: canonical URLs, each with its kind. `page`: the page's canonical URL. `kinds`: those
    that are wanted. `encoding`: Python codec of the page. Never raises."""
    charset = None if encoding is None or is_utf8(encoding) else encoding  # in which the queries of URLs are encoded
    found: _Found | None = None
    for tree in _trees(document):
        if found is None:
            found = _Found(document.base or base_of(tree, page) or page, kinds, charset)
        for node in tree.css(_SELECTOR):
            _read_element(node, found)
    return {} if found is None else found.assets


def _trees(document: HtmlDocument) -> Iterator[LexborHTMLParser]:
    """Yield the trees that have the elements of a page: its own, or pieces of a page that is too long for one, or would
    take too long to parse. Pieces have no styles."""
    if document.tree is not None:
        yield document.tree
    if document.tree is None or document.cut:
        yield from document.trees(_PIECE_TAGS)


def find_css_assets(css: str, sheet: str, kinds: Collection[str]) -> dict[str, str]:
    """Return the assets that a style sheet names, as `find_assets` does. `sheet`: its canonical URL. Never raises."""
    found = _Found(sheet, kinds, None)
    found.add_css(css)
    return found.assets


def css_references(css: str) -> Iterator[tuple[str, bool]]:
    """Yield the references of a style sheet as written, without escapes, and whether each is an `@import`."""
    css = _COMMENT.sub(lambda match: match["text"] or " ", css)
    at = 0
    while (match := _CSS_URL.search(css, at)) is not None:
        at = match.end()
        if match["set"]:
            at = yield from _image_set(css, at)
        elif (imported := _group(match, "import_double", "import_single")) is not None:
            yield _unescaped(imported), True
        elif (href := _group(match, "double", "single", "bare")) is not None:
            yield _unescaped(href), match["import"] is not None


def _image_set(css: str, at: int) -> Generator[tuple[str, bool], None, int]:
    """Yield the references of an `image-set(…)`, whose content begins at `at`, and return where it ends."""
    depth = 1
    while depth and (match := _SET_PART.search(css, at)) is not None:
        at = match.end()
        mark = match["mark"]
        if mark is None:
            text = _group(match, "set_double", "set_single")
            href = _group(match, "double", "single", "bare") if text is None else text
            if href and (text is None or depth == 1):  # a deeper text is that of `type("image/avif")`
                yield _unescaped(href), False
        elif mark in ";}":  # no parenthesis closed it
            break
        else:
            depth += 1 if mark == "(" else -1
    return at


def _group(match: re.Match[str], *names: str) -> str | None:
    """Return the first of these groups that has matched."""
    return next((match[name] for name in names if match[name] is not None), None)


def _unescaped(text: str) -> str:
    """Return a CSS string without its escapes."""
    if "\\" not in text:
        return text.strip()

    def plain(match: re.Match[str]) -> str:
        code, character = match.groups()
        if code:
            number = int(code, 16)
            return chr(number) if 0 < number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else "\ufffd"
        return character or ""  # a line break behind a backslash stands for nothing

    return _CSS_ESCAPE.sub(plain, text).strip()


def _kind_in_css(href: str) -> str:
    """Return the kind of a `url(…)` in CSS: a font or an image."""
    return "fonts" if kind_of_url(href) == "fonts" else "images"


def _read_element(node: LexborNode, found: _Found) -> None:
    """Add what an element embeds or links."""
    attributes = node.attributes
    style = attributes.get("style")
    if style:
        found.add_css(style)
    found.add(attributes.get("background"), "images")
    get = attributes.get
    match node.tag:
        case "a" | "area":
            href = get("href")
            if href and kind_of_url(href) in LINKED_KINDS:
                found.add(href, "")
        case "img":
            for name in ("src", "data-src"):
                found.add(get(name), "images")
            for name in ("srcset", "data-srcset"):
                found.add_set(get(name), "images")
        case "source":
            parent = node.parent
            # In a piece of a page it has no parent that counts; its ending decides.
            kind = _KINDS_OF_SOURCES.get(parent.tag or "" if parent else "", "")
            found.add(get("src"), kind)
            found.add_set(get("srcset"), "images")
        case "link":
            _read_link(get("href"), get("rel") or "", get("as") or "", get("imagesrcset"), found)
        case "script":
            found.add(get("src"), "js")
        case "video":
            found.add(get("src"), "video")
            found.add(get("poster"), "images")
        case "audio":
            found.add(get("src"), "audio")
        case "track":
            found.add(get("src"), "video")
        case "input":
            if (get("type") or "").lower() == "image":
                found.add(get("src"), "images")
        case "object" | "embed" | "iframe":
            found.add(get("data") or get("src"), kind_of_type(get("type") or ""))
        case "image":
            found.add(get("href") or get("xlink:href"), "images")
        case "style":
            found.add_css(node.text())


def _read_link(href: str | None, rel: str, loaded_as: str, srcset: str | None, found: _Found) -> None:
    """Add the target of a `link` element."""
    relations = rel.lower().split()
    if "stylesheet" in relations:
        found.add(href, "css")
    elif not _ICONS.isdisjoint(relations):
        found.add(href, "images")
    elif "modulepreload" in relations:
        found.add(href, "js")
    elif "preload" in relations or "prefetch" in relations:
        kind = _PRELOADED.get(loaded_as.lower())
        if kind:
            found.add(href, kind)
            if kind == "images":
                found.add_set(srcset, kind)
