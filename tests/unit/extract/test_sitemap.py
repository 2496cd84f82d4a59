"""Sitemaps, well-formed and not."""

import gzip
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import DecodeBomb
from gossamer.extract.sitemap import (
    MAX_URLS,
    SitemapEntries,
    SitemapFault,
    inflate,
    looks_like_sitemap,
    parse_sitemap,
    read_sitemap,
)

URL = "http://a.test/maps/sitemap.xml"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'


def entries(*urls: str) -> str:
    return "".join(f"<url><loc>{url}</loc><lastmod>2024-01-01</lastmod></url>" for url in urls)


def dated(*urls: str, **more: Any) -> SitemapEntries:
    """What is read of `entries`."""
    return SitemapEntries(urls=list(urls), dates=dict.fromkeys(urls, "2024-01-01"), **more)


def parse(text: str | bytes) -> SitemapEntries:
    return parse_sitemap(text if isinstance(text, bytes) else text.encode(), URL)


def test_dates_belong_to_their_entries() -> None:
    found = parse(
        f"{HEAD}<url><lastmod>\n2024-01-02T10:00:00Z </lastmod><loc>http://a.test/x</loc><image:lastmod>1999-01-01"
        "</image:lastmod></url><url><loc>http://a.test/y</loc></url><url><lastmod>2024-01-03</lastmod></url>"
        f"<url><loc>http://a.test/z</loc><lastmod>{'9' * 1000}</lastmod></url></urlset>"
    )
    assert found.dates == {"http://a.test/x": "2024-01-02T10:00:00Z"}
    index = (
        "<sitemapindex><sitemap><loc>http://a.test/1.xml</loc><lastmod>2024-01-01</lastmod></sitemap></sitemapindex>"
    )
    assert parse(index).dates == {"http://a.test/1.xml": "2024-01-01"}


def test_urlset() -> None:
    found = parse(
        HEAD
        + entries("http://a.test/x?a=1&amp;b=é", "\n http://a.test/y \n", "http://a.test/x?a=1&amp;b=é")
        + "</urlset>"
    )
    assert found == dated("http://a.test/x?a=1&b=%C3%A9", "http://a.test/y")


def test_index() -> None:
    found = parse(
        "<sitemapindex><sitemap><loc>http://a.test/1.xml.gz</loc></sitemap><sitemap><loc>/2.xml</loc></sitemap></sitemapindex>"
    )
    assert found == SitemapEntries(sitemaps=["http://a.test/1.xml.gz", "http://a.test/2.xml"])


