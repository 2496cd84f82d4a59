"""Scrapy's default fingerprint computed without Scrapy, held against Scrapy's own."""

import random

import pytest
from scrapy import Request
from scrapy.utils.request import fingerprint as scrapys

from gossamer.errors import BadUrl
from gossamer.policy.scrapy_urls import clean_form, digest, scrapy_fingerprint
from gossamer.policy.urls import canonical
from gossamer.scrapy.entries import RequestFingerprinter

HOSTS = (
    "a.test", "EXAMPLE.com", "example.com.", "a..b", "1.2.3.4", "[::1]", "[::ffff:1.2.3.4]", "[2001:db8:0:0:1::1]",
    "xn--nxasmq6b", "bücher.example", "a_b.test", "a!b.test", "x" * 64 + ".test", "a.test:80", "a.test:8080", "a.test:",
    "user:pass@a.test", "0x7f.1",
)  # fmt: skip
PARTS = (
    "a", "b", "Z", "1", "/", "/", "?", "&", "&", "=", "=", ";", ".", "..", "/./", "/../", "%7E", "~", "%41", "%2f",
    "%2F", "%3b", "%3B", "%3f", "%25", "%2e", "+", "%20", " ", "é", "%E9", "%", "%zz", "[", "]", "|", "^", "\\", "'",
    '"', "<", "`", "{", "!", "*", "(", ",", "@", ":", "$", "#f", "-", "_", "//", "/..;y", "?a=1", "&x", "&b=2",
)  # fmt: skip


def urls(count: int, seed: int) -> list[str]:
    random_ = random.Random(seed)
    return [
        random_.choice(("http://", "https://", "HTTP://"))
        + (random_.choice(HOSTS) if random_.random() < 0.4 else "a.test/")
        + "".join(random_.choice(PARTS) for _ in range(random_.randrange(12)))
        for _ in range(count)
    ]


def test_a_canonical_url_has_scrapys_fingerprint() -> None:
    compared = 0
    for number, url in enumerate(urls(20_000, seed=1)):
        method, body = (("GET", b""), ("POST", b"x=1"), ("M-SEARCH", b"\xff"))[number % 3]
        try:
            url = canonical(url)
            request = Request(url, method=method, body=body)
        except (BadUrl, ValueError):
            continue
        compared += 1
        assert scrapy_fingerprint(url, method=method, body=body) == scrapys(request), url
    assert compared > 10_000


def test_the_fast_way_is_taken_only_where_it_gives_scrapys_fingerprint() -> None:
    clean = 0
    for url in urls(20_000, seed=2):
        try:
            request = Request(url)
        except ValueError:
            continue
        if (form := clean_form(request.url)) is not None:
            clean += 1
            assert digest(form, method="GET", body=b"") == scrapys(request), url
    assert clean > 1_000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://a.test/?a=1&b=2", "http://a.test/?b=2&a=1"),
        ("http://a.test/?x", "http://a.test/?x="),
        ("http://a.test/%7Ejoe", "http://a.test/~joe"),
        ("http://a.test/?q=a%20b", "http://a.test/?q=a+b"),
    ],
)
def test_what_scrapy_takes_for_one_has_one_fingerprint(one: str, other: str) -> None:
    assert scrapy_fingerprint(one) == scrapy_fingerprint(other)
    ours = RequestFingerprinter()
    assert ours.fingerprint(Request(one)) == ours.fingerprint(Request(other))


@pytest.mark.parametrize(
    "request_",
    [
        Request("http://a.test/x?b=2&a=1", meta={"verbatim_url": True}),
        Request("data:text/plain,hello"),
        Request("file:///tmp/x"),
        Request("http://a.test"),
        Request("http://a.test/x", method='a"b'),
        Request("http://a.test/x#fragment"),
        Request("http://a.test:40123/x?b=2&a=1#fragment?c"),
    ],
)
def test_the_add_ons_fingerprinter_gives_scrapys_bytes_for_any_request(request_: Request) -> None:
    assert RequestFingerprinter().fingerprint(request_) == scrapys(request_)
