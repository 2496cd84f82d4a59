"""Questions to a fake web's access log: what was fetched, how often, how fast, how much at once.

Tests judge a crawler's politeness and exactness by these answers, so a change must never make them milder: a window
stays half open, a request that has not ended counts as running, and only robots.txt is no page. Functions may be added.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from gossamer.fakeweb.journal import How, Record

Counted = Callable[[Record], bool]
"""Decides whether a request counts (True) for a question."""


def is_page(record: Record) -> bool:
    """Return whether the request is not for robots.txt, which no politeness budget covers (RFC 9309)."""
    return record.path != "/robots.txt"


def domain_of(host: str) -> str:
    """Return the registered domain of a fake host: under the public suffix list's default rule, its last two labels."""
    return ".".join(host.split(".")[-2:])


def read(file: Path) -> list[Record]:
    """Return the records of a log file, in order of arrival. Raises `msgspec.DecodeError` for another file."""
    records = msgspec.json.Decoder(Record).decode_lines(file.read_bytes())
    return sorted(records, key=lambda record: record.started)


def fetches(records: Iterable[Record], *, counted: Counted = is_page) -> Counter[str]:
    """Count the requests for each URL, whatever the answer."""
    return Counter(record.url for record in records if counted(record))


def repeated(records: Iterable[Record], *, counted: Counted = is_page) -> dict[str, int]:
    """Return the URLs whose page was sent whole with status 200 more than once, and how often."""
    whole = fetches(records, counted=lambda record: counted(record) and arrived(record))
    return {url: count for url, count in whole.items() if count > 1}


def max_in_any_window(
    records: Iterable[Record], name: str, window_seconds: float, *, counted: Counted = is_page
) -> int:
    """Return the highest number of requests that began within any `window_seconds`, to a domain or a host `name`.

    The window is half open: of two requests exactly `window_seconds` apart, it has one.
    """
    most = 0
    window: deque[float] = deque()
    for started in sorted(record.started for record in records if _of(record, name) and counted(record)):
        while window and started - window[0] >= window_seconds:
            window.popleft()
        window.append(started)
        most = max(most, len(window))
    return most


def max_concurrency(records: Iterable[Record], name: str, *, counted: Counted = is_page) -> int:
    """Return the highest number of requests that were being answered at one moment, for a domain or a host `name`.

    A request that has not ended counts as running for ever.
    """
    edges: list[tuple[float, int]] = []  # (time, 1 for a start or -1 for an end)
    for record in records:
        if _of(record, name) and counted(record):
            edges.append((record.started, 1))
            edges.append((float("inf") if record.ended is None else record.ended, -1))
    most = current = 0
    for _, step in sorted(edges):  # at one moment ends sort before starts
        current += step
        most = max(most, current)
    return most


def by_domain(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the records of each registered domain, in their order."""
    domains: dict[str, list[Record]] = {}
    for record in records:
        domains.setdefault(domain_of(record.host), []).append(record)
    return domains


def arrived(record: Record) -> bool:
    """Return whether the page was sent whole with status 200."""
    return record.status == 200 and record.how is How.WHOLE and record.method != "HEAD"


def _of(record: Record, name: str) -> bool:
    """Return whether the request was to this host or one below this domain."""
    return record.host == name or record.host.endswith(f".{name}")
