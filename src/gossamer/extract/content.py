"""Main content of a page: trafilatura finds it, `blocks.py` writes it, `page_facts.py` reads title, author and date.

trafilatura is a library that separates the text of a page from navigation and the like. It runs in a process of its own
(`content_process.py`), because some pages take seconds and gigabytes; nothing else may import this module, which loads
trafilatura and lxml. Fixed: the text of a `pre` (code, as a rule) reaches the result unchanged.
"""

import logging
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

from lxml import etree, html
from lxml.etree import _Element
from trafilatura import bare_extraction
from trafilatura.htmlprocessing import convert_tags, tree_cleaning
from trafilatura.settings import Extractor
from trafilatura.xpaths import BODY_XPATH

from gossamer.errors import BadUrl
from gossamer.extract.blocks import Block, CodeBlock, Renderer, join_blocks
from gossamer.extract.chunks import split_blocks
from gossamer.extract.page_facts import read_facts
from gossamer.model.content import ContentChunk, ContentError, ContentOptions, PageContent
from gossamer.policy.urls import BaseUrl, canonical

logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # it warns of pages, which have a record of their own

_ANCHOR_TEXTS = frozenset(
    ("", "¶", "#", "§", "🔗", "⚓", "\uf0c1", "\uf02b", "link", "permalink", "anchor", "copy link")
)
"""Texts, in lower case, of links that only name their own heading."""
_LINE_NUMBERS = re.compile(
    r"(?i)(?:^|\s)(?:line-?numbers?(?:-rows)?|linenos?|linenodiv|gutter|hljs-ln-numbers|blob-num|rouge-gutter)(?:\s|$)"
)
"""Classes of elements that hold the line numbers of code."""
_LANGUAGE = re.compile(
    r"(?i)(?:^|\s)(?:language|lang|highlight-source|highlight|brush:|sourceCode)[-\s]\s*([\w+#.-]{1,20})(?=\s|;|$)"
)
"""Class that names the language of code."""
_NO_LANGUAGES = frozenset(("default", "none", "text", "plain", "plaintext", "notranslate", "nohighlight", "txt"))
"""Names that stand there for no language."""
_INLINE_TAGS = frozenset(("a", "b", "code", "em", "i", "span", "strong", "tt"))
"""Elements inside of a line."""
_SHOWN_WORDS_CHARACTERS = 2000
"""Characters of code that trafilatura sees, so that it counts a page full of code as one full of text. More only take
time."""


def extract_content(page: str, url: str, options: ContentOptions) -> tuple[PageContent, list[ContentChunk] | None]:
    """Return the main content of an HTML page, and its chunks (None: they were not asked for).

    `url`: canonical URL of the page. A page without content has the error `no_text`. May take any time and memory.
    """
    try:
        tree = _parse(page)
    except _NestedTooDeeply:
        return PageContent(error=ContentError.COMPLEX), None
    if tree is None:
        return PageContent(error=ContentError.EMPTY), None
    facts = read_facts(tree, url)
    content = PageContent(title=facts.title, author=facts.author, date=facts.date, language=facts.language)
    links = _PageLinks(tree, url)
    _remove_anchors(tree)
    _separate_divisions(tree)
    _simplify_tables(tree)
    nonce = secrets.token_hex(8)  # no page can guess it, so none can have a placeholder of its own
    codes = _take_codes(tree, nonce)
    placeholder = re.compile(rf"\s?{nonce}x(\d+)x.*?x{nonce}\s?", re.DOTALL)  # as `_take_codes` writes them
    body = _main_element(tree)
    if body is None:
        content.error = ContentError.EMPTY
        return content, None

    def blocks(*, markdown: bool) -> list[Block]:
        return Renderer(codes, placeholder, links.resolve, markdown=markdown).render(body)

    chunks: list[ContentChunk] | None = None
    found: list[Block] = []
    if options.markdown:
        found = blocks(markdown=True)
        content.markdown = join_blocks(found)
    if options.text:
        found = blocks(markdown=False)
        content.text = join_blocks(found)
    if not found:
        return PageContent(**_facts_of(content), error=ContentError.EMPTY), None
    if options.chunk is not None:  # then only one of the two forms was asked for
        chunks = split_blocks(found, options.chunk)
    return content, chunks


