"""Counters of one process since it started, cheap to keep and to send to a parent process.

A worker process counts here, and its parent sums the tallies of all workers for the display and the metrics. A new
count needs a field, a line in `plus`, and one in `without_current` if it describes the present. Tallies are not stored,
and parent and workers run the same version. Fixed: everything here is bounded, however many hosts and URLs a crawl
has.
"""

import time
from collections.abc import Iterable
from heapq import nlargest
from typing import TypeVar

import msgspec

from gossamer.model.extraction import RULE
from gossamer.model.growth import PatternCount
from gossamer.policy.retry import REFUSED
from gossamer.policy.urls import host as host_of
from gossamer.policy.words import counted
from gossamer.telemetry.filters import FilterCount, FilterCounts, merged
from gossamer.telemetry.logs import SeedErrors, Troubles
from gossamer.telemetry.patterns import PatternCounts
from gossamer.telemetry.refusals import RefusingHosts

T = TypeVar("T")

_NO_RESPONSE = 504
"""Status under which Scrapy Cluster counts a request without a response: fixed."""
_HOSTS_REPORTED = 10
"""Number of the slowest hosts in a tally, and of those that failed most. More make each report larger."""
_HOSTS_COUNTED = 512
"""Hosts that a process counts at once, of any number. With more, fewer hosts of a broad crawl are forgotten, and each
report costs more time."""
_RESTS_KNOWN = 20
"""Domains whose rest is known. More make each report larger."""
_SITEMAPS_NAMED = 5
"""Origins whose sitemap is named. More make each report larger."""
_PAGES_LISTED = 50_000
"""Pages of sitemaps that a process compares with the links; for more, it does not. More take memory, about 200 bytes
each."""


class OriginWait(msgspec.Struct, frozen=True):
    """Requests of an origin (scheme, host and port) wait because its robots.txt is unavailable."""

    reason: str
    """Error or status of the last attempt to fetch robots.txt."""
    until: float
    """Time of the next attempt, in epoch seconds."""


class HostCount(msgspec.Struct):
    """Counts of one host."""

    responses: int = 0
    seconds: float = 0.0
    """Time of all responses together, each from the request to the decoded body."""
    failed: int = 0
    """Requests that failed for good."""

    @property
    def mean_seconds(self) -> float:
        """Mean time of a response; 0: there was none."""
        return self.seconds / self.responses if self.responses else 0.0

    def plus(self, other: "HostCount") -> "HostCount":
        """Return the sum as a new object."""
        return HostCount(self.responses + other.responses, self.seconds + other.seconds, self.failed + other.failed)


_NO_HOST = HostCount()


class RuleCount(msgspec.Struct):
    """Counts of one extraction rule."""

    pages: int = 0
    """Pages that the rule was tried on."""
    items: int = 0
    fields: dict[str, int] = msgspec.field(default_factory=dict)
    """Pages on which each field had a value, by its name; 0 for one that had none so far."""
    lacking: dict[str, int] = msgspec.field(default_factory=dict)
    """Matches that became no item, by the required field that they lack."""

    def plus(self, other: "RuleCount") -> "RuleCount":
        """Return the sum as a new object."""
        return RuleCount(
            self.pages + other.pages,
            self.items + other.items,
            _added(self.fields, other.fields),
            _added(self.lacking, other.lacking),
        )


_NO_RULE = RuleCount()
_FIELDS_NAMED = 10
"""Number of fields without a value that a sentence names."""


def rule_sentences(rules: dict[str, RuleCount]) -> list[str]:
    """Return a sentence for each extraction rule, or field of one, that found nothing on the pages that were counted,
    and for each required field without which items were left out. They have no full stop."""
    lines: list[str] = []
    for name, count in sorted(rules.items()):
        prefix = "" if name == RULE else f"{name}: "
        empty = [field for field, found in count.fields.items() if not found]
        named = ", ".join(empty[:_FIELDS_NAMED]) + (", …" if len(empty) > _FIELDS_NAMED else "")
        if not count.pages:
            lines.append(f"{prefix}no value for {named}: no HTML page has a URL that matches its urls")
        elif empty:
            nothing = "" if count.items or count.lacking or len(empty) < len(count.fields) else "matched nothing, "
            lines.append(f"{prefix}{nothing}no value for {named} on any page ({counted(count.pages, 'page')} tried)")
        lines += [
            f"{prefix}left out {counted(lacking, 'item')} without the required {field}"
            for field, lacking in sorted(count.lacking.items())
        ]
    return lines


