"""About how much memory finished pages take, so that they can be bounded by bytes. Estimates, on the high side."""

from collections.abc import Collection
from sys import getsizeof

from gossamer.model.record import Output, PageRecord
from gossamer.model.request import Batch

OVERHEAD = 4096
"""Bytes of a page beside its body: the record, the lease, a few links."""
_MANY_LINKS = 256
_LINK_BYTES = 300
"""Of one link beside its characters: as the page spelt it, as a URL, in a batch, and on its way."""


def weight(output: Output) -> int:
    """Bytes of a page's body, its text or base64, its links with their texts, and what an archive wants of it."""
    size = OVERHEAD + len(output.body)
    record = output.record
    if isinstance(record, PageRecord):
        size += getsizeof(record.body)
        if len(record.links) > _MANY_LINKS:
            size += sum(_LINK_BYTES + len(link.url) + len(link.text) for link in record.links)
    for wire in output.wires:
        if wire.response_body is not output.body:
            size += len(wire.response_body)
    return size


def weight_of_urls(urls: Collection[str]) -> int:
    """Bytes of URLs on their way to the frontier; 0 for a few, which are in a page's overhead."""
    return sum(map(len, urls)) + _LINK_BYTES * len(urls) if len(urls) > _MANY_LINKS else 0


def weight_of_batches(batches: Collection[Batch]) -> int:
    """The same of URLs in batches."""
    return weight_of_urls([url for batch in batches for url in batch.urls])