def _facts_of(content: PageContent) -> dict[str, str]:
    """Return what the page says about itself, as arguments of another PageContent."""
    return {name: getattr(content, name) for name in ("title", "author", "date", "language")}


_NO_XML = re.compile(
    "[\x01-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"
    r"|&#(?:0*(?:[0-8]|1[124-9]|2[0-9]|3[01]|6553[45])(?![0-9])"
    r"|[xX]0*(?:[0-8bBcCeEfF]|1[0-9a-fA-F]|[fF]{3}[eEfF]|[dD][89a-fA-F][0-9a-fA-F]{2})(?![0-9a-fA-F]));?"
)
"""Characters that a tree cannot hold, also as references (`&#1;`). Fixed by XML."""


class _NestedTooDeeply(Exception):
    """The elements of the page nest more deeply than the parser can read: it would lose the rest of the page."""


def _parse(page: str) -> "html.HtmlElement | None":
    """Return the page as a tree, whose elements nest at most 2048 deep; None: it has no element."""
    # Without `huge_tree` the parser would leave out what is deeper than 256 elements, and all that follows.
    parser = html.HTMLParser(encoding="utf-8", collect_ids=False, remove_comments=True, remove_pis=True, huge_tree=True)
    data = _NO_XML.sub(" ", page.replace("\0", "")).encode("utf-8", "replace")
    try:
        tree = html.document_fromstring(data, parser=parser)
    except (etree.ParserError, ValueError):
        tree = None
    if any(fault.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for fault in parser.error_log.filter_from_fatals()):
        raise _NestedTooDeeply
    return tree


class _PageLinks:
    """Resolves the links of a page."""

    def __init__(self, tree: "html.HtmlElement", url: str) -> None:
        self._base: BaseUrl | None = None
        """URL that links are resolved against. None: the page has no valid one, so its links are left out."""
        with suppress(BadUrl):
            self._base = BaseUrl(canonical(url))
            base = next((found for found in tree.iter("base") if found.get("href")), None)
            if base is not None:
                self._base = BaseUrl(self._base.join(base.get("href")))

    def resolve(self, target: str) -> str | None:
        """Return the absolute URL of a link; None: it leads nowhere outside the page."""
        target = target.strip()
        if target.startswith("#") or self._base is None:
            return None
        if target.lower().startswith("mailto:"):
            return target
        plain, sign, fragment = target.partition("#")
        try:
            return self._base.join(plain) + sign + fragment
        except BadUrl:
            return None


def _remove_anchors(tree: "html.HtmlElement") -> None:
    """Remove the links of headings and definitions to themselves (`¶`), and the names of places (`<a name="x">`), by
    which trafilatura takes headings for navigation."""
    for anchor in [*tree.iter("a")]:
        href = anchor.get("href")
        if href is None:
            if anchor.getparent() is not None:
                anchor.drop_tag()
            continue
        if not href.startswith("#"):
            continue
        if "".join(anchor.itertext()).strip().lower() in _ANCHOR_TEXTS and anchor.getparent() is not None:
            anchor.drop_tree()


def _separate_divisions(tree: html.HtmlElement) -> None:
    """Make paragraphs of the divisions in list items that hold only a line: trafilatura would join their words."""
    for item in tree.iter("li"):
        for division in item.iter("div"):
            if all(child.tag in _INLINE_TAGS for child in division):
                division.tag = "p"


_TITLES_IN_CELLS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
"""Elements that no table of data has: with one, a table only arranges parts of the page."""


_PARTS_OF_CELLS = frozenset(("blockquote", "div", "p", "pre", "section"))
"""Elements on lines of their own that trafilatura keeps in cells."""


