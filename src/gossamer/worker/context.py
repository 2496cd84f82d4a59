"""Context of one submission's requests: scope, headers, spider, and the memory of links already added.

A worker gets requests as leases from the frontier, the cluster's store of requests, which remembers in its seen-set
which requests a crawl has had. Terms are the options of one submission. Fixed: a link may be remembered only after the
frontier has confirmed it, and until the frontier enters another data epoch; otherwise pages are lost.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from gossamer.extract.document import HtmlDocument
from gossamer.extract.links import LinkExtractor, Links
from gossamer.extract.memory import new_href_memory
from gossamer.fetch.exchange import header_lines
from gossamer.fetch.request import OWNED
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import QueryOrder, Run, Terms
from gossamer.model.messages.secret_fields import REDACTED
from gossamer.model.request import DropReason, Lease
from gossamer.policy.cache import BoundedCache
from gossamer.policy.parameters import dropped_parameters
from gossamer.policy.patterns import allowed_repeats, path_repeats
from gossamer.policy.robots import asks_nofollow
from gossamer.policy.scope import LinkScope, UrlExpressions, scope_of
from gossamer.policy.secrets import SecretHeaders, has_secrets
from gossamer.policy.urls import fingerprint, spider_seed, with_sorted_query
from gossamer.telemetry.filters import FilterCounts
from gossamer.worker.quotas import PatternQuotas
from gossamer.worker.seen import SeenCache
from gossamer.worker.spider import Spider

if TYPE_CHECKING:
    from gossamer.extract.fields import CompiledExtraction


_CONTEXT_BYTES = 3000
"""Approximate memory of a context without its terms. Measured, like the next estimate; change them when a measurement
differs. The bound of the contexts depends on them."""
_SLASHES_OF_A_SITE = 3
"""Slashes of a URL whose path is `/`. Fixed."""
_TERMS_FACTOR = 8
"""Approximate memory of terms for each byte of their packed form."""

# Default headers; a crawl may name others. Sites choose by them what they return.
_ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
_ACCEPT_LANGUAGE = "en;q=0.8,*;q=0.5"

Headers = tuple[tuple[str, str], ...]


class SharedMemory:
    """Caches that all contexts of one worker share, each bounded by bytes.

    Larger bounds take memory, and save time for workers with many crawls, because fewer links are looked up again, and
    fewer filters are compiled again.
    """

    def __init__(
        self,
        seen: SeenCache,
        *,
        href_bytes: int = 12 * 1024 * 1024,
        scope_bytes: int = 12 * 1024 * 1024,
        rules_bytes: int = 4 * 1024 * 1024,
        filters: FilterCounts | None = None,
    ) -> None:
        """`href_bytes`: for the hrefs (links as written) of known links. `scope_bytes`: for compiled filters.
        `rules_bytes`: for compiled extraction rules. `filters`: counts what expressions decide; None: nothing does."""
        self.seen = seen
        self.quotas = PatternQuotas()
        self._filters = filters
        self.hrefs = new_href_memory(max_bytes=href_bytes)
        self._scopes: BoundedCache[bytes, LinkScope] = BoundedCache(scope_bytes)
        self._last_scope: tuple[bytes, LinkScope, int] | None = None
        """Name, scope and size of the entry of `_scopes` that was used last, so the last one that it would remove."""
        self._rules: BoundedCache[bytes, CompiledExtraction] = BoundedCache(rules_bytes)

    def scope(self, name: bytes, terms: Terms) -> LinkScope:
        """Return the compiled filters of these terms. `name`: their `scope_name`. Raises BadInput for an invalid
        regex."""
        last = self._last_scope
        if last is not None and last[0] == name and last[1].estimated_bytes == last[2]:
            return last[1]
        scope = self._scopes.get(name) or self._compiled(terms)
        size = scope.estimated_bytes  # it grows with the origins that the scope has judged
        self._scopes.put(name, scope, size)
        self._last_scope = name, scope, size
        return scope

    def _compiled(self, terms: Terms) -> LinkScope:
        scope = scope_of(terms)
        if self._filters is not None and (terms.allow_regex or terms.deny_regex):
            self._filters.begin(terms.allow_regex or (), terms.deny_regex or ())
            scope.on_expression = self._filters.count
        return scope

    def rules(self, name: bytes, terms: Terms) -> "CompiledExtraction | None":
        """Return the compiled extraction rules of these terms; None: they have none. `name`: their `rules_name`. Raises
        BadInput for rules that this worker cannot compile."""
        if terms.extract is None:
            return None
        rules = self._rules.get(name)
        if rules is None:
            from gossamer.extract.fields import CompiledExtraction  # imported late: most crawls have no rules

            rules = CompiledExtraction(terms.extract)
            self._rules.put(name, rules, rules.estimated_bytes)
        return rules


class ContextOptions(msgspec.Struct, frozen=True):
    """Options that all contexts of one worker share."""

    user_agent: str
    """User agent where the terms name none."""
    proxy: str
    """The operator's proxies, where the terms name none; see fetch/proxies.py. Empty: no proxy."""
    include_links: bool
    """True: records name the links of every page, even where the terms do not ask for it."""
    redact: bool
    """True: records do not show the values of secret request headers."""
    app_proxies: Mapping[str, str] = MappingProxyType({})
    """By application: proxies that its crawls have instead of `proxy`."""


