"""Flattening keeps the links that a parser would find, and says which pages need it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from gossamer.extract.flatten import TOKEN, _has_huge_tag, flatten, is_costly


def hrefs(html: bytes) -> list[str | None]:
    return [node.attributes.get("href") for node in LexborHTMLParser(html).css("a,area,base,link")]


@pytest.mark.parametrize(
    "html",
    [
        b"<div><p><a href=x>y</a></div>",
        b"<div title=it's><a href='x'>y</a><div title=\"q\">",
        b"<div title=\"a>b\"><a href='x>y'>",
        b"<!-- <a href=no> --><a href=x>",
        b"<!--><a href=x>",
        b"<!---><a href=x>",
        b"<!-- x --!><a href=x>",
        b"<!-- <div title=' --><a href=\"x\">'>",
        b"<script>var a = '<a href=no>' < b</script><a href=x>",
        b"<SCRIPT src='>'>if (a<b) '</div>'</SCRIPT ><a href=x>",
        b"<style>a > b { content: '<a href=no>' }</style><a href=x>",
        b"<textarea><a href=no></textarea><a href=x>",
        b"<!DOCTYPE html><head><base href=/b/><link rel=next href=n><meta name=robots></head><body><a href=x>",
        b"<a\nhref\n=\n'x'>y</a><br/><a/href=z>",
        b"<abbr href=no><article><a href=x></article>",
        b"1 < 2 <a href=x> 3 > 2 </ a> <3",
        b"<?php <a href=no> ?><a href=x>",
        b"<a href=x title",
        b"<script><a href=no>",
        b"</<style><a href=x>",
        b"<script></script <i title='><a href=no>'><a href=x>",
        b"<style/</style><a href=no></style><a href=x>",
        b"</><a href=x></-<a href=no>",
        b"<div a='\"' b=\"'\" c=>'<a href=x>",
        b"<div =a='><a href=x>'>",
    ],
)
def test_the_same_links(html: bytes) -> None:
    (piece,) = flatten(html)
    assert hrefs(piece) == hrefs(html)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (b"<svg><a xlink:href='x' rel=nofollow /><a XLINK:HREF=y title=z>t</a></svg>", ["x", "y"]),
        (b"<svg><a xlink:href=x title='" + b"z" * 5000 + b"'>t</a></svg>", ["x"]),
        (b"<svg><a xlink:href=no href=x /><a href xlink:href=y /></svg>", ["x", "y"]),
    ],
)
def test_links_of_drawings_have_an_href(html: bytes, expected: list[str]) -> None:
    """What is kept of a page has no drawing in which an xlink:href would count."""
    (piece,) = flatten(html)
    assert hrefs(piece) == expected


def test_nothing_else_remains() -> None:
    html = b"<div><b>bold</b> <a href=x>y</a><script>z</script></div>"
    assert [b" ".join(piece.split()) for piece in flatten(html)] == [b"bold <a href=x>y</a>"]


def test_a_long_page_comes_in_pieces_that_cut_no_link() -> None:
    """Between two of them nothing is lost, and no anchor's text."""
    html = b"<head><base href=/b/></head>" + b"".join(
        b"<li><a title='<a>' href=%d>at %d</a>" % (n, n) for n in range(20_000)
    )
    pieces = flatten(html)
    assert len(pieces) > 3
    assert max(map(len, pieces)) < 150_000
    assert [href for piece in pieces for href in hrefs(piece)] == hrefs(html)
    anchors = [node for piece in pieces for node in LexborHTMLParser(piece).css("a")]
    assert all(node.text().strip() == f"at {node.attributes['href']}" for node in anchors)


def test_ordinary_pages_are_not_costly() -> None:
    row = b"<tr><td><b>%d</b></td><td class=x><a href='/page/%d'><i class='icon'></i>text</a></td></tr>"
    page = b"<html><body><table>" + b"".join(row % (i, i) for i in range(700)) + b"</table></body></html>"
    assert not is_costly(page)
    assert not is_costly(b"")
    assert not is_costly(b"<p>" + b"text " * 100_000)
    assert not is_costly(b"<script>" + b"var x = 1; " * 10_000 + b"</script>")


@pytest.mark.parametrize(
    "html",
    [
        b"<div>" * 10_001,
        b"".join(b"<b id=%d>" % i for i in range(900)) + b"<p>" * 900,
        b"<a " + b"x=1 " * 2000 + b">",
        b"<a " + b"".join(b"x%d='>' " % i for i in range(1000)) + b">",
        b'<a x=">" ' + b"y " * 4000 + b">",
        b"<a " + b"".join(b"a%d='=\"' b%d='>' c%d=\">\" " % (i, i, i) for i in range(500)) + b">",
        b"<a x=" + b" " * 100 + b"'" + b"x>" * 4000 + b"'>",
    ],
)
def test_costly_pages_are(html: bytes) -> None:
    assert is_costly(html)


@given(st.lists(st.sampled_from(["<a", "</", "<", ">", "=", '"', "'", " ", "x", '="', "='"])).map("".join))
def test_no_huge_tag_is_missed(text: str) -> None:
    """Whatever quotes there are: here a tag of more than 12 bytes is huge."""
    html = text.encode()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MAX_TAG_BYTES", "_BLANKS", "_MAX_TRIES"):
            patch.setattr(f"gossamer.extract.flatten.{name}", 12 if name == "MAX_TAG_BYTES" else 3)
        if any(token[2] and token.end() - token.start() > 13 for token in TOKEN.finditer(html)):
            assert _has_huge_tag(html)


def test_ordinary_scripts_and_values_with_angle_brackets_are_not_costly() -> None:
    row = b"<a href='/%d' title=\"1 > 0\" alt=''>it's</a>"
    page = b"".join(row % i for i in range(150)) + b"<script>" + b"f=(a)=>a>1?'<b>':\"b=c\"" * 900 + b"</script>"
    assert not is_costly(page)


@pytest.mark.parametrize(
    "name", ["b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"]
)
@pytest.mark.parametrize("end", [b">", b" id=x>", b"/>", b"\n>"])
def test_every_formatting_element_is_watched(name: str, end: bytes) -> None:
    for spelling in (name, name.upper()):
        opened = b"".join(b"<%s title=%d>" % (spelling.encode(), number) for number in range(500))
        assert is_costly(opened + (b"<" + spelling.encode() + end + b"</p>") * 1000)
