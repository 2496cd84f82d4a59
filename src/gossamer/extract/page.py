"""A fetched page as spiders, the Python API and `gossamer shell` see it, and the links that they follow.

A spider is the code that a user writes to read pages; a record is what outputs keep of a page. Spiders outside this
project use `Page`, `PageLink` and `Follow`: their names, attributes and defaults are fixed. `Page` and `Follow` may get
new attributes with a default, but `PageLink` may not: spiders unpack it. What is computed from the record and the body
must be computed on first use, so that a spider pays only for what it asks.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, NamedTuple, overload

from gossamer.errors import BadInput, BadUrl
from gossamer.extract.document import HtmlDocument
from gossamer.extract.encoding import decode, is_html
from gossamer.extract.links import base_of, list_links
from gossamer.extract.selection import Selector, SelectorList, select_css, select_xpath
from gossamer.model.content import PageContent
from gossamer.model.record import PageRecord
from gossamer.policy.urls import BaseUrl

_TEXT_TYPE = re.compile(r"\s*(?:text/|application/(?:[\w.-]+\+)?(?:json|xml|javascript))", re.IGNORECASE)
"""Content types whose body is text even where some of its bytes are not."""


_FOLLOW_TYPES: tuple[tuple[str, Any, str], ...] = (
    ("url", str, "a text"),
    ("spider", str | None, "the name of a spider"),
    ("attrs", Mapping | None, "a dictionary"),
    ("priority", int | None, "a whole number"),
    ("method", str, "a text such as POST"),
    ("body", bytes, "bytes, such as b'a=1'"),
    ("headers", Mapping | None, "a dictionary"),
    ("render", bool | None, "True or False"),
)
"""Types of the fields of a link, and what a message calls them. To add a field to `Follow`, add it here."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Link that a spider asks the crawl to fetch. The options and filters of the page's crawl apply to it."""

    url: str
    """Absolute, or relative to the page's URL."""
    _: KW_ONLY
    spider: str | None = None
    """Spider that handles the linked page; None: this one. In a crawl of the command line, a link to a spider that is
    not installed is dropped; in a service it waits for a worker that has the spider."""
    attrs: Mapping[str, Any] | None = None
    """Attributes of the request; None: those of the page."""
    priority: int | None = None
    """Priority of the request; higher ones are fetched first. None: the page's minus 10
    (`policy.priorities.PRIORITY_STEP`), as for every discovered link."""
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    again: bool = False
    """True: fetch the link even if the crawl has seen it. The spider must then prevent endless loops itself."""
    render: bool | None = None
    """True: render the linked page in a browser; it waits for a worker that has one. False: fetch it plainly. None: as
    the crawl's request says (`render`)."""

    def __post_init__(self) -> None:
        """Raise BadInput for a value of the wrong type, where the spider wrote it: later its line is not known."""
        for name, kinds, words in _FOLLOW_TYPES:
            value = getattr(self, name)
            if not isinstance(value, kinds):
                raise BadInput(f"page.follow: {name} is {value!r:.60}, but must be {words}.")


class PageLink(NamedTuple):
    """Link of a page."""

    url: str
    """Absolute URL without its fragment."""
    text: str
    """Text of the link, without surplus white space; cut after 500 characters (`links.MAX_TEXT_LENGTH`)."""


_SHOWN_LINKS = 5
"""Links that the `repr` of a page's links shows."""


class PageLinks(Sequence[PageLink]):
    """Links of a page to http and https, one for each `a`, `area`, `iframe` and `frame`, in document order."""

    def __init__(self, pairs: Sequence[tuple[str, str]], in_scope: Callable[[], list[str]] | None) -> None:
        """`pairs`: URL and text of each link. `in_scope`: returns `urls`; None: all URLs of `pairs` are in scope."""
        self._pairs = pairs
        self._in_scope = in_scope

    @cached_property
    def urls(self) -> list[str]:
        """URLs that the crawl's scope allows, canonical and each once."""
        if self._in_scope is None:
            return list(dict.fromkeys(url for url, _ in self._pairs))
        return self._in_scope()

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, at: int) -> PageLink: ...
    @overload
    def __getitem__(self, at: slice) -> list[PageLink]: ...
    def __getitem__(self, at: int | slice) -> PageLink | list[PageLink]:
        if isinstance(at, slice):
            return [PageLink(*pair) for pair in self._pairs[at]]
        return PageLink(*self._pairs[at])

    def __iter__(self) -> Iterator[PageLink]:
        return (PageLink(url, text) for url, text in self._pairs)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:_SHOWN_LINKS]))
        return f"[{shown}{f', … {len(self)} in all' if len(self) > _SHOWN_LINKS else ''}]"


