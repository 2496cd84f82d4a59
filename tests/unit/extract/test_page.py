"""The page of a spider: selectors as Scrapy's users know them, links, JSON, following."""

import re
import sys

import pytest
from parsel import Selector as ParselSelector

from gossamer import Follow, Page
from gossamer.errors import BadInput, BadUrl
from gossamer.extract.encoding import decode
from gossamer.extras import install_advice
from gossamer.model.record import PageRecord

SHOP = """<!DOCTYPE html><html><head><title>Shop &amp; Co</title></head><body>
<h1>Lamps <b>cheap</b> and <i>good</i></h1>
<div class="product" id="p1"><h2>Red</h2><a class="more" href="/red?a=1&amp;b=2">more</a>
<span class="price">1,50 €</span></div>
<div class="product" id="p2"><h2>Blue <em>x</em></h2><a class="more" href="blue">more <b>here</b></a>
<input disabled></div>
<ul><li>one</li><li>two<ul><li>deep</li></ul></li></ul>
<table><tr><td>a</td><td class="n">b</td></tr></table><p></p><p title="">empty title</p>
</body></html>"""


def page(body: str | bytes = SHOP, *, url: str = "https://shop.test/lamps/", content_type: str = "text/html") -> Page:
    data = body.encode() if isinstance(body, str) else body
    text, encoding, valid = decode(data, content_type)
    record = PageRecord(
        appid="", crawlid="", spiderid="blocking", request_id="", attempt=0, depth=0, url=url, response_url=url,
        status_code=200, status_msg="OK", response_headers={}, request_headers={}, body=text if valid else "",
        body_encoding="text" if valid else "base64", encoding=encoding, content_type=content_type, links=[], attrs=None,
        timestamp="", success=True, reason="", exception="", redirects=[], timings={}, ip="", truncated=False,
    )  # fmt: skip
    return Page.of_record(record, data)


@pytest.mark.parametrize(
    "selector",
    [
        "title::text", "h1", "h1::text", "h1 ::text", ".product h2::text", ".product > a::attr(href)",
        "a::attr(class)", "li", "li::text", "li ::text", "ul li:first-child::text", "[title]::attr(title)", "p::text",
        "h2, h1", "h2::text, h1::text", "td.n", ".nothing", "nothing::text", "a b",
    ],
)  # fmt: skip
def test_css_gives_what_scrapy_gives(selector: str) -> None:
    mine, theirs = page().css(selector), ParselSelector(SHOP).css(selector)
    assert mine.getall() == theirs.getall()
    assert mine.get() == theirs.get()
    assert mine.get(default="none") == theirs.get(default="none")


@pytest.mark.parametrize(
    "expression",
    [
        "//h1/text()", "//a/@href", "//div[@class='product'][2]/h2", "count(//li)", "//td[2]/text()", "//nothing",
        "string(//h1)", "//li[not(ul)]/text()", "//p[@title]/@title",
    ],
)  # fmt: skip
def test_xpath_gives_what_scrapy_gives(expression: str) -> None:
    theirs = [text.removesuffix(".0") for text in ParselSelector(SHOP).xpath(expression).getall()]
    assert page().xpath(expression).getall() == theirs


@pytest.mark.parametrize(
    ("outer", "inner"),
    [(".product", "h2::text"), (".product", "a::attr(href)"), ("li", "li::text"), (".product", ".product::attr(id)")],
)
def test_selectors_are_relative_to_each_element(outer: str, inner: str) -> None:
    mine = [one.css(inner).getall() for one in page().css(outer)]
    theirs = [one.css(inner).getall() for one in ParselSelector(SHOP).css(outer)]
    assert mine == theirs
    assert page().css(outer).css(inner).getall() == ParselSelector(SHOP).css(outer).css(inner).getall()


def test_css_and_xpath_can_be_mixed() -> None:
    assert page().css(".product").xpath("./h2/text()").getall() == ["Red", "Blue "]
    assert page().css("tr").xpath("./td/text()").getall() == ["a", "b"]
    assert page().xpath("//div").css("h2::text").getall() == ["Red", "Blue "]
    assert page().xpath("//td").css("td.n::text").getall() == ["b"]
    assert page().xpath("//tr").css("td::text").getall() == ["a", "b"]
    assert page().css("h1::text").css("b").getall() == []


@pytest.mark.parametrize("pattern", [r"\d+", r"(\d),(\d\d)", r"(?P<extract>\d+),\d+", r"x"])
def test_re_gives_what_scrapy_gives(pattern: str) -> None:
    mine, theirs = page().css(".price::text"), ParselSelector(SHOP).css(".price::text")
    assert mine.re(pattern) == theirs.re(pattern)
    assert mine.re_first(pattern) == theirs.re_first(pattern)
    assert mine.re_first(pattern, default="-") == theirs.re_first(pattern, default="-")
    assert mine[0].re(pattern) == theirs[0].re(pattern)


def test_a_selector_list_is_a_list() -> None:
    found = page().css("li")
    assert len(found) == 3
    assert found
    assert not page().css("nothing")
    assert found[1:].css("::text").getall()[0] == "two"
    assert page().css("a.more").attrib == {"class": "more", "href": "/red?a=1&b=2"}
    assert page().css("a.more")[1].attrib["href"] == "blue"
    assert page().css("nothing").attrib == {}
    assert repr(page().css("h2::text")) == "[<Selector 'Red'>, <Selector 'Blue '>]"