class BrowserCounts(msgspec.Struct):
    """Counts of the browsers of one process."""

    running: int = 0
    """Browsers that run now."""
    tabs: int = 0
    """Tabs that are open now."""
    building: int = 0
    """Pages that are built now."""
    waiting: int = 0
    """Pages that wait for a free tab now."""
    memory: int = 0
    """Memory of the browsers that run now, in bytes, when it was measured last."""
    pages: int = 0
    """Pages that were built."""
    seconds: float = 0.0
    """Time that these pages took, all together."""
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    """Requests of these pages, besides their own, by result: sent, cached or refused."""
    ended: dict[str, int] = msgspec.field(default_factory=dict)
    """Browsers that have ended, by reason: retired (too many pages, too old, or too much memory) or crashed (by
    itself, or killed because it did not answer)."""

    def end(self, reason: str) -> None:
        """Count the end of a browser."""
        self.ended[reason] = self.ended.get(reason, 0) + 1

    def without_current(self) -> "BrowserCounts":
        """Return a copy with the totals only."""
        return msgspec.structs.replace(self, running=0, tabs=0, building=0, waiting=0, memory=0)

    def plus(self, other: "BrowserCounts") -> "BrowserCounts":
        """Return the sum as a new object."""
        return BrowserCounts(
            running=self.running + other.running,
            tabs=self.tabs + other.tabs,
            building=self.building + other.building,
            waiting=self.waiting + other.waiting,
            memory=self.memory + other.memory,
            pages=self.pages + other.pages,
            seconds=self.seconds + other.seconds,
            requests=_added(self.requests, other.requests),
            ended=_added(self.ended, other.ended),
        )


