"""What the crawl left behind, held against the promises: bounded, recorded, nobody harmed, nothing private touched."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gossamer.fakeweb import Record
from gossamer_fakeweb.hostile.addresses import FORMS
from tests.hostile.expected import CUT, PAGE, WAITS, ends_of
from tests.hostile.run import INTERRUPTED, Crawled, Line, Pace
from tests.hostile.targets import Target

MEMORY_BYTES = 256 * 2**20
"""What hostile pages may cost beyond what honest ones do, with 64 slots."""
_BODY_BYTES = 5 * 2**20
_IN_PIPES_BYTES = 64 * 2**20
"""What the kernel's and the server's buffers may hold beyond what the crawler took."""
_BUSY = frozenset({"connect_timeout", "total_timeout", "first_byte_timeout", "idle_timeout"})
"""A machine that is busy with sixty such pages at once may be too slow for one of them."""


@dataclass(slots=True)
class Row:
    """One case in the table."""

    case: str
    kind: str
    ends: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    bytes: int = 0
    """The most that one answer sent."""
    seconds: float = 0.0
    """The longest that one answer took, seen from the server."""
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that the crawl and the servers around it left behind."""

    targets: Sequence[Target]
    links: Sequence[Target]
    """Spellings of private addresses, as links."""
    names: Sequence[Target]
    """Names that resolve to private addresses; empty: they were not tried."""
    healthy: Collection[str]
    """URLs of the healthy site."""
    before: Crawled
    """The crawl of the healthy site alone."""
    crawled: Crawled
    pace: Pace
    unseen: Sequence[str]
    """Addresses at which the canary would not notice a visit."""
    visits: Sequence[str]
    """Connections to addresses that are refused."""
    welcomed: bool
    """The canary's one address that is not refused was connected to."""


def all_faults(evidence: Evidence, rows: Sequence[Row]) -> list[str]:
    """Return every broken promise; empty: all were kept. `rows`: of `judged`."""
    crawled = evidence.crawled
    faults = [f"the canary sees nobody at {where}" for where in evidence.unseen]
    faults += [f"{row.kind} {row.case}: {fault}" for row in rows for fault in row.faults]
    faults += unharmed(evidence.healthy, crawled) + misled(crawled)
    faults += [f"a refused address was connected to: {visit}" for visit in evidence.visits]
    grown = max(crawled.memory) - max(evidence.before.memory)
    if grown > MEMORY_BYTES:
        faults.append(f"the worker grew by {grown / 2**20:.0f} MiB")
    if crawled.exit_code not in (0, INTERRUPTED):
        faults.append(f"the crawl ended with exit code {crawled.exit_code}: {crawled.said[-500:]}")
    if evidence.names and not evidence.welcomed:
        faults.append("nobody came to the address that is not refused: the names prove nothing")
    return faults


def judged(evidence: Evidence) -> list[Row]:
    """Return a row for each case, with what is wrong about it."""
    targets, links, names = evidence.targets, evidence.links, evidence.names
    crawled, pace = evidence.crawled, evidence.pace
    by_url: dict[str, list[Line]] = defaultdict(list)
    for line in crawled.lines:
        by_url[line.url].append(line)
    by_domain: dict[str, list[Record]] = defaultdict(list)
    for record in crawled.log:
        by_domain[_domain(record.host)].append(record)
    rows: dict[str, Row] = {}
    for target in targets:
        row = rows.setdefault(f"{target.kind} {target.case}", Row(target.case, target.kind))
        _judge_host(row, target, by_url, by_domain[_domain(urlsplit(target.url).hostname or "")], pace)
    refused = Row(f"{len(FORMS)} spellings of private addresses", "links")
    for target in links:
        _judge_one(refused, target, by_url, frozenset({"blocked_address", "dns"}))
    rows["links"] = refused
    for target in names:
        row = rows[f"names {target.case}"] = Row(target.case, "names")
        _judge_one(row, target, by_url, _ends_of_name(target.case))
    return list(rows.values())


def _judge_host(row: Row, target: Target, by_url: dict[str, list[Line]], asked: Sequence[Record], pace: Pace) -> None:
    pages = [record for record in asked if record.path != "/robots.txt"]
    wanted = ends_of(target.case)
    lines = by_url.get(target.url, [])
    if not lines and len(pages) <= 1 and WAITS in wanted:
        row.ends[WAITS] += 1
    else:
        _judge_one(
            row, target, by_url, wanted | (_BUSY if target.kind in ("bombs", "pages", "volley") else frozenset())
        )
    row.requests += len(asked)
    row.bytes = max((record.sent for record in asked), default=row.bytes)
    row.seconds = max([row.seconds, *((record.ended or record.started) - record.started for record in asked)])
    if row.bytes > _BODY_BYTES + _IN_PIPES_BYTES:
        row.faults.append(f"{row.bytes:,} bytes were taken")
    if row.seconds > 3 * pace.total_seconds:
        row.faults.append(f"an answer was listened to for {row.seconds:.0f} s")
    # Retries, and the page that reached the cap while others were under way.
    if len(pages) > 2 * pace.domain_pages:
        row.faults.append(f"{len(pages)} requests; at most {pace.domain_pages} pages were wanted")


def _judge_one(row: Row, target: Target, by_url: dict[str, list[Line]], wanted: frozenset[str]) -> None:
    lines = by_url.get(target.url, [])
    if len(lines) != 1:
        row.faults.append(f"{target.url} has {len(lines)} records")
    for line in lines:
        end = _end(line)
        row.ends[end] += 1
        if end not in wanted:
            row.faults.append(
                f"{target.url} ended as {end} ({line.exception[:100]}), not {' or '.join(sorted(wanted))}"
            )


def _end(line: Line) -> str:
    return (CUT if line.truncated else PAGE) if line.success else line.reason


def _ends_of_name(case: str) -> frozenset[str]:
    if case in ("an honest name",) or case.endswith(("second sight", "beside another")):
        return frozenset({PAGE})
    return frozenset({"dns"} if case == "a name without an answer" else {"blocked_address"})


def _domain(host: str) -> str:
    return ".".join(host.split(".")[-2:])


def unharmed(expected: Iterable[str], crawled: Crawled) -> list[str]:
    """What is wrong with the healthy site: pages that are missing or were fetched twice."""
    fetched = Counter(line.url for line in crawled.lines if line.success)
    asked = Counter(record.url for record in crawled.log)
    faults = [f"{url} was not fetched" for url in expected if not fetched[url]]
    return faults + [f"{url} was asked for {asked[url]} times" for url in expected if asked[url] > 1]


def misled(crawled: Crawled) -> list[str]:
    """Requests that reached the web itself under an address instead of a name."""
    return [f"{record.host}{record.path} was asked for" for record in crawled.log if not record.host.endswith(".test")]


def table(rows: Sequence[Row]) -> str:
    """Case, what happened, bytes, seconds."""
    lines = [f"{'kind':<8}{'case':<42} {'what happened':<34}{'requests':>9}{'bytes':>13}{'seconds':>9}"]
    for row in rows:
        ends = ", ".join(end if count == 1 else f"{end} x{count}" for end, count in row.ends.most_common())
        lines.append(
            f"{row.kind:<8}{row.case[:41]:<42} {ends:<34}{row.requests:>9,}{row.bytes:>13,}{row.seconds:>9.1f}"
        )
        lines += [f"        FAULT {fault}" for fault in row.faults]
    return "\n".join(lines)
