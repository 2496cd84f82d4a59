"""The compiled extension reads links as the reference in Python does."""

import random
import subprocess
import sys
import time

import pytest

from gossamer.extract import memory
from gossamer.extract.flatten import is_costly
from tests.links.compare import BothExtractors, reason, shrink
from tests.links.generate import COSTLY, make_page, well_formed

if memory.native is None:
    pytest.skip("gossamer_native is not installed: `make setup` builds it where cargo is", allow_module_level=True)

GENERATED = 20_000
WELL_FORMED = 4_000
COSTLY_PAGES = 5_000


def hrefs(html: bytes | str) -> list[str]:
    """What the scanner finds, without joining."""
    data = html.encode() if isinstance(html, str) else html
    return [href for href, _ in memory.native.scan_links(data)[0]]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<a href='/x?a=1&amp;b=2'>", ["/x?a=1&b=2"]),
        ("<a href=/x&#47;y>", ["/x/y"]),
        ("<a href='?a=1&copy=2&copy;&notit;&lt'>", ["?a=1&copy=2©&notit;<"]),
        ("<a href='&#x80;&#0;&#xD800;&#99999999;'>", ["€\ufffd\ufffd\ufffd"]),
        ("<!-- <a href=no> --><a href=yes>", ["yes"]),
        ("<!--><a href=yes>", ["yes"]),
        ("<!-- --!><a href=yes>", ["yes"]),
        ("<script>'<a href=no>'</script><a href=yes>", ["yes"]),
        ("<script><!-- <script> </script> <a href=no> --></script><a href=yes>", ["yes"]),
        ("<a title='a > b' href=yes>", ["yes"]),
        ("<a title='<a href=no>' href=yes>", ["yes"]),
        ("<a href=a/b/>", ["a/b/"]),
        ("<a href=first href=second>", ["first"]),
        ("<a href>", []),
        ("<a href=''>", [""]),
        ("<a data-href=no href=yes>", ["yes"]),
        ("<a\nhref\n=\n' x '>", [" x "]),
        ("<textarea><a href=no></textarea><a href=yes>", ["yes"]),
        ("<title><a href=no></title><a href=yes>", ["yes"]),
        ("<noscript><a href=yes></noscript>", ["yes"]),
        ("<template><a href=no></template><a href=yes>", ["yes"]),
        ("<svg><style><a href=yes></style></svg>", ["yes"]),
        ("<svg><![CDATA[<a href=no>]]></svg><![CDATA[x><a href=yes>", ["yes"]),
        ("<svg><title><script><a href=no></script></title><p><a href=yes>", ["yes"]),
        ("<frameset><a href=no></frameset>", []),
        ("<frameset><frame src=a><frameset><frame src=b></frameset></frameset><frame src=no>", ["a", "b"]),
        ("<frameset><script><frame src=a></script><frame src=b></frameset>", ["a", "b"]),
        ("<frameset><noframes><body><a href=a></noframes></frameset><noframes><a href=b></noframes>", ["a", "b"]),
        ("<head><noframes><a href=a></noframes><frameset><frame src=b>", ["a", "b"]),
        ("<p><noframes><a href=no></noframes><frameset><frame src=a>", ["a"]),
        ("<p><frame src=no><noframes><area href=a><iframe src=b></noframes><a href=c>", ["a", "b", "c"]),
        ("<noframes><noframes><a href=no></noframes><a href=a>", ["a"]),
        ("<template><noframes><a href=no></noframes><iframe src=no></iframe></template>", []),
        ("<iframe src=a><a href=no></iframe><a href=b>", ["a", "b"]),
        ("<iframe src=''></iframe><iframe src></iframe><iframe>", []),
        ("<iframe src=a srcdoc='&lt;a href=&quot;b&amp;amp;c&quot;>'></iframe><a href=d>", ["a", "b&c", "d"]),
        ("<iframe srcdoc='<iframe src=a srcdoc=&quot;<a href=no>&quot;></iframe><noframes><a href=no>'>", ["a"]),
        ("<noframes><iframe srcdoc='<a href=a>'></noframes>", ["a"]),
        ("<svg><a xlink:href=a>t</a><a XLINK:HREF='b&amp;c' rel=x /><a href=c xlink:href=no></svg>", ["a", "b&c", "c"]),
        (
            "<svg><a href xlink:href=a></a><a href='' xlink:href=no></a><a xlink:href></a><a xlink:href=''></svg>",
            ["a", "", ""],
        ),
        ("<math><a xlink:href=a></a></math><a xlink:href=no>", ["a"]),
        ("<svg><foreignObject><a xlink:href=no></a></foreignObject><g xlink:href=no></g></svg>", []),
        ("<svg><iframe src=no /><area href=no /><noframes><a href=a></svg>", ["a"]),
        ("<svg><foreignObject><iframe src=a></iframe><area href=b></foreignObject></svg>", ["a", "b"]),
        ("<math><mi><area href=a></mi><area href=no></math>", ["a"]),
        ("<plaintext><a href=no>", []),
        ("<a href=no", []),
        ("<A HREF=yes>", ["yes"]),
        ("<a href='a\r\nb\rc\0'>", ["a\nb\nc\ufffd"]),
        (b"<a href='\xff'>", ["\ufffd"]),
        ("</a href=no><area href=yes>", ["yes"]),
    ],
)
def test_one_construct(html: bytes | str, expected: list[str]) -> None:
    assert hrefs(html) == expected
    assert BothExtractors().difference(html.encode() if isinstance(html, str) else html) == ""


