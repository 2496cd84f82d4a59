"""What a spider is to the worker: it gets pages and yields items and links."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar

from gossamer.extract.links import Links
from gossamer.model.record import PageRecord


@dataclass(frozen=True, slots=True)
class Follow:
    """A link that a spider wants crawled, under the same terms as the page; the crawl's filters apply to it."""

    url: str
    """Joined to the page's own URL where it is relative."""
    _: KW_ONLY
    spider: str | None = None
    """Which spider gets the page; None: this one. In a crawl from the command line a link to one that is not installed
    is dropped; in a service it waits for a worker that has it."""
    attrs: Mapping[str, Any] | None = None
    """In place of the page's attrs; None: those go on."""
    priority: int | None = None
    """None: the page's minus 10, as for every discovered link."""
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    again: bool = False
    """Fetch it even when this crawl has seen it. Beware of loops: nothing else ends them."""


class Page:
    """A fetched page, as a spider sees it."""

    def __init__(
        self, record: PageRecord, body: bytes, text: str, extract: "Links | None", *, priority: int = 0
    ) -> None:
        self.record = record
        """Everything the page's record says; what a spider changes there is what the outputs get."""
        self.body = body
        """Decoded from its content encoding, at most the body limit."""
        self.text = text
        """The body as text, by the encoding it declares; what cannot be decoded became U+FFFD. Empty if binary."""
        self.links = extract
        """The links in scope, canonical. None where the page is no HTML."""
        self.priority = priority
        """Of the page's request."""

    @property
    def url(self) -> str:
        """Where the page was in the end, after redirects."""
        return self.record.response_url

    @property
    def status(self) -> int:
        return self.record.status_code

    @property
    def depth(self) -> int:
        return self.record.depth

    @property
    def attrs(self) -> dict[str, Any]:
        """What the submission (or the link that led here) said; never None."""
        return self.record.attrs or {}

    @cached_property
    def headers(self) -> dict[str, list[str]]:
        """By lower-case name."""
        lower: dict[str, list[str]] = {}
        for name, values in self.record.response_headers.items():
            lower.setdefault(name.lower(), []).extend(values)
        return lower


class Spider:
    """Subclass it, implement `parse`, and name it in the entry point group `gossamer.spiders`:

    [project.entry-points."gossamer.spiders"]
    prices = "shop.spiders:PriceSpider"

    One object serves all pages of a crawl in a process; `parse` calls overlap.
    """

    follows_all_links: ClassVar[bool] = False
    """True: every link in scope is followed without `parse` being asked, which costs no object per link."""
    ignores_maxdepth: ClassVar[bool] = False
    """True: links are followed at any depth, whatever `maxdepth` the crawl asks for."""

    def parse(self, page: Page) -> AsyncIterator[Mapping[str, Any] | Follow]:
        """Yield items (mappings, which go to the outputs) and links (`Follow`). An exception fails the page."""
        raise NotImplementedError
