"""Records: the output of Gossamer, one for each request, and one for each item that a spider extracts.

They have the fields that consumers of Scrapy Cluster know, and more. Names and types of fields must not change, because
those consumers read them. A new field goes to the end of its class and, at the same place, into `required` of
`messages/schemas/page.json` or `item.json` (a test compares). It also becomes a column of Parquet outputs, which then
refuse to continue files that lack it. WireExchange and Output stay inside the process: free to change. The words of
`Destination.records` stand in users' settings and must stay.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from gossamer.model.assets import Asset
from gossamer.model.content import PageContent


class RedirectHop(msgspec.Struct, frozen=True):
    """One redirect: the requested URL, and the status of its response."""

    url: str
    status: int


class RecordLink(msgspec.Struct, frozen=True):
    """One link of a page: its URL, and its anchor text."""

    url: str
    text: str


class FailedLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Request of a rendered page that failed."""

    url: str
    reason: str
    """Kind of the error, or `http_` and the status."""


class CapturedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer in JSON that a rendered page has fetched."""

    url: str
    method: str
    status: int
    data: Any


class Rendering(msgspec.Struct, frozen=True, kw_only=True):
    """Course of the rendering of one page in a browser."""

    because: str
    """Reason why the page was rendered: `asked` by its request, `match` for a URL pattern, or `auto` by the decision in
    `PageRecord.render_choice`."""
    ended: Literal["quiet", "time", "moved"]
    """Reason why the waiting ended. quiet: the document changed no more; time: the limit of seconds was reached, and
    the document was taken as it was; moved: the page led to another URL."""
    seconds: float
    """From the beginning of the rendering to its end."""
    requests: int
    """Requests of the page that were sent, besides its own."""
    refused: int
    """Requests of the page that were not sent: by robots.txt, kind, host or limit."""
    cached: int
    """Requests that the cache answered."""
    bytes: int
    """Bytes received for these requests."""
    steps: tuple[int, ...] = ()
    """For each step of the crawl, how often it was taken on this page."""
    screenshot: Literal["", "taken", "missing", "failed"] = ""
    """Result of the screenshot. Empty: none was asked for; missing: the page has no such element, or does not show it;
    failed: the browser did not return one."""
    console: tuple[str, ...] = ()
    """Errors in the console of the page, a few of them."""
    failed: tuple[FailedLoad, ...] = ()
    """Requests of the page that failed, a few of them."""
    answers: tuple[CapturedAnswer, ...] = ()
    """Answers in JSON whose URLs the crawl captures."""
    answers_left_out: int = 0
    """Captured answers that are no JSON, or more or longer than a record takes."""


RefusalKind = Literal["challenge", "captcha", "denied", "login", "consent", "same", "not_found", "empty"]
"""Kinds of refusals. challenge: a script or a wait stands before the page; captcha: a person is asked for; denied: a
firewall blocks the request; login: the form of a login comes in place of the page; consent: a question for consent
does; same: many other URLs have got the same page; not_found: the page says that there is none, although its status is
that of a page; empty: a shell without content, which scripts would build. Fixed: records and reasons have them."""


class PageRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Finding that a response is no page, but the refusal of one."""

    kind: RefusalKind
    rule: str
    """Name of the rule by which it was found."""
    evidence: list[str]
    """Signs that the rule has found in the response, in words."""
    version: int
    """Version of the rules."""


