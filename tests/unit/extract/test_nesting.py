"""Which pages with many tags are parsed as a whole: never one that nests more deeply in the parser than counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from gossamer.extract import document
from gossamer.extract.document import HtmlDocument, is_nested_deeply
from gossamer.extract.flatten import is_costly

SHALLOW = {
    "table": b"<table>" + b"<tr><td class=x>a<td>b</tr>" * 5000 + b"</table>",
    "list without end tags": b"<ul>" + b"<li><a href=x>a</a>" * 5000 + b"</ul>",
    "definitions": b"<dl>" + b"<dt><code>a</code><dd><p>b" * 5000 + b"</dl>",
    "blocks": b"<div><p>a <em>b</em></div>" * 5000,
    "comments": b"<!-- <div> --><br>" * 10_000,
    "scripts": b"<script>'<div>'</script>" * 10_000,
    "icons": b"<p><svg viewBox='0 0 1 1'><title>x</title><g><path d=1 /><path d=2 /></g></svg></p>" * 2000,
}
DEEP = {
    "open": b"<div>" * 20_000,
    "end in a comment": b"<div><!-- </div> -->" * 20_000,
    "end in an attribute": b"<div a='</div>'>" * 20_000,
    "end in an escaped script": b"<div><script><!-- <script></script></div></script>" * 20_000,
    "end in CDATA": b"<svg>" + b"<g><![CDATA[></g>]]>" * 20_000,
    "end in a drawing's title": b"<svg><title><div></title></svg>" * 20_000,
    "end out of scope": b"<div><table><td></div></td></table>" * 20_000,
    "rt": b"<rt>" * 20_000,
    "optgroup": b"<optgroup>" * 20_000,
    "li in dd": b"<li><dd>" * 20_000,
    "span, li, dd": b"<span><li></span><span><dd></span>" * 20_000,
    "cells of a drawing": b"<svg>" + b"<td>" * 20_000,
    "void elements of a drawing": b"<svg>" + b"<input>" * 20_000,
    "drawing that a paragraph ends": b"<svg><p></p>" + b"<path/>" * 20_000,
    "drawing with a foreign object": b"<svg><foreignObject>" + b"<path/>" * 20_000,
    "formatting that is reopened": b"".join(b"<p><b id=%d>" % at for at in range(20_000)),
    "formatting closed crosswise": b"<b><i></b></i>" * 20_000,
    "foster parents": b"<table><div></table></div>" * 20_000,
}


@pytest.mark.parametrize("html", SHALLOW.values(), ids=SHALLOW)
def test_a_shallow_page_is_parsed_as_a_whole(html: bytes) -> None:
    assert is_costly(html)
    assert not is_nested_deeply(html)
    assert HtmlDocument(html).tree is not None


@pytest.mark.parametrize("html", DEEP.values(), ids=DEEP)
def test_a_deep_page_is_not_parsed_as_a_whole(html: bytes) -> None:
    assert is_costly(html)
    assert is_nested_deeply(html)
    document = HtmlDocument(html)
    assert document.tree is None
    assert document.xpath_root is None
    assert list(document.trees())


def test_a_page_with_a_huge_tag_is_not_parsed_as_a_whole() -> None:
    assert is_nested_deeply(b"<p " + b"a " * 3000 + b">")


_NAMES = (
    "div", "span", "p", "ul", "li", "dl", "dd", "dt", "table", "tr", "td", "b", "i", "a", "code", "svg", "g", "path",
    "title", "foreignObject", "math", "mi", "select", "option", "optgroup", "button", "form", "h1", "template", "rt",
    "ruby", "object", "br", "input", "script", "textarea", "noscript", "details", "nobr", "font",
)  # fmt: skip
_TAGS = st.lists(
    st.builds(
        lambda name, form: form.format(name),
        st.sampled_from(_NAMES),
        st.sampled_from(("<{}>", "<{}>", "</{}>", "<{}/>", "<{0}></{0}>", "<!-- </{}> -->", "<{} a='</div>'>")),
    ),
    max_size=12,
).map("".join)


@given(before=_TAGS, repeated=_TAGS)
def test_the_parser_never_nests_more_deeply_than_counted(before: str, repeated: str) -> None:
    html = (before + repeated * 100).encode()
    original = document._MAX_DEPTH
    document._MAX_DEPTH = 60
    try:
        deep = is_nested_deeply(html)
    finally:
        document._MAX_DEPTH = original
    # Six elements that are not counted may be around each one that is, such as a table's.
    assert deep or _depth(html) < 7 * 61


def _depth(html: bytes) -> int:
    node: LexborNode | None = LexborHTMLParser(html).root
    depth = deepest = 1
    while node is not None:
        if node.first_child is not None:
            node, depth = node.first_child, depth + 1
            deepest = max(deepest, depth)
            continue
        while node is not None and node.next is None:
            node, depth = node.parent, depth - 1
        node = node.next if node is not None else None
    return deepest