class Context:
    """Run (one pass of a crawl), spider and terms that a number of leases share. Belongs to one worker.

    A context is small: scopes, fingerprints and hrefs are in the shared memory.
    """

    custom_parse: bool
    """True: the spider has a method `parse` of its own."""
    asset_kinds: frozenset[str]
    """Kinds of assets to fetch. Empty: none."""
    extracts: bool
    """True: items are taken from pages by rules."""
    reads_html: bool
    """True: HTML is read also where its links are not followed."""
    _shown_headers: tuple[Headers, dict[str, list[str]]] | None = None
    """Request headers, and how records show them."""
    _render_match: UrlExpressions | None = None
    """Expressions of the URLs that are rendered, once they are needed."""
    _captures: Callable[[str], bool] | None = None

    def __init__(
        self,
        run: Run,
        spider_name: str,
        terms: Terms,
        *,
        spider: Spider,
        available_spiders: Collection[str] | None,
        secret: int,
        memory: SharedMemory,
        options: ContextOptions,
    ) -> None:
        """`available_spiders`: names of the spiders that can run for this crawl; None: any, by other workers. `secret`:
        the frontier's number from which fingerprints are computed. Raises BadInput for an invalid regex."""
        self.run = run
        self.terms = terms
        self.spider_name = spider_name
        self.spider = spider
        self.available_spiders = available_spiders
        self.include_links = options.include_links or terms.links
        """True: records name the links of their page."""
        self.custom_parse = not spider.follows_all_links
        self.seed = spider_seed(secret, spider_name)
        self.user_agent = terms.useragent or options.user_agent
        self.headers = CrawlHeaders(terms, self.user_agent)
        self.hidden_headers = self.headers.secrets.names if options.redact else frozenset[str]()
        """Lower-case names of the request headers whose values records do not show."""
        self.proxy = terms.proxy or options.app_proxies.get(run.crawl.id.appid) or options.proxy or None
        """List of proxies, one of which each request goes through. None: no proxy."""
        self.guard_proxy = run.crawl.is_of_service and terms.proxy is not None
        """True: the proxy was named by a request to a service, so it must not reach the operator's private networks."""
        self.private_hosts = frozenset(terms.private_hosts)
        self._memory = memory
        self._seen = memory.seen
        self._scope_name = scope_name(terms)
        self._path_repeats = allowed_repeats(terms)
        # The generation numbers the crawl's seen-set. Without it, links of an earlier one would count as known.
        self._namespace = (run.crawl.id.token, run.number, run.generation)
        self._href_namespace = (*self._namespace, spider_name, self._scope_name)
        self._sitemap_namespace = ("sitemaps", *self._href_namespace)
        memory.scope(self._scope_name, terms)  # raises for an invalid regex
        self.asset_kinds = frozenset(terms.assets)
        self.asset_seed = spider_seed(secret, ASSET_SPIDER)
        self.extracts = terms.extract is not None
        self.reads_html = bool(self.include_links or self.custom_parse or self.extracts or self.asset_kinds)
        """True: HTML is read also where its links are not followed."""
        self._maxdepth = None if spider.ignores_maxdepth else terms.maxdepth
        self._rules_name = rules_name(terms)
        memory.rules(self._rules_name, terms)  # raises for rules that are not valid
        # The scope is passed to each call: one that is kept here would escape the bound of the shared memory.
        self._extractor = LinkExtractor(
            None,
            seed=self.seed,
            follow_nofollow=terms.follow_nofollow,
            texts=self.include_links,
            sorted_queries=terms.query_order is QueryOrder.IGNORED,
            memory=memory.hrefs,
            namespace=self._href_namespace,
        )

    def render_reason(self, url: str) -> str:
        """Return why a browser builds the page of a URL: `match`, or `auto` if its response decides. Empty: it does
        not."""
        otherwise = "auto" if self.terms.render_auto else ""
        if not self.terms.render_match:
            return otherwise
        if self._render_match is None:
            self._render_match = UrlExpressions(self.terms.render_match, "render_match", from_host=True)
        return "match" if self._render_match.matches(url) else otherwise

    @property
    def captures(self) -> Callable[[str], bool] | None:
        """Returns whether the answer of a URL that a page loads in a browser is captured. None: none is."""
        if self._captures is None and self.terms.render_capture:
            self._captures = UrlExpressions(self.terms.render_capture, "render_capture", from_host=True).matches
        return self._captures

    @property
    def watches_patterns(self) -> bool:
        """True: pages that may have no end are counted, to tell a person about them."""
        return self.terms.pattern_max_pages is None

    @property
    def scope(self) -> LinkScope:
        """Filters of discovered links and redirect targets."""
        if self.spider_name == ASSET_SPIDER:
            return self.deny_scope
        return self._memory.scope(self._scope_name, self.terms)

    @property
    def deny_scope(self) -> LinkScope:
        """Filters of assets, of sitemaps, and of their redirect targets: they may be on any host, and have any
        ending."""
        terms = msgspec.structs.replace(
            self.terms,
            allowed_domains=None,
            allowed_hosts=None,
            allowed_prefixes=None,
            allow_regex=None,
            deny_extensions=(),
        )
        return self._memory.scope(b"deny" + self._scope_name, terms)

    @property
    def rules(self) -> "CompiledExtraction | None":
        """Extraction rules. None: no items are taken from pages by rules."""
        return self._memory.rules(self._rules_name, self.terms) if self.extracts else None

    def shown_headers(self, headers: Headers) -> dict[str, list[str]]:
        """Return request headers for a record, with secret values redacted. Pages share the result, because most have
        the same headers, so it must not be changed."""
        known = self._shown_headers
        if known is None or known[0] is not headers:
            hidden = self.hidden_headers
            shown = {name: [REDACTED if name.lower() in hidden else value] for name, value in headers}
            known = self._shown_headers = headers, shown
        return known[1]

    def fingerprint(self, url: str, *, method: str = "GET", body: bytes = b"") -> int:
        """Return the fingerprint of a request for this spider under these terms."""
        if self.terms.drop_parameters:
            url = dropped_parameters(self.terms.drop_parameters).remove(url)
        if self.terms.query_order is QueryOrder.IGNORED:
            url = with_sorted_query(url)
        return fingerprint(url, seed=self.seed, method=method, body=body)

    def follows_links_at(self, depth: int) -> bool:
        """Return whether links of a page at this depth are followed."""
        return self._maxdepth is None or depth < self._maxdepth

    def asks_nofollow(self, headers: Iterable[tuple[str, str]]) -> bool:
        """Return whether the headers of a response ask not to follow its links."""
        lines = header_lines(headers, "x-robots-tag")
        return bool(lines) and asks_nofollow(lines, self.user_agent)

    def extract_links(
        self,
        html: bytes | HtmlDocument,
        url: str,
        *,
        encoding: str,
        nofollow: bool = False,
        data_epoch: int | None = None,
    ) -> Links:
        """Return the page's links. Links that are known to be in the frontier are only counted. `nofollow`: as
        `asks_nofollow` returns it. `data_epoch`: the current one, where the caller has read it since the last await;
        None: it is read here."""
        self._memory.hrefs.enter_data_epoch(self._seen.data_epoch if data_epoch is None else data_epoch)
        links = self._extractor.extract(html, url, encoding=encoding, scope=self.scope, nofollow=nofollow)
        # Only links of a page with many directories can have too many of them.
        if self.terms.pattern_max_pages is not None or url.count("/") >= _SLASHES_OF_A_SITE + self._path_repeats:
            self._drop_endless(links)
        return links

    def is_endless(self, url: str, value: int) -> bool:
        """Return whether a found URL is left out, because its path repeats too many directories, or the URLs of its
        pattern have used up their number. `value`: its fingerprint."""
        most = self.terms.pattern_max_pages
        return path_repeats(url) > self._path_repeats or (
            most is not None and not self._memory.quotas.allows(self._namespace, url, value, most)
        )

    def _drop_endless(self, links: Links) -> None:
        """Leave out the links of pages without end."""
        urls, values = links.urls, links.fingerprints
        kept = [at for at, url in enumerate(urls) if not self.is_endless(url, values[at])]
        if len(kept) == len(urls):
            return
        links.dropped[DropReason.PATTERN.value] = len(urls) - len(kept)
        domains, hrefs = links.domains, links.hrefs
        links.urls, links.fingerprints = [urls[at] for at in kept], [values[at] for at in kept]
        links.domains, links.hrefs = [domains[at] for at in kept], [hrefs[at] for at in kept]

    def has_sitemaps_of(self, origin: str) -> bool:
        """Return whether the sitemaps that the robots.txt of this origin (scheme, host and port) names are known to be
        in the frontier."""
        return self._seen.has_seen(self._sitemap_namespace, fingerprint(origin, seed=self.seed))

    def confirm_sitemaps_of(self, origin: str, *, since: int) -> None:
        """Record that the frontier has this origin's sitemaps. `since`: data epoch in which they were sent to it."""
        self._seen.remember(self._sitemap_namespace, [fingerprint(origin, seed=self.seed)], since=since)

    @property
    def data_epoch(self) -> int:
        """Current data epoch of the frontier."""
        return self._seen.data_epoch

    def unseen_positions(self, links: Links, *, data_epoch: int) -> list[int]:
        """Return the positions of the links that may be new to the frontier. `data_epoch`: as for `extract_links`."""
        return self._seen.unseen_positions(self._namespace, links.fingerprints, data_epoch=data_epoch)

    def unseen_assets(self, fingerprints: Sequence[int]) -> list[int]:
        """Return the positions of the fingerprints of assets that may be new to the frontier."""
        return self._seen.unseen_positions(self._namespace, fingerprints)

    def confirm_assets(self, fingerprints: Collection[int], rejected: Collection[int], *, since: int) -> None:
        """Record that the frontier has these assets, except for the rejected fingerprints. `since`: as for
        `confirm`."""
        kept = [value for value in fingerprints if value not in rejected] if rejected else fingerprints
        self._seen.remember(self._namespace, kept, since=since)

    def has_seen(self, fingerprint: int) -> bool:
        """Return whether this request is known to be in the frontier, as those are to which a page has linked."""
        return self._seen.has_seen(self._namespace, fingerprint)

    def confirm(self, links: Links, rejected: Collection[int], *, since: int) -> None:
        """Record that the frontier has these links, except for the rejected fingerprints.

        `since`: data epoch in which the links were extracted; in another data epoch nothing is recorded.
        """
        if since != self._seen.data_epoch:
            return
        if not rejected:
            self._seen.remember(self._namespace, links.fingerprints)
            self._extractor.remember(links)
            return
        accepted = [value for value in links.fingerprints if value not in rejected]
        rejected_positions = [at for at, value in enumerate(links.fingerprints) if value in rejected]
        self._seen.remember(self._namespace, accepted)
        self._extractor.remember(links, except_positions=rejected_positions)


