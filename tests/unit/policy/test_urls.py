"""The one spelling of URLs; domains; fingerprints. The URL standard's own vectors are in test_urls_whatwg.py."""

import re

import ada_url
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from gossamer.errors import BadScheme, BadUrl, UrlTooLong
from gossamer.policy import urls
from gossamer.policy.urls import (
    MAX_URL_LENGTH,
    canonical,
    directory,
    fingerprint,
    from_user_input,
    host,
    is_address,
    join,
    origin,
    registered_domain,
    spider_seed,
    with_sorted_query,
)


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("HTTP://EXAMPLE.com:80/a/../b?x#y", "http://example.com/b?x"),
        ("https://user:secret@example.com/@x", "https://example.com/@x"),
        ("http://a@b@c/", "http://c/"),
        ("http://example.com/?a@b", "http://example.com/?a@b"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://１２７.0.0.1/", "http://127.0.0.1/"),
        ("http://[::FFFF:127.0.0.1]:8080", "http://[::ffff:7f00:1]:8080/"),
        ("http://a.test/\ud800", "http://a.test/%EF%BF%BD"),
        ("  http://a.test/\n b ", "http://a.test/%20b"),
        ("http://a.test/\0/", "http://a.test/%00/"),
    ],
)
def test_canonical(url: str, wanted: str) -> None:
    assert canonical(url) == wanted


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("", BadUrl),
        ("example.com", BadUrl),
        ("http://", BadUrl),
        ("http://a b/", BadUrl),
        ("ftp://a.test/", BadScheme),
        ("javascript:alert(1)", BadScheme),
        ("file:///etc/passwd", BadScheme),
        ("http://a.test/" + "x" * MAX_URL_LENGTH, UrlTooLong),
        ("http://a.test/" + "é" * (MAX_URL_LENGTH // 6), UrlTooLong),
        ("http://" + "a." * 200 + "test/", UrlTooLong),
        ("http://a.test/#" + "x" * 10 * MAX_URL_LENGTH, UrlTooLong),
    ],
)
def test_what_cannot_be_crawled_is_refused_by_its_own_class(url: str, error: type[BadUrl]) -> None:
    with pytest.raises(BadUrl) as caught:
        canonical(url)
    assert type(caught.value) is error


def test_a_long_fragment_costs_nothing() -> None:
    assert canonical("http://a.test/#" + "x" * MAX_URL_LENGTH) == "http://a.test/"


@pytest.mark.parametrize("url", ["ftp://me:secret@a.test/", "me:secret@a.test", "http://me:secret@a b/"])
def test_errors_do_not_show_credentials(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        from_user_input(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("example.com/x", "http://example.com/x"),
        (" https://example.com ", "https://example.com/"),
        ("localhost:8000", "http://localhost:8000/"),
        ("localhost:8000/x?y", "http://localhost:8000/x?y"),
        ("127.1", "http://127.0.0.1/"),
        ("[::1]:81/", "http://[::1]:81/"),
        ("//example.com/x", "http://example.com/x"),
        ("bücher.example", "http://xn--bcher-kva.example/"),
    ],
)
def test_from_person(text: str, wanted: str) -> None:
    assert from_user_input(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "/x",
        "?x",
        "#x",
        "./x",
        "mailto:a@b.test",
        "a@b.test",
        "hello world",
        "data:,x",
        "ht!tp:/x",
        "ht!tp://x",
        "a.test:8o/",
        "a.test:",
    ],
)
def test_from_person_refuses_what_names_no_host(text: str) -> None:
    with pytest.raises(BadUrl):
        from_user_input(text)


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("a.test", "a.test"),
        ("x.a.test", "a.test"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("co.uk", "co.uk"),
        ("com", "com"),
        ("x.someone.github.io", "github.io"),  # ICANN section only
        ("x.www.ck", "www.ck"),  # an exception of the list
        ("a.b.foo.ck", "b.foo.ck"),  # a wildcard of the list
        ("www.食狮.中国".encode("idna").decode(), "xn--85x722f.xn--fiqs8s"),
        ("example.com.", "example.com"),
        ("1.2.3.4", "1.2.3.4"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("localhost", "localhost"),
        (".", "."),
    ],
)
def test_registered_domain(name: str, domain: str) -> None:
    assert registered_domain(name) == domain


@pytest.mark.parametrize(
    "url", ["http://a.test:99999/", "a.test:99999", "http://user:pw@a.test:99999?x=1", "http://[::1]:99999"]
)
def test_a_port_that_is_too_large_is_named(url: str) -> None:
    with pytest.raises(BadUrl, match=r"\(its port is no number from 0 to 65535\)"):
        from_user_input(url)