class PageRecord(msgspec.Struct, kw_only=True):
    """A page, or the reason why there is none: then `success` is false, and the fields of the response may be empty."""

    type: Literal["page"] = "page"
    appid: str
    crawlid: str
    spiderid: str
    request_id: str
    """Id of the request, the same on every attempt, by which a consumer recognises repeats."""
    attempt: int
    """0 at first; each retry adds one, and so does each worker that dies while it holds the request."""
    depth: int
    """Number of links between a submitted URL and this page."""
    url: str
    """The requested URL."""
    response_url: str
    """URL of the response, after redirects."""
    status_code: int
    """0: no response came. A request may have failed in spite of a status, because the body was unusable."""
    status_msg: str
    response_headers: dict[str, list[str]]
    request_headers: dict[str, list[str]]
    body: str
    body_encoding: Literal["text", "base64"]
    """`text` if the body decodes without errors, else `base64` of its bytes."""
    encoding: str
    """Character encoding that was detected."""
    content_type: str
    links: list[RecordLink]
    """Empty unless the crawl asked for links."""
    attrs: dict[str, Any] | None
    """Data that the submission carries for its sender; Gossamer only copies it."""
    timestamp: str
    """Time in UTC, ISO 8601."""
    success: bool
    reason: str
    """Reason why there is no page; empty on success."""
    exception: str
    """Error behind the reason; empty on success."""
    redirects: list[RedirectHop]
    timings: dict[str, float]
    """Seconds for `dns`, `connect`, `tls`, `first_byte` and `total`."""
    ip: str
    """Address of the server."""
    truncated: bool
    """True: the body is incomplete: it was cut at the size limit, or its encoding was damaged or ended early."""
    content: PageContent | None = None
    """Main content as text or Markdown. None: the crawl did not ask for it, or the page is not HTML."""
    extract_error: str = ""
    """Reason why extraction rules have taken no item, or not all items, from the page; empty: they took all.
    `too_complex`: the page was not parsed, because that might take far too long. `cut`: it is longer than 2 MiB, and
    only its beginning was searched. `limit`: it has too many items, or
    items that are too long together."""
    rendering: Rendering | None = None
    """Course of the rendering in a browser. None: the page was not rendered."""
    render_choice: str = ""
    """Decision of `--render auto` on the page, `rendered` or `plain`, and its reason: `rendered:change`. Empty: the
    crawl leaves no choice, or there was no page to decide on."""
    refusal: PageRefusal | None = None
    """The response is a refusal, and this is its kind and evidence; `reason` is `refused_` and the kind. None: it is
    not."""

    @property
    def header_pairs(self) -> Iterator[tuple[str, str]]:
        """Name and value of each line of the response's headers."""
        return ((name, value) for name, values in self.response_headers.items() for value in values)


class ItemRecord(msgspec.Struct, kw_only=True):
    """An item that a spider extracted from a page."""

    type: Literal["item"] = "item"
    appid: str
    crawlid: str
    spiderid: str
    request_id: str
    attempt: int
    url: str
    attrs: dict[str, Any] | None
    timestamp: str
    item: dict[str, Any]


class WireExchange(msgspec.Struct, kw_only=True, frozen=True):
    """A request and its response as they went over the wire, for sinks that archive them (WARC)."""

    request_head: bytes
    request_body: bytes
    response_head: bytes
    response_body: bytes
    """Still content-encoded, but de-chunked."""
    ip: str
    url: str
    timestamp: str
    """Time in UTC, ISO 8601, as in PageRecord."""
    truncated: bool


class Output(msgspec.Struct, kw_only=True):
    """One record for the sinks (the outputs of a worker), with its raw body. `wires`: one exchange for each redirect
    and for the page itself, if a sink wants them."""

    record: PageRecord | ItemRecord
    body: bytes = b""
    wires: tuple[WireExchange, ...] = ()
    body_apart: bool = False
    """True: the text of the body is only in `body`, as UTF-8, and the record's own `body` is empty. Only where no sink
    has `wants_text`."""
    asset: Asset | None = None
    """The record is about an asset, a file that a page embeds or links, and its own `body` is empty. None: it is
    not."""
    refused: str = ""
    """Reason why an output can never take the record; a sink sets it. Empty: all could."""
    is_sitemap: bool = False
    """True: the record is about a sitemap."""
    new_links: int = 0
    """Number of links of the page that no page had before, where the crawl has a page index."""
    captured: float = 0.0
    """Unix time of the fetch that found the content that the record confirms (304). 0: it is not known."""


class Destination(msgspec.Struct, frozen=True):
    """An output as a person names it."""

    path: str
    """A file, an fsspec URL, or `-` for standard output. The ending selects the format."""
    records: Literal["auto", "pages", "items", "all"] = "auto"
    """Records that the output takes. auto: its format decides."""

    def __str__(self) -> str:
        return self.path


def destination_fields(value: Any) -> Any:
    """Return outputs that a person named as a list of destinations or of dictionaries with their fields.

    `value`: a path, a list of paths, of pairs of path and records or of dictionaries, or a dictionary of records by
    path. Anything else is returned unchanged, for the check of the settings.
    """
    if isinstance(value, dict) and "path" not in value:
        value = list(value.items())
    elif _is_path(value) or isinstance(value, Destination | dict):
        value = [value]
    return [_fields(one) for one in value] if isinstance(value, list | tuple) else value


def _fields(value: Any) -> Any:
    """Return one destination as a dictionary with `path` and `records`. Anything else is returned unchanged."""
    if _is_path(value):
        return {"path": str(value)}
    if isinstance(value, dict) and not value.keys() <= {"path", "records"}:
        raise ValueError  # the check of the settings has the words
    return {"path": str(value[0]), "records": value[1]} if isinstance(value, tuple) and len(value) == 2 else value


def _is_path(value: object) -> bool:
    return isinstance(value, str) or hasattr(value, "__fspath__")
