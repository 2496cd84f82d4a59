"""The page index of a crawl that is kept up to date (ADR 25): its pages, its changes, and its rounds.

A round is one visit of pages that are due: one run of the crawl in the frontier. Blocking; for one thread.

The table of pages is made small: a URL is the number of its site and a path, times have four bytes, and the pages of
the open round stand in a table of their own, so that a visit writes the row of its page once.

Fixed: the tables, which later releases read; and that a page, its schedule and its change are one transaction.
"""

import math
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from gossamer import __version__
from gossamer.errors import BadInput
from gossamer.fresh.database import IndexDatabase, open_database
from gossamer.fresh.first_format import FirstFormat
from gossamer.fresh.page import (
    Change,
    ChangeKind,
    Fetch,
    Found,
    IndexedFacts,
    IndexedPage,
    PageKind,
    PageState,
    PageVersion,
    VisitSchedule,
    announce,
    digest,
    due_time,
    is_forgotten,
    is_unchanged_part,
    packed_facts,
    settle,
    shown_hash,
)
from gossamer.fresh.page_room import PageRoom
from gossamer.fresh.rules import LEVELS, RevisitRules, is_told, limits_of
from gossamer.fresh.scopes import TABLES as SCOPES_TABLES
from gossamer.fresh.scopes import ScopeChange, Scopes
from gossamer.fresh.subscriptions import TABLE as SUBSCRIPTIONS_TABLE
from gossamer.fresh.subscriptions import Subscriptions
from gossamer.model.crawl import RevisitOptions, RevisitRule
from gossamer.net.credentials import hide_secrets
from gossamer.policy.change_dates import FIRST_TRUST, LEAST_TRUST, learned_trust
from gossamer.policy.patterns import url_pattern
from gossamer.policy.revisits import (
    DAY_SECONDS,
    BudgetTooSmall,
    IntervalLimits,
    PageClass,
    classes_of,
    least_rate,
    outlook,
    price_for,
    spent,
)
from gossamer.policy.urls import directory, fingerprint, host, registered_domain

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS domains (number {serial}, name TEXT UNIQUE NOT NULL, price DOUBLE PRECISION, "
    "rate DOUBLE PRECISION)",
    # A site is what its URLs begin with: scheme, host and port.
    "CREATE TABLE IF NOT EXISTS sites (number {serial}, origin TEXT UNIQUE NOT NULL, domain INTEGER NOT NULL)",
    # In the order of their sizes, which leaves no gaps.
    "CREATE TABLE IF NOT EXISTS pages (key BIGINT PRIMARY KEY, fetched INTEGER NOT NULL, due INTEGER NOT NULL, "
    "site INTEGER NOT NULL, depth SMALLINT NOT NULL, state SMALLINT NOT NULL, path TEXT NOT NULL, "
    "facts {blob} NOT NULL){often_updated}",
    "CREATE INDEX IF NOT EXISTS pages_due ON pages (due)",
    # Partial: a page that is not missing costs it nothing.
    f"CREATE INDEX IF NOT EXISTS pages_missing ON pages (key) WHERE state = {PageState.MISSING:d}",
    # Pages that the open round has not visited yet.
    "CREATE TABLE IF NOT EXISTS visits (page BIGINT PRIMARY KEY, round BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS changes (number {serial}, id TEXT UNIQUE NOT NULL, at DOUBLE PRECISION NOT NULL, "
    "change {blob} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS signals (domain INTEGER PRIMARY KEY, trust DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS templates (pattern TEXT PRIMARY KEY, since BIGINT NOT NULL, pages BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS versions (page BIGINT NOT NULL, hash BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, "
    "encoding TEXT NOT NULL, content {blob} NOT NULL, PRIMARY KEY (page, hash))",
    "CREATE TABLE IF NOT EXISTS rounds (number {serial}, begun DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION, "
    "run BIGINT NOT NULL, entered BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS feeds (page BIGINT PRIMARY KEY, url TEXT NOT NULL, domain INTEGER NOT NULL)",
    SUBSCRIPTIONS_TABLE,
    *SCOPES_TABLES,
)
MOST_FEEDS: Final = 10
"""Feeds of one site that are visited, of those that its pages name. Some sites have one for each page."""
_FORMAT: Final = "2"
_TURN: Final = "turn"
"""Fact of an index: who has the turn to begin and end rounds, and until when."""
_COLUMNS: Final = "key, fetched, due, site, depth, state, path, facts"
_TIME_ZERO: Final = 1 << 30
"""Unix time that is stored as 0 in columns of four bytes, which hold times until 2072. Fixed."""
_MOST_STORED: Final = (1 << 31) - 1
_MOST_DEPTH: Final = (1 << 15) - 1
_KNOWN_SITES: Final = 100_000
"""Sites that are remembered, a few hundred bytes each, so that they need not be looked up."""
_COUNTED: Final = f"(state IN ({PageState.LIVE:d}, {PageState.MISSING:d}) OR fetched = {-_TIME_ZERO})"
"""Pages that count in a limit of them: those that are there, and those that were not fetched yet."""
_KEYS_AT_ONCE: Final = 5000
BEFORE_ALL: Final = -(1 << 63)
"""Below the key of every page."""
_AT_ONCE: Final = 0
"""Time from which a page is due that is to be visited as soon as the budget allows, whatever its interval is."""
_ROUNDS_OF_A_HABIT: Final = 8
"""Last rounds that tell how often a person begins one."""
_MUCH: Final = 0.25
"""Share of its interval by which a page may be due early or late. Must exceed the share of its jitter."""
_A_LITTLE_MORE: Final = 1 + 1e-6
_HIGHEST_PRICE: Final = 1e30
"""Price at which each page is fetched at the longest age."""
_SCHEDULES_SECONDS: Final = 30.0
"""Time for which a worker keeps the prices of domains, which a planner changes."""
_CLOCK_SECONDS: Final = 3600.0
"""Time by which the clocks of workers may differ."""
_KEPT_ROUNDS: Final = 100
"""Last rounds that are kept, beside those by which the budget is counted."""
_ROUNDS_A_BUDGET: Final = 1000
"""Parts of the time of a budget, of each of which one round is kept."""
MOST_CHANGES: Final = 1_000_000
"""Changes that are kept for readers. Older ones are deleted, and a cursor among them is refused."""

