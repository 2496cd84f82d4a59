"""What a crawl from the command line is to the frontier: its identity, its pool, its terms, its seeds."""

import asyncio
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from gossamer.errors import BadInput, BlockedAddress, DnsFailed
from gossamer.fetch.guard import host_address, verdict
from gossamer.fetch.proxy import parse_proxy
from gossamer.fetch.request import check_headers
from gossamer.fetch.resolve import Resolver, TlsContexts
from gossamer.model.crawl import Crawl, CrawlId, QueryOrder, Rate, Terms
from gossamer.model.request import Batch
from gossamer.policy.secrets import with_secrets_for
from gossamer.policy.urls import (
    directory,
    fingerprint,
    from_person,
    host,
    registered_domain,
    spider_seed,
    with_sorted_query,
)
from gossamer.settings import Settings
from gossamer.worker.access import AddressService
from gossamer.worker.context import scope_of
from gossamer.worker.spider import load_spider

MOST_NESTED = 100
"""Levels of arrays and objects in attrs; what reads the records gives up at some hundreds."""

_LEAST_INTEGER = -(2**63)
_MOST_INTEGER = 2**64 - 1
_ELSEWHERE = {"output", "ca_file"}
"""Settings that name files: a path need not be text."""


def check_asked(settings: Settings) -> None:
    """Whether requests can be made with these settings. Raises BadInput, in one line, for the first that cannot be."""
    for group in (settings.crawl, settings.fetch):
        for name, value in group:
            if name not in _ELSEWHERE and name != "attrs":
                _check_text(name, value)
    check_attrs(settings.crawl.attrs)
    _check_headers(settings)
    if settings.fetch.proxy:
        parse_proxy(settings.fetch.proxy)
    if settings.fetch.egress_url:
        address_service(settings)
    if settings.fetch.ca_file:
        TlsContexts(extra_ca=settings.fetch.ca_file)


def address_service(settings: Settings) -> AddressService:
    """The one that says where requests come from. Raises BadInput."""
    fetch = settings.fetch
    return AddressService(
        fetch.egress_url, pattern=fetch.egress_pattern, user_agent=fetch.user_agent, proxy=fetch.proxy
    )


def check_attrs(attrs: dict[str, Any] | None) -> None:
    """Whether they can travel: JSON (RFC 8259) with integers of 64 bits, finite numbers and text of whole characters.

    Raises BadInput.
    """
    level: list[Any] = [attrs] if attrs else []
    depth = 0
    while level:
        depth += 1
        if depth > MOST_NESTED:
            raise BadInput(f"--attrs is nested more than {MOST_NESTED} levels deep; make it flatter")
        inner: list[Any] = []
        for value in level:
            inner += value.items() if isinstance(value, dict) else value
        # Keys and values of an object come as pairs, which are no level of their own.
        level = [part for part in _parts(inner) if not _check_leaf(part)]


def _parts(values: list[Any]) -> list[Any]:
    return [part for value in values for part in (value if isinstance(value, tuple) else (value,))]


def _check_leaf(value: object) -> bool:
    """False for what has parts of its own. Raises BadInput for what cannot be sent."""
    match value:
        case dict() | list():
            return False
        case None | bool():
            return True
        case int():
            if not _LEAST_INTEGER <= value <= _MOST_INTEGER:
                raise BadInput(
                    f"--attrs: an integer has more than 64 bits ({len(str(value))} digits); write it as text"
                )
        case float():
            if not math.isfinite(value):
                raise BadInput(f"--attrs: JSON has no {value}; write null or text")
        case str():
            _check_text("--attrs", value)
        case _:
            raise BadInput(f"--attrs: {value!r} is nothing that JSON has; write it as text")
    return True


def _check_text(name: str, value: object) -> None:
    texts = value.items() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
    for text in texts:
        if isinstance(text, tuple):
            _check_text(name, text)
        elif isinstance(text, str):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise BadInput(f"{name}: {text!a} is not valid Unicode; write it in UTF-8") from None


