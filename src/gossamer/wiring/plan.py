"""What a crawl from the command line is to the frontier: its identity, its pool, its terms, its seeds."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from gossamer.errors import BadInput
from gossamer.model.crawl import Crawl, CrawlId, QueryOrder, Terms
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
from gossamer.wiring.checks import check_asked
from gossamer.wiring.values import parse_expires, parse_rate
from gossamer.worker.context import scope_of
from gossamer.worker.spiders import load_spider

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