_LISTS = ("ul", "ol", "dl")


def _simplify_tables(tree: html.HtmlElement) -> None:
    """Put the caption of each table before it, and make paragraphs of the lists in the cells of tables of data:
    trafilatura would take a caption for a row, and leave out lists in cells."""
    for table in [*tree.iter("table")]:  # a list, because the tree changes
        for caption in table.findall("caption"):
            caption.tag = "p"
            table.addprevious(caption)
        if not _has_data(table):
            continue
        for part in [*table.iter(*_LISTS, "li", "dt", "dd", "center", *_PARTS_OF_CELLS)]:
            if part.tag == "li":
                first = part  # the element with the first words
                while not (first.text or "").strip() and len(first) and first[0].tag in _PARTS_OF_CELLS:
                    first = first[0]
                first.text = f"- {(first.text or '').lstrip()}"
            if part.tail and part.tail.strip():  # the text behind a part would be left out, too
                rest = part.makeelement("p")
                rest.text, part.tail = part.tail, None
                part.addnext(rest)
            if part.tag not in _PARTS_OF_CELLS:
                inner = next(part.iterdescendants(*_LISTS, *_PARTS_OF_CELLS), None)
                is_line = part.tag in ("li", "dt", "dd") and inner is None
                part.tag = "p" if is_line else "div"


def _has_data(table: _Element) -> bool:
    """Return whether a table has data in rows and columns, and does not only arrange parts of the page."""
    if any(one is not table for one in table.iter("table", *_TITLES_IN_CELLS)):
        return False
    return sum(1 for row in table.iter("tr") if sum(1 for _ in row.iter("td", "th")) > 1) > 1


def _take_codes(tree: "html.HtmlElement", nonce: str) -> list[CodeBlock]:
    """Replace each `pre` by a paragraph with a placeholder, and return their texts.

    trafilatura would change the white space of some. The placeholder has the words of the code, by which trafilatura
    judges the text around it."""
    codes: list[CodeBlock] = []
    for figure in [*tree.iter("figure")]:
        if next(figure.iterdescendants("pre"), None) is not None:
            figure.tag = "div"
            for caption in figure.iterdescendants("figcaption"):
                caption.tag = "p"
    for inline in [*tree.iter("code", "kbd", "samp", "tt")]:  # around a `pre`, whose text is code already
        if next(inline.iterdescendants("pre"), None) is not None:
            inline.tag = "div"
    for element in [*tree.iter("pre")]:  # a list, because the tree changes
        parent = element.getparent()
        if parent is not None and _is_line_numbers(element):
            element.drop_tree()
            continue
        if parent is None or element.getroottree().getroot() is not tree:  # it was removed with an element around it
            continue
        for inner in [*element.iter()]:
            if inner is not element and isinstance(inner.tag, str) and _is_line_numbers(inner):
                inner.drop_tree()
        for line_break in element.iter("br"):
            line_break.tail = "\n" + (line_break.tail or "")
        text = "".join(element.itertext()).replace("\r\n", "\n").replace("\r", "\n")
        words = " ".join(text[:_SHOWN_WORDS_CHARACTERS].split())
        if not words:
            continue
        paragraph = element.makeelement("p")
        paragraph.text = f" {nonce}x{len(codes)}x {words} x{nonce} "
        codes.append(CodeBlock(text, _language_of(element)))
        table = _frame_of(element)  # which only has line numbers beside it
        replaced = _outermost_frame(element if table is None else table)
        outer = replaced.getparent()
        if outer is None:
            replaced, outer = element, parent
        paragraph.tail = replaced.tail  # the text behind an element belongs to it in lxml
        outer.replace(replaced, paragraph)
    return codes


def _is_line_numbers(element: _Element) -> bool:
    """Return whether the element, or the one around it, has a class of line numbers."""
    for one in (element, element.getparent()):
        if one is not None and (names := one.get("class")) and _LINE_NUMBERS.search(names):
            return True
    return False