_TEMPLATE_PAGES: Final = 3
"""Pages of a pattern with other bytes and the same text, in a day, that are told one by one."""
_TEMPLATE_LEVELS: Final = frozenset(("bytes", "links"))
"""Levels at which pages of another template differ: it has another menu, too."""
_JUDGES: Final = frozenset((Found.CONTENT, Found.NOT_MODIFIED, Found.MISSING, Found.GONE))
"""Results of fetches that show whether an announced change was one."""
_packed = msgspec.msgpack.Encoder().encode
_RatesByLimits = dict[IntervalLimits, list[tuple[float, float]]]
"""Change rates and weights of pages, by the limits of their intervals."""
_facts = msgspec.msgpack.Decoder(IndexedFacts).decode
_change = msgspec.msgpack.Decoder(Change).decode


class Round(NamedTuple):
    """One visit of pages."""

    number: int
    begun: float
    """Unix time."""
    run: int
    """Number of the run in the frontier. 0: it was not opened yet."""


class BudgetShortfall(NamedTuple):
    """A domain for which the budget is too small."""

    name: str
    pages: int
    needed: float
    """Fetches per second that would reach the longest age of each page."""

    @property
    def visits_a_day(self) -> int:
        """Those fetches in a day."""
        return math.ceil(self.needed * DAY_SECONDS)


class VisitBudget(NamedTuple):
    """Number of visits that rounds may have together."""

    visits: int
    since: float
    """Unix time from which rounds count."""
    by_beginning: bool = False
    """True: those that have begun since count. False: those that have not ended before."""


class DomainOutlooks(NamedTuple):
    """Expectations of a domain's pages at its budget, and at twice that."""

    fetches: float
    """Fetches per second that its pages are to get."""
    freshness: float
    """Expected share of pages that are as the index has them."""
    doubled: float
    """Expected share with twice the budget."""
    needed: float
    """Fetches per second that reach the longest age of each page, if the budget does not. 0: it does."""


class DomainFigures(NamedTuple):
    """Row of a domain, for a person."""

    name: str
    pages: int
    live: int
    gone: int
    due: int
    oldest: int
    """Unix time of the oldest fetch of a live page."""
    mean_age: float
    """Mean time in seconds since the fetches of live pages."""


class Announced(NamedTuple):
    """Result of announced changes."""

    news: int
    """Pages that have changed, by what was announced."""
    unknown: tuple[str, ...]
    """URLs of which the index has no page."""


class PageSite(NamedTuple):
    """Row of a site."""

    number: int
    origin: str
    """Beginning of the URLs of its pages, before their path."""
    domain: int