def test_generated_pages_differ_only_for_known_reasons() -> None:
    chance, both = random.Random(20), BothExtractors()
    shortest = [shrink(both, page) for page in (make_page(chance) for _ in range(GENERATED)) if both.difference(page)]
    assert [page for page in shortest if not reason(page)] == []
    assert len(shortest) < GENERATED / 1000


@pytest.mark.parametrize("place", ["before", "after"])
def test_pages_that_are_not_parsed_as_a_whole_are_read_alike(place: str) -> None:
    chance, both = random.Random(23), BothExtractors()
    for _ in range(COSTLY_PAGES):
        page = make_page(chance)
        html = COSTLY + page if place == "before" else page + COSTLY
        assert not is_costly(html) or both.difference(html) == ""


@pytest.mark.parametrize(
    "html",
    [
        "<plaintext><a href=no>",
        "<svg><plaintext><a href=yes>",
        "<template><a href=no></template><a href=yes>",
        "<template><template></template><a href=no></template><a href=yes>",
        "<svg><style><a href=yes></style></svg>",
        "<svg><![CDATA[<a href=no>]]></svg><![CDATA[x><a href=yes>",
        "<script><!-- <script> </script> <a href=no> --></script><a href=yes>",
        "<textarea/><a href=no></textarea><a href=yes>",
        "<svg><base href=/no/><a href=yes></svg>",
        "<math><mi><base href=/b/><a href=yes>",
        f"<a title='{'x' * 5000}' href=yes rel=x>",
        f"<base title='{'x' * 5000}' href=/b/><link rel=next title='{'x' * 5000}' href=next>",
        f"<iframe srcdoc='{'<div>' * 20_000}<plaintext><a href=no>'></iframe><a href=yes>",
    ],
)
def test_one_construct_of_a_page_that_is_not_parsed_as_a_whole(html: str) -> None:
    for page in (COSTLY + html.encode(), html.encode() + b"<i>" * 10_001):
        assert is_costly(page)
        assert BothExtractors().difference(page) == ""


def test_no_link_of_a_well_formed_page_is_read_differently() -> None:
    chance, both = random.Random(21), BothExtractors()
    for _ in range(WELL_FORMED):
        assert both.difference(well_formed(chance).encode()) == ""