def _frame_of(element: _Element) -> _Element | None:
    """Return the table that only sets line numbers beside this `pre`; None: there is none."""
    cell = next((one for one in element.iterancestors() if one.tag in ("td", "table")), None)
    if cell is None or cell.tag != "td":
        return None
    table = next(cell.iterancestors("table"), None)
    if table is None or sum(1 for _ in table.iter("tr")) != 1:
        return None
    numbers = [one for one in table.iter("td") if one is not cell and _LINE_NUMBERS.search(one.get("class") or "")]
    return table if numbers and len(numbers) == sum(1 for _ in table.iter("td")) - 1 else None


_CODE_FRAMES = frozenset(("div", "figure", "span"))
"""Elements that may only frame code."""


def _outermost_frame(element: _Element) -> _Element:
    """Return the outermost element around code that holds no other text but that of buttons, or the code itself.

    trafilatura leaves out figures, and divisions whose class speaks of a toolbar or the like, with the code in them."""
    frame = element
    for outer in element.iterancestors():
        others = (one for one in outer if one is not frame)
        if outer.tag not in _CODE_FRAMES or _has_text(outer.text, frame.tail):
            break
        if any(_has_text(one.tail) or (one.tag != "button" and _has_text(*map(str, one.itertext()))) for one in others):
            break
        frame = outer
    return frame


def _has_text(*texts: str | None) -> bool:
    return any(text and not text.isspace() for text in texts)


def _language_of(element: _Element) -> str:
    """Return the language that a `pre`, the `code` in it, or one of the two elements around it names."""
    candidates = [element, *element.iterfind("code")]
    for outer in element.iterancestors():
        if len(candidates) > 3 or outer.tag in ("body", "main", "article"):
            break
        candidates.append(outer)
    for one in candidates:
        name = one.get("data-lang") or one.get("data-language") or ""
        if not name and (match := _LANGUAGE.search(one.get("class") or "")):
            name = match[1]
        name = name.lower()
        if name and name not in _NO_LANGUAGES and re.fullmatch(r"[\w+#.-]{1,20}", name):
            return name
    return ""


_OPTIONS: dict[str, Any] = {
    "fast": True,
    "comments": False,
    "tables": True,
    "links": True,
    "formatting": True,
    "output_format": "xml",  # leaves out the text in trafilatura's own form
}
"""Options of trafilatura's Extractor. Without `links` and `formatting`, Markdown would lose them."""
_SHORT_CHARACTERS = 500
"""A content that is shorter may be put together from paragraphs alone, because trafilatura found too little. It is
compared with the element that the page declares to be its main one."""
_WHOLE_FACTOR = 2
"""The declared element is taken instead if its text is at most so many times as long; a longer one holds more than the
main content."""


def _main_element(tree: html.HtmlElement) -> _Element | None:
    """Return the main content as a tree of trafilatura's elements; None: the page has none.

    trafilatura searches strictly first (without `recall`), and only if it finds nothing also where navigation may be.
    """
    if not any(isinstance(found := expression(tree), list) and found for expression in BODY_XPATH):
        # trafilatura would search the whole page for paragraphs, and lose headings and lists.
        _mark_main(tree)
    for recall in (False, True):
        document = bare_extraction(tree, options=Extractor(**_OPTIONS, recall=recall))
        body: _Element | None = getattr(document, "body", None)
        if body is None or not (length := _text_length(body)):
            continue
        if length < _SHORT_CHARACTERS and (whole := _whole_main(tree)) is not None:
            return whole if _text_length(whole) <= _WHOLE_FACTOR * length else body
        return body
    return None


_TEXT_TAGS = frozenset(("p", "pre", "li", "td", "dd", "dt", "blockquote", "h1", "h2", "h3", "h4"))
"""Elements whose own text counts as text of the page."""
_FRAME_TAGS = frozenset(("nav", "footer", "aside", "header", "form", "script", "style", "noscript", "template"))
"""Elements that are around the main content and never in it, for this count."""
_MAIN_SHARE = 0.8
"""Share of the page's text that its main element has, if the page declares none. With less, parts of the text may be
lost; with more, navigation may stay."""