def _check_headers(settings: Settings) -> None:
    crawl = settings.crawl
    check_headers((("User-Agent", settings.fetch.user_agent), ("Cookie", crawl.cookie), *crawl.header.items()))
    check_headers(tuple((name, "") for name in crawl.secret_header))


_LOOKED_UP = 1000
"""Names that are looked up before the start in any case. Those beyond are judged when they are fetched, like every
link; only who permits private seeds has to know all of them."""

_AT_ONCE = 32
"""Look-ups; as many as the resolver has threads, so that none of them times out while it waits for one."""


async def private_hosts(
    resolver: Resolver,
    seeds: Iterable[str],
    *,
    allowed: bool,
    names: bool = True,
    say: Callable[[str], None] | None = None,
) -> tuple[str, ...]:
    """The seeds' hosts that have only addresses off the public internet, those that spell an address first.

    Raises BadInput for the first of them unless `allowed`. A name that does not resolve is no reason to refuse: the
    crawl records it. `names` false: names are not looked up (a proxy does that), and all count as private if that is
    `allowed`. `say` is told a sentence where the look-ups take a while.
    """
    hosts = dict.fromkeys(map(host, seeds))
    literals = [name for name in hosts if host_address(name) is not None]
    found: list[str] = []
    for name in literals:
        reason = verdict(host_address(name) or "")
        if reason is not None and await _fault(resolver, name):
            if not allowed:
                raise BadInput(
                    f"{name} is not on the public internet ({reason}); --allow-private permits the hosts given"
                )
            found.append(name)
    others = [name for name in hosts if host_address(name) is None]
    if not names:
        return (*found, *others) if allowed else ()
    if not allowed:
        others = others[:_LOOKED_UP]
    elif len(others) > _LOOKED_UP and say is not None:
        say(f"Looking up {len(others):,} hosts: --allow-private has to know which are at private addresses.")
    return (*found, *await _private_names(resolver, others, allowed=allowed))


async def _private_names(resolver: Resolver, names: Sequence[str], *, allowed: bool) -> list[str]:
    found: list[str] = []
    for start in range(0, len(names), _AT_ONCE):
        batch = names[start : start + _AT_ONCE]
        faults = await asyncio.gather(*(_fault(resolver, name) for name in batch))
        for name, fault in zip(batch, faults, strict=True):
            if fault and not allowed:
                raise BadInput(
                    f"{fault}: not on the public internet; --allow-private permits the hosts given, "
                    f"--resolve {name}:ADDRESS one of them"
                )
            if fault:
                found.append(name)
    return found


async def _fault(resolver: Resolver, name: str) -> str:
    try:
        await resolver.addresses(name, 0)
    except BlockedAddress as error:
        return error.detail
    except DnsFailed:
        pass
    return ""


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MOST_HITS = 1_000_000
_LEAST_WINDOW = 0.001
_LONGEST = 100 * 365 * 86400
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")


def parse_rate(text: str) -> Rate:
    """`HITS/SECONDS`: `10/60` is ten a minute. Raises BadInput."""
    hits, slash, seconds = text.partition("/")
    try:
        rate = Rate(hits=int(hits), window_seconds=float(seconds) if slash else 1.0)
    except ValueError:
        raise BadInput(f"{text!r} is no rate; write HITS/SECONDS, for example 1/1 or 10/60") from None
    if not 1 <= rate.hits <= _MOST_HITS or not _LEAST_WINDOW <= rate.window_seconds <= 7 * 86400:
        raise BadInput(
            f"{text!r:.80} is no rate; at least 1 hit and at most {_MOST_HITS}, in {_LEAST_WINDOW} to 604800 seconds"
        )
    return rate