@pytest.mark.parametrize("space", ["\xa0", "\x85", "\u2003", "\u3000", "\x1c", "\v", "&nbsp;"])
def test_words_are_split_at_the_white_space_of_python(space: str) -> None:
    html = (
        f"<a rel='x{space}NoFollow' href=no><link rel='prev{space}next' href=next>"
        f"<meta name='robots{space}' content='noindex,{space}x'>"
        f"<meta http-equiv='{space}refresh' content='0;url=there'>"
    )
    anchors, nexts, refreshes, _, nofollow, noindex = memory.native.scan_links(html.encode())
    assert anchors == [("no", True)]
    assert (nexts, refreshes, nofollow, noindex) == (["next"], ["0;url=there"], False, True)
    assert BothExtractors().difference(html.encode()) == ""


@pytest.mark.parametrize("host", ["xn--", "xn--a", "XN--a-.test", "xn--bcher-kva.test", "xn--ä.test", "ä.test", "1.2"])
def test_hosts_are_read_by_one_release_of_the_url_parser(host: str) -> None:
    assert BothExtractors().difference(f"<a href=//{host}/x><base href=http://{host}/y/>".encode()) == ""


def test_hashes_of_texts_differ_between_processes() -> None:
    """Or a page could be crafted whose hrefs have one hash, and to look them up would take time squared."""
    program = "import gossamer_native; print(gossamer_native.text_hash('x'))"
    found = {subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout for _ in "12"}
    assert len(found) == 2


@pytest.mark.parametrize("options", [{"follow_nofollow": True}, {"sorted_queries": True}, {"texts": True}])
def test_options_mean_the_same(options: dict[str, bool]) -> None:
    chance, both = random.Random(22), BothExtractors(**options)
    for _ in range(500):
        page = make_page(chance)
        difference = both.difference(page)
        assert not difference or reason(shrink(both, page)), difference


def test_what_was_remembered_is_known_on_the_same_pages() -> None:
    both = BothExtractors()
    html = b"".join(
        b'<a href="%s">' % href
        for href in (b"/a", b"b", b"../c", b"//other.test/d", b"http://other.test/e", b"?f=1", b" g", b"HTTP:h", b"i#j")
    )
    both.remember(html, "http://site.test/dir/one")
    for page in ("http://site.test/dir/two", "http://site.test/", "https://site.test/dir/one", "http://other.test/x/"):
        assert both.difference(html, page) == ""


def test_a_small_memory_forgets_places_and_stays_small() -> None:
    kept = memory.native.Memory(max_bytes=20_000)
    extractor = memory.native.Extractor(
        seed=1, follow_nofollow=False, sorted_queries=False, namespace="n", memory=kept,
        refresh_target=lambda content: None, registered_domain=lambda host: host,
    )  # fmt: skip
    for number in range(2_000):
        extractor.remember(f"http://site.test/{number % 50}/", [f"page-{number}", f"//other.test/{number}"])
        assert kept.bytes <= 20_000
    assert 0 < len(kept) < 400
    kept.enter_data_epoch(1)
    assert (len(kept), kept.bytes) == (0, 0)


@pytest.mark.parametrize(
    "html",
    [
        b"<a href='" * 200_000,
        b"<svg>" * 300_000,
        b"<svg></x>" * 200_000,
        b"<!-- --" * 250_000,
        b"<script><!--<script>" * 80_000,
        b"<a " + b"x=1 " * 400_000,
        b"<style></styl" * 150_000,
        b"<template>" * 200_000,
        b"<noframes>" * 200_000,
        b"<iframe srcdoc='<iframe srcdoc=\"" * 80_000,
        b"&amp;".join([b"<a href='"] + [b"x"] * 300_000) + b"'>",
    ],
    ids=[
        "quotes",
        "svg",
        "unclosed-svg",
        "comments",
        "scripts",
        "attributes",
        "styles",
        "templates",
        "noframes",
        "srcdoc",
        "references",
    ],
)
def test_a_hostile_page_takes_time_in_proportion_to_its_length(html: bytes) -> None:
    """Two megabytes take milliseconds; quadratic time would be minutes."""
    before = time.process_time()
    memory.native.scan_links(html[: 2 * 1024 * 1024])
    assert time.process_time() - before < 2.0
