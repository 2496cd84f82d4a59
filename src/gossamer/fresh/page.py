"""A page of the index, and what a fetch makes of it: its next state, its change, and when it is due. No I/O.

Fixed: the values of PageState and the order of the fields of IndexedFacts, which indexes store; fields may be added at
the end, with a default. The names of changes are part of what readers of changes get.
"""

import hashlib
import math
from enum import IntEnum, StrEnum
from typing import Final

import msgspec

from gossamer.fresh.validators import opaque_tag, packed_date
from gossamer.policy.change_rates import History, Observation
from gossamer.policy.revisits import DAY_SECONDS, IntervalLimits, interval, jittered, page_weight, smoothed
from gossamer.policy.sketches import share_changed

DEFAULT_RATE: Final = 1 / (7 * DAY_SECONDS)
"""Changes per second that are expected of the pages of a site of which nothing is known: one a week."""
GONE_AFTER: Final = 2
"""Number of fetches in a row that must find a page missing until it counts as gone. The answer 410 suffices alone."""
_RATE_STEPS: Final = 16
"""Stored steps of a rate for each doubling. Fixed."""
_LINK_UNITS: Final = 100
"""Stored units of new links for each fetch. Fixed."""
_EARLY_TRIES: Final = 3
"""Tries of a page that is gone which come soon. Later ones come in days, each after twice the time."""
_MOST_DOUBLINGS: Final = 10
"""Doublings of the time after which a page that is gone is tried again."""

_FORGOTTEN_AFTER: Final = GONE_AFTER + _EARLY_TRIES + _MOST_DOUBLINGS
"""Number of fetches in a row that found a page missing after which it is forgotten: about half a year with the usual
limits. A link to it makes it a new page."""


class PageState(IntEnum):
    """State of a page. The values are stored."""

    LIVE = 0
    MISSING = 1
    """The last fetch said that there is no page; another one has to confirm it."""
    GONE = 2
    REDIRECTED = 3
    """It leads to another URL, which is a page of its own."""
    FAILED = 4
    """It never gave a page, and no answer that says why: a server that is down, an error."""
    REFUSED = 5
    """It may not be fetched: robots.txt, a private address."""


class ChangeKind(StrEnum):
    """Kind of a change. The values are part of what readers get."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    GONE = "gone"
    BACK = "back"
    TEMPLATE = "template"
    """Several pages of a pattern have other bytes and the same text. It is told once for the pattern."""


class Found(StrEnum):
    """Result of a fetch, as far as it concerns the index."""

    CONTENT = "content"
    NOT_MODIFIED = "not_modified"
    MISSING = "missing"
    GONE = "gone"
    REDIRECTED = "redirected"
    FAILED = "failed"
    REFUSED = "refused"


class PageKind(IntEnum):
    """Kind of a page. The values are stored."""

    PAGE = 0
    SITEMAP = 1
    """It was requested as a sitemap, which robots.txt names."""
    LISTED_SITEMAP = 2
    """It was requested as a sitemap that another one names."""
    LIST = 3
    """It was requested as a page, and is a sitemap or feed: a source of pages."""


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """One fetch of a page."""

    url: str
    request_id: str
    at: float
    """Unix time."""
    found: Found
    depth: int = 0
    status: int = 0
    body: int = 0
    """Hash of the bytes; 0: there is no body."""
    text: int = 0
    """Hash of the main text."""
    sketch: bytes = b""
    """Sketch of the main text; empty: there is none."""
    items: int = 0
    """Hash of the items that were taken from it; 0: there are none."""
    link_set: int = 0
    """Hash of the set of its links; 0: it is not known."""
    etag: str = ""
    modified: str = ""
    """Value of Last-Modified, as it was received."""
    new_links: int = 0
    """Number of links on it that no page had before."""
    feeds: tuple[str, ...] = ()
    """URLs of the feeds that it names."""
    target: str = ""
    """URL that it redirects to."""
    kind: PageKind = PageKind.PAGE
    content: bytes = b""
    """The page itself, where versions are kept."""
    encoding: str = ""


class IndexedFacts(msgspec.Struct, array_like=True):
    """Facts of a page beside the columns by which it is found. Each default is 0 or empty, see `packed_facts`."""

    visit: int = 0
    """Beginning of the id of the request that was settled last."""
    body: int = 0
    text: int = 0
    history: bytes = b""
    rate_step: int = 0
    """Logarithm of the estimated change rate; 0: there is none."""
    changed: int = 0
    """Unix time of the fetch that found the latest change of the content."""
    etag: str = ""
    modified: int | str = 0
    """Last-Modified: Unix time if that says it all, else as it was received. 0: none."""
    link_set: int = 0
    sketch: bytes = b""
    links: int = 0
    """Mean number of new links of a fetch, in hundredths."""
    items: int = 0
    misses: int = 0
    """Number of fetches in a row that found no page."""
    kind: int = 0
    """PageKind."""
    announced: int = 0
    """Unix time of the last change that a sitemap announced. 0: none did."""
    signalled: bool = False
    """True: a change was announced after the last fetch."""
    target: int = 0
    """Hash of the URL that the page redirects to. 0: it does not redirect, or is not known."""


_packed = msgspec.msgpack.Encoder().encode


def packed_facts(facts: IndexedFacts) -> bytes:
    """Return facts as indexes store them: as an array without the last ones that are 0 or empty, which most are."""
    values = msgspec.structs.astuple(facts)
    number = len(values)
    while number and not values[number - 1]:
        number -= 1
    return _packed(values[:number])


class IndexedPage(msgspec.Struct):
    """One page of the index."""

    key: int
    url: str
    domain: int
    """Number of the page's domain in the index."""
    state: PageState = PageState.FAILED
    fetched: int = 0
    """Unix time of the last fetch. 0: none."""
    due: int = 0
    """Unix time from which it is to be fetched again."""
    depth: int = 0
    facts: IndexedFacts = msgspec.field(default_factory=IndexedFacts)

    @property
    def was_there(self) -> bool:
        """True: the last fetch found the page, or the one before did."""
        return self.state in (PageState.LIVE, PageState.MISSING)

    @property
    def rate(self) -> float:
        """Estimated number of changes per second; 0: there is no estimate."""
        return float(2 ** (self.facts.rate_step / _RATE_STEPS)) if self.facts.rate_step else 0.0

    @property
    def weight(self) -> float:
        """Weight of the page beside others of its domain."""
        return page_weight(links_per_fetch=self.facts.links / _LINK_UNITS)

    def interval(self, schedule: "VisitSchedule") -> float:
        """Return the seconds after a fetch at which the page is due, without jitter."""
        rate = self.rate or schedule.expected_rate
        if schedule.price is None:
            return schedule.limits.clamped(DAY_SECONDS)
        return interval(rate, weight=self.weight, price=schedule.price, limits=schedule.limits)