class PageIndex:
    """An open page index."""

    def __init__(self, database: IndexDatabase, *, key_of: Callable[[str], str] = str) -> None:
        self._database = database
        self.key_of = key_of
        """Returns the form of a URL by which two are one page."""
        self._domains: dict[str, int] = {}
        self._sites: dict[str, PageSite] = {}
        self._numbered_sites: dict[int, PageSite] = {}
        self._schedules: dict[int, VisitSchedule] = {}
        self._schedules_read = -_SCHEDULES_SECONDS
        self._options = RevisitOptions()
        self._rules = RevisitRules(())
        self.subscriptions = Subscriptions(database)
        """Subscriptions to the hubs of feeds."""
        self.scopes = Scopes(database)
        """Scopes of the requests of a service."""
        self.room = PageRoom(database, counted=_COUNTED)
        """Room for new pages, where the crawl limits them."""
        self.schedule = VisitSchedule()
        """Limits of all domains."""
        self.planned_rate = 0.0
        """Fetches per second of all domains, as `plan` has decided. 0: it has not been called."""
        self.clock: Callable[[], float] = time.time

    @classmethod
    def open(cls, address: str, name: str, *, crawl_id: str = "", key_of: Callable[[str], str] = str) -> "PageIndex":
        """Open or make the index of a crawl. `name`: of the crawl in a database that holds several indexes. Raises
        BadInput if the index is that of another crawl. `crawl_id` empty: open the index of any crawl."""
        database = open_database(address, name)
        index = cls(database, key_of=key_of)
        try:
            index._prepare(hide_secrets(address))
            for fact, value in (("format", _FORMAT), ("release", __version__), ("crawl", crawl_id)):
                statement = "INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
                if value:
                    database.run(statement, [fact, value])
            known: dict[str, str] = dict(database.rows("SELECT name, value FROM facts"))
            if crawl_id and known["crawl"] != crawl_id:
                other = f"{hide_secrets(address)} is the page index of another crawl, {known['crawl']}"
                raise BadInput(f"{other}. Name another place.", option="index")
        except BaseException:
            database.close()
            raise
        return index

    def _prepare(self, place: str) -> None:
        """Make the tables. An index of the first format is converted, with all of its pages. Raises BadInput for one of
        a format that is not known. `place`: address, for a person."""
        first, former = FirstFormat(self._database), ""

        def set_aside() -> None:
            nonlocal former
            self._database.run(_TABLES[0])
            former = self.fact("format")
            if former == "1":
                first.set_aside()
            elif former not in ("", _FORMAT):  # before anything in it changes
                writer = f"release {release}" if (release := self.fact("release")) else "a newer release"
                text = f"{place} was written by {writer} of Gossamer, and this is {__version__}. Upgrade to that one."
                raise BadInput(text, option="index")

        def convert() -> None:
            if former != "1":
                return
            for pages, rounds in first.batches():
                self._write(pages)
                self._database.run_many("INSERT INTO visits (page, round) VALUES (?, ?)", rounds)
            first.delete()
            self.note("format", _FORMAT)
            self.note("release", __version__)

        self._database.prepare(_TABLES, before=set_aside, after=convert)

    def follow(self, options: RevisitOptions) -> None:
        """Let pages be due by these options from now on."""
        if options != self._options:
            self._options = options
            self._rules = RevisitRules(options.rules, window=options.window, zone=options.zone)
        limits = IntervalLimits(options.shortest, options.longest)
        schedule = VisitSchedule(limits=limits, confirm_seconds=options.confirm)
        if schedule != self.schedule:
            self.schedule = schedule
            self._schedules_read = -_SCHEDULES_SECONDS

    def close(self) -> None:
        """Close the connection to the database, which the next call makes anew. May be repeated."""
        self._database.close()

    def is_there(self) -> bool:
        """Return False if the index was deleted after it was opened."""
        return self._database.is_there()

    def delete(self) -> None:
        """Delete the index, and close it."""
        self._database.delete()

    # --- facts --------------------------------------------------------------------------------------------------------

    def fact(self, name: str) -> str:
        """Return a fact about the crawl. Empty: it was not noted."""
        rows = self._database.rows("SELECT value FROM facts WHERE name = ?", [name])
        return str(rows[0][0]) if rows else ""

    def note(self, name: str, value: str) -> None:
        """Note a fact about the crawl."""
        self._database.run(
            "INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = ?",
            [name, value, value],
        )

    def take_turn(self, owner: str, *, now: float, seconds: float) -> bool:
        """Take the turn to begin and end rounds for some seconds, or keep it. Returns False if another owner has it.
        Only saves work: two at a time lose nothing."""
        with self._database.transaction(locks="facts"):
            if self.other_owner(owner, now=now, seconds=seconds):
                return False
            self.note(_TURN, f"{owner} {now + seconds}")
        return True

    def other_owner(self, owner: str, *, now: float, seconds: float) -> str:
        """Return who has the turn. Empty: this owner, or none has it. Arguments as for `take_turn`."""
        holder, _, until = self.fact(_TURN).rpartition(" ")
        return holder if holder not in ("", owner) and now < float(until) < now + 10 * seconds else ""

    def end_turn(self, owner: str) -> None:
        """Give the turn back, if this owner has it."""
        with self._database.transaction(locks="facts"):
            if self.fact(_TURN).rpartition(" ")[0] == owner:
                self.note(_TURN, "")

    # --- pages --------------------------------------------------------------------------------------------------------

    def key(self, url: str) -> int:
        """Return the key of a URL: a signed number of 64 bits."""
        return fingerprint(self.key_of(url), seed=0)

    def known(self, keys: Iterable[int], *, with_failed: bool = True) -> set[int]:
        """Return those of the keys that are keys of pages. `with_failed`: also of those that never gave a page, because
        it could not or may not be fetched."""
        found: set[int] = set()
        wanted = list(keys)
        states = "" if with_failed else f" AND state NOT IN ({PageState.FAILED:d}, {PageState.REFUSED:d})"
        for first in range(0, len(wanted), _KEYS_AT_ONCE):
            condition, value = self._database.chosen("key", wanted[first : first + _KEYS_AT_ONCE])
            rows = self._database.rows(f"SELECT key FROM pages WHERE {condition}{states}", [value])
            found.update(key for (key,) in rows)
        return found

    def page(self, url: str) -> IndexedPage | None:
        """Return one page. None: the index does not know it."""
        return self._load([self.key(url)]).get(self.key(url))

    def captured(self, urls: Iterable[str]) -> dict[str, float]:
        """Return the Unix times of the fetches that found the latest change of these pages, by URL, of those that are
        known."""
        keys = {self.key(url): url for url in urls}
        return {keys[key]: float(page.facts.changed) for key, page in self._load(list(keys)).items()}

    def _load(self, keys: Sequence[int]) -> dict[int, IndexedPage]:
        condition, value = self._database.chosen("key", keys)
        rows = self._database.rows(f"SELECT {_COLUMNS} FROM pages WHERE {condition}", [value])
        return {page.key: page for page in self._read(rows)}

    def _read(self, rows: Sequence[Sequence[Any]]) -> list[IndexedPage]:
        """Return the pages of rows of the table of pages."""
        if len(self._numbered_sites) > _KNOWN_SITES:
            self._forget_sites()
        sites = self._numbered_sites
        if missing := {row[3] for row in rows}.difference(sites):
            condition, value = self._database.chosen("number", list(missing))
            for row in self._database.rows(f"SELECT number, origin, domain FROM sites WHERE {condition}", [value]):
                sites[row[0]] = PageSite(*row)
        found = []
        for key, fetched, due, number, depth, state, path, facts in rows:
            _, origin, domain = sites[number]
            times = fetched + _TIME_ZERO, due + _TIME_ZERO
            found.append(IndexedPage(key, origin + path, domain, PageState(state), *times, depth, _facts(facts)))
        return found

    def _write(self, pages: Iterable[IndexedPage]) -> None:
        """Write pages. Of those that the index has, the place and the depth stay as they are."""
        rows = []
        for page in pages:
            site = self._site(page.url)
            depth, path = min(page.depth, _MOST_DEPTH), page.url[len(site.origin) :]
            times = _stored(page.fetched), _stored(page.due)
            rows.append((page.key, *times, site.number, depth, int(page.state), path, packed_facts(page.facts)))
        self._database.run_many(
            f"INSERT INTO pages ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE "
            "SET state = excluded.state, fetched = excluded.fetched, due = excluded.due, facts = excluded.facts",
            rows,
        )

    def _site(self, url: str) -> PageSite:
        """Return the site of a URL, which is entered if the index does not have it."""
        path = url.find("/", url.find("//") + 2)
        origin = url if path < 0 else url[:path]
        if (site := self._sites.get(origin)) is None:
            if len(self._sites) > _KNOWN_SITES:
                self._forget_sites()
            domain = self._domain(registered_domain(host(url)))
            statement = "INSERT INTO sites (origin, domain) VALUES (?, ?) ON CONFLICT (origin) DO NOTHING"
            self._database.run(statement, [origin, domain])
            rows = self._database.rows("SELECT number, origin, domain FROM sites WHERE origin = ?", [origin])
            site = self._sites[origin] = PageSite(*rows[0])
        return site

    def _forget_sites(self) -> None:
        self._sites.clear()
        self._numbered_sites.clear()
        self._domains.clear()

    @contextmanager
    def _transaction(self, *, locks: str = "") -> Iterator[None]:
        """Transaction that may enter sites and domains. Their numbers are forgotten if it is taken back."""
        try:
            with self._database.transaction(locks=locks):
                yield
        except BaseException:
            self._forget_sites()
            raise

    @property
    def keeps_versions(self) -> bool:
        """True if fetches need their content."""
        return self._options.versions > 0

    @property
    def ignores_feeds(self) -> bool:
        """True: feeds that pages name are not visited."""
        return self._options.ignore_feeds

    def rule(self, url: str) -> RevisitRule:
        """Return the rule of a page."""
        return self._rules.of(url)

    def closings(self, pages: Iterable[IndexedPage]) -> dict[int, list[IndexedPage]]:
        """Return pages by the Unix time at which their windows close; 0: they have none."""
        now, found = self.clock(), dict[int, list[IndexedPage]]()
        for page in pages:
            found.setdefault(math.floor(self._rules.closing(page.url, now)), []).append(page)
        return found

    def settle(self, fetches: Sequence[Fetch]) -> list[Change]:
        """Enter fetches in one transaction. Returns the changes. A fetch that was entered before changes nothing, nor
        does one that came before the last one of its page: its worker stood still until another had its request."""
        if not fetches:
            return []
        changes: list[Change] = []
        database, now = self._database, self.clock()
        with self._transaction(locks="changes"):
            keys = [self.key(fetch.url) for fetch in fetches]
            pages = self._load(keys)
            signals: dict[int, list[bool]] = {}
            for key, fetch in zip(keys, fetches, strict=True):
                page = pages.get(key)
                if page is None:
                    domain = self._site(fetch.url).domain
                    page = pages[key] = IndexedPage(key, fetch.url, domain, depth=fetch.depth)
                if int(fetch.at) < page.fetched <= now:  # later than now: a clock was set back
                    continue
                signalled = page.facts.signalled
                change = settle(page, fetch, self._schedule_of(page), random.random())
                if self._rules.has_windows:
                    page.due = math.ceil(self._rules.opening(page.url, page.due))
                if signalled and change is not None and fetch.found in _JUDGES:
                    was_true = change.change is not ChangeKind.UNCHANGED or bool(change.what)  # of a source of pages
                    signals.setdefault(page.domain, []).append(was_true)
                if change is not None and change.change is ChangeKind.UNCHANGED:
                    change.what = ()
                rule = self._rules.of(page.url)
                if change is not None and is_told(change, rule, tell_unchanged=self._options.unchanged):
                    changes.append(change)
            changes = self._with_templates(changes)
            forgotten = [page.key for page in pages.values() if is_forgotten(page)]
            self._write(page for page in pages.values() if not is_forgotten(page))
            condition, value = database.chosen("page", keys)
            database.run(f"DELETE FROM visits WHERE {condition}", [value])
            self._learn(signals)
            if self._options.versions:
                self._keep_versions(keys, fetches)
            self._forget(forgotten)
            database.run_many(
                "INSERT INTO changes (id, at, change) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
                [(change.id, change.at, _packed(change)) for change in changes],
            )
        return changes

    def announce(self, times: Mapping[str, int], *, is_certain: bool = False) -> Announced:
        """Enter times of last changes that are announced for these URLs: pages that have changed since are due now, if
        their site is trusted. `is_certain`: they are, whatever the trust in the site."""
        now = self.clock()
        moments = {self.key(url): moment for url, moment in times.items()}
        keys, due = list(moments), 0
        known: set[int] = set()
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            with self._database.transaction(locks="changes"):
                pages = self._load(keys[first : first + _KEYS_AT_ONCE])
                known |= pages.keys()
                trust = self._trust({page.domain for page in pages.values()})
                rows = []
                for page in pages.values():
                    trusted = is_certain or trust.get(page.domain, FIRST_TRUST) >= LEAST_TRUST
                    before = page.facts.announced, page.due
                    due += announce(page, moments[page.key], now=now, is_trusted=trusted)
                    if before != (page.facts.announced, page.due):
                        rows.append((packed_facts(page.facts), _stored(page.due), page.key))
                self._database.run_many("UPDATE pages SET facts = ?, due = ? WHERE key = ?", rows)
        return Announced(due, tuple(url for url in times if self.key(url) not in known))

    def wanted_parts(self, keys: Iterable[int]) -> set[int]:
        """Return the keys of sitemaps that are to be read now, of those that another one names: a change was announced,
        or they were not fetched yet."""
        now = self.clock()
        return {
            key
            for key, page in self._load(list(keys)).items()
            if not page.fetched or (page.facts.signalled and page.due <= now)
        }

    def admit_feeds(self, urls: Iterable[str]) -> list[str]:
        """Note feeds that pages name, and return those that are to be fetched for the first time: a site has at most
        MOST_FEEDS, those that are named first. May be repeated."""
        keys = {self.key(url): url for url in urls}
        admitted: list[str] = []
        with self._transaction(locks="changes"):
            known = self.known(keys)
            for key, url in keys.items():
                if key in known:
                    continue
                domain = self._domain(registered_domain(host(url)))
                [(count, noted)] = self._database.rows(
                    "SELECT count(*), sum(CASE WHEN page = ? THEN 1 ELSE 0 END) FROM feeds WHERE domain = ?",
                    [key, domain],
                )
                if not noted and count >= MOST_FEEDS:
                    continue
                self._database.run(
                    "INSERT INTO feeds (page, url, domain) VALUES (?, ?, ?) ON CONFLICT (page) DO NOTHING",
                    [key, url, domain],
                )
                admitted.append(url)
        return sorted(admitted)

    def enter(
        self,
        urls: Sequence[str],
        *,
        depth: int,
        announced: Mapping[str, int] = MappingProxyType({}),
        most: int | None = None,
        domain_most: int | None = None,
    ) -> int:
        """Enter pages that were never fetched, and are due now. Returns their number. `announced`: times of their last
        changes. `most`, `domain_most`: limits of the pages, see PageRoom; those beyond them are left out."""
        now = int(self.clock())
        with self._transaction(locks="changes"):
            pages = {self.key(url): url for url in urls}
            keys = pages.keys() - self.known(pages)
            if most is not None or domain_most is not None:
                links = [(key, registered_domain(host(url))) for key, url in pages.items() if key in keys]
                keys = self.room.admitted(links, most=most, domain_most=domain_most)
            self._write(
                IndexedPage(
                    key,
                    pages[key],
                    self._site(pages[key]).domain,
                    due=now,
                    depth=depth,
                    facts=IndexedFacts(announced=announced.get(pages[key], 0)),
                )
                for key in sorted(keys)
            )
        return len(keys)

    def domains(self) -> set[str]:
        """Return the domains of all pages that the index has ever had."""
        return {str(name) for (name,) in self._database.rows("SELECT name FROM domains")}

    def _trust(self, domains: Iterable[int]) -> dict[int, float]:
        """Return the trust in the announced changes of these domains, where something is known."""
        condition, value = self._database.chosen("domain", list(domains))
        rows = self._database.rows(f"SELECT domain, trust FROM signals WHERE {condition}", [value])
        return {int(domain): float(trust) for domain, trust in rows}

    def _keep_versions(self, keys: Sequence[int], fetches: Sequence[Fetch]) -> None:
        """Keep the pages that were fetched, and of each the last versions only."""
        rows = [
            (key, one.body, one.at, one.encoding, zlib.compress(one.content), one.at)
            for key, one in zip(keys, fetches, strict=True)
            if one.found is Found.CONTENT and one.kind is PageKind.PAGE
        ]
        self._database.run_many(
            "INSERT INTO versions (page, hash, at, encoding, content) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (page, hash) DO UPDATE SET at = ?",
            rows,
        )
        self._database.run_many(
            "DELETE FROM versions WHERE page = ? AND at < (SELECT min(at) FROM "
            "(SELECT at FROM versions WHERE page = ? ORDER BY at DESC LIMIT ?) AS latest)",
            [(row[0], row[0], self._options.versions) for row in rows],
        )

    def versions(self, url: str) -> list[PageVersion]:
        """Return the versions of a page that are kept, the latest first."""
        rows = self._database.rows(
            "SELECT at, hash, content, encoding FROM versions WHERE page = ? ORDER BY at DESC", [self.key(url)]
        )
        return [
            PageVersion(float(at), shown_hash(hashed), zlib.decompress(content), encoding)
            for at, hashed, content, encoding in rows
        ]

    def _with_templates(self, changes: list[Change]) -> list[Change]:
        """Return changes where pages of one pattern that have other bytes and the same text are one change, from the
        fourth in a day on: they have another template. Pages whose rule asks for each change of the bytes get it."""
        told: list[Change] = []
        for change in changes:
            is_other = change.change is not ChangeKind.CHANGED or not _TEMPLATE_LEVELS.issuperset(change.what)
            if is_other or self.rule(change.url).level in _TEMPLATE_LEVELS:
                told.append(change)
                continue
            pattern = f"{url_pattern(directory(change.url))}*"
            rows = self._database.rows("SELECT since, pages FROM templates WHERE pattern = ?", [pattern])
            since, pages = rows[0] if rows else (0, 0)
            if not since <= change.at < since + DAY_SECONDS:
                since, pages = int(change.at), 0
            self._database.run(
                "INSERT INTO templates (pattern, since, pages) VALUES (?, ?, ?) ON CONFLICT (pattern) DO UPDATE "
                "SET since = ?, pages = ?",
                [pattern, since, pages + 1, since, pages + 1],
            )
            if pages < _TEMPLATE_PAGES:
                told.append(change)
            elif pages == _TEMPLATE_PAGES:
                name = digest(f"template {pattern} {since}")
                told.append(msgspec.structs.replace(change, change=ChangeKind.TEMPLATE, pattern=pattern, id=name))
        return told

    def _learn(self, signals: Mapping[int, Sequence[bool]]) -> None:
        """Learn from fetches of pages whose change was announced: whether they had changed, by domain."""
        if not signals:
            return
        trust = self._trust(signals)
        for domain, outcomes in signals.items():
            learned = trust.get(domain, FIRST_TRUST)
            for was_true in outcomes:
                learned = learned_trust(learned, was_true=was_true)
            self._database.run(
                "INSERT INTO signals (domain, trust) VALUES (?, ?) ON CONFLICT (domain) DO UPDATE SET trust = ?",
                [domain, learned, learned],
            )

    def count(self) -> int:
        """Return the number of pages."""
        [(count,)] = self._database.rows("SELECT count(*) FROM pages")
        return int(count)

    def visits(self, current: Round, *, after: int, limit: int) -> list[IndexedPage]:
        """Return the pages of a round that it has not visited yet, with a key above `after`, in the order of keys.
        Sitemaps that have not changed, as the ones that name them say, leave the round."""
        # The keys are chosen first: PostgreSQL knows nothing yet of a table just filled, and would read all its pages.
        statement = (
            "WITH chosen AS (SELECT page FROM visits WHERE page > ? AND round = ? ORDER BY page LIMIT ?) "
            f"SELECT {_COLUMNS} FROM chosen JOIN pages ON pages.key = chosen.page ORDER BY chosen.page"
        )
        while found := self._read(self._database.rows(statement, [after, current.number, limit])):
            skipped = self._skip_parts(found)
            if len(skipped) < len(found):
                return [page for page in found if page.key not in skipped]
            after = found[-1].key
        return []

    def _skip_parts(self, pages: Sequence[IndexedPage]) -> set[int]:
        """Take sitemaps that have not changed out of the round, and return their keys."""
        now, longest = self.clock(), self.schedule.limits.longest
        parts = [page for page in pages if is_unchanged_part(page, longest, now=now)]
        if not parts:
            return set()
        trust = self._trust({page.domain for page in parts})
        parts = [page for page in parts if trust.get(page.domain, FIRST_TRUST) >= LEAST_TRUST]
        rows = []
        for page in parts:
            due = min(now + page.interval(self._schedule_of(page)), page.fetched + longest)
            rows.append((_stored(math.ceil(due)), page.key, _stored(page.fetched)))
        with self._database.transaction():  # one that was fetched meanwhile has left the round already
            self._database.run_many("UPDATE pages SET due = ? WHERE key = ? AND fetched = ?", rows)
            self._database.run_many("DELETE FROM visits WHERE page = ?", [(page.key,) for page in parts])
        return {page.key for page in parts}

    def _pages(self, condition: str, values: Sequence[object], after: int, limit: int) -> list[IndexedPage]:
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM pages WHERE key > ? AND {condition} ORDER BY key LIMIT ?", [after, *values, limit]
        )
        return self._read(rows)

    def _batches(self, condition: str, values: Sequence[object]) -> Iterator[list[IndexedPage]]:
        """Yield all pages that meet a condition, in batches. Each is read when the one before is done with."""
        after = BEFORE_ALL
        while found := self._pages(condition, values, after, _KEYS_AT_ONCE):
            after = found[-1].key
            yield found

    def next_due(self) -> int | None:
        """Return when the next page is due. None: there is no page."""
        [(due,)] = self._database.rows("SELECT min(due) FROM pages")
        return None if due is None else int(due) + _TIME_ZERO

    def adopt_scope(
        self, scope: str, keeps: Callable[[IndexedPage], bool], *, fact: str = "scope"
    ) -> ScopeChange | None:
        """Note the scope of the crawl. If it was another one before, forget the pages that `keeps` does not return True
        for, and let the others be fetched without conditions once, because links that were out of scope are not in the
        index. Returns what was done; None: nothing. `scope`: any text that is equal for equal scopes. `fact`: name of
        what is noted; by another one, other options are kept for which pages have to be read again."""
        known = self.fact(fact)
        if known == scope:
            return None
        with self._database.transaction(locks="changes"):
            found = self._sort_pages(keeps) if known else None
            self.note(fact, scope)
        return found

    def adopt_scopes(self) -> list[ScopeChange]:
        """Do the same for scopes of submitted URLs that have changed: forget the pages that only a former one allowed,
        and let those that the new one allows be fetched without conditions once. Returns what was done for each."""
        found = []
        for changed in self.scopes.changed():
            with self._database.transaction(locks="changes"):
                found.append(self._sort_pages(self.scopes.sorter(changed)))
                self.scopes.settle(changed)
        return found

    def read_again(self, lacks: Callable[[IndexedPage], bool]) -> int:
        """Let pages for which this function returns True be fetched without conditions once, because their links were
        lost. Returns their number."""
        with self._database.transaction(locks="changes"):
            return self._sort_pages(lambda page: lacks(page) or None).kept

    def _sort_pages(self, sort: Callable[[IndexedPage], bool | None]) -> ScopeChange:
        """Let the pages be read again for which `sort` returns True, and forget those for which it returns False."""
        forgotten = kept = 0
        for pages in self._batches("TRUE", []):
            sorted_pages = [(page, sort(page)) for page in pages]
            again = [page for page, chosen in sorted_pages if chosen]
            dropped = [page for page, chosen in sorted_pages if chosen is False]
            forgotten, kept = forgotten + len(dropped), kept + len(again)
            self._forget([page.key for page in dropped])
            self._read_again(again)
        return ScopeChange(forgotten, kept)

    def _forget(self, keys: Sequence[int]) -> None:
        """Delete pages with all that is kept of them. Their changes stay."""
        if not keys:
            return
        for table, column in (("pages", "key"), ("versions", "page"), ("visits", "page"), ("feeds", "page")):
            condition, value = self._database.chosen(column, keys)
            self._database.run(f"DELETE FROM {table} WHERE {condition}", [value])

    def _read_again(self, pages: Iterable[IndexedPage]) -> None:
        """Let pages be visited soon, and without conditions, for links that are not in the index."""
        rows = []
        for page in pages:
            page.facts.etag, page.facts.modified = "", 0
            page.facts.announced = 0  # of a sitemap, which would be skipped as long as its date does not move
            due = page.due if page.state is PageState.GONE else _AT_ONCE
            rows.append((packed_facts(page.facts), _stored(due), page.key))
        self._database.run_many("UPDATE pages SET facts = ?, due = ? WHERE key = ?", rows)

    # --- domains ------------------------------------------------------------------------------------------------------

    def _domain(self, name: str) -> int:
        """Return the number of a domain."""
        number = self._domains.get(name)
        if number is None:
            self._database.run("INSERT INTO domains (name) VALUES (?) ON CONFLICT (name) DO NOTHING", [name])
            [(number,)] = self._database.rows("SELECT number FROM domains WHERE name = ?", [name])
            self._domains[name] = int(number)
        return int(number)

    def _schedule_of(self, page: IndexedPage) -> VisitSchedule:
        """Return the schedule of a page, by its domain, which a planner may have changed a moment ago, and its rule."""
        now = time.monotonic()
        if now - self._schedules_read > _SCHEDULES_SECONDS:
            self._schedules_read = now
            self._schedules = {
                number: msgspec.structs.replace(self.schedule, price=price, expected_rate=rate)
                for number, price, rate in self._database.rows("SELECT number, price, rate FROM domains")
                if rate is not None
            }
        schedule = self._schedules.get(page.domain, self.schedule)
        if (limits := self._limits_of(page.url)) != schedule.limits:
            schedule = msgspec.structs.replace(schedule, limits=limits)
        if (rule := self._rules.of(page.url)).level in ("items", "links"):
            schedule = msgspec.structs.replace(schedule, no_training=LEVELS[rule.level])
        return schedule

    def interval(self, page: IndexedPage) -> float:
        """Return the seconds between two visits of a page, without jitter and windows."""
        return page.interval(self._schedule_of(page))

    def _rates(self) -> dict[int, _RatesByLimits]:
        """Return by domain, and by their limits, the change rates and weights of its pages, without those that are
        gone."""
        pages: dict[int, _RatesByLimits] = {}
        for found in self._batches("state <> ?", [int(PageState.GONE)]):
            for page in found:
                limits = self._limits_of(page.url)
                pages.setdefault(page.domain, {}).setdefault(limits, []).append((page.rate, page.weight))
        return pages

    def _limits_of(self, url: str) -> IntervalLimits:
        """Return the limits of a page, by its rule."""
        rule = self._rules.of(url)
        return limits_of(rule, self.schedule.limits) if rule.shortest or rule.longest else self.schedule.limits

    def outlooks(self) -> dict[str, DomainOutlooks]:
        """Return by name what is to be expected of the domains that have a price."""
        limits = self.schedule.limits
        found: dict[str, DomainOutlooks] = {}
        pages = self._rates()
        for number, name, price, rate in self._database.rows("SELECT number, name, price, rate FROM domains"):
            if price is None:
                continue
            classes = _classes(pages.get(number, {}), rate)
            now = outlook(classes, price, limits)
            doubled = price_for(classes, 2 * now.fetches, limits)
            more = outlook(classes, doubled if isinstance(doubled, float) else price, limits)
            needed = least_rate(classes, limits) if price >= _HIGHEST_PRICE else 0.0
            found[name] = DomainOutlooks(now.fetches, now.freshness, more.freshness, needed)
        return found

    def figures(self, now: float) -> list[DomainFigures]:
        """Return the figures of each domain, the one with the most pages first."""
        live = f"CASE WHEN state IN ({PageState.LIVE:d}, {PageState.MISSING:d}) THEN"
        rows = self._database.rows(
            f"SELECT d.name, count(*), sum({live} 1 ELSE 0 END), sum(CASE WHEN state = {PageState.GONE:d} THEN 1 "
            f"ELSE 0 END), sum(CASE WHEN due <= ? THEN 1 ELSE 0 END), min({live} fetched END), avg({live} fetched END) "
            "FROM pages JOIN sites s ON s.number = pages.site JOIN domains d ON d.number = s.domain "
            "GROUP BY d.name ORDER BY 2 DESC, 1",
            [_stored(now)],
        )
        found = []
        for name, pages, live, gone, due, oldest, mean in rows:
            age = 0.0 if mean is None else max(now - float(mean) - _TIME_ZERO, 0.0)
            since = 0 if oldest is None else int(oldest) + _TIME_ZERO
            found.append(DomainFigures(name, int(pages), int(live), int(gone), int(due), since, age))
        return found

    # --- rounds -------------------------------------------------------------------------------------------------------

    def open_round(self) -> Round | None:
        """Return the round that was begun and not ended. None: there is none."""
        rows = self._database.rows("SELECT number, begun, run FROM rounds WHERE ended IS NULL")
        return Round(int(rows[0][0]), float(rows[0][1]), int(rows[0][2])) if rows else None

    def begin_round(
        self,
        now: float,
        *,
        most: int,
        budget: VisitBudget | None = None,
        ahead: float = 0.0,
        only_due: bool = True,
    ) -> Round:
        """Begin a round, unless one is open, and return it. It visits at most `most` pages, as the budget allows, those
        first that were due first. `ahead`: seconds by which pages may be visited before they are due. `only_due`:
        False: the round also visits the pages that are not due, without the ones that are gone."""
        if only_due and self._rules.has_windows:
            self._wait_for_windows(now, most, ahead)
        with self._database.transaction(locks="rounds"):
            found = self.open_round()
            if found is None:
                most = self.allowed(most, budget)  # in the transaction, so that no other round can begin meanwhile
                self._database.run("INSERT INTO rounds (begun, run, entered) VALUES (?, 0, 0)", [now])
                found = self.open_round()
                assert found is not None
                condition = "due <= ?" if only_due else f"(due <= ? OR state <> {PageState.GONE:d})"
                self._choose(found, condition, [_stored(now + ahead)], most)
        return found

    def _choose(self, current: Round, condition: str, values: Sequence[object], most: int) -> int:
        """Let a round visit the pages that meet a condition, those first that were due first, instead of those that are
        left of it, and count the visits. Returns their number."""
        self._database.run("DELETE FROM visits")
        self._database.run(
            f"INSERT INTO visits (page, round) SELECT key, ? FROM pages WHERE {condition} ORDER BY due LIMIT ?",
            [current.number, *values, most],
        )
        [(chosen,)] = self._database.rows("SELECT count(*) FROM visits")
        self._database.run("UPDATE rounds SET entered = entered + ? WHERE number = ?", [chosen, current.number])
        return int(chosen)

    def confirm_missing(self, current: Round, *, most: int, budget: VisitBudget | None = None) -> int:
        """Let a round, all of whose visits are settled, also visit the pages that were missing once, at most `most`, as
        the budget allows. Returns the number of these visits."""
        with self._database.transaction(locks="rounds"):
            return self._choose(current, f"state = {PageState.MISSING:d}", [], self.allowed(most, budget))

    def visit_announced(self, current: Round, now: float, *, most: int, budget: VisitBudget | None = None) -> int:
        """Let a round, all of whose visits are settled, also visit the pages that have become due since it began and
        that it has not visited: sitemaps announced a change. Otherwise as `confirm_missing`, which visits those that it
        has found missing."""
        if self._rules.has_windows:
            self._wait_for_windows(now, most, 0.0)
        condition = f"due BETWEEN ? AND ? AND fetched <= ? AND state NOT IN ({PageState.MISSING:d}, {PageState.GONE:d})"
        begun = _stored(current.begun)
        with self._database.transaction(locks="rounds"):
            return self._choose(current, condition, [begun, _stored(now), begun], self.allowed(most, budget))

    def has_page(self) -> bool:
        """Return whether a page was ever received."""
        never = int(PageState.FAILED), int(PageState.REFUSED)
        return bool(self._database.rows("SELECT 1 FROM pages WHERE state NOT IN (?, ?) LIMIT 1", never))

    def count_due(self, moment: float) -> int:
        """Return the number of pages that are due by this moment."""
        [(count,)] = self._database.rows("SELECT count(*) FROM pages WHERE due <= ?", [_stored(moment)])
        return int(count)

    def habit_seconds(self, now: float) -> float:
        """Return the usual time from the beginning of one round to that of the next: the median of the last ones, if
        the next one begins now. 0: none has begun yet."""
        rows = self._database.rows("SELECT begun FROM rounds ORDER BY number DESC LIMIT ?", [_ROUNDS_OF_A_HABIT])
        moments = [now, *(float(begun) for (begun,) in rows)]
        gaps = sorted(later - earlier for later, earlier in pairwise(moments))
        return max(gaps[len(gaps) // 2], 0.0) if gaps else 0.0

    def _wait_for_windows(self, now: float, most: int, ahead: float) -> None:
        """Let pages be due when their windows open that are due now, or so many seconds ahead, and whose windows are
        closed: all those among the first `most`."""
        until = now + ahead
        while True:
            rows = self._database.rows(
                f"SELECT {_COLUMNS} FROM pages WHERE due <= ? ORDER BY due LIMIT ?", [_stored(until), most]
            )
            openings = [(self._rules.opening(page.url, now), page.key) for page in self._read(rows)]
            # Later than `until` in any case, or they would be visited now.
            closed = [(_stored(math.ceil(max(opening, until + 1))), key) for opening, key in openings if opening > now]
            if not closed:
                return
            with self._database.transaction():
                self._database.run_many("UPDATE pages SET due = ? WHERE key = ?", closed)

    def enter_run(self, current: Round, run: int) -> Round:
        """Note the run of a round. Returns the round."""
        self._database.run("UPDATE rounds SET run = ? WHERE number = ?", [run, current.number])
        return current._replace(run=run)

    def restart_round(self, current: Round, now: float, *, most: int, budget: VisitBudget | None = None) -> Round:
        """Let a round begin again whose run was lost with links of pages that are in the index: all pages that are not
        gone are read again without conditions, at most `most` in this round, as the budget allows, and the others in
        the next ones. Returns the round."""
        with self._database.transaction(locks="rounds, changes"):
            most = self.allowed(most, budget)
            for pages in self._batches("state <> ?", [int(PageState.GONE)]):
                self._read_again(pages)
            self._database.run("UPDATE rounds SET begun = ?, run = 0 WHERE number = ?", [now, current.number])
            self._choose(current, "due <= ?", [_stored(now)], most)
        return current._replace(begun=now, run=0)

    def allowed(self, most: int, budget: VisitBudget | None) -> int:
        """Return the number of visits that a round may have: at most `most`, and what the budget leaves."""
        if budget is None:
            return most
        visited = self.visited_since(budget.since, by_beginning=budget.by_beginning)
        return min(most, max(budget.visits - visited, 0))

    def visited_since(self, moment: float, *, by_beginning: bool = False) -> int:
        """Return the number of visits of the rounds that had not ended by this moment; `by_beginning`: of those that
        have begun after it."""
        condition = "begun > ?" if by_beginning else "ended IS NULL OR ended > ?"
        [(count,)] = self._database.rows(f"SELECT sum(entered) FROM rounds WHERE {condition}", [moment])
        return int(count or 0)

    def plan(self, budget: float | None) -> list[BudgetShortfall]:
        """Set the price of each domain anew, from the estimates of its pages. Returns the domains whose share of the
        budget cannot reach the longest age. `budget`: fetches per second of all domains, which share it by their pages;
        None: one a day for each page."""
        pages, limits = self._rates(), self.schedule.limits
        numbers = {domain: sum(map(len, some.values())) for domain, some in pages.items()}
        total, planned = sum(numbers.values()), 0.0
        shortfalls: list[BudgetShortfall] = []
        names: dict[int, str] = dict(self._database.rows("SELECT number, name FROM domains"))
        for domain, some in pages.items():
            rates = [rate for alike in some.values() for rate, _ in alike if rate]
            mean = math.exp(sum(map(math.log, rates)) / len(rates)) if rates else self.schedule.expected_rate
            classes = _classes(some, mean)
            share = sum(len(alike) / own.clamped(DAY_SECONDS) for own, alike in some.items()) * _A_LITTLE_MORE
            if budget is not None:
                share = budget * numbers[domain] / total
            found_price = price_for(classes, share, limits)
            if isinstance(found_price, BudgetTooSmall):
                shortfalls.append(BudgetShortfall(names[domain], numbers[domain], found_price.needed))
                found_price = _HIGHEST_PRICE
            planned += spent(classes, found_price, limits)
            self._database.run("UPDATE domains SET price = ?, rate = ? WHERE number = ?", [found_price, mean, domain])
        self._schedules_read = -_SCHEDULES_SECONDS
        self.planned_rate = planned
        self._forget_future()
        self._reschedule()
        return shortfalls

    def _forget_future(self) -> None:
        """Let pages that were fetched in the future, and rounds that began or ended then, count as of now, because a
        clock was wrong. Otherwise no page would be visited until then: it would not be due, or the budget used up."""
        now = self.clock()
        for column in ("begun", "ended"):
            self._database.run(f"UPDATE rounds SET {column} = ? WHERE {column} > ?", [now, now + _CLOCK_SECONDS])
        self._database.run(
            "UPDATE pages SET fetched = ?, due = CASE WHEN due < fetched THEN due ELSE due - fetched + ? END "
            "WHERE fetched > ?",
            [_stored(now), _stored(now), _stored(now + _CLOCK_SECONDS)],
        )

    def _reschedule(self) -> None:
        """Let pages be due as their domains' prices and the limits say now, where that differs much from before."""
        for found in self._batches("state IN (?, ?)", [int(PageState.LIVE), int(PageState.FAILED)]):
            rows = []
            for page in found:
                if page.due == _AT_ONCE or page.facts.signalled:
                    continue
                schedule = self._schedule_of(page)
                seconds = page.interval(schedule)
                due: float = due_time(page.fetched, seconds, schedule.limits)
                if self._rules.has_windows:  # what is late waits for the next one
                    due = self._rules.opening(page.url, max(due, self.clock()))
                if abs(due - page.due) > _MUCH * seconds:
                    rows.append((_stored(math.ceil(due)), page.key, _stored(page.fetched)))
            if rows:
                with self._database.transaction():  # a page that was fetched meanwhile has a new time
                    self._database.run_many("UPDATE pages SET due = ? WHERE key = ? AND fetched = ?", rows)

    def end_round(self, current: Round, now: float, *, window: float = 0.0) -> None:
        """End a round, all of whose visits are settled. Deletes changes that no reader may ask for any more, and rounds
        of which nothing is asked. `window`: seconds for which `visited_since` must be known."""
        with self._database.transaction():
            if self._rules.has_windows:  # which have closed before these visits
                self._database.run(
                    "UPDATE rounds SET entered = entered - (SELECT count(*) FROM visits WHERE round = ?) "
                    "WHERE number = ?",
                    [current.number, current.number],
                )
                self._database.run("DELETE FROM visits WHERE round = ?", [current.number])
            self._database.run("UPDATE rounds SET ended = ? WHERE number = ?", [now, current.number])
            self._database.run(
                "DELETE FROM rounds WHERE ended < ? AND number < ?", [now - window, current.number - _KEPT_ROUNDS]
            )
            self._merge_round(current.number, now, window / _ROUNDS_A_BUDGET)
            self._database.run("DELETE FROM templates WHERE since < ?", [int(now - DAY_SECONDS)])
            self._database.run(
                "DELETE FROM changes WHERE number <= (SELECT coalesce(max(number), 0) FROM changes) - ?", [MOST_CHANGES]
            )

    def _merge_round(self, number: int, now: float, seconds: float) -> None:
        """Count the visits of the round before this one, which ended now, as this one's if both ended in the same part
        of the budget's time. Otherwise a crawl without an end would have a row for each second."""
        rows = self._database.rows(
            "SELECT number, ended, entered FROM rounds WHERE number < ? ORDER BY number DESC LIMIT 1", [number]
        )
        if rows and seconds and rows[0][1] is not None and rows[0][1] // seconds == now // seconds:
            self._database.run("UPDATE rounds SET entered = entered + ? WHERE number = ?", [rows[0][2], number])
            self._database.run("DELETE FROM rounds WHERE number = ?", [rows[0][0]])

    def round_count(self) -> int:
        """Return the number of rounds that were ended."""
        [(last,)] = self._database.rows("SELECT max(number) FROM rounds WHERE ended IS NOT NULL")
        return int(last or 0)

    # --- changes ------------------------------------------------------------------------------------------------------

    def last_change(self) -> int:
        """Return the cursor behind the latest change."""
        [(last,)] = self._database.rows("SELECT max(number) FROM changes")
        return int(last or 0)

    def count_changes(self, since: int) -> dict[str, int]:
        """Return the number of changes behind a cursor, by kind."""
        counts = dict.fromkeys(map(str, ChangeKind), 0)
        for (packed,) in self._database.rows("SELECT change FROM changes WHERE number > ?", [since]):
            counts[_change(packed).change] += 1
        return counts

    def changes(self, since: int, limit: int = 1000) -> list[Change]:
        """Return the changes behind a cursor, oldest first. Raises BadInput for a cursor that is too old or unknown."""
        [(first, last)] = self._database.rows("SELECT min(number), max(number) FROM changes")
        if 0 < since < (first or 0) - 1:
            raise BadInput(
                f"the cursor {since} is too old: the changes up to {first - 1} are deleted. Begin without a cursor, "
                "and compare with the pages that you have.",
                option="since",
            )
        if not 0 <= since <= (last or 0):
            raise BadInput(f"the cursor {since} is not one of this crawl: its last one is {last or 0}.", option="since")
        rows = self._database.rows(
            "SELECT number, change FROM changes WHERE number > ? ORDER BY number LIMIT ?", [since, limit]
        )
        found = []
        for number, packed in rows:
            change = _change(packed)
            change.cursor = int(number)
            found.append(change)
        return found


def _classes(pages: _RatesByLimits, expected: float) -> list[PageClass]:
    """Return the classes of the pages of a domain. `expected`: change rate of pages without an estimate."""
    return [
        one._replace(limits=limits)
        for limits, alike in pages.items()
        for one in classes_of((rate or expected, weight) for rate, weight in alike)
    ]


def _stored(moment: float) -> int:
    """Return a time as the table of pages has it."""
    return min(int(moment) - _TIME_ZERO, _MOST_STORED)
