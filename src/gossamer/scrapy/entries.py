"""From a Scrapy request to what the frontier keeps of it: canonical URL, domain, fingerprint, payload."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.utils.request import RequestFingerprinter as ScrapysOwn

from gossamer.errors import BadUrl
from gossamer.frontier.base import Frontier
from gossamer.model.request import Payload, name_fault, pack, too_large
from gossamer.policy.scrapy_urls import clean_form, digest
from gossamer.policy.urls import canonical, fingerprint, host, registered_domain, spider_seed
from gossamer.scrapy.stored import Unstorable, attrs_of, store


class RequestFingerprinter:
    """Returns the same bytes as Scrapy's own fingerprinter, so that a project may change from one to the other.

    Most URLs need no parser to be brought into w3lib's canonical form. All others, and requests with `verbatim_url` in
    their meta, are left to Scrapy's own.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "RequestFingerprinter":
        return cls(crawler)

    def __init__(self, crawler: Crawler | None = None) -> None:
        self._scrapys = ScrapysOwn(crawler)

    def fingerprint(self, request: Request) -> bytes:
        """Return 20 bytes."""
        form = clean_form(request.url)
        if form is None or (request._meta and request._meta.get("verbatim_url")):
            return self._scrapys.fingerprint(request)
        return digest(form, method=request.method, body=request.body)


def sped_up(fingerprinter: Any) -> Any:
    """Return the fingerprinter to use in the place of a project's own: a fast one for Scrapy's default."""
    return RequestFingerprinter() if type(fingerprinter) is ScrapysOwn else fingerprinter


SPIDER_KEY = "spiderid"
"""In a request's meta: the spider that is to handle it, where that is not its maker (Scrapy Cluster's name)."""

MOST_PRIORITY = 60_000


class RequestKey(NamedTuple):
    """By what a request is remembered: the same for two that are the same."""

    spider: str
    url: str
    """Canonical."""
    fingerprint: int


@dataclass(frozen=True, slots=True)
class FrontierEntry:
    """A request on its way into the frontier."""

    spider: str
    domain: str
    priority: int
    depth: int
    url: str
    fingerprint: int
    payload: bytes | None


class EntryEncoder:
    """Makes entries for one spider's process."""

    def __init__(self, spider: Spider, *, frontier: Frontier, fingerprinter: Any) -> None:
        """`fingerprinter`: the crawler's."""
        self._spider = spider
        self._frontier = frontier
        self._fingerprinter = sped_up(fingerprinter)

    def name(self, request: Request) -> RequestKey:
        """What it is remembered by. Raises Unstorable for a URL that only this process can download, and for a spider
        that nobody can be."""
        url = _canonical(request)
        asked = request.meta.get(SPIDER_KEY) if request._meta else None
        if asked is None or asked == self._spider.name:
            return RequestKey(self._spider.name, url, self._mark(request, url))
        spider = str(asked)
        if why := name_fault(spider):
            raise Unstorable(why)
        return RequestKey(spider, url, self._outside(spider, request, url))

    def of(self, request: Request, name: RequestKey) -> FrontierEntry:
        """The whole of it. Raises Unstorable, whose detail says why."""
        other = name.spider != self._spider.name
        payload = pack(_neutral(request) if other else store(request, self._spider, url=name.url))
        if why := too_large(payload):
            raise Unstorable(why)
        return FrontierEntry(
            name.spider,
            registered_domain(host(name.url)),
            max(-MOST_PRIORITY, min(request.priority, MOST_PRIORITY)),
            _depth(request),
            name.url,
            name.fingerprint,
            payload,
        )

    def payload(self, request: Request, *, url: str) -> bytes | None:
        """What travels with an entry whose URL is `url`, wherever the request itself has got to. Raises Unstorable."""
        return pack(store(request, self._spider, url=url))

    def _mark(self, request: Request, url: str) -> int:
        """Return the fingerprint of a request for this spider: the project's own, keyed with the frontier's secret."""
        seed = spider_seed(self._frontier.secret, self._spider.name)
        return fingerprint(self._fingerprinter.fingerprint(request), seed=seed)

    def _outside(self, spider: str, request: Request, url: str) -> int:
        """Return the fingerprint that anybody gives to a request for this spider."""
        return self._frontier.spiders.fingerprint(spider, url, method=request.method, body=request.body)


def _canonical(request: Request) -> str:
    try:
        return canonical(request.url)
    except BadUrl as fault:
        raise Unstorable(f"{fault} Other schemes are downloaded in this process only") from None


def _depth(request: Request) -> int:
    depth = request.meta.get("depth", 0) if request._meta else 0
    return depth if type(depth) is int and 0 <= depth < 2**16 else 0


def _neutral(request: Request) -> Payload:
    """For another spider, of this lane or the fast one: what both understand."""
    headers = {
        name.decode("latin-1"): b",".join(values).decode("latin-1")
        for name, values in request.headers.items()
        if values
    }
    return Payload(method=request.method, body=request.body, headers=headers or None, attrs=attrs_of(request.meta))