@pytest.mark.parametrize("selector", ["html", "head", "body", "table", "tr", "td", "ul", "h1", "a"])
def test_xpath_works_in_every_element_that_css_finds(selector: str) -> None:
    mine, theirs = page().css(selector), ParselSelector(SHOP).css(selector)
    for expression in (".//text()", "./*/text()", "./@class", ".//a/@href"):
        found = [text for text in mine.xpath(expression).getall() if text.strip()]
        assert found == [text for text in theirs.xpath(expression).getall() if text.strip()]


def test_a_selector_that_does_not_parse_names_itself() -> None:
    with pytest.raises(BadInput, match=r"h1\[\["):
        page().css("h1[[")
    with pytest.raises(BadInput, match="//h1"):
        page().xpath("//h1[")


def test_links_have_absolute_urls_and_texts() -> None:
    links = page().links
    assert [(link.url, link.text) for link in links] == [
        ("https://shop.test/red?a=1&b=2", "more"),
        ("https://shop.test/lamps/blue", "more here"),
    ]
    assert links.urls == ["https://shop.test/red?a=1&b=2", "https://shop.test/lamps/blue"]
    assert links[0].text == "more"
    assert links[-1:][0].url.endswith("blue")


def test_links_and_following_obey_the_base_of_the_document() -> None:
    found = page('<base href="https://cdn.test/x/"><a href="y">z</a>')
    assert found.links[0].url == "https://cdn.test/x/y"
    assert found.follow("q") == Follow("https://cdn.test/x/q")


def test_anything_that_names_a_link_can_be_followed() -> None:
    found = page()
    red = Follow("https://shop.test/red?a=1&b=2")
    assert found.follow(found.links[0]) == red
    assert found.follow(found.css("a.more")) == red
    assert found.follow(found.css("a.more")[0]) == red
    assert found.follow(found.css("a::attr(href)")[0]) == red
    assert found.follow("/red?a=1&b=2#x") == red
    assert found.follow(found.xpath("//a")[0]) == red
    assert found.follow("mailto:a@b.c").url == "mailto:a@b.c"  # dropped and counted by the crawl
    assert found.follow("/x", attrs={"a": 1}, priority=3, spider="other") == Follow(
        "https://shop.test/x", attrs={"a": 1}, priority=3, spider="other"
    )
    with pytest.raises(BadInput, match="found nothing"):
        found.follow(found.css("nothing"))
    with pytest.raises(BadInput, match="int is no link"):
        found.follow(7)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"the element <Selector '<h1>.* has neither href nor src"):
        found.follow(found.css("h1"))
    assert page('<a href="">here</a>').follow(page('<a href="">here</a>').css("a")).url == "https://shop.test/lamps/"
    with pytest.raises(BadUrl):
        found.urljoin("mailto:a@b.c")


def test_a_page_that_is_no_html_has_no_elements() -> None:
    found = page('{"a": [1, 2]}', content_type="application/json")
    assert found.json() == {"a": [1, 2]}
    assert not found.css("a")
    assert not found.links
    assert found.links.urls == []
    assert found.jsonld == []
    assert not found.is_html


def test_what_is_no_json_says_what_it_is() -> None:
    with pytest.raises(ValueError, match=r"https://shop.test/lamps/ is not JSON: .*; its Content-Type is text/html"):
        page().json()


def test_json_ld_is_a_list_of_objects() -> None:
    scripts = ['{"@type": "A"}', '[{"@type": "B"}, 7]', '{"@graph": [{"@type": "C"}, {"@type": "D"}]}', "{broken"]
    found = page("".join(f'<script type="application/ld+json">{one}</script>' for one in scripts))
    assert [one["@type"] for one in found.jsonld] == ["A", "B", "C", "D"]


def test_a_text_with_bytes_that_cannot_be_decoded_keeps_the_rest() -> None:
    assert page(b"<h1>caf\xe9 \xff</h1>", content_type="text/html; charset=utf-8").text == "<h1>caf\ufffd \ufffd</h1>"
    assert page(b"\x00\x01\xff", content_type="image/png").text == ""


def test_a_page_that_is_costly_to_parse_has_links_but_no_elements() -> None:
    found = page("<div>" * 20_000 + '<a href="/x">x</a>')
    assert [link.url for link in found.links] == ["https://shop.test/x"]
    assert not found.css("a")
    assert found.record.extract_error == "too_complex"
    found = page("<div>" * 20_000 + '<a href="/x">x</a>')
    assert not found.xpath("//a")
    assert found.record.extract_error == "too_complex"


def test_a_long_page_has_all_links_and_the_elements_of_its_beginning() -> None:
    html = f"<h1>x</h1><p>{'x' * 2**21}</p><h2>y</h2><a href=/x>x</a>"
    for kind, expression in (("css", "h1::text"), ("xpath", "//h1/text()")):
        found = page(html)
        assert [link.url for link in found.links] == ["https://shop.test/x"]
        assert found.record.extract_error == ""
        assert getattr(found, kind)(expression).getall() == ["x"]
        assert not found.css("h2")
        assert found.record.extract_error == "cut"


def test_xpath_without_lxml_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = page()
    monkeypatch.setitem(sys.modules, "lxml", None)
    for ask in (found.xpath, found.css("h1").xpath, found.css("h1")[0].xpath):
        with pytest.raises(BadInput, match=re.escape(install_advice("xpath"))):
            ask("//h1")


def test_links_are_read_only_when_they_are_asked_for() -> None:
    found = page()
    assert "links" not in vars(found)
    assert "xpath" not in vars(found)