class VisitSchedule(msgspec.Struct, frozen=True):
    """Rules by which the pages of a domain are due."""

    limits: IntervalLimits = IntervalLimits()
    price: float | None = None
    """Price of a fetch on the domain (policy/revisits.py). None: it is not known yet, and pages are due once a day."""
    expected_rate: float = DEFAULT_RATE
    """Change rate of a page of the domain without observations."""
    confirm_seconds: float = 600.0
    """Time after which a page that was missing is tried again."""
    no_training: frozenset[str] = frozenset(("bytes", "links"))
    """Differences that do not count for the estimate of how often the page changes. Bytes that differ while the text
    does not, such as those of another template, do not by default."""


class Change(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One line of the feed of changes."""

    cursor: int = 0
    """Number of the change; grows."""
    url: str
    change: ChangeKind
    at: float
    """Unix time of the fetch that found it."""
    since: float = 0  # an int, as `fetched` is: a field that is its default is left out
    """Unix time of the fetch before. 0: there was none."""
    what: tuple[str, ...] = ()
    """Levels at which the page differs: `bytes`, `text`, `items`, `links`, `redirect`."""
    share: float | None = None
    """Estimated share of the main text that changed, 0.01 to 1. None: it has not changed, or is not known."""
    status: int = 0
    old_hash: str = ""
    new_hash: str = ""
    target: str = ""
    """URL that the page redirects to now."""
    pattern: str = ""
    """Pattern of the pages with another template."""
    id: str = ""
    """Identifies the change: if it is told again, it has this id again."""


def visit_of(request_id: str) -> int:
    """Return what the index stores of a request's id. Two of one page are equal by chance once in 4 billion visits."""
    return int(request_id[:8], 16) if request_id else 0


def settle(page: IndexedPage, fetch: Fetch, schedule: VisitSchedule, chance: float) -> Change | None:
    """Enter a fetch in its page, and return the change that it found; None: the same request was settled before and
    found the same. `chance`: a random number from 0 to 1, which spreads pages out."""
    facts = page.facts
    visit = visit_of(fetch.request_id)
    is_repeated = bool(visit) and facts.visit == visit
    if is_repeated and (fetch.found is not Found.CONTENT or fetch.body == facts.body):
        return None
    since, seconds = page.fetched, fetch.at - page.fetched if page.fetched else 0.0
    before, old_body, old_sketch = page.state, facts.body, facts.sketch
    kind, what = _enter(page, fetch, seconds, schedule.no_training)
    facts.signalled = False
    facts.visit = visit
    page.fetched = int(fetch.at)
    page.due = due_time(fetch.at, _seconds_until_due(page, schedule, chance), schedule.limits)
    if fetch.kind is not PageKind.PAGE:
        facts.kind = fetch.kind
    if facts.kind:  # a source of pages is none itself
        kind = ChangeKind.UNCHANGED
    return Change(
        url=page.url,
        change=kind,
        at=fetch.at,
        since=since,
        what=what,
        share=share_changed(old_sketch, facts.sketch) if "text" in what and old_sketch and facts.sketch else None,
        status=fetch.status,
        old_hash=shown_hash(old_body) if old_body != facts.body and before is not PageState.FAILED else "",
        new_hash=shown_hash(facts.body) if kind is not ChangeKind.GONE else "",
        target=fetch.target,
        id=_change_id(fetch, kind),
    )


def announce(page: IndexedPage, moment: int, *, now: float, is_trusted: bool) -> bool:
    """Enter the time of a page's last change that a sitemap announces. Returns whether that was news. A page whose
    change is news, and whose site is trusted, is due now."""
    facts = page.facts
    is_news = moment > page.fetched or 0 < facts.announced < moment
    if facts.announced == moment or not page.fetched:
        return False
    facts.announced = moment
    if is_news and page.state in (PageState.LIVE, PageState.MISSING, PageState.GONE):
        facts.signalled = True
        if is_trusted:
            page.due = min(page.due, int(now))
        return True
    return False


def is_unchanged_part(page: IndexedPage, longest: float, *, now: float) -> bool:
    """Return whether a page is a sitemap that another one names, with a date of its last change that is not after the
    last fetch. The sitemap that names it is visited, and tells when the date moves. `longest`: age in seconds from
    which it is fetched all the same."""
    facts = page.facts
    is_dated = facts.kind == PageKind.LISTED_SITEMAP and 0 < facts.announced <= page.fetched and not facts.signalled
    return is_dated and page.state is PageState.LIVE and now - page.fetched < longest


def is_forgotten(page: IndexedPage) -> bool:
    """Return whether a page has been gone for so long that the index need not know it any more."""
    return page.state is PageState.GONE and page.facts.misses >= _FORGOTTEN_AFTER


def _enter(
    page: IndexedPage, fetch: Fetch, seconds: float, no_training: frozenset[str]
) -> tuple[ChangeKind, tuple[str, ...]]:
    """Enter what a fetch found, `seconds` after the one before. Return the kind of change, and its levels."""
    before, facts = page.state, page.facts
    match fetch.found:
        case Found.CONTENT:
            return _enter_content(page, fetch, seconds, no_training)
        case Found.NOT_MODIFIED if facts.body:
            was_redirected = _is_redirected(page)
            page.state, facts.misses, facts.target = PageState.LIVE, 0, 0
            if fetch.etag and facts.etag and opaque_tag(fetch.etag) != opaque_tag(facts.etag):
                facts.etag, facts.modified = "", 0  # it confirms another version: the next visit asks for the page
            else:
                _observe(facts, Observation(seconds, False), before)
                _take_validators(facts, fetch, keep=True)
            if before is PageState.GONE:
                return ChangeKind.BACK, ()
            return (ChangeKind.CHANGED, ("redirect",)) if was_redirected else (ChangeKind.UNCHANGED, ())
        case Found.MISSING | Found.GONE:
            facts.misses += 1
            is_gone = fetch.found is Found.GONE or facts.misses >= GONE_AFTER
            was_page = before is not PageState.GONE and bool(facts.body or facts.changed)
            page.state = PageState.GONE if is_gone else PageState.MISSING
            return (ChangeKind.GONE if is_gone and was_page else ChangeKind.UNCHANGED), ()
        case Found.REDIRECTED:
            page.state, facts.misses, old_target = PageState.REDIRECTED, 0, facts.target
            facts.target = short_hash(int(digest(fetch.target)[:8], 16))
            if not facts.body and not facts.changed:  # it was never a page, so it is not one that changes
                return ChangeKind.UNCHANGED, ()
            if before is PageState.GONE:
                return ChangeKind.BACK, ("redirect",)
            is_moved = old_target != facts.target if old_target else before is not PageState.REDIRECTED
            return (ChangeKind.CHANGED, ("redirect",)) if is_moved else (ChangeKind.UNCHANGED, ())
        case Found.REFUSED if before is PageState.FAILED:
            page.state = PageState.REFUSED
    return ChangeKind.UNCHANGED, ()


def _is_redirected(page: IndexedPage) -> bool:
    """Return whether a page that is not gone led to another URL when something was last there."""
    return page.state is PageState.REDIRECTED or bool(page.facts.target)


def _enter_content(
    page: IndexedPage, fetch: Fetch, seconds: float, no_training: frozenset[str]
) -> tuple[ChangeKind, tuple[str, ...]]:
    """Enter a page that was received."""
    before, facts, was_redirected = page.state, page.facts, _is_redirected(page)
    is_new = not facts.body and not facts.changed
    what: tuple[str, ...] = ()
    if facts.body != fetch.body:
        what = ("bytes", "text") if facts.text != fetch.text else ("bytes",)
    if not is_new and facts.items != fetch.items:
        what = (*what, "items")
    if facts.link_set and fetch.link_set and facts.link_set != fetch.link_set:
        what = (*what, "links")
    facts.items, facts.link_set, facts.sketch = fetch.items, fetch.link_set, fetch.sketch
    if not is_new and before in (PageState.LIVE, PageState.MISSING, PageState.FAILED):
        _observe(facts, Observation(seconds, not no_training.issuperset(what)), before)
        facts.links = round(smoothed(facts.links, _LINK_UNITS * min(fetch.new_links, 100)))
    if is_new or what:
        facts.changed = int(fetch.at)
    facts.body, facts.text = fetch.body, fetch.text
    page.state, facts.misses, facts.target = PageState.LIVE, 0, 0
    _take_validators(facts, fetch)
    if is_new:
        return ChangeKind.NEW, ()
    if before is PageState.GONE:
        return ChangeKind.BACK, what
    if was_redirected:
        return ChangeKind.CHANGED, (*what, "redirect")
    return (ChangeKind.CHANGED, what) if what else (ChangeKind.UNCHANGED, ())


def _observe(facts: IndexedFacts, observation: Observation, before: PageState) -> None:
    """Add an observation to the history, and estimate the rate anew by the one before."""
    if before not in (PageState.LIVE, PageState.MISSING):
        return
    history = History.unpack(facts.history)
    history.add(observation)
    facts.history = history.pack()


def estimate(page: IndexedPage, schedule: VisitSchedule) -> None:
    """Enter the change rate that the page's history makes most likely."""
    if page.facts.history:
        rate = History.unpack(page.facts.history).rate(expected=schedule.expected_rate)
        page.facts.rate_step = round(_RATE_STEPS * math.log2(rate)) or -1


def _seconds_until_due(page: IndexedPage, schedule: VisitSchedule, chance: float) -> float:
    """Return the time after which the page is due."""
    estimate(page, schedule)
    limits = schedule.limits
    if page.state is PageState.MISSING:
        return schedule.confirm_seconds
    if page.state is PageState.GONE:
        tries = max(page.facts.misses - GONE_AFTER, 0)
        if tries < _EARLY_TRIES:  # it may have been a mistake
            return schedule.confirm_seconds * 4.0**tries
        return min(DAY_SECONDS * 2.0 ** min(tries - _EARLY_TRIES, _MOST_DOUBLINGS), limits.longest)
    if page.state in (PageState.REDIRECTED, PageState.REFUSED):
        return limits.longest
    return limits.clamped(jittered(page.interval(schedule), chance))


def due_time(fetched: float, seconds: float, limits: IntervalLimits) -> int:
    """Return the Unix time at which a page is due so many seconds after it was fetched, or up to a thousandth of the
    time before, as the limits allow: PostgreSQL stores equal times once for many pages."""
    due = round(fetched + seconds)
    early = due - due % (1 << max(int(seconds / 1000), 1).bit_length() - 1)
    return early if early - fetched >= limits.shortest else due


def _take_validators(facts: IndexedFacts, fetch: Fetch, *, keep: bool = False) -> None:
    """Enter the validators of a response. `keep`: those that it does not name stay."""
    if fetch.etag or not keep:
        facts.etag = fetch.etag
    if fetch.modified or not keep:
        facts.modified = packed_date(fetch.modified)


class PageVersion(msgspec.Struct, frozen=True):
    """A version of a page."""

    at: float
    """Unix time of the fetch that found it."""
    hash: str
    """As `new_hash` of the change."""
    content: bytes
    encoding: str


def short_hash(value: int) -> int:
    """Return a hash that a page is only compared with itself by, a number of 32 bits; never 0. A change that leaves it
    as it was happens once in 4 billion."""
    return value & 0xFFFFFFFF or 1


def shown_hash(value: int) -> str:
    """Return a hash as changes have it; empty for 0."""
    return f"{value & (1 << 64) - 1:016x}" if value else ""


def _change_id(fetch: Fetch, kind: ChangeKind) -> str:
    """Return the id of a change: that of the request, the page, and what the fetch found."""
    return digest(f"{fetch.request_id} {fetch.url} {kind} {fetch.body}")


def digest(name: str) -> str:
    """Return an id that stands for a text."""
    return hashlib.blake2b(name.encode(), digest_size=12).hexdigest()
