"""Sitemaps, well-formed and not."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.extract.sitemap import MAX_URLS, SitemapEntries, inflate, parse_sitemap

URL = "http://a.test/maps/sitemap.xml"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'


def entries(*urls: str) -> str:
    return "".join(f"<url><loc>{url}</loc><lastmod>2024-01-01</lastmod></url>" for url in urls)


def parse(text: str | bytes) -> SitemapEntries:
    return parse_sitemap(text if isinstance(text, bytes) else text.encode(), URL)


def test_urlset() -> None:
    found = parse(
        HEAD
        + entries("http://a.test/x?a=1&amp;b=é", "\n http://a.test/y \n", "http://a.test/x?a=1&amp;b=é")
        + "</urlset>"
    )
    assert found == SitemapEntries(urls=["http://a.test/x?a=1&b=%C3%A9", "http://a.test/y"])


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
    assert found == SitemapEntries(urls=["http://a.test/ok"], bad=3)


@pytest.mark.parametrize(
    "tail",
    ["<url><loc>http://a.test/?a&b</loc></url></urlset>", "", "</wrong>", "<url>\0", "<url><loc>http://a.test/half"],
)
def test_of_broken_xml_the_whole_part_counts(tail: str) -> None:
    found = parse(HEAD + entries("http://a.test/x") + tail)
    assert found == SitemapEntries(urls=["http://a.test/x"], malformed=True)


def test_entities_are_not_expanded() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "http://a.test/">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{"&" + chr(97 + n) + ";"}{"&" + chr(97 + n) + ";"}">' for n in range(20)
    )
    assert parse(bomb + "]><urlset><url><loc>&u;</loc></url></urlset>") == SitemapEntries(malformed=True)
    outside = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><urlset><url><loc>&a;</loc></url></urlset>'
    assert parse(outside) == SitemapEntries(malformed=True)


def test_no_more_than_the_protocol_allows() -> None:
    found = parse(HEAD + "".join(f"<url><loc>/{number}</loc></url>" for number in range(MAX_URLS + 5)) + "</urlset>")
    assert (len(found.urls), found.cut) == (MAX_URLS, True)
    found = parse("\n".join(f"http://a.test/{number}" for number in range(MAX_URLS + 5)))
    assert (len(found.urls), found.cut) == (MAX_URLS, True)


def test_gzip() -> None:
    packed = gzip.compress((HEAD + entries("http://a.test/x", "http://a.test/y") + "</urlset>").encode())
    assert parse(packed).urls == ["http://a.test/x", "http://a.test/y"]
    assert parse(gzip.compress(b"http://a.test/x\n") + gzip.compress(b"http://a.test/y\n")).urls == [
        "http://a.test/x",
        "http://a.test/y",
    ]
    assert parse(b"\x1f\x8bnonsense") == SitemapEntries()
    lines = gzip.compress("\n".join(f"http://a.test/{number * 7919}" for number in range(10_000)).encode())
    assert 100 < len(parse(lines[: len(lines) // 2]).urls) < 10_000


def test_bombs_are_cut() -> None:
    bomb = gzip.compress(b"\0" * 60_000_000)
    size = sum(map(len, inflate(bomb)))
    assert size <= 200 * len(bomb) + 2 * 64 * 1024
    assert parse(bomb).urls == []
    assert sum(map(len, inflate(gzip.compress(bytes(range(256)) * 100), max_bytes=1000))) == 25_600
    line = gzip.compress(b"http://a.test/" + b"x" * 20_000_000)
    assert parse(line).urls == []


@given(st.binary(max_size=300))
def test_nothing_is_ever_raised(body: bytes) -> None:
    for start in (b"", b"<", HEAD.encode() + b"<url><loc>", b"\x1f\x8b\x08\0\0\0\0\0\0\0", b"\xff\xfe<"):
        parse_sitemap(start + body, URL)


@pytest.mark.timeout(10)
def test_a_quarter_of_a_million_empty_members_are_soon_unpacked() -> None:
    assert b"".join(inflate(gzip.compress(b"") * 250_000 + gzip.compress(b"end"))) == b"end"