def parse_expires(text: str, *, now: float) -> float:
    """Epoch seconds of a span from now (`90`, `90m`, `12h`, `3d`) or an ISO 8601 time (UTC where it has no zone).

    Raises BadInput, also for a time that has passed.
    """
    span = _SPAN.fullmatch(text.strip())
    if span:
        moment = now + float(span[1]) * _UNITS[span[2]]
    else:
        try:
            stamp = datetime.fromisoformat(text.strip())
        except ValueError:
            raise BadInput(f"{text!r} is no time; write 90m, 12h, 3d, or 2030-01-31T12:00") from None
        moment = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
    if moment > now + _LONGEST:
        raise BadInput(f"the time {text!r:.80} is more than a hundred years away; leave --expires out for never")
    if moment <= now:
        raise BadInput(f"the time {text!r} has passed")
    return moment


APPID = "cli"
_NAME_CHARACTERS = 40
_ALLOWED_FROM_SEEDS = 10_000
"""More seeds than this on different domains need --scope any: every link would be compared with all of them."""
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """A crawl as it will be opened and fed."""

    crawl: Crawl
    terms: Terms
    seeds: tuple[str, ...]
    """Canonical, without repeats."""
    spider: str
    priority: int

    def batches(self, secret: int) -> Iterator[list[Batch]]:
        """The seeds as they enter the frontier, about a thousand at a time."""
        mark_seed = spider_seed(secret, self.spider)
        group: dict[str, Batch] = {}
        for count, url in enumerate(self.seeds, 1):
            domain = registered_domain(host(url))
            batch = group.get(domain)
            if batch is None:
                batch = group[domain] = Batch(self.spider, domain, self.priority, 0)
            batch.urls.append(url)
            spelling = with_sorted_query(url) if self.terms.query_order is QueryOrder.IGNORED else url
            batch.fingerprints.append(fingerprint(spelling, seed=mark_seed))
            if count % _BATCH == 0:
                yield list(group.values())
                group = {}
        if group:
            yield list(group.values())


def make_plan(
    settings: Settings, urls: Iterable[str], *, crawl_id: str | None, now: float, private_hosts: Sequence[str] = ()
) -> Plan:
    """Raises BadInput for anything in it that cannot be used; nothing is started or asked."""
    seeds = tuple(dict.fromkeys(map(from_person, urls)))
    if not seeds:
        raise BadInput("no URL is given; try gossamer crawl https://example.com")
    crawl = settings.crawl
    check_asked(settings)
    load_spider(crawl.spider)
    terms = _terms(settings, seeds, now=now, private_hosts=private_hosts)
    scope_of(terms)
    identity = CrawlId(APPID, _checked_id(crawl_id) if crawl_id is not None else derived_id(settings, seeds))
    return Plan(
        crawl=Crawl(
            id=identity,
            pool=f"crawl-{identity.token}",
            max_pages=crawl.max_pages,
            rate=parse_rate(crawl.rate) if crawl.rate else None,
            concurrency=crawl.domain_concurrency,
            idle_seconds=crawl.idle_seconds or 0.0,
        ),
        terms=terms,
        seeds=seeds,
        spider=crawl.spider,
        priority=crawl.priority,
    )


def derived_id(settings: Settings, seeds: Sequence[str]) -> str:
    """The same for the same seeds and the same questions asked of them, in any order, so that the same command resumes.

    How fast and how parallel it is, and where its records go, do not make it another crawl.
    """
    crawl = settings.crawl
    ordered = sorted(seeds)
    secrets = [sorted(name.lower() for name in crawl.secret_header), sorted(crawl.headers_for)]
    asked = (
        ordered,
        crawl.depth,
        crawl.max_pages,
        crawl.domain_max_pages,
        crawl.scope,
        sorted(crawl.allow_domain),
        sorted(crawl.allow),
        sorted(crawl.deny),
        None if crawl.deny_extension is None else sorted(crawl.deny_extension),
        crawl.sitemaps,
        crawl.follow_nofollow,
        crawl.spider,
        crawl.attrs,
        crawl.ignore_robots,
        settings.fetch.user_agent,
        sorted(crawl.header.items()),
        crawl.cookie,
        # Absent where it is not asked for: ids are those of versions that did not know it.
        *([crawl.query_order] if crawl.query_order == "ignored" else []),
        *([secrets] if any(secrets) else []),
    )
    digest = hashlib.blake2b(msgspec.json.encode(asked, order="deterministic"), digest_size=4).hexdigest()
    return f"{host(ordered[0]).strip('[]')[: _NAME_CHARACTERS - 9]}-{digest}"


