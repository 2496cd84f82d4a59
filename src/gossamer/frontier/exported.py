"""Lines of an exported crawl: what one frontier, the store of requests, hands over to another.

Each line is one object, told apart by its field `kind`. Entries are packed requests as queues hold them, without the
number of their terms (the options of one submission), which differs between frontiers: `terms` names a line of terms.

Fixed: names and types of all fields, which later releases read from files. A field may be added, with a default.
"""

import msgspec

VERSION = 1
"""Version of the lines. Increase it with every change that an older release could not read."""


class _ExportLine(msgspec.Struct, kw_only=True, tag_field="kind"):
    """Line of an export."""


class ExportHeader(_ExportLine, tag="crawl"):
    """The first line: the crawl and its run (one life of it, from its first request to its end)."""

    version: int
    frontier: str
    """Format of the frontier's entries."""
    export: str
    """Id of this export."""
    appid: str
    crawlid: str
    secret: str
    """Key of the fingerprints, a decimal number."""
    shards: int
    """Number of shards of the frontier that the crawl was on."""
    crawl: bytes
    """Its properties, packed."""
    run: int
    generation: int
    """Number of the set of requests that it has had."""
    started: int
    """Beginning of the run, in epoch ms."""
    expires: dict[str, float] = {}
    """By spider, when its part expires, in epoch seconds; 0: never."""


class ExportedTerms(_ExportLine, tag="terms"):
    """Options of one submission."""

    number: int
    packed: bytes


class ExportedFingerprints(_ExportLine, tag="seen"):
    """Fingerprints of requests that the crawl ever had on one shard."""

    shard: int
    values: list[int]


class ExportedQueue(_ExportLine, tag="queue"):
    """Requests of one queue, the oldest first."""

    spider: str
    domain: str
    priority: int
    terms: int
    entries: list[bytes]


class ExportedRetries(_ExportLine, tag="later"):
    """Requests that wait for a time."""

    spider: str
    domain: str
    priority: int
    terms: int
    entries: list[bytes]
    waits: list[float]
    """Milliseconds from the export until each is due."""


class ExportedFailures(_ExportLine, tag="failed"):
    """Failed requests that are kept for another attempt."""

    counter: str
    """Counter that counts them as failed or dropped."""
    spider: str
    domain: str
    priority: int
    terms: int
    entries: list[bytes]


class ExportedCounts(_ExportLine, tag="counts"):
    """Counters of what is done, without the failed requests that are kept."""

    fields: dict[str, int]
    pages: int
    """Pages that count in the page budget."""


class ExportedPages(_ExportLine, tag="pages"):
    """Fetched pages by domain, where a budget for each counts them."""

    domains: dict[str, int]


class ExportedGrowth(_ExportLine, tag="growth"):
    """Pages that may have no end, by the pattern of their URLs: kind, number, depth and an example."""

    patterns: dict[str, tuple[str, int, int, str]]


class ExportedTasks(_ExportLine, tag="tasks"):
    """Tasks that are done once in a crawl, and were done."""

    names: list[str]


class ExportedPolicies(_ExportLine, tag="policies"):
    """The operator's policies for domains of the crawl, packed."""

    domains: dict[str, bytes]


class ExportEnd(_ExportLine, tag="end"):
    """The last line."""

    lines: int
    """Number of the lines before it."""
    sha256: str
    """Checksum of the bytes before it, uncompressed."""


ExportedLine = (
    ExportHeader
    | ExportedTerms
    | ExportedFingerprints
    | ExportedQueue
    | ExportedRetries
    | ExportedFailures
    | ExportedCounts
    | ExportedPages
    | ExportedGrowth
    | ExportedTasks
    | ExportedPolicies
    | ExportEnd
)
