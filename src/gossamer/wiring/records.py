"""Records of a crawl in those of its outputs that this machine can read, for `gossamer why`."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gossamer.errors import BadInput
from gossamer.model.record import ItemRecord, PageRecord
from gossamer.sinks.open import is_local, local_path
from gossamer.wiring.frontier import CrawlNote

FETCHED = "fetched"
"""End of a request with a page. Others are the reason of its record."""


class RecordsOfUrl(msgspec.Struct):
    """Records of one URL in the outputs of a crawl, and the ends of all requests with a record."""

    page: PageRecord | None = None
    """The last record of the URL's own request; else the last of a request that redirects led by the URL. None: there
    is none."""
    page_in: str = ""
    """The output with it, as the note names it."""
    items: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of the items of the URL by output."""
    unread: list[str] = []
    """Outputs that were not read, or not to their end: they are elsewhere, gone, damaged, or need a missing library."""
    ends: dict[str, tuple[str, str]] = {}
    """Spider and end of each request with a record, whatever its URL, by its id."""

    def ends_of(self, spider: str) -> Counter[str]:
        """Return the number of the spider's requests with a record, by their end."""
        return Counter(end for of, end in self.ends.values() if of == spider)


def records_of_url(note: CrawlNote, url: str) -> RecordsOfUrl:
    """Read the outputs of the crawl of the note."""
    found = RecordsOfUrl()
    for output in note.outputs:
        try:
            for record in _records(note, output):
                if isinstance(record, ItemRecord):
                    found.items[output] += record.url == url
                    continue
                found.ends[record.request_id] = (record.spiderid, FETCHED if record.success else record.reason)
                is_own = found.page is not None and found.page.url == url
                is_on_way = url == record.response_url or any(hop.url == url for hop in record.redirects)
                if url == record.url or (is_on_way and not is_own):
                    found.page, found.page_in = record, output
        except BadInput:
            found.unread.append(output)
    return found


def _records(note: CrawlNote, output: str) -> Iterator[PageRecord | ItemRecord]:
    """Yield the crawl's records in an output. Raises BadInput where it cannot be read."""
    from gossamer.sinks.read import Source  # imported late: commands that crawl do not read outputs

    if not is_local(output):
        raise BadInput(f"{output} is not a file of this machine")
    for one in Source(Path(local_path(output))).outputs():
        # Items of some formats do not name their crawl.
        if one.record.crawlid in ("", note.run.crawl.id.crawlid):
            yield one.record