@pytest.mark.parametrize("url", ["http://a b:80/", "http://[::1", "http://", "http://a b/:99999"])
def test_a_port_is_not_named_where_something_else_is_wrong(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        from_user_input(url)
    assert "port" not in str(caught.value)


@given(st.text(max_size=300))
def test_nothing_but_bad_url_is_ever_raised(text: str) -> None:
    """And what is accepted is ASCII, stable, and has a host and a domain of its own kind."""
    for accept in (canonical, from_user_input, lambda href: join("http://a.test/b/c?d", href)):
        try:
            url = accept(text)
        except BadUrl:
            continue
        assert url.isascii()
        assert canonical(url) == url
        assert url.startswith(origin(url) + "/")
        assert url.startswith(directory(url))
        assert host(url) in origin(url)
        assert (host(url).removesuffix(".") or ".").endswith(registered_domain(host(url)))


@given(st.text(max_size=100))
def test_registered_domain_never_raises(text: str) -> None:
    registered_domain(text)
    is_address(text)


def test_a_plain_get_is_hashed_as_its_url_alone() -> None:
    """So that a compiled extractor can compute it, and so that it fits a signed 64-bit integer."""
    seed = spider_seed(2**64 - 1, "link")
    for number in range(100):
        url = f"http://a.test/{number}"
        got = fingerprint(url, seed=seed)
        assert got % 2**64 == xxh3_64_intdigest(url.encode(), seed)
        assert -(2**63) <= got < 2**63
        assert got == fingerprint(url.encode(), seed=seed)


def test_fingerprints_differ_by_url_method_body_spider_and_secret() -> None:
    seed = spider_seed(1, "link")
    prints = [
        fingerprint("http://a.test/", seed=seed),
        fingerprint("http://a.test/x", seed=seed),
        fingerprint("http://a.test/", seed=seed, method="HEAD"),
        fingerprint("http://a.test/", seed=seed, method="POST"),
        fingerprint("http://a.test/", seed=seed, method="POST", body=b"x"),
        fingerprint("http://a.test/", seed=seed, body=b"x"),
        fingerprint("http://a.test/", seed=spider_seed(1, "wandering")),
        fingerprint("http://a.test/", seed=spider_seed(2, "link")),
    ]
    assert len(set(prints)) == len(prints)


_PIECES = st.sampled_from(
    [*"/?&:@\\ é~-_+.", "a", "B.c", "..", "...", "//", "x=1", "#f", "%2e", "%2E%2e", "http:", "https://a.test/"]
)


@given(
    base=st.sampled_from(
        [
            *("https://a.test/", "https://a.test/d/e?q=/x/", "https://a.test:81/d/", "http://a.test/x/y"),
            *("http://a.test/d/e/f", "http://a.test//", "http://a.test//d//e"),
        ]
    ),
    pieces=st.builds(
        lambda start, pieces: [start, *pieces],
        st.sampled_from(["", "../", "//a.test/", "//a.test", "http://a.test/", "/"]),
        st.lists(_PIECES, max_size=8),
    ),
)
@settings(max_examples=2000)
def test_joining_without_a_parser_gives_what_the_parser_gives(base: str, pieces: list[str]) -> None:
    href = "".join(pieces)
    plain = urls.BaseUrl(base)._join_clean(href)
    if plain is not None:
        assert plain == ada_url.join_url(base, href)


@pytest.mark.parametrize(
    ("base", "href", "url"),
    [
        ("https://a.test/d/e/f?q=/x/", "../b", "https://a.test/d/b"),
        ("https://a.test/d/", "../b?c", "https://a.test/b?c"),
        ("https://a.test/", "../b", "https://a.test/b"),
        ("https://a.test/d/e", "../", "https://a.test/"),
        ("https://a.test/d/e", "//a.test/x", "https://a.test/x"),
    ],
)
def test_what_is_above_and_what_names_its_own_site_needs_no_parser(base: str, href: str, url: str) -> None:
    assert urls.BaseUrl(base)._join_clean(href) == ada_url.join_url(base, href) == url


@pytest.mark.parametrize(
    "href", ["", "?x=1", "#f", ".", "..", "a/../b", "../../a", "//b.test/", "mailto:x", "a:b", "/a//b", "http:x"]
)
def test_an_href_that_needs_a_parser_gets_one(href: str) -> None:
    assert urls.BaseUrl("https://a.test/d/e")._join_clean(href) is None


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://a.test/", "http://a.test/"),
        ("http://a.test/?", "http://a.test/?"),
        ("http://a.test/?b", "http://a.test/?b"),
        ("http://a.test/?b=2&a=1", "http://a.test/?a=1&b=2"),
        ("http://a.test/?b=2&a=?&a=1", "http://a.test/?a=1&a=?&b=2"),
        ("http://a.test/?b&&a=", "http://a.test/?&a=&b"),
        ("http://a.test/b&a?c", "http://a.test/b&a?c"),
    ],
)
def test_a_query_is_sorted_by_its_parameters(url: str, wanted: str) -> None:
    assert with_sorted_query(url) == wanted


_LABELS = st.sampled_from(
    ["a", "xn--a", "xn--bcher-kva", "1", "0x1", "127", "a-", "-a", "a--b", "ab", "A", "a_b", "é", ""]
)
_PORTS = st.sampled_from(["", ":80", ":443", ":8080", ":65535", ":65536", ":080", ":0", ":99999", ":"])
_PATHS = st.lists(st.sampled_from([*"ab.~-_/?&=+:;,%@!", "%41", "..", "/./", "/../", " ", "//"]), max_size=12).map(
    "".join
)


@given(st.sampled_from(["http", "https", "HTTP"]), st.lists(_LABELS, min_size=1, max_size=4), _PORTS, _PATHS)
@settings(max_examples=2000)
def test_a_url_that_is_not_parsed_is_what_the_parser_returns(
    scheme: str, labels: list[str], port: str, path: str
) -> None:
    url = f"{scheme}://{'.'.join(labels)}{port}/{path}"
    try:
        parsed = ada_url.normalize_url(url)
    except ValueError:
        with pytest.raises(BadUrl):
            canonical(url)
    else:
        assert canonical(url) == re.sub(r"^(\w+://)[^/]*@", r"\1", parsed)  # of user and password nothing is kept


@pytest.mark.parametrize(
    "url", ["http://a.test/", "https://a.b-c.test:58080/a/b.html?x=1&y=a:b", "http://localhost:8080/"]
)
def test_a_plain_url_is_not_parsed(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.delattr(urls, "normalize_url")
    assert canonical(url) == url