def _mark_main(tree: html.HtmlElement) -> None:
    """Mark the innermost element that has most of the page's text, so that trafilatura takes it for the main one.

    Computes the length of the text in each element, then goes from the body inwards, as long as one child has at least
    _MAIN_SHARE of the body's text."""
    body = tree.find("body")
    if body is None:
        return
    lengths: dict[_Element, int] = {}
    for element in _post_order(body):
        own = 0
        if element.tag in _TEXT_TAGS:
            own = len((element.text or "").strip()) + sum(len((child.tail or "").strip()) for child in element)
        total = own + sum(lengths.get(child, 0) for child in element if child.tag not in _FRAME_TAGS)
        parent = element.getparent()
        if element.tag in _INLINE_TAGS and parent is not None:
            total += len((element.text or "").strip())
        lengths[element] = total
    wanted = _MAIN_SHARE * lengths[body]
    main = body
    while (best := max(main, key=lambda child: lengths.get(child, 0), default=None)) is not None:
        if best.tag not in ("div", "section", "article", "center") or lengths.get(best, 0) < wanted or not wanted:
            break
        main = best
    if main is body:  # trafilatura takes no body: put all that it holds into a division
        main = body.makeelement("div")
        main.text, body.text = body.text, None
        main.extend(list(body))
        body.append(main)
    main.tag = "div"
    main.set("role", "main")


def _post_order(root: _Element) -> Iterator[_Element]:
    """Yield the elements of a tree, each after those in it."""
    for _, element in etree.iterwalk(root, events=("end",)):
        if isinstance(element.tag, str):
            yield element


def _whole_main(tree: html.HtmlElement) -> _Element | None:
    """Return the whole main element of a page, of which nothing is left out; None: the page declares none."""
    found = tree.xpath('(.//main | .//*[@role="main"] | .//article)[1]')
    if not isinstance(found, list) or not found:
        return None
    options = Extractor(**_OPTIONS)
    whole: _Element = convert_tags(tree_cleaning(deepcopy(found[0]), options), options)
    for table in [*whole.iter("table")]:
        _convert_table(table)
    return whole


def _convert_table(table: _Element) -> None:
    """Give the rows and cells of a table the names that trafilatura gives them, and each row all of its columns. A
    table around other tables only arranges them."""
    is_frame = next(table.iterdescendants("table"), None) is not None
    taken: dict[int, int] = {}  # by column: number of the next rows that a cell of a row before reaches into
    for row in [one for one in table.iter("tr") if next(one.iterancestors("table")) is table]:
        row.tag = "div" if is_frame else "row"
        column = 0
        for cell in [one for one in row if one.tag in ("td", "th")]:
            if is_frame:
                cell.tag = "div"
                continue
            while taken.get(column, 0) and column < _MAX_COLUMNS:
                taken[column] -= 1
                column += 1
                cell.addprevious(cell.makeelement("cell"))
            if cell.tag == "th":
                cell.set("role", "head")
            cell.tag = "cell"
            wide, high = _span(cell, "colspan"), _span(cell, "rowspan")
            for _ in range(wide - 1):
                cell.addnext(cell.makeelement("cell"))
            taken |= dict.fromkeys(range(column, column + wide), high - 1)
            column += wide
    if is_frame:
        table.tag = "div"


_MAX_COLUMNS = 100
"""Most columns and rows that a cell may reach over; a page may claim any number."""


def _span(cell: _Element, name: str) -> int:
    """Return the number of columns (`colspan`) or rows (`rowspan`) that a cell reaches over."""
    value = cell.get(name) or ""
    return min(int(value), _MAX_COLUMNS) if value.isascii() and value.isdigit() and int(value) else 1


def _text_length(element: _Element) -> int:
    """Return the number of characters of an element's text, white space counted once."""
    return len(" ".join("".join(map(str, element.itertext())).split()))
