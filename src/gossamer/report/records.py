"""Records of a crawl as a report reads them from files.

`sinks/read.py` reads the formats. JSON Lines, which most crawls write, are read here: only the fields that a report
needs, which is faster, and past damaged lines. A file is read in the same order every time, because the report reads it
twice and numbers the pages by their place.
"""

import base64
import binascii
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import zstandard

from gossamer.errors import BadInput
from gossamer.extract.encoding import decode
from gossamer.model.record import PageRecord, RecordLink, RedirectHop
from gossamer.sinks.framing import PlainLines
from gossamer.sinks.open import CSV
from gossamer.sinks.read import TORN, Source, whole_units

_SHOWN_CHARACTERS = 200
"""Characters of an error's text that are kept."""
_LINES = frozenset({".jsonl", ".jsonl.gz", ".jsonl.zst"})
"""Endings of the files that are read here, as `Source.ending` has them. The format must be JSON Lines."""


class PageFacts(msgspec.Struct):
    """The fields of a page record (`PageRecord`) that a report needs, under the same names, which are fixed. A field
    that the record lacks has the value for "unknown"."""

    type: str = "page"
    crawlid: str = ""
    depth: int = 0
    url: str = ""
    response_url: str = ""
    status_code: int = 0
    body: str | None = None
    """None: the record was written without bodies."""
    body_encoding: str = "text"
    encoding: str = ""
    content_type: str = ""
    links: list[RecordLink] = []
    timestamp: str = ""
    success: bool = True
    reason: str = ""
    exception: str = ""
    redirects: list[RedirectHop] = []
    timings: dict[str, float] = {}
    truncated: bool = False

    @property
    def final_url(self) -> str:
        """URL of the response, after redirects."""
        return self.response_url or self.url

    def raw_body(self) -> bytes:
        """Return the body as bytes: as they came if they were no text, else as UTF-8."""
        if self.body_encoding != "base64":
            return (self.body or "").encode("utf-8", "replace")
        try:
            return base64.b64decode(self.body or "")
        except (binascii.Error, ValueError):
            return b""

    def text(self) -> str:
        """Return the body as text. Bytes that cannot be decoded become U+FFFD."""
        if self.body_encoding != "base64":
            return self.body or ""
        return decode(self.raw_body(), self.content_type).text


_line = msgspec.json.Decoder(PageFacts)


class RecordFile:
    """A file of records. `pages` may be called more than once; the other attributes describe the latest call."""

    def __init__(self, path: Path) -> None:
        """Raises BadInput for a file that does not exist or cannot be opened, and for an unknown format."""
        self.path = path
        self.items = 0
        """Records of items, which a report does not use."""
        self.unreadable = 0
        """Lines that are no records."""
        self.first_error = ""
        """Place and reason of the first of them."""
        self.torn = False
        """True: the end is incomplete, because the file is being written or its writer was killed."""
        try:
            path.open("rb").close()
            self._source = Source(path)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}. Name a file with the records of a crawl.") from None

    def pages(self) -> Iterator[PageFacts]:
        """Yield the pages in the file's order. Raises BadInput when the file cannot be read at all."""
        self.items = self.unreadable = 0
        self.first_error, self.torn = "", False
        if self._source.ending not in _LINES:
            yield from self._converted_pages()
            return
        try:
            for page in self._pages_of_lines():
                if page.type == "page" and page.url:
                    yield page
                elif page.type == "item":
                    self.items += 1
                else:
                    self._count_unreadable("a record without a URL")
        except (OSError, EOFError, zstandard.ZstdError, zlib.error) as error:
            raise BadInput(f"{self.path}: {error}") from error

    def _converted_pages(self) -> Iterator[PageFacts]:
        """Yield the pages of another format than JSON Lines, which `sinks/read.py` reads as records."""
        names = PageFacts.__struct_fields__
        for output in self._source.outputs():
            record = output.record
            if not isinstance(record, PageRecord):
                self.items += 1
                continue
            page = PageFacts(**{name: getattr(record, name) for name in names})
            if self._source.ending == CSV:
                page.body = None  # such a table has no bodies
            yield page
        self.torn = bool(self._source.lacks[TORN])

    def _count_unreadable(self, error: str) -> None:
        self.unreadable += 1
        self.first_error = self.first_error or error[:_SHOWN_CHARACTERS]

    def _pages_of_lines(self) -> Iterator[PageFacts]:
        """Yield all records of JSON Lines, those that are no pages, too."""
        self._source.lacks.clear()
        with self.path.open("rb") as stream:
            yield from self._lines(whole_units(self._source, stream, PlainLines()))
        self.torn = bool(self._source.lacks[TORN])

    def _lines(self, stream: BinaryIO) -> Iterator[PageFacts]:
        """Yield the records, and count the lines that are none. Empty lines do not count."""
        for number, line in enumerate(stream, 1):
            try:
                page = _line.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                if line.strip():
                    self._count_unreadable(f"line {number}: {error}")
            else:
                yield page