def scope_name(terms: Terms) -> bytes:
    """Return a name that is equal for terms with the same filters and the same fingerprints of links.

    It names caches in memory only. A new filter of `scope_of` must be added here, or crawls would share a scope.
    """
    filters = (
        terms.allowed_domains,
        terms.allowed_hosts,
        terms.allowed_prefixes,
        terms.allow_regex,
        terms.deny_regex,
        terms.regex_from_host,
        terms.drop_parameters,
        terms.deny_extensions,
        terms.query_order,
    )
    return hashlib.blake2b(msgspec.msgpack.encode(filters), digest_size=16).digest()


def rules_name(terms: Terms) -> bytes:
    """Return a name that is equal for terms with the same extraction rules. It names caches in memory only."""
    if terms.extract is None:
        return b""
    return hashlib.blake2b(msgspec.msgpack.encode(terms.extract), digest_size=16).digest()


class CrawlHeaders:
    """Request headers of a crawl, limited to what each URL may receive."""

    def __init__(self, terms: Terms, user_agent: str) -> None:
        self.secrets = SecretHeaders(terms)
        self._has_secrets = has_secrets(terms)
        self._cookie = terms.cookie
        own = terms.headers or {}
        self._all = _request_headers(user_agent, own)
        public = {name: value for name, value in own.items() if name.lower() not in self.secrets.names}
        self._public = _request_headers(user_agent, public) if self._has_secrets else self._all

    def for_url(self, url: str) -> tuple[Headers, str | None]:
        """Return the crawl's headers for a request to this canonical URL, and its cookie. Headers that the client
        itself writes are not among them; secret headers and the cookie are left out where the terms do not allow
        them."""
        if not self._has_secrets or self.secrets.may_go_to(url):
            return self._all, self._cookie
        return self._public, None


