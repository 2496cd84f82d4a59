"""Joining, normalisation and fingerprints against the URL standard's own vectors (see tests/servers/whatwg.py).

Every vector with an http or https result fetches what the standard says, and what the standard refuses is refused.
Where we deviate, and why, is DEVIATIONS: the whole list.
"""

import html
from collections import defaultdict
from collections.abc import Callable

import pytest

from gossamer.errors import BadUrl
from gossamer.extract.links import LinkExtractor
from gossamer.fetch.request import RequestEncoder
from gossamer.policy.scope import compile_scope
from gossamer.policy.urls import (
    MAX_HOST_LENGTH,
    MAX_URL_LENGTH,
    BaseUrl,
    canonical,
    fingerprint,
    host,
    join,
    origin,
    redirect_target,
    registered_domain,
    spider_seed,
)
from tests.servers.whatwg import UrlCase, require_vectors, url_cases, vectors

require_vectors()

DEVIATIONS: dict[str, Callable[[UrlCase], bool]] = {
    "the fragment is left out: no server ever sees it": lambda case: "#" in (case.href or ""),
    "user and password are left out: they must not get into records and queues": lambda case: "@" in _authority(case),
    "only http and https are fetched": lambda case: not (case.href or "").startswith(("http://", "https://")),
    "a URL above 8 KiB is refused: a trap": lambda case: len(_shared(case)) > MAX_URL_LENGTH,
    "a host that DNS cannot be asked for is refused": lambda case: len(_host(case)) > MAX_HOST_LENGTH,
}
"""Reason, and which of the accepted vectors it concerns."""

REFUSING = tuple(DEVIATIONS)[2:]

SEED = spider_seed(1, "link")


def _authority(case: UrlCase) -> str:
    return (case.href or "").partition("://")[2].split("/", 1)[0]


def _host(case: UrlCase) -> str:
    return _authority(case).rpartition("@")[2]


def _shared(case: UrlCase) -> str:
    """The standard's URL as far as a server gets to see it: without fragment, user and password."""
    assert case.href is not None
    scheme, separator, _ = case.href.partition("://")
    return scheme + separator + _host(case) + case.target


def wanted(case: UrlCase) -> str | None:
    """The standard's URL but for the deviations; None: refused."""
    if case.href is None or any(DEVIATIONS[reason](case) for reason in REFUSING):
        return None
    return _shared(case)


def ours(case: UrlCase) -> str | None:
    """None: refused."""
    try:
        return canonical(case.input) if case.base is None else join(canonical(case.base), case.input)
    except BadUrl:
        return None


def test_every_url_is_the_standards_or_refused_with_it() -> None:
    """And there are as many of each as the vectors are known to have at least."""
    cases = url_cases()
    wrong = [(case.input, case.base, ours(case), wanted(case)) for case in cases if ours(case) != wanted(case)]
    assert wrong == []
    accepted = [case for case in cases if wanted(case)]
    assert len(accepted) >= 240
    assert len([case for case in cases if case.href is None]) >= 250


def test_every_deviation_concerns_some_vector() -> None:
    """Or it could be left out. The limits of length, which no vector reaches, are tested in test_urls.py."""
    cases = [case for case in url_cases() if case.href is not None]
    for reason in tuple(DEVIATIONS)[:3]:
        assert any(map(DEVIATIONS[reason], cases)), reason


def test_a_canonical_url_is_a_fixed_point() -> None:
    """However it is come by: alone, joined to itself or another page, from a network path, with a fragment."""
    wrong = []
    for case in url_cases():
        url = ours(case)
        if url is None:
            continue
        again = {
            canonical(url),
            canonical(f" {url}\n"),
            canonical(f"{url}#x"),
            join(url, url),
            join(url, "#x"),
            join("http://other.test/a/b?c", url),
            join(origin(url) + "/", url[url.index(":") + 1 :]),
            join(url, url[url.index("/", 8) :]) if not url[url.index("/", 8) :].startswith("//") else url,
            BaseUrl(url).join(url.replace("://", ":\\\\", 1)),
        }
        if again != {url}:
            wrong.append((case.input, url, again))
    assert wrong == []


def test_fingerprints_are_equal_where_urls_are_and_only_there() -> None:
    """Equal: what a server cannot tell apart, the standard's URL without fragment, user and password."""
    of_standard: dict[str, set[int]] = defaultdict(set)
    for case in url_cases():
        url = ours(case)
        if url is not None:
            of_standard[_shared(case)].add(fingerprint(url, seed=SEED))
    assert {url: marks for url, marks in of_standard.items() if len(marks) != 1} == {}
    assert len(set.union(*of_standard.values())) == len(of_standard)


def test_what_is_asked_for_is_the_standards_path_and_host() -> None:
    """The request's line and Host header; only a port 0, which nothing can listen on, is refused there."""
    encoder = RequestEncoder()
    wrong = []
    for case in url_cases():
        url = ours(case)
        if url is None or case.host.endswith(":0"):
            continue
        asked_origin, path = encoder.split(url)
        head = encoder.head(asked_origin, path, "GET", (), 0)
        if not head.startswith(f"GET {case.target} HTTP/1.1\r\nHost: {case.host}\r\n".encode()):
            wrong.append((case.input, head))
    assert wrong == []


def test_the_links_of_a_page_are_the_standards() -> None:
    """Through the HTML parser, by a page's own URL or its base element; NUL is another character in HTML."""
    wrong = []
    for case in url_cases():
        if "\0" in case.input or case.base is None or ours(case) == canonical(case.base):
            continue
        link = f'<a href="{html.escape(case.input)}">'
        element = f'<base href="{html.escape(case.base)}">{link}'
        for page, text in ((canonical(case.base), link), ("http://page.test/x/y", element)):
            links = LinkExtractor(compile_scope(), seed=SEED).extract(text, page)
            found = links.urls[0] if links.urls else None
            if found != wanted(case):
                wrong.append((case.input, page, found, wanted(case)))
            elif found:
                assert links.fingerprints == [fingerprint(found, seed=SEED)]
    assert wrong == []


def test_redirects_lead_where_the_standard_says() -> None:
    """A Location arrives as the bytes of its UTF-8, one character each."""
    wrong = []
    for case in url_cases():
        if case.base is None or any(ord(character) < 0x20 for character in case.input):
            continue  # no header has those
        try:
            value = case.input.encode().decode("latin-1")
        except UnicodeEncodeError:
            continue  # lone surrogates have no bytes
        if redirect_target(canonical(case.base), value) != wanted(case):
            wrong.append((case.input, case.base))
    assert wrong == []


def test_every_url_has_a_host_and_a_domain() -> None:
    """Which the frontier keeps it under."""
    for case in url_cases():
        url = ours(case)
        if url is not None:
            name = host(url)
            assert case.host in (name, name + case.host[len(name) :]), case
            assert (name.removesuffix(".") or ".").endswith(registered_domain(name))


@pytest.mark.parametrize("form", ["https://{}/x", "http://{}:81/", "//{}/x?y", "\\\\{}\\x"])
def test_every_toascii_vector(form: str) -> None:
    """International host names have one spelling too, wherever they stand."""
    wrong = []
    for case in vectors("toascii.json"):
        try:
            got = host(join("https://a.test/b", form.format(case["input"])))
        except BadUrl:
            got = None
        name = case["output"]
        if name is not None and len(name) > MAX_HOST_LENGTH:
            name = None
        if got != name:
            wrong.append((case["input"], got, name))
    assert wrong == []
