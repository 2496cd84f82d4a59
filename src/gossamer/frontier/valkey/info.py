"""Reads counters into answers."""

from collections.abc import Mapping, Sequence

import msgspec

from gossamer.frontier.valkey.codec import reading
from gossamer.model.crawl import CrawlState
from gossamer.model.info import CrawlInfo, DomainInfo, SpiderCounts

_COUNTERS = {b"a": "added", b"q": "queued", b"l": "later", b"h": "leased", b"f": "fetched"}
_REASONS = {b"F": "failed", b"D": "dropped", b"L": "links_dropped"}


def pairs(row: Sequence[bytes]) -> dict[bytes, bytes]:
    """A hash as the server sends it."""
    return dict(zip(row[::2], row[1::2], strict=True))


def count_shard(answer: CrawlInfo, row: Mapping[bytes, bytes]) -> None:
    """Add one shard's counters of a crawl."""
    answer.domains += int(row.get(b"doms", 0))
    answer.seen += int(row.get(b"n", 0))
    for field, value in row.items():
        kind, _, rest = field.partition(b":")
        if not rest:
            continue
        if kind in _COUNTERS:
            part = answer.spiders.setdefault(rest.decode(), SpiderCounts())
            name = _COUNTERS[kind]
            setattr(part, name, getattr(part, name) + int(value))
        elif kind in _REASONS:
            spider, _, reason = rest.rpartition(b":")
            part = answer.spiders.setdefault(spider.decode(), SpiderCounts())
            counts = getattr(part, _REASONS[kind])
            counts[reason.decode()] = counts.get(reason.decode(), 0) + int(value)
        elif kind == b"p":
            priority = int(rest.rpartition(b":")[2])
            answer.queued_by_priority[priority] = answer.queued_by_priority.get(priority, 0) + int(value)


def tell_early_end(answer: CrawlInfo, parts: Mapping[str, str]) -> None:
    """Name the state of a run that is over by its parts, where each that had requests was stopped or has expired.

    `parts`: spider -> letter of how its part ended.
    """
    letters = {parts.get(spider, "") for spider, counts in answer.spiders.items() if counts.added}
    if answer.state is CrawlState.FINISHED and letters and "" not in letters:
        answer.state = CrawlState.EXPIRED if letters == {"e"} else CrawlState.STOPPED


def domain_info(domain: bytes, row: bytes) -> DomainInfo:
    """One row of a crawl's shares: [reserved, fetched, spider, priority, count, ...]; the priority of what waits for a
    retry begins with `l`."""
    with reading("a domain's record"):
        share = msgspec.msgpack.decode(row)
        found = DomainInfo(domain.decode(), pages=int(share[0]))
        for index in range(2, len(share), 3):
            spider, place, count = str(share[index]), str(share[index + 1]), int(share[index + 2])
            priority = int(place.removeprefix("l"))
            if place.startswith("l"):
                found.later += count
            else:
                found.queued += count
            found.by_priority[priority] = found.by_priority.get(priority, 0) + count
            shares = found.by_spider.setdefault(spider, {})
            shares[priority] = shares.get(priority, 0) + count
        return found