class Tally(msgspec.Struct):
    """Counts since the process started. Settled: reported to the frontier, the queue of requests, with a result."""

    pages: int = 0
    """Requests that were fetched: they are settled, or wait in a batch that is being settled."""
    failed: dict[str, int] = msgspec.field(default_factory=dict)
    """Requests that failed for good, by reason."""
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    """Requests and links that were dropped, by reason."""
    retried: dict[str, int] = msgspec.field(default_factory=dict)
    """Requests put back for another attempt, by reason."""
    faulty_responses: dict[str, int] = msgspec.field(default_factory=dict)
    """Responses with faults that did not lose them, by fault (`fetch.faults.Fault`). One may have several."""
    proxies: dict[str, int] = msgspec.field(default_factory=dict)
    """Failures of proxies, by kind: see `WorkerProxies`."""
    examples: dict[str, str] = msgspec.field(default_factory=dict)
    """One URL for each reason in `failed` and `unread`."""
    responses: dict[int, int] = msgspec.field(default_factory=dict)
    """Responses by status code. Redirects and responses that are retried count, too; those of robots.txt do not."""
    sitemaps: dict[str, str] = msgspec.field(default_factory=dict)
    """First sitemap that the robots.txt of an origin names, by origin, for a few of them."""
    unlinked: int = 0
    """Pages that sitemaps list, and to which none of the pages links that this process has fetched. 0 also where that
    is not known: too many pages are listed, or several processes fetch."""
    unlinked_example: str = ""
    """URL of one of the unlinked pages."""
    response_seconds: float = 0.0
    """Seconds of all these `responses` together, each from the request to the decoded body."""
    hosts: dict[str, HostCount] = msgspec.field(default_factory=dict)
    """The slowest hosts, and those on which most requests failed."""
    items: int = 0
    """Items that spiders and extraction rules took from pages."""
    repeated_items: int = 0
    """Items that were left out, because another item has the same values in the fields of --unique. They are not among
    `items`."""
    rules: dict[str, "RuleCount"] = msgspec.field(default_factory=dict)
    """Pages and items of each extraction rule, by its name. Counted only in a process that runs a single crawl: a
    service has any number of crawls."""
    html: int = 0
    """Pages that were read for links to follow."""
    unread: dict[str, int] = msgspec.field(default_factory=dict)
    """Pages whose links were wanted, and not or not all read, by reason. `truncated`: the end of the page is missing.
    `not_html`: it looks like HTML, but its type says something else. Also sitemaps, with reasons of their own (see
    `policy/words.py`)."""
    filters: dict[str, FilterCount] = msgspec.field(default_factory=dict)
    """Links that the expressions of --allow and --deny refused, by expression. Counted only in a process that runs a
    single crawl."""
    growing: dict[str, PatternCount] = msgspec.field(default_factory=dict)
    """Pages that may have no end, by the pattern of their URLs. Counted only in a process that runs a single crawl."""
    refusing: dict[str, int] = msgspec.field(default_factory=dict)
    """Hosts that refuse all pages now, with the number of refusals since the last page."""
    no_content: dict[str, int] = msgspec.field(default_factory=dict)
    """Pages whose main content was wanted and could not be extracted, by reason."""
    assets: int = 0
    """Assets, files that pages embed or link, that are settled as fetched. They are not among the pages."""
    assets_failed: dict[str, int] = msgspec.field(default_factory=dict)
    """Assets that failed for good or were dropped, by reason."""
    bytes: int = 0
    """Bytes of pages and assets as received, before decoding."""
    browser: BrowserCounts = msgspec.field(default_factory=BrowserCounts)
    """Counts of the browsers that build pages."""
    in_flight: int = 0
    """Requests being fetched now."""
    fetching: dict[str, float] = msgspec.field(default_factory=dict)
    """Some of the URLs that are being fetched now, with the seconds since their start. While none is being fetched: the
    URL that was fetched last, with 0."""
    committing: int = 0
    """Finished pages that wait to be written and settled."""
    waits: dict[str, OriginWait] = msgspec.field(default_factory=dict)
    """Origins whose requests wait for robots.txt now; a worker lists only some of them (`worker.robots`)."""
    rests: dict[str, float] = msgspec.field(default_factory=dict)
    """Some of the domains that rest now because of a refusal that this process has got, with the end of the rest in
    epoch seconds."""
    reclaimed: int = 0
    """Requests that this process reclaimed from dead workers."""
    trimmed: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages, by topic, that were deleted from a full stream before they were read, because this process published
    more."""
    troubles: list[str] = msgspec.field(default_factory=list)
    """Names of the problems that the process has now (`Troubles` in logs.py)."""
    abandoned: int = 0
    """Pages that were fetched, but neither written nor settled when the process ended; they will be fetched again."""
    missing: int = 0
    """Records that were durable in an output and are gone: the file was deleted or truncated."""
    refused: int = 0
    """Rows that did not fit the table of a store; they are in a file."""
    statuses: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    """Responses by spider and status code. _NO_RESPONSE also stands for requests without one."""

    def fail(self, reason: str, url: str = "") -> None:
        """Count a request that failed for good. Reasons are stable names: metrics have them as a label."""
        self.failed[reason] = self.failed.get(reason, 0) + 1
        if url:
            self.examples.setdefault(reason, url)

    def drop(self, reason: str) -> None:
        """Count a request or link that was dropped."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def retry(self, reason: str) -> None:
        """Count a request that was put back for another attempt."""
        self.retried[reason] = self.retried.get(reason, 0) + 1

    def leave_unread(self, reason: str, url: str) -> None:
        """Count a page whose links were not, or not all, read."""
        self.unread[reason] = self.unread.get(reason, 0) + 1
        self.examples.setdefault(reason, url)

    def count_fault(self, fault: str) -> None:
        """Count a response with a fault that did not lose it."""
        self.faulty_responses[fault] = self.faulty_responses.get(fault, 0) + 1

    def fail_proxy(self, kind: str) -> None:
        """Count a failure of a proxy."""
        self.proxies[kind] = self.proxies.get(kind, 0) + 1

    def leave_out_items(self, count: int) -> None:
        """Count items that were found, and left out because others have their keys."""
        self.items -= count
        self.repeated_items += count

    def fail_asset(self, reason: str) -> None:
        """Count an asset that failed for good or was dropped."""
        self.assets_failed[reason] = self.assets_failed.get(reason, 0) + 1

    @property
    def failed_unanswered(self) -> int:
        """Requests that failed for good without a response with an error status."""
        return sum(count for reason, count in self.failed.items() if not reason.startswith("http_"))

    @property
    def retries(self) -> int:
        """Requests put back for another attempt, whatever the reason."""
        return sum(self.retried.values())

    def status(self, spider: str, code: int) -> None:
        """Count a response with this status code; 0 means that no response came."""
        codes = self.statuses.get(spider)
        if codes is None:
            codes = self.statuses[spider] = {}
        code = code or _NO_RESPONSE
        codes[code] = codes.get(code, 0) + 1

    def without_current(self) -> "Tally":
        """Return a copy with the totals only, without current state, for a process that has ended."""
        return msgspec.structs.replace(
            self,
            in_flight=0,
            fetching={},
            committing=0,
            waits={},
            rests={},
            troubles=[],
            browser=self.browser.without_current(),
        )

    def plus(self, other: "Tally") -> "Tally":
        """Return the sum of two processes' counts as a new object."""
        return Tally(
            pages=self.pages + other.pages,
            failed=_added(self.failed, other.failed),
            dropped=_added(self.dropped, other.dropped),
            retried=_added(self.retried, other.retried),
            faulty_responses=_added(self.faulty_responses, other.faulty_responses),
            proxies=_added(self.proxies, other.proxies),
            examples=other.examples | self.examples,
            responses=_added(self.responses, other.responses),
            response_seconds=self.response_seconds + other.response_seconds,
            sitemaps=self.sitemaps | other.sitemaps,
            # A page that one process finds in a sitemap may be linked on a page of the other.
            unlinked=0 if self.pages and other.pages else self.unlinked + other.unlinked,
            unlinked_example=self.unlinked_example or other.unlinked_example,
            hosts=leading(
                {
                    name: self.hosts.get(name, _NO_HOST).plus(other.hosts.get(name, _NO_HOST))
                    for name in self.hosts | other.hosts
                }
            ),
            items=self.items + other.items,
            repeated_items=self.repeated_items + other.repeated_items,
            html=self.html + other.html,
            unread=_added(self.unread, other.unread),
            filters=merged(self.filters, other.filters),
            growing=_growing_together(self.growing, other.growing),
            refusing=_added(self.refusing, other.refusing),
            no_content=_added(self.no_content, other.no_content),
            rules={
                name: self.rules.get(name, _NO_RULE).plus(other.rules.get(name, _NO_RULE))
                for name in self.rules | other.rules
            },
            assets=self.assets + other.assets,
            assets_failed=_added(self.assets_failed, other.assets_failed),
            bytes=self.bytes + other.bytes,
            browser=self.browser.plus(other.browser),
            in_flight=self.in_flight + other.in_flight,
            fetching=self.fetching | other.fetching,
            committing=self.committing + other.committing,
            waits=self.waits | other.waits,
            rests={name: max(one.rests.get(name, 0.0) for one in (self, other)) for name in self.rests | other.rests},
            reclaimed=self.reclaimed + other.reclaimed,
            trimmed=_added(self.trimmed, other.trimmed),
            troubles=sorted({*self.troubles, *other.troubles}),
            abandoned=self.abandoned + other.abandoned,
            missing=self.missing + other.missing,
            refused=self.refused + other.refused,
            statuses={
                spider: _added(self.statuses.get(spider, {}), other.statuses.get(spider, {}))
                for spider in self.statuses | other.statuses
            },
        )


