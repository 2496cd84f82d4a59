"""What all requests of one submission have in common: filters, headers, spider, and the memory of links."""

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable

import msgspec

from gossamer.extract.links import LinkExtractor, Links
from gossamer.extract.memory import HrefMemory
from gossamer.fetch.request import OWNED
from gossamer.model.crawl import SHARED, QueryOrder, Run, Terms
from gossamer.model.request import Lease
from gossamer.policy.cache import BoundedCache
from gossamer.policy.scope import LinkScope, compile_scope
from gossamer.policy.secrets import SecretHeaders, has_secrets
from gossamer.policy.urls import fingerprint, spider_seed, with_sorted_query
from gossamer.worker.spider import Spider


class SeenCache:
    """Fingerprints by namespace (a crawl's run and generation). What is in it is in the frontier's seen-set for
    certain; what is not may be there all the same. In a new era of the frontier it knows nothing.

    Two generations: when the young one holds half of `limit`, the old one is forgotten and the young takes its place.
    What is asked for again and again is entered again and so stays.
    """

    def __init__(self, limit: int = 200_000, *, era: Callable[[], int] = lambda: 0) -> None:
        """`limit`: fingerprints kept, all parts together; each namespace counts as `NAMESPACE_WEIGHT` more. `era`: the
        frontier's."""
        self._half = max(1, limit // 2)
        self._ask_era = era
        self._era = 0
        self._young: dict[Hashable, set[int]] = {}
        self._old: dict[Hashable, set[int]] = {}
        self._count = 0

    @property
    def era(self) -> int:
        """The frontier's, now."""
        self._enter_era()
        return self._era

    def _enter_era(self) -> None:
        era = self._ask_era()
        if era != self._era:
            self._era = era
            self._young, self._old, self._count = {}, {}, 0

    def unseen_positions(self, namespace: Hashable, fingerprints: Iterable[int]) -> list[int]:
        """Positions of those that are not known to be seen."""
        self._enter_era()
        young, old = self._young.get(namespace, _EMPTY), self._old.get(namespace, _EMPTY)
        return [at for at, mark in enumerate(fingerprints) if mark not in young and mark not in old]

    def has_seen(self, namespace: Hashable, fingerprint: int) -> bool:
        """Whether it is known to be seen."""
        self._enter_era()
        return fingerprint in self._young.get(namespace, _EMPTY) or fingerprint in self._old.get(namespace, _EMPTY)

    def remember(self, namespace: Hashable, fingerprints: Collection[int], *, since: int | None = None) -> None:
        """Only once the frontier has confirmed them: a fingerprint remembered too early is a page lost.

        `since`: the era before they were sent to it; in another one nothing is remembered."""
        if since is not None and since != self.era:
            return
        young = self._young.get(namespace)
        if young is None:
            young = self._young[namespace] = set()
            self._count += NAMESPACE_WEIGHT
        before = len(young)
        young.update(fingerprints)
        self._count += len(young) - before
        if self._count > self._half:
            self._old, self._young, self._count = self._young, {}, 0


_EMPTY: frozenset[int] = frozenset()
NAMESPACE_WEIGHT = 8
"""A namespace takes about as much memory as so many fingerprints."""


ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
_CONTEXT_BYTES = 3000
_TERMS_FACTOR = 8
"""About what a context takes, and its terms for each byte of them when packed."""
Headers = tuple[tuple[str, str], ...]


class SharedMemory:
    """What the contexts of one worker remember, bounded by bytes for all of them together."""

    def __init__(
        self, seen: SeenCache, *, href_bytes: int = 12 * 1024 * 1024, scope_bytes: int = 12 * 1024 * 1024
    ) -> None:
        self.seen = seen
        self.hrefs = HrefMemory(max_bytes=href_bytes)
        self._scopes: BoundedCache[bytes, LinkScope] = BoundedCache(scope_bytes)

    def scope(self, name: bytes, terms: Terms) -> LinkScope:
        """The compiled filters of these terms. `name`: their `scope_name`. Raises BadInput for a regex that is none."""
        scope = self._scopes.get(name) or scope_of(terms)
        self._scopes.put(name, scope, scope.bytes)  # it grows with the origins that it has judged
        return scope


class Context:
    """One (run, spider, terms). Belongs to one worker. Small: what is large is in the shared memory."""

    def __init__(
        self,
        run: Run,
        spider_name: str,
        terms: Terms,
        *,
        spider: Spider,
        secret: int,
        user_agent: str,
        memory: SharedMemory,
        links: bool = False,
        spiders: Collection[str] | None = None,
        proxy: str = "",
        redact: bool = True,
    ) -> None:
        """`links`: records name the links of every page, whatever the terms say. `spiders`: those that anybody runs for
        this crawl; None: any may be run by somebody. `proxy`: the operator's, where the terms name none.
        `redact`: records do not show the values of secret request headers. Raises BadInput for a regex that is none."""
        self.run = run
        self.terms = terms
        self.spider_name = spider_name
        self.spider = spider
        self.spiders = spiders
        self.include_links = links or terms.links
        """Whether records name the links of their page."""
        self.seed = spider_seed(secret, spider_name)
        self.user_agent = terms.useragent or user_agent
        self.headers = CrawlHeaders(terms, self.user_agent)
        self.hidden_headers = self.headers.secrets.names if redact else frozenset[str]()
        """Lower-case names of the request headers whose values no record shows."""
        self.proxy = terms.proxy or proxy or None
        self.guard_proxy = run.crawl.pool == SHARED and terms.proxy is not None
        """Whether the proxy was named by a request to a service: no such may reach into the operator's networks."""
        self.private_hosts = frozenset(terms.private_hosts)
        self._memory = memory
        self._seen = memory.seen
        self._scope_name = scope_name(terms)
        self._namespace = (run.crawl.id.token, run.number, run.generation)
        self._href_namespace = (*self._namespace, spider_name, self._scope_name)
        self._sitemap_namespace = ("sitemaps", *self._href_namespace)
        memory.scope(self._scope_name, terms)

    @property
    def scope(self) -> LinkScope:
        """The filters of discovered links and redirect targets."""
        return self._memory.scope(self._scope_name, self.terms)

    def fingerprint(self, url: str, *, method: str = "GET", body: bytes = b"") -> int:
        """Return the number by which a request for this spider under these terms is remembered."""
        if self.terms.query_order is QueryOrder.IGNORED:
            url = with_sorted_query(url)
        return fingerprint(url, seed=self.seed, method=method, body=body)

    def follows_links_at(self, depth: int) -> bool:
        """Whether links of a page at this depth are followed."""
        return self.spider.ignores_maxdepth or self.terms.maxdepth is None or depth < self.terms.maxdepth

    def extract_links(self, body: bytes, url: str, *, encoding: str) -> Links:
        """The page's links; of those that the frontier has for certain, only how many there are."""
        self._memory.hrefs.enter_era(self._seen.era)
        return self._extractor().extract(body, url, encoding=encoding)

    def _extractor(self) -> LinkExtractor:
        return LinkExtractor(
            self.scope,
            seed=self.seed,
            follow_nofollow=self.terms.follow_nofollow,
            texts=self.include_links,
            sorted_queries=self.terms.query_order is QueryOrder.IGNORED,
            memory=self._memory.hrefs,
            namespace=self._href_namespace,
        )

    def has_sitemaps_of(self, origin: str) -> bool:
        """Whether the frontier has what this origin's robots.txt names, for certain."""
        return self._seen.has_seen(self._sitemap_namespace, fingerprint(origin, seed=self.seed))

    def confirm_sitemaps_of(self, origin: str, *, since: int) -> None:
        """The frontier has them; `since`: the era before they were sent to it."""
        self._seen.remember(self._sitemap_namespace, [fingerprint(origin, seed=self.seed)], since=since)

    @property
    def era(self) -> int:
        """The frontier's, now."""
        return self._seen.era

    def unseen_positions(self, links: Links) -> list[int]:
        """Positions of the links that may be new to the frontier."""
        return self._seen.unseen_positions(self._namespace, links.fingerprints)

    def confirm(self, links: Links, rejected: Collection[int], *, since: int) -> None:
        """The frontier has these links now, all but the rejected fingerprints. `since`: the era in which they were
        found; in another one this means nothing."""
        if since != self._seen.era:
            return
        if not rejected:
            self._seen.remember(self._namespace, links.fingerprints)
            self._extractor().remember(links)
            return
        except_positions = [at for at, mark in enumerate(links.fingerprints) if mark in rejected]
        self._seen.remember(self._namespace, [mark for mark in links.fingerprints if mark not in rejected])
        self._extractor().remember(links, except_positions=except_positions)


def scope_of(terms: Terms) -> LinkScope:
    """The filters of discovered links and redirect targets. Raises BadInput for a regex that is none."""
    return compile_scope(
        allowed_domains=terms.allowed_domains,
        allowed_hosts=terms.allowed_hosts,
        allowed_prefixes=terms.allowed_prefixes,
        allow_regex=terms.allow_regex or (),
        deny_regex=terms.deny_regex or (),
        deny_extensions=terms.deny_extensions,
    )


def scope_name(terms: Terms) -> bytes:
    """The same for terms under which the same links are followed, and known by the same fingerprints."""
    filters = (
        terms.allowed_domains,
        terms.allowed_hosts,
        terms.allowed_prefixes,
        terms.allow_regex,
        terms.deny_regex,
        terms.deny_extensions,
        terms.query_order,
    )
    return hashlib.blake2b(msgspec.msgpack.encode(filters), digest_size=16).digest()


class CrawlHeaders:
    """The request headers of a crawl, for each URL those that it may get."""

    def __init__(self, terms: Terms, user_agent: str) -> None:
        self.secrets = SecretHeaders(terms)
        self._has_secrets = has_secrets(terms)
        self._cookie = terms.cookie
        self._all = _request_headers(user_agent, terms.headers or {})
        public = {
            name: value for name, value in (terms.headers or {}).items() if name.lower() not in self.secrets.names
        }
        self._public = _request_headers(user_agent, public) if self._has_secrets else self._all

    def for_url(self, url: str) -> tuple[Headers, str | None]:
        """Return the headers for a request to this canonical URL, without those that the client itself writes, and the
        crawl's cookie. The secret ones and the cookie are left out where they may not go."""
        if not self._has_secrets or self.secrets.may_go_to(url):
            return self._all, self._cookie
        return self._public, None


def _request_headers(user_agent: str, further: dict[str, str]) -> Headers:
    headers = {"user-agent": ("User-Agent", user_agent), "accept": ("Accept", ACCEPT)}
    headers["accept-language"] = ("Accept-Language", "en;q=0.8,*;q=0.5")
    for name, value in further.items():
        if name.lower() not in OWNED:
            headers[name.lower()] = (name, value)
    return tuple(headers.values())


class Contexts:
    """Finds the context of a lease. Bounded by bytes; those used longest ago go."""

    def __init__(self, make: Callable[[Run, str, Terms], Context], *, max_bytes: int = 5 * 1024 * 1024) -> None:
        self._make = make
        # A context holds its run and its terms, so that no other object can take their ids over meanwhile.
        self._contexts: BoundedCache[tuple[int, int, str], Context] = BoundedCache(max_bytes)

    def for_lease(self, lease: Lease) -> Context:
        """Leases of one submission mostly share their run and terms objects. Where they do not, contexts are made
        anew, which is cheap and forgets nothing."""
        key = (id(lease.run), id(lease.terms), lease.spider)
        context = self._contexts.get(key)
        if context is None:
            context = self._make(lease.run, lease.spider, lease.terms)
            size = _CONTEXT_BYTES + _TERMS_FACTOR * len(msgspec.msgpack.encode(lease.terms))
            self._contexts.put(key, context, size)
        return context