def test_prefixes_and_images() -> None:
    found = parse(
        '<s:urlset xmlns:s="s" xmlns:image="i"><s:url><s:loc>http://a.test/x</s:loc><image:image>'
        "<image:loc>http://a.test/i.png</image:loc></image:image></s:url></s:urlset>"
    )
    assert found.urls == ["http://a.test/x"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_encodings(encoding: str) -> None:
    text = (
        f"<?xml version='1.0' encoding='{encoding.removesuffix('-sig')}'?><urlset>{entries('http://a.test/é')}</urlset>"
    )
    assert parse(text.encode(encoding)).urls == ["http://a.test/%C3%A9"]


def test_text() -> None:
    found = parse(b"\xef\xbb\xbfhttp://a.test/x\r\n\r\n  http://a.test/y\nmailto:x\nhttp://a.test/x\nhttp://a.test/z")
    assert found == SitemapEntries(urls=["http://a.test/x", "http://a.test/y", "http://a.test/z"], bad=1)


def test_bad_entries_are_counted() -> None:
    found = parse(
        HEAD
        + entries("ftp://a.test/", "http://[", "http://a.test/" + "x" * 20_000, "http://a.test/ok", "")
        + "</urlset>"
    )
    assert found == dated("http://a.test/ok", bad=3)


FAULTS = {
    "a bare ampersand": "<url><loc>http://a.test/?a=1&b=2&amp;c=3&copy=4</loc></url>",
    "a reference that XML has not": "<url><loc>http://a.test/?a=1&amp;b=2&c=3&nbsp;</loc></url>",
    "a bare less-than": "<url><loc>http://a.test/?a=1&b=2<3</loc></url>",
    "control characters": "<url>\x01<loc>http://a.test/?a=1&b=2</loc>\0</url>",
    "an unclosed loc": "<url><loc>http://a.test/?a=1&b=2<lastmod>2024</lastmod></url>",
    "an unclosed url": "<url><loc>http://a.test/?a=1&b=2</loc>",
    "a wrong end tag": "<url><loc>http://a.test/?a=1&b=2</loc></wrong></url>",
    "repeated attributes": "<url a='1' a='2'><loc>http://a.test/?a=1&b=2</loc></url>",
    "an undeclared prefix": "<url><loc>http://a.test/?a=1&b=2</loc><image:image><image:loc>/i</image:loc></image:image></url>",
    "a declaration in the middle": "<?xml version='1.0'?><url><loc>http://a.test/?a=1&b=2</loc></url>",
    "another root": "</urlset><urlset><url><loc>http://a.test/?a=1&b=2</loc></url>",
    "capitals": "<URL><LOC>http://a.test/?a=1&b=2</LOC></URL>",
    "CDATA": "<url><loc><![CDATA[http://a.test/?a=1&b=2]]></loc></url>",
    "a commented entry": "<!-- <url><loc>/no</loc></url> --><url><loc>http://a.test/?a=1&b=2</loc></url>",
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("piece_bytes", [1, 7, 1_000_000])
def test_no_fault_of_the_xml_loses_an_entry(fault: str, piece_bytes: int) -> None:
    """Wherever a piece ends."""
    body = (HEAD + entries("http://a.test/x") + FAULTS[fault] + entries("http://a.test/y") + "</urlset>").encode()
    found = read_sitemap([body[at : at + piece_bytes] for at in range(0, len(body), piece_bytes)], URL)
    assert found.urls[0] == "http://a.test/x"
    assert found.urls[1].startswith("http://a.test/?a=1&b=2")
    assert found.urls[2:] == ["http://a.test/y"]
    assert found.fault is None


@pytest.mark.parametrize("start", ["\n", "\r\n \t", "\ufeff", "\ufeff\n\n", "<!-- > <url> -->", "<!DOCTYPE urlset>\n"])
def test_what_stands_before_the_declaration_does_not_count(start: str) -> None:
    assert parse(start + HEAD + entries("http://a.test/x") + "</urlset>") == dated("http://a.test/x")


@pytest.mark.parametrize("tail", ["", "<url><loc>http://a.test/half", "<url><loc>http://a.test/half</lo", "<url><!-- "])
def test_a_file_that_ends_early_is_told(tail: str) -> None:
    found = parse(HEAD + entries("http://a.test/x") + tail)
    assert found == dated("http://a.test/x", fault=SitemapFault.BROKEN)


def test_relative_addresses() -> None:
    found = parse(HEAD + entries("/x", "y?z", "//b.test/") + "</urlset>")
    assert found.urls == ["http://a.test/x", "http://a.test/maps/y?z", "http://b.test/"]
    found = parse("/x\n//b.test/\nhttp://a.test/z\ny\n")
    assert found == SitemapEntries(urls=["http://a.test/x", "http://b.test/", "http://a.test/z"], bad=1)


RSS = """<?xml version="1.0"?><rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom" xmlns:media="m"><channel>
<link>http://a.test/</link><atom:link href="http://a.test/feed" rel="self"/>
<item><guid>http://a.test/guid</guid><link>http://a.test/1?a=1&amp;b=2</link><media:link>/no</media:link></item>
<item><link><![CDATA[/2]]></link><description>&lt;link>/no&lt;/link></description></item>
<item><guid isPermaLink="true">http://a.test/3</guid></item><item><guid isPermaLink="false">http://a.test/no</guid></item>
</channel></rss>"""
RDF = """<rdf:RDF xmlns:rdf="r" xmlns="http://purl.org/rss/1.0/"><channel rdf:about="/"><link>http://a.test/</link></channel>
<item rdf:about="http://a.test/1"><link>http://a.test/1?a=1&amp;b=2</link></item><item><link>/2</link></item>
<item><link>http://a.test/3</link></item></rdf:RDF>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><link href="http://a.test/"/><link rel="self" href="/feed"/>
<entry><link rel="self" href="/no"/><link title="a > b" rel="alternate" href="http://a.test/1?a=1&amp;b=2"/></entry>
<entry><link href='/2'></link><link rel="enclosure" href="/no.mp3"/></entry>
<entry><id>x</id><link rel = "alternate" type="text/html" href = "/3" /></entry></feed>"""


@pytest.mark.parametrize("feed", [RSS, RDF, ATOM, ATOM.replace("<", "<a:").replace("<a:/", "</a:")])
@pytest.mark.parametrize("piece_bytes", [1, 1_000_000])
def test_feeds(feed: str, piece_bytes: int) -> None:
    body = feed.encode()
    found = read_sitemap([body[at : at + piece_bytes] for at in range(0, len(body), piece_bytes)], URL)
    assert found == SitemapEntries(urls=["http://a.test/1?a=1&b=2", "http://a.test/2", "http://a.test/3"])


def test_relative_addresses_of_feeds_follow_xml_base() -> None:
    feed = """<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://a.test/blog/?a=1&amp;b=2">
    <entry><link href="1"/></entry>
    <entry xml:base='posts/'><link href="2"/><link xml:base="old/" href="3"/><link href="4"/></entry>
    <entry xml:base="http://[bad"><link href="5"/></entry></feed>"""
    assert parse(feed).urls == [
        f"http://a.test/blog/{path}" for path in ("1", "posts/2", "posts/old/3", "posts/4", "5")
    ]
    rss = """<rss version="2.0" xml:base="/blog/"><channel><item><link>1</link></item>
    <item xml:base="/news/"><link>2</link></item><item><link>3</link></item></channel></rss>"""
    assert parse(rss).urls == ["http://a.test/blog/1", "http://a.test/news/2", "http://a.test/blog/3"]


@pytest.mark.parametrize(
    "body", ["", "<html><body>404</body></html>", "Not Found\nGo away\n", '{"error": 404}', "<?xml version='1.0'?><x/>"]
)
def test_something_else_is_told(body: str) -> None:
    assert parse(body) == SitemapEntries(fault=SitemapFault.NONE)


def test_an_empty_sitemap_is_one() -> None:
    assert parse(HEAD + "</urlset>") == parse("<urlset/>") == SitemapEntries()


@pytest.mark.parametrize(
    ("body", "looks", "only_xml"),
    [
        (HEAD, True, True),
        ("\n" + HEAD, True, True),
        ("<s:sitemapindex xmlns:s='x'>", True, True),
        (RSS, True, False),
        (RDF, True, False),
        (ATOM, True, False),
        ("http://a.test/x\nhttp://a.test/y\n", True, False),
        ("http://a.test/x\nis a page", False, False),
        ("", False, False),
        ("<!doctype html><pre><urlset></pre>", False, False),
        ("<!-- <urlset> --><html>", False, False),
    ],
)
def test_sitemaps_are_recognised_by_their_beginning(body: str, looks: bool, only_xml: bool) -> None:
    for packed in (body.encode(), gzip.compress(body.encode())):
        assert looks_like_sitemap(packed) is looks
        assert looks_like_sitemap(packed, only_xml=True) is only_xml


def test_entities_are_not_expanded() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "http://a.test/">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{"&" + chr(97 + n) + ";"}{"&" + chr(97 + n) + ";"}">' for n in range(20)
    )
    assert parse(bomb + "]><urlset><url><loc>&u;</loc></url></urlset>") == SitemapEntries(fault=SitemapFault.BROKEN)
    outside = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><urlset><url><loc>&a;</loc></url></urlset>'
    assert parse(outside) == SitemapEntries(fault=SitemapFault.BROKEN)


def test_no_more_than_the_protocol_allows() -> None:
    found = parse(HEAD + "".join(f"<url><loc>/{number}</loc></url>" for number in range(MAX_URLS + 5)) + "</urlset>")
    assert (len(found.urls), found.beyond, found.fault) == (MAX_URLS, 5, SitemapFault.TOO_LONG)
    found = parse("\n".join(f"http://a.test/{number}" for number in range(MAX_URLS + 5)))
    assert (len(found.urls), found.beyond, found.fault) == (MAX_URLS, 5, SitemapFault.TOO_LONG)


@pytest.mark.parametrize("count", [50, 20_000])
def test_the_entries_before_a_damage_of_the_gzip_file_are_read(count: int) -> None:
    """Of a file of one piece, too."""
    urls = [f"http://a.test/{number * 7919}" for number in range(count)]
    packed = gzip.compress((HEAD + entries(*urls) + "</urlset>").encode())
    half = len(packed) // 2
    for damaged in (packed[:-8] + bytes(8), packed[:-9], packed[:half], packed[:half] + b"\xff" * half):
        found = parse(damaged)
        assert found.fault is SitemapFault.BROKEN
        read = len(urls) // 10
        assert found.urls[:read] == urls[:read]
    assert parse(packed[:-8] + bytes(8)).urls == urls


def test_gzip() -> None:
    packed = gzip.compress((HEAD + entries("http://a.test/x", "http://a.test/y") + "</urlset>").encode())
    assert parse(packed).urls == ["http://a.test/x", "http://a.test/y"]
    assert parse(gzip.compress(b"http://a.test/x\n") + gzip.compress(b"http://a.test/y\n")).urls == [
        "http://a.test/x",
        "http://a.test/y",
    ]
    assert parse(b"\x1f\x8bnonsense") == SitemapEntries(fault=SitemapFault.BROKEN)
    lines = gzip.compress("\n".join(f"http://a.test/{number * 7919}" for number in range(10_000)).encode())
    assert parse(lines + b"bytes behind the end").fault is None
    half = parse(lines[: len(lines) // 2])
    assert 100 < len(half.urls) < 10_000
    assert half.fault is SitemapFault.BROKEN


def test_bombs_are_cut() -> None:
    bomb, pieces = gzip.compress(b"\0" * 60_000_000), []
    with pytest.raises(DecodeBomb):
        pieces.extend(map(len, inflate([bomb])))
    assert sum(pieces) <= 200 * len(bomb) + 2 * 64 * 1024
    assert parse(bomb) == SitemapEntries(fault=SitemapFault.TOO_LONG)
    line = gzip.compress(b"http://a.test/" + b"x" * 20_000_000)
    assert parse(line).urls == []


def test_a_file_is_read_up_to_the_largest_size_of_the_protocol() -> None:
    """In pieces, so that its size does not matter for the memory."""
    filler = b"<!--" + b"x" * (1024 * 1024 - 7) + b"-->"

    def body(mebibytes: int) -> Iterator[bytes]:
        yield b"<urlset>"
        yield from (filler for _ in range(mebibytes))
        yield b"<url><loc>/last</loc></url></urlset>"

    tracemalloc.start()
    found = read_sitemap(body(49), URL)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == SitemapEntries(urls=["http://a.test/last"])
    assert peak < 4 * 1024 * 1024
    assert read_sitemap(body(50), URL) == SitemapEntries(fault=SitemapFault.TOO_LONG)


@pytest.mark.parametrize(
    "part", ["<", "<a>", "<url>", "<loc>", "<url><loc>x</loc></url>", "<!---->", '<url "', "<![CDATA[", "&amp;", "x\n"]
)
@pytest.mark.timeout(30)
def test_no_file_takes_long(part: str) -> None:
    """No more than linear time."""
    body = part.encode() * (1024 * 1024 // len(part))
    for start in (b"<urlset>", b"<rss><item><link>", b""):
        parse_sitemap(start + body, URL)


@given(st.binary(max_size=300))
def test_nothing_is_ever_raised(body: bytes) -> None:
    for start in (b"", b"<", HEAD.encode() + b"<url><loc>", b"\x1f\x8b\x08\0\0\0\0\0\0\0", b"\xff\xfe<"):
        parse_sitemap(start + body, URL)


@pytest.mark.timeout(10)
def test_a_quarter_of_a_million_empty_members_are_soon_unpacked() -> None:
    assert b"".join(inflate([gzip.compress(b"") * 250_000 + gzip.compress(b"end")])) == b"end"
