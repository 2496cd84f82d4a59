"""What a crawl request means to the frontier."""

from typing import Any

import pytest

from gossamer.errors import RequestRejected
from gossamer.model.crawl import Crawl, CrawlId, Order, Rate, Terms, login_of
from gossamer.model.logouts import NEVER_FOLLOWED
from gossamer.model.messages.reader import MessageReader
from gossamer.model.messages.requests import CrawlRequest
from gossamer.model.request import EMPTY_PAYLOAD, Payload

NOW = 1700000000.0


def crawl(**asked: Any) -> CrawlRequest:
    return CrawlRequest(appid="testapp", crawlid="abc", url="http://example.com/", **asked)


def test_the_least_request_means_one_page_and_nothing_else() -> None:
    """The original's defaults: the link spider, priority 1, no links followed, no confinement."""
    request = crawl()
    assert (request.spiderid, request.priority) == ("link", 1)
    assert request.crawl(idle_seconds=0.0) == Crawl(id=CrawlId("testapp", "abc"), keep_all_failed=True)
    assert request.terms(domain_max_pages=None, domain_max_pending=None) == Terms(maxdepth=0)
    assert request.payload() is EMPTY_PAYLOAD


def test_everything_that_is_asked_gets_somewhere() -> None:
    message = {
        "appid": "testapp",
        "crawlid": "abc",
        "url": "http://example.com/",
        "spiderid": "shop",
        "priority": 70,
        "maxdepth": 9,
        "max_pages": 100,
        "domain_max_pages": 5000,
        "allowed_domains": ["example.com"],
        "allow_regex": ["/a"],
        "deny_regex": ["/b"],
        "deny_extensions": ["zip"],
        "expires": 1893456000,
        "useragent": "me/1",
        "cookie": "a=1",
        "attrs": {"a": [1]},
        "headers": {"X-A": "1"},
        "headers_for": ["other.com"],
        "secret_headers": ["X-B", "X-A", "x-a"],
        "method": "POST",
        "body": "ü",
        "proxy": "http://proxy:3128",
        "rate": "10/60",
        "domain_concurrency": 4,
        "order": "lifo",
        "sitemaps": True,
        "links": True,
        "ignore_robots": True,
        "session": "cookies",
        "timeout": 2.5,
        "retries": 0,
    }
    _, request = MessageReader().read(message)
    assert request.crawl(idle_seconds=0.0) == Crawl(
        id=CrawlId("testapp", "abc"),
        order=Order.LIFO,
        max_pages=100,
        rate=Rate(hits=10, window_seconds=60.0),
        concurrency=4,
        keep_all_failed=True,
    )
    assert request.terms(domain_max_pages=None, domain_max_pending=1000) == Terms(
        maxdepth=9,
        domain_max_pages=5000,
        domain_max_pending=1000,
        allowed_domains=("example.com",),
        allow_regex=("/a",),
        deny_regex=("/b", *NEVER_FOLLOWED),
        deny_extensions=("zip",),
        expires=1893456000.0,
        useragent="me/1",
        cookie="a=1",
        headers={"X-A": "1"},
        secret_headers=("x-a", "x-b"),
        attrs={"a": [1]},
        sitemaps=True,
        links=True,
        ignore_robots=True,
        session="cookies",
        proxy="http://proxy:3128",
        timeout_seconds=2.5,
        retries=0,
    )
    assert request.payload() == Payload(method="POST", body="ü".encode())


def test_empty_filters_are_none() -> None:
    """As in the original, where an empty list confines nothing; only `deny_extensions` has a default to switch off."""
    asked = crawl(allowed_domains=(), allow_regex=(), deny_regex=(), deny_extensions=(), domain_max_pages=0)
    assert asked.terms(domain_max_pages=None, domain_max_pending=None) == Terms(maxdepth=0, deny_extensions=())


@pytest.mark.parametrize(
    ("asked", "cap", "limit"),
    [
        (None, 100, 100), (0, 100, 100), (101, 100, 100), (100, 100, 100), (99, 100, 99),
        (None, None, None), (0, None, None), (7, None, 7),
    ],
)  # fmt: skip
def test_the_operators_cap_on_pages_of_a_domain_holds_for_every_request(
    asked: int | None, cap: int | None, limit: int | None
) -> None:
    terms = crawl(domain_max_pages=asked).terms(domain_max_pages=cap, domain_max_pending=None)
    assert terms.domain_max_pages == limit


def test_a_body_of_bytes() -> None:
    assert crawl(method="PUT", body_base64="AP8=").payload() == Payload(method="PUT", body=b"\x00\xff")
    assert crawl(method="HEAD").payload() == Payload(method="HEAD")
    assert crawl(body="").payload() is EMPTY_PAYLOAD


@pytest.mark.parametrize(
    ("text", "rate"),
    [("5", Rate(5, 1.0)), ("1/0.5", Rate(1, 0.5)), ("1000000/604800", Rate(1_000_000, 604800.0))],
)
def test_rates(text: str, rate: Rate) -> None:
    _, request = MessageReader().read({"appid": "testapp", "crawlid": "a", "url": "x", "rate": text})
    assert request.crawl(idle_seconds=0.0).rate == rate


@pytest.mark.parametrize("expires", [0, 1700000001, int(NOW) + 100 * 365 * 86400])
def test_times_that_are_meant(expires: int) -> None:
    crawl(expires=expires).check_expires(now=NOW)


@pytest.mark.parametrize(
    ("expires", "words"),
    [(1, "has passed"), (1700000000, "has passed"), (int(NOW) + 100 * 365 * 86400 + 1, "a hundred years")],
)
def test_times_that_cannot_be_meant(expires: int, words: str) -> None:
    with pytest.raises(RequestRejected, match=f"expires: .*{words}"):
        crawl(expires=expires).check_expires(now=NOW)


def test_the_crawl_of_a_login_is_in_the_pool_of_that_login() -> None:
    message = {"appid": "testapp", "crawlid": "abc", "url": "http://example.com/", "login": "shop"}
    _, request = MessageReader().read(message)
    crawl = request.crawl(idle_seconds=0.0)
    assert (crawl.pool, login_of(crawl.pool), crawl.is_of_service) == ("login:shop", "shop", True)
    terms = request.terms(domain_max_pages=None, domain_max_pending=None)
    assert (terms.session, terms.deny_regex) == ("login", NEVER_FOLLOWED)