def _request_headers(user_agent: str, own: dict[str, str]) -> Headers:
    """Return the default headers, overridden by the crawl's own, without those that the HTTP client writes itself."""
    headers = {
        "user-agent": ("User-Agent", user_agent),
        "accept": ("Accept", _ACCEPT),
        "accept-language": ("Accept-Language", _ACCEPT_LANGUAGE),
    }
    for name, value in own.items():
        if name.lower() not in OWNED:
            headers[name.lower()] = (name, value)
    return tuple(headers.values())


class Contexts:
    """Contexts by lease. When they exceed `max_bytes`, the least recently used are dropped, and made again on
    demand."""

    def __init__(self, make: Callable[[Run, str, Terms], Context], *, max_bytes: int = 5 * 1024 * 1024) -> None:
        self._make = make
        # A context holds its run and terms, so that no other object can get their ids while it exists.
        self._contexts: BoundedCache[tuple[int, int, str], Context] = BoundedCache(max_bytes)

    def for_lease(self, lease: Lease) -> Context:
        """Return the context of a lease.

        Leases of one submission mostly share their run and terms objects. Where they do not, another context is made,
        which is cheap and loses nothing.
        """
        key = (id(lease.run), id(lease.terms), lease.spider)
        context = self._contexts.get(key)
        if context is None:
            context = self._make(lease.run, lease.spider, lease.terms)
            size = _CONTEXT_BYTES + _TERMS_FACTOR * len(msgspec.msgpack.encode(lease.terms))
            self._contexts.put(key, context, size)
        return context
