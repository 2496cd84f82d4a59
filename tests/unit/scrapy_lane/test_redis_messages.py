"""What a start message asks for."""

import json
from typing import Any

import pytest
import scrapy_redis.dupefilter
from scrapy import FormRequest, Request, Spider

from gossamer.scrapy.redis.dupefilter import request_fingerprint
from gossamer.scrapy.redis.feeder import BadMessage, parse_message


def test_a_url() -> None:
    request = parse_message(b" http://a.test/x?b=1 ", "utf-8")
    assert (request.url, request.method, request.dont_filter) == ("http://a.test/x?b=1", "GET", True)


def test_as_scrapy_redis_reads_it() -> None:
    data = {"url": "http://a.test/", "method": "post", "meta": {"job": 1}, "q": "ö", "n": 5}
    request = parse_message(json.dumps(data).encode(), "utf-8")
    assert isinstance(request, FormRequest)
    assert (request.method, request.meta, request.body) == ("POST", {"job": 1}, b"q=%C3%B6&n=5")
    assert parse_message(b'{"url": "http://a.test/", "q": ["1", "2"]}', "utf-8").url == "http://a.test/?q=1&q=2"


def test_what_it_had_no_place_for() -> None:
    more = {"headers": {"X-A": "1"}, "cookies": {"c": "2"}, "priority": 3, "dont_filter": False, "cb_kwargs": {"k": 4}}
    request = parse_message(
        json.dumps({"url": "http://a.test/", "method": "PUT", "request": more | {"body": "b"}}), "utf-8"
    )
    assert (request.headers["X-A"], request.cookies, request.priority) == (b"1", {"c": "2"}, 3)
    assert (request.dont_filter, request.cb_kwargs, request.body) == (False, {"k": 4}, b"b")


class Shop(Spider):
    name = "shop"
    other = "text"

    def item(self, response: Any) -> None: ...


def test_callbacks_are_methods_by_name() -> None:
    spider = Shop()
    data = {"url": "http://a.test/", "request": {"callback": "item", "errback": "item"}}
    request = parse_message(json.dumps(data).encode(), "utf-8", spider)
    assert request.callback == request.errback == spider.item
    for name in ("nosuch", "other"):
        data["request"] = {"callback": name}
        with pytest.raises(BadMessage, match=f"request.callback: the spider has no method {name}"):
            parse_message(json.dumps(data).encode(), "utf-8", spider)


def test_a_reason_is_a_sentence() -> None:
    with pytest.raises(BadMessage) as fault:
        parse_message(b"nowhere", "utf-8")
    assert fault.value.detail == "This is not an http or https URL: 'nowhere'"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"123", b"ftp://a.test/", b"{", b'{"a": 1}', b'{"url": 5}', b'{"url": "nowhere"}', b"\xff",
        b'{"url": "http://a.test/", "meta": 5}', b'{"url": "http://a.test/", "method": 5}',
        b'{"url": "http://a.test/", "f": {"a": 1}}', b'{"url": "http://a.test/", "request": {"bodi": "x"}}',
        b'{"url": "http://a.test/", "request": {"priority": "high"}}',
        b'{"url": "http://a.test/", "f": "1", "request": {"body": "x"}}', b"{" * 100_000,
    ],
)  # fmt: skip
def test_a_bad_message_says_why(data: bytes) -> None:
    with pytest.raises(BadMessage) as fault:
        parse_message(data, "utf-8")
    assert fault.value.detail


@pytest.mark.parametrize(
    "request_", [Request("http://a.test/?b=2&a=1#f"), Request("http://a.test/ö", method="POST", body=b"\x00x")]
)
def test_the_fingerprint_is_scrapy_rediss(request_: Any) -> None:
    theirs = scrapy_redis.dupefilter.RFPDupeFilter(None, "key")
    assert request_fingerprint(request_) == theirs.request_fingerprint(request_)


def test_a_message_names_the_site_that_browsers_open() -> None:
    """Scrapy alone spells hosts by IDNA 2003, by which `straße` is `strasse`."""
    for data in ("http://straße.test/ä?q=ü", json.dumps({"url": "http://straße.test/ä?q=ü"})):
        assert parse_message(data.encode(), "utf-8").url == "http://xn--strae-oqa.test/%C3%A4?q=%C3%BC"
