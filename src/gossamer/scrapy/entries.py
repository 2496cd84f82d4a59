"""From a Scrapy request to what the frontier keeps of it: canonical URL, domain, fingerprint, payload."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from scrapy import Request, Spider

from gossamer.errors import BadUrl
from gossamer.frontier.base import Frontier
from gossamer.model.payload import Payload, pack, too_large
from gossamer.policy.names import name_fault
from gossamer.policy.urls import canonical, fingerprint, host, registered_domain, spider_seed
from gossamer.scrapy.fingerprinter import sped_up
from gossamer.scrapy.stored import Unstorable, attrs_of, store

SPIDER_KEY = "spiderid"
"""In a request's meta: the spider that is to handle it, where that is not its maker (Scrapy Cluster's name)."""

MOST_PRIORITY = 60_000


class Name(NamedTuple):
    """By what a request is remembered: the same for two that are the same."""

    spider: str
    url: str
    """Canonical."""
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A request on its way into the frontier."""

    spider: str
    domain: str
    priority: int
    depth: int
    url: str
    fingerprint: int
    payload: bytes | None


class Entries:
    """Makes entries for one spider's process."""

    def __init__(self, spider: Spider, *, frontier: Frontier, fingerprinter: Any) -> None:
        """`fingerprinter`: the crawler's."""
        self._spider = spider
        self._frontier = frontier
        self._fingerprinter = sped_up(fingerprinter)

    def name(self, request: Request) -> Name:
        """What it is remembered by. Raises Unstorable for a URL that only this process can download, and for a spider
        that nobody can be."""
        url = _canonical(request)
        asked = request.meta.get(SPIDER_KEY) if request._meta else None
        if asked is None or asked == self._spider.name:
            return Name(self._spider.name, url, self._mark(request, url))
        spider = str(asked)
        if why := name_fault(spider):
            raise Unstorable(why)
        return Name(spider, url, self._outside(spider, request, url))

    def of(self, request: Request, name: Name) -> Entry:
        """The whole of it. Raises Unstorable, whose detail says why."""
        other = name.spider != self._spider.name
        payload = pack(_neutral(request) if other else store(request, self._spider, url=name.url))
        if why := too_large(payload):
            raise Unstorable(why)
        return Entry(
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