def _checked_id(text: str) -> str:
    if not 0 < len(text) <= _NAME_CHARACTERS or not text.isprintable() or any(mark in text for mark in " \t\"'"):
        raise BadInput(f"{text!r} is no crawl id; 1 to {_NAME_CHARACTERS} characters, no spaces, no quotes")
    return text


def _terms(settings: Settings, seeds: Sequence[str], *, now: float, private_hosts: Sequence[str]) -> Terms:
    crawl, fetch = settings.crawl, settings.fetch
    domains, hosts, prefixes = _confines(crawl.scope, seeds)
    if crawl.scope == "any" and crawl.allow_domain:
        raise BadInput(
            "--scope any and --allow-domain contradict each other: any host is in scope already; leave one of them out"
        )
    domains = tuple(sorted({*domains, *crawl.allow_domain}))
    terms = Terms(
        maxdepth=crawl.depth,
        domain_max_pages=crawl.domain_max_pages,
        domain_max_pending=crawl.domain_max_pending,
        allowed_domains=domains or None,
        allowed_hosts=hosts or None,
        allowed_prefixes=prefixes or None,
        allow_regex=crawl.allow or None,
        deny_regex=crawl.deny or None,
        deny_extensions=crawl.deny_extension,
        expires=parse_expires(crawl.expires, now=now) if crawl.expires else 0.0,
        useragent=fetch.user_agent,
        cookie=crawl.cookie or None,
        headers=crawl.header or None,
        secret_headers=tuple(sorted({name.lower() for name in crawl.secret_header})),
        attrs=crawl.attrs,
        follow_nofollow=crawl.follow_nofollow,
        sitemaps=crawl.sitemaps,
        links=crawl.links,
        ignore_robots=crawl.ignore_robots,
        insecure=crawl.insecure,
        private_hosts=tuple(private_hosts),
        proxy=fetch.proxy or None,
        timeout_seconds=fetch.timeout,
        retries=fetch.retries,
        query_order=QueryOrder(crawl.query_order),
    )
    terms = with_secrets_for(terms, (registered_domain(host(url)) for url in seeds), crawl.headers_for)
    if len(terms.secrets_for) > _ALLOWED_FROM_SEEDS:
        raise BadInput(
            f"the cookie or a secret header would go to {len(terms.secrets_for):,} domains, more than the "
            f"{_ALLOWED_FROM_SEEDS:,} that a crawl holds; split the seeds into several crawls"
        )
    return terms


def _confines(scope: str, seeds: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """(domains, hosts, path prefixes) that links must be in; all empty: anywhere."""
    if scope == "any":
        return (), (), ()
    if scope == "domain":
        names = {registered_domain(host(url)) for url in seeds}
    elif scope == "host":
        names = {host(url) for url in seeds}
    else:
        names = {directory(url) for url in seeds}
    if len(names) > _ALLOWED_FROM_SEEDS:
        raise BadInput(
            f"the seeds lie in {len(names):,} places, more than the {_ALLOWED_FROM_SEEDS:,} a scope holds; "
            "use --scope any with --depth, or several crawls"
        )
    found = tuple(sorted(names))
    return {"domain": (found, (), ()), "host": ((), found, ()), "path": ((), (), found)}[scope]