def _growing_together(mine: dict[str, PatternCount], theirs: dict[str, PatternCount]) -> dict[str, PatternCount]:
    """Return the counts of patterns of two processes together."""
    return mine | {name: mine[name].plus(count) if name in mine else count for name, count in theirs.items()}


def leading(hosts: dict[str, HostCount], count: int = _HOSTS_REPORTED) -> dict[str, HostCount]:
    """Return the slowest hosts, and those on which most requests failed: `count` of each."""
    if len(hosts) <= count:
        return hosts
    slowest = nlargest(count, hosts.items(), key=lambda pair: pair[1].mean_seconds)
    failing = nlargest(count, hosts.items(), key=lambda pair: pair[1].failed)
    return dict(slowest) | dict(failing)


class WorkerCounts:
    """Counts the responses and failures of one worker's requests, and tells a person about seeds that fail.

    Hosts are counted while there is room. Then all but the leading ones are forgotten, so that the counts of a crawl of
    very many hosts are lower bounds.
    """

    def __init__(
        self, tally: Tally, seeds: SeedErrors | None = None, troubles: Troubles | None = None, *, pool: str = ""
    ) -> None:
        """`tally`: the worker's counters. `seeds` None: there is no person to tell, as in a service. `troubles`: get
        hosts that refuse. `pool`: the worker's group."""
        self.tally = tally
        self.refusals = RefusingHosts(troubles, pool=pool)
        self.seeds = seeds
        self.patterns = PatternCounts()
        """Fetched pages that may have no end."""
        self.filters = FilterCounts()
        """Decisions of the crawl's expressions about links."""
        self._hosts: dict[str, HostCount] = {}
        self.listed: dict[int, str] = {}
        """Pages of sitemaps to which no fetched page links, by fingerprint. Empty also when there were too many."""
        self._has_too_many_listed = False
        self._rests: dict[str, float] = {}
        """Ends of rests of domains, in epoch seconds."""

    def count_response(self, host: str, status: int, seconds: float) -> None:
        """Count a response of this host. Called for every page, so it makes no object for a known host."""
        responses = self.tally.responses
        responses[status] = responses.get(status, 0) + 1
        self.tally.response_seconds += seconds
        count = self._hosts.get(host) or self._begin_count(host)
        count.responses += 1
        count.seconds += seconds

    def count_load(self, host: str, seconds: float | None) -> None:
        """Count what a page loads from this host while a browser builds it. `seconds`: time of the response; None: it
        failed."""
        count = self._hosts.get(host) or self._begin_count(host)
        if seconds is None:
            count.failed += 1
            return
        count.responses += 1
        count.seconds += seconds

    def fail(self, host: str, reason: str, url: str) -> None:
        """Count a request to this host that failed for good."""
        self.tally.fail(reason, url)
        if reason.startswith(REFUSED):
            self.refusals.on_refusal(host, reason)
        count = self._hosts.get(host) or self._begin_count(host)
        count.failed += 1

    def count_page(self, url: str, spider: str, status: int) -> None:
        """Count a page that was fetched for this spider. Called for every page."""
        self.tally.pages += 1
        self.tally.status(spider, status)
        if self.refusals.in_a_row:
            self.refusals.on_page(host_of(url))

    def rest(self, domain: str, seconds: float) -> None:
        """Record that a domain rests for a time because of a refusal."""
        until = max(time.time() + seconds, self._rests.pop(domain, 0.0))
        if len(self._rests) >= _RESTS_KNOWN:
            del self._rests[next(iter(self._rests))]
        self._rests[domain] = until

    def name_sitemaps(self, origin: str, sitemaps: tuple[str, ...]) -> None:
        """Record the sitemaps that the robots.txt of an origin names."""
        if len(self.tally.sitemaps) < _SITEMAPS_NAMED:
            self.tally.sitemaps[origin] = sitemaps[0]

    def list_pages(self, pages: dict[int, str]) -> None:
        """Record the pages of a sitemap, by fingerprint (a number that stands for the URL), to which no page links so
        far."""
        if len(self.listed) + len(pages) > _PAGES_LISTED:
            self._has_too_many_listed = True
            self.listed = {}
        if not self._has_too_many_listed:
            self.listed.update(pages)

    def link(self, fingerprints: Iterable[int]) -> None:
        """Record links to these pages."""
        for fingerprint in self.listed.keys() & fingerprints:
            del self.listed[fingerprint]

    def show(self) -> None:
        """Put the leading hosts, the pages without links and the filters into the tally. To be called before the tally
        is read: they are too costly to keep up to date with each page."""
        self._rests = {domain: until for domain, until in self._rests.items() if until > time.time()}
        self.tally.rests = dict(self._rests)
        self.tally.hosts = leading(self._hosts)
        self.tally.refusing = self.refusals.shown()
        self.tally.filters = self.filters.shown()
        if self.seeds is not None:
            self.tally.growing = self.patterns.shown()
        self.tally.unlinked = len(self.listed)
        self.tally.unlinked_example = next(iter(self.listed.values()), "")

    def _begin_count(self, host: str) -> HostCount:
        """Return a count for a host that has none. If there is no room, forget all hosts but the leading ones."""
        if len(self._hosts) >= _HOSTS_COUNTED:
            # At most half of them stay: a quarter are the slowest, and a quarter those that failed most.
            self._hosts = leading(self._hosts, _HOSTS_COUNTED // 4)
        count = self._hosts[host] = HostCount()
        return count


def _added(mine: dict[T, int], theirs: dict[T, int]) -> dict[T, int]:
    """Return the sums of two dictionaries of counts."""
    return {key: mine.get(key, 0) + theirs.get(key, 0) for key in mine | theirs}