class Page:
    """Fetched page."""

    def __init__(
        self,
        record: PageRecord,
        body: bytes,
        text: str | None,
        *,
        document: HtmlDocument | None,
        priority: int = 0,
        in_scope: Callable[[HtmlDocument], list[str]] | None = None,
    ) -> None:
        """`text`: body as text; None: it has bytes that cannot be decoded. `document`: None: the body is not HTML, so
        that it has no elements and no links. `in_scope`: returns the URLs of the links that the crawl may follow; None:
        all of them."""
        self.record = record
        """The page's record. Changes that a spider makes go to the outputs."""
        self.body = body
        """Body without content encoding, cut where the response exceeded the crawl's limit of bodies."""
        self.priority = priority
        """Priority of the page's request."""
        self.items: list[dict[str, Any]] = []
        """Items that the crawl extracted from the page. Only a loop over a crawl (Python API) finds them here: a spider
        gets the page before items are extracted."""
        self.opened: Any = None
        """Result of `Spider.on_page`, of a page that a browser has built."""
        self._text = text
        self._document = document
        self._in_scope = in_scope

    @classmethod
    def of_record(cls, record: PageRecord, body: bytes) -> "Page":
        """Return the page of a record, without the crawl's filters. `body`: the bytes of the body, which the
        record has encoded as text."""
        is_page = is_html(record.content_type, body, record.header_pairs)
        document = HtmlDocument(body, record.encoding or None) if is_page else None
        return cls(record, body, record.body if record.body_encoding == "text" else None, document=document)

    @property
    def url(self) -> str:
        """URL of the page after redirects."""
        return self.record.response_url

    @property
    def status_code(self) -> int:
        """HTTP status of the response."""
        return self.record.status_code

    @property
    def status(self) -> int:
        """Status code, under its shorter name."""
        return self.record.status_code

    @property
    def depth(self) -> int:
        """Number of links between a given URL and this page."""
        return self.record.depth

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the submission, or of the link that led here; never None."""
        return self.record.attrs or {}

    @property
    def content(self) -> PageContent | None:
        """Main content as text or Markdown, in a loop over a crawl that asked for it. None: the page has none."""
        return self.record.content

    @cached_property
    def headers(self) -> dict[str, list[str]]:
        """Response headers by lower-case name."""
        lower: dict[str, list[str]] = {}
        for name, values in self.record.response_headers.items():
            lower.setdefault(name.lower(), []).extend(values)
        return lower

    @cached_property
    def text(self) -> str:
        """Body as text, in the encoding that it declares; bytes that cannot be decoded became U+FFFD. Empty if
        binary."""
        if self._text is None and (self._document is not None or _TEXT_TYPE.match(self.record.content_type)):
            return decode(self.body, self.record.content_type)[0]
        return self._text or ""

    @property
    def is_html(self) -> bool:
        """True: the page has elements and links."""
        return self._document is not None

    # --- contents -----------------------------------------------------------------------------------------------------

    def css(self, selector: str) -> SelectorList:
        """Return what a CSS selector matches; `::text` and `::attr(name)` select texts and attributes. Raises
        BadInput."""
        document = self._document
        if document is None:
            return select_css(None, selector)
        self._note_what_is_not_searched(document)
        return select_css(document.root, selector)

    def xpath(self, expression: str) -> SelectorList:
        """Return what an XPath expression matches. It needs lxml, the extra `xpath`. Raises
        BadInput."""
        return select_xpath(self._xpath_root, expression)

    def _xpath_root(self) -> Any:
        """Return the page's element for XPath; None: it has none."""
        if self._document is None:
            return None
        self._note_what_is_not_searched(self._document)
        return self._document.xpath_root

    def _note_what_is_not_searched(self, document: HtmlDocument) -> None:
        """Set the record's `extract_error` if selectors see nothing of the page, or only its beginning."""
        if document.tree is None:
            self.record.extract_error = "too_complex"
        elif document.cut:
            self.record.extract_error = "cut"

    def json(self) -> Any:
        """Return the body as JSON. Raises ValueError."""
        try:
            return json.loads(self.text or self.body)
        except ValueError as error:
            kind = self.record.content_type or "not given"
            raise ValueError(f"{self.url} is not JSON: {error}; its Content-Type is {kind}") from None

    @cached_property
    def jsonld(self) -> list[dict[str, Any]]:
        """Objects in the page's JSON-LD (`<script type="application/ld+json">`), those of lists and of `@graph` one by
        one."""
        from gossamer.extract.sources import json_ld  # imported late: every crawl starts with this module

        tree = self._document.tree if self._document else None
        return list(_objects(json_ld(tree))) if tree is not None else []

    @cached_property
    def links(self) -> PageLinks:
        """Links of the page; empty if it is not HTML."""
        document, in_scope = self._document, self._in_scope
        if document is None:
            return PageLinks((), None)
        pairs = list_links(document, self.url, encoding=self._encoding)
        return PageLinks(pairs, None if in_scope is None else lambda: in_scope(document))

    # --- following ----------------------------------------------------------------------------------------------------

    def follow(self, link: str | PageLink | Selector | SelectorList, **options: Any) -> Follow:
        """Return a link for the crawl to follow; a spider yields it.

        `link`: URL, absolute or relative to the page; one of `links`; an element with `href` or `src`; or the value of
        such an attribute, from `css` or `xpath`. A link to anything but a web page, such as `mailto:`, is dropped and
        counted when it is yielded. `options`: those of `Follow`. Raises BadInput for what is no link.
        """
        if isinstance(link, PageLink):
            return Follow(link.url, **options)  # it is absolute
        href = _href(link)
        with contextlib.suppress(BadUrl):
            href = self.urljoin(href)
        return Follow(href, **options)

    def urljoin(self, href: str) -> str:
        """Return the absolute URL of a link of this page, without its fragment. Raises BadUrl for what is no web
        page."""
        return self._base.join(href)

    @property
    def _encoding(self) -> str | None:
        """Python codec of the body; None: unknown."""
        return self.record.encoding or None

    @cached_property
    def _base(self) -> BaseUrl:
        """URL that relative links are resolved against."""
        trees = self._document.trees() if self._document else ()
        # `base_of` returns None for a tree without a `base` element.
        return BaseUrl(next(filter(None, (base_of(tree, self.url) for tree in trees)), self.url))

    def __repr__(self) -> str:
        return f"<Page {self.status_code} {self.url}>"


def _objects(values: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects among JSON values, and those directly in lists and in `@graph`."""
    for value in values:
        if isinstance(value, list):
            yield from (one for one in value if isinstance(one, dict))
        elif isinstance(value, dict):
            graph = value.get("@graph")
            if isinstance(graph, list):
                yield from (one for one in graph if isinstance(one, dict))
            else:
                yield value


def _href(link: str | Selector | SelectorList) -> str:
    """Return the URL of anything that names a link. Raises BadInput."""
    if isinstance(link, SelectorList):
        if not link:
            raise BadInput("page.follow: the selector found nothing. Check its result before, for example with `if`.")
        link = link[0]
    if isinstance(link, Selector):
        if link.is_text:
            return link.get()
        attributes = link.attrib
        for name in ("href", "src"):
            if name in attributes:
                return attributes[name]
        raise BadInput(f"page.follow: the element {link!r} has neither href nor src. Select an element that has one.")
    if isinstance(link, str):
        return link
    raise BadInput(f"page.follow: {type(link).__name__} is no link. Pass a URL, a link of page.links, or an element.")
