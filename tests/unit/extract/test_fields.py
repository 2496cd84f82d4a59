"""Extraction rules on pages: what fields find, which items there are, and limits."""

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import BadExtraction
from gossamer.extract import sources
from gossamer.extract.document import HtmlDocument
from gossamer.extract.fields import CompiledExtraction, PageItems, check_rules
from gossamer.model.extraction import read_extraction

URL = "https://shop.test/p/1?x=1"
PAGE = """<html><head><title>Shop</title>
<meta property="og:title" content="Lamp &amp; more"><meta name=Description content=" A  lamp ">
<meta property="og:image" content="/a.png"><meta property="og:image" content="/b.png">
<script type="application/ld+json">{"@graph": [{"@type": "BreadcrumbList", "name": "Path"}, {"@type": "Product",
"name": "Lamp", "offers": [{"price": "19.90"}, {"price": 21}], "aggregateRating": {"ratingValue": 4.5},
"brand": {"name": "Acme"}, "image": {"url": "/c.png"}}]}</script></head>
<body><h1> Lamp<br>with <b>shade</b> </h1>
<p class=empty> </p><p class=price data-cents=1990>EUR <span>1.019,90</span></p>
<p>First<b>ly</b> <i>said</i>.</p><p>Second.</p>
<a class=more href="details?id=1#top">Details</a><a class=mail href="mailto:x@shop.test">Mail</a>
<time datetime="2026-03-04T10:00:00+01:00">yesterday</time>
<ul><li class=offer data-sku=a1><span class=seller>One</span><span class=cost>5</span></li>
<li class=offer data-sku=b2><span class=seller>Two</span></li><li class=offer data-sku=c3></li></ul>
<svg viewBox="0 0 9 9"></svg>
<table><tr><td>Colour</td><td>red</td></tr></table><script>var hidden = 1;</script></body></html>"""


def found(rules: dict[str, Any], page: str = PAGE, url: str = URL) -> PageItems:
    result = CompiledExtraction(read_extraction(rules)).extract(HtmlDocument(page), url)
    assert result is not None
    return result


def value(field: object, page: str = PAGE) -> Any:
    """The value of one field; the other one is there so that the item exists in any case."""
    (item,) = found({"fields": {"other": "html@lang", "value": field, "name": "xpath:'x'"}}, page).items
    return item["value"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("h1", "Lamp with shade"),
        ("h1 @text:upper", "LAMP WITH SHADE"),
        ("p", "EUR 1.019,90"),  # the first one has no text
        ("p @list", ["EUR 1.019,90", "Firstly said.", "Second."]),
        ("p::text @list", ["EUR", "First", ".", "Second."]),
        ("p @count", 4),
        ("video @count", 0),
        ("table", "Colour red"),
        ("script:not([type])", "var hidden = 1;"),
        (".price @number", 1019.9),
        (".price@data-cents @number", 1990),
        (".price @price", 1019.9),
        (".price @currency", "EUR"),
        ("a.more @url", "https://shop.test/p/details?id=1#top"),
        ("a.more@href", "details?id=1#top"),
        ("a.mail @url", None),
        ("a @url @list", ["https://shop.test/p/details?id=1#top"]),
        ("time @date", "2026-03-04T10:00:00+01:00"),
        ("b @html", "<b>shade</b>"),
        ("li@data-sku @list", ["a1", "b2", "c3"]),
        ({"css": "li", "attribute": "DATA-SKU"}, "a1"),
        ("svg@viewBox", "0 0 9 9"),
        ("nothing", None),
        ("nothing @list", []),
        ({"css": "nothing", "default": "none"}, "none"),
        ({"css": "nothing", "list": True, "default": ["a"]}, ["a"]),
        ({"css": ".price", "regex": r"(\d+),"}, "019"),
        (r"regex:data-sku=(\w+)", "a1"),
        (r"regex:data-sku=\w+ @list", ["data-sku=a1", "data-sku=b2", "data-sku=c3"]),
        ("meta:og:title", "Lamp & more"),
        ("meta:description", "A lamp"),
        ("meta:og:image @url @list", ["https://shop.test/a.png", "https://shop.test/b.png"]),
        ("jsonld:name", "Path"),
        ("jsonld:Product.name", "Lamp"),
        ("jsonld:Product.brand", "Acme"),
        ("jsonld:offers.price @number @list", [19.9, 21]),
        ("jsonld:offers.1.price @number", 21),
        ("jsonld:aggregateRating.ratingValue @number", 4.5),
        ("jsonld:image @url", "https://shop.test/c.png"),
        ("jsonld:nothing", None),
        ("xpath://h1", "Lamp with shade"),
        ("xpath://h1/text() @list", ["Lamp", "with"]),
        ("xpath://li/@data-sku @list", ["a1", "b2", "c3"]),
        ("xpath:count(//li) @number", 3),
        ("xpath://b @html", "<b>shade</b>"),
        ("xpath://li @count", 3),
        ("xpath://a @url @list", ["https://shop.test/p/details?id=1#top"]),
        ("xpath://time @date", "2026-03-04T10:00:00+01:00"),
        ({"css": ".offer", "fields": {"sku": "@data-sku"}}, {"sku": "a1"}),
        ({"css": ".nothing", "fields": {"sku": "@data-sku"}}, None),
        ({"each": ".nothing", "fields": {"sku": "@data-sku"}}, []),
        (
            {"each": ".offer", "fields": {"sku": "@data-sku", "cost": ".cost @number"}},
            [{"sku": "a1", "cost": 5}, {"sku": "b2", "cost": None}, {"sku": "c3", "cost": None}],
        ),
        (
            {"each": ".offer", "fields": {"cost": ".cost @number @required", "sku": "@data-sku"}},
            [{"cost": 5, "sku": "a1"}],
        ),
    ],
)
def test_a_field_has_this_value(field: object, expected: object) -> None:
    assert value(field) == expected


@pytest.mark.parametrize(
    ("text", "with_point", "with_comma"),
    [
        ("1,234", 1234, 1.234),
        ("1.234", 1.234, 1234),
        ("0,234", 0.234, 0.234),
        ("12,5", 12.5, 12.5),
        ("1.234.567,89 €", 1234567.89, 1234567.89),
        ("$1,234,567.89", 1234567.89, 1234567.89),
        ("₹1,23,45,678.50", 12345678.5, 12345678.5),
        ("1'234.50", 1234.5, 1234.5),
        ("1\u202f234\u00a0567", 1234567, 1234567),
        ("1 234,50", 1234.5, 1234.5),
        ("from −5 to 7", -5, -5),
        ("3-5 days", 3, 3),
        ("22.11.2026", None, None),
        ("1,2,3", None, None),
        ("1.23.456", None, None),
        ("A4", None, None),
    ],
)
def test_numbers_have_either_decimal_mark(text: str, with_point: float | None, with_comma: float | None) -> None:
    page = f"<p>{text}</p>"
    assert (value("p @number", page), value("p @number:,", page)) == (with_point, with_comma)


def test_an_item_begins_with_the_url_and_has_the_fields_in_order() -> None:
    (item,) = found({"fields": {"z": "h1", "a": "nothing", "m": "title"}}).items
    assert list(item.items()) == [("page_url", URL), ("z", "Lamp with shade"), ("a", None), ("m", "Shop")]


def test_each_match_is_an_item_and_a_missing_field_loses_none() -> None:
    rules = {
        "each": ".offer",
        "fields": {"seller": ".seller", "sku": "@data-sku", "cost": ".cost @number", "page": "h1"},
    }
    assert [list(item.values())[1:] for item in found(rules).items] == [
        ["One", "a1", 5, None],  # `h1` is not in an offer
        ["Two", "b2", None, None],
        [None, "c3", None, None],
    ]


def test_xpath_within_an_item_is_relative_to_it() -> None:
    rules = {"each": ".offer", "fields": {"seller": "xpath:.//span[1]", "sku": "xpath:@data-sku"}}
    assert [(item["seller"], item["sku"]) for item in found(rules).items] == [
        ("One", "a1"),
        ("Two", "b2"),
        (None, "c3"),
    ]
    rules = {"each": "tr", "fields": {"name": "xpath:td[1]", "value": "xpath:td[2]"}}
    assert [(item["name"], item["value"]) for item in found(rules).items] == [("Colour", "red")]


@pytest.mark.parametrize(
    ("each", "field", "expected"),
    [
        ("body", "xpath:h1", "Lamp with shade"),
        ("head", "xpath:title", "Shop"),
        ("title", "xpath:.", "Shop"),
        ("meta[name]", "xpath:@content", "A lamp"),
        ("h1", "xpath:b", "shade"),
        ("td", "xpath:.", "Colour"),
    ],
)
def test_xpath_within_an_item_begins_at_any_element(each: str, field: str, expected: str) -> None:
    assert found({"each": each, "fields": {"a": field}}).items[0]["a"] == expected


def test_without_a_required_field_there_is_no_item_and_it_is_counted() -> None:
    (result,) = found({"each": ".offer", "fields": {"sku": "@data-sku", "cost": ".cost @required"}}).results
    assert [item["sku"] for item in result.items] == ["a1"]
    assert (result.matches, result.lacking, result.found) == (3, {"cost": 2}, {"sku", "cost"})


def test_a_page_without_any_value_has_no_item() -> None:
    (result,) = found({"fields": {"a": ".x", "b": "video @count", "c": {"css": ".y", "default": "z"}}}).results
    assert (result.items, result.found) == ([], set())


def test_the_number_0_is_a_value() -> None:
    (result,) = found({"each": "p", "fields": {"price": ". @number", "links": "a @count"}}, "<p>0 EUR<p>free").results
    assert result.items == [{"page_url": URL, "price": 0, "links": 0}]
    assert result.found == {"price"}


def test_a_rule_is_for_the_urls_that_it_names() -> None:
    rules = {"rules": [{"urls": ["/p/"], "fields": {"a": "h1"}}, {"urls": ["^http://", "/q/"], "fields": {"b": "h1"}}]}
    assert [list(item) for item in found(rules).items] == [["page_url", "a"]]
    assert [list(item) for item in found(rules, url="https://shop.test/q/p/").items] == [
        ["page_url", "a"],
        ["page_url", "b"],
    ]
    assert not found(rules, url="https://shop.test/").results


def test_links_are_absolute_by_the_base_of_the_document() -> None:
    page = '<base href="//cdn.test/x/"><a href="y#z">y</a>'
    assert value("a @url", page) == "https://cdn.test/x/y#z"


def test_a_page_in_another_encoding_is_read() -> None:
    document = HtmlDocument("<h1>Größe – 5 €</h1>".encode("cp1252"), "cp1252")
    compiled = CompiledExtraction(read_extraction({"fields": {"a": "h1", "b": "xpath://h1", "c": "regex:Gr(.)"}}))
    (item,) = (compiled.extract(document, URL) or PageItems()).items
    assert (item["a"], item["b"], item["c"]) == ("Größe – 5 €", "Größe – 5 €", "ö")


@pytest.mark.parametrize(
    ("rules", "place", "told"),
    [
        ({"fields": {"a": "p:foo"}}, "fields.a.css", "cannot parse the CSS selector 'p:foo'"),
        ({"rules": [{"fields": {"a": "p:foo"}}]}, "rules[0].fields.a.css", "cannot parse"),
        ({"each": "p:foo", "fields": {"a": "p"}}, "each", "cannot parse"),
        ({"each": "p::text", "fields": {"a": "p"}}, "each", "select the elements"),
        ({"fields": {"a": {"each": "p", "fields": {"b": "xpath://["}}}}, "fields.a.fields.b.xpath", "cannot parse"),
        ({"fields": {"a": "div:has(:is(p))"}}, "fields.a.css", ":is(…) at the beginning of a part of :has(…)"),
        ({"fields": {"a": "p::attr(x)@y"}}, "fields.a.attribute", "contradicts ::attr()"),
        ({"fields": {"a": r"regex:(a)\1"}}, "fields.a.regex", "no back-references"),
        ({"fields": {"a": "regex:("}}, "fields.a.regex", "missing )"),
        ({"urls": ["x", "("], "fields": {"a": "p"}}, "urls[1]", "missing )"),
        ({"fields": {"a": "p @text:loud"}}, "fields.a.type", "text:loud is unknown"),
        ({"fields": {"a": "p @date:xx"}}, "fields.a.type", "'xx'"),
        ({"fields": {"a": "p @date:%Q"}}, "fields.a.type", "'Q' is a bad directive"),
        ({"fields": {"a": "p @date:%d.%m.%Y %d"}}, "fields.a.type", "is not valid"),
        ({"fields": {"a": "p @date:%d %B"}}, "fields.a.type", "lacks the year, the month or the day"),
        ({"fields": {"a": "p @date:%H:%M"}}, "fields.a.type", "lacks the year, the month or the day"),
    ],
)
def test_rules_that_do_not_compile_name_their_place(rules: dict[str, Any], place: str, told: str) -> None:
    with pytest.raises(BadExtraction) as caught:
        check_rules(rules)
    assert caught.value.place == place
    assert told in caught.value.reason


# --- hostile pages ----------------------------------------------------------------------------------------------------


def test_a_page_that_is_costly_to_parse_is_not_looked_at() -> None:
    compiled = CompiledExtraction(read_extraction({"fields": {"a": "h1"}}))
    assert compiled.extract(HtmlDocument("<h1>x</h1>" + "<div>" * 20_000), URL) is None


def test_items_of_a_page_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_ITEMS", 10)
    result = found({"each": "i", "fields": {"a": "@x"}}, "<i x=1></i>" * 50)
    assert result.cut
    assert len(result.items) == 10


def test_text_of_nested_elements_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_CHARACTERS", 100_000)
    result = found({"fields": {"a": "div @list", "b": "title"}}, "<div>" * 300 + "x" * 10_000)
    assert result.cut
    assert result.items == []
    result = found({"each": "div", "fields": {"a": "."}}, "<div>" * 300 + "x" * 10_000)
    assert result.cut
    assert len(result.items) == 10


def test_time_for_a_page_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_SECONDS", -1.0)
    assert found({"each": "p", "fields": {"a": "."}}).cut


@pytest.mark.parametrize("kind", ["@number", "@list", "@count"])
def test_time_for_the_matches_of_an_expression_is_limited(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Each search of this expression reads the rest of the page, which takes minutes for all of them."""
    monkeypatch.setattr(sources, "MAX_SECONDS", 0.2)
    began = time.process_time()
    assert found({"fields": {"a": f"regex:x(?:.*y)? {kind}"}}, "x" * 1_000_000).cut
    assert time.process_time() - began < 10


ALL_SOURCES = CompiledExtraction(
    read_extraction(
        {
            "fields": {
                "a": "h1", "b": "p @number @list", "c": "xpath://p @date:en", "d": "jsonld:a.b @price",
                "e": "regex:.+ @url", "f": "meta:x @date", "h": "* @url @list",
                "g": {"each": "*", "fields": {"i": ". @html", "j": "xpath:.//a", "k": "::text @currency"}},
            }
        }
    )
)  # fmt: skip


@given(page=st.text() | st.binary().map(lambda raw: raw.decode("latin-1")), before=st.sampled_from(["", "<h1>", PAGE]))
@settings(deadline=None)  # the parser of dates loads its data with the first date
def test_no_page_makes_extraction_raise(page: str, before: str) -> None:
    for html in (before + page, (before + page).encode("utf-8", "surrogatepass")):
        result = ALL_SOURCES.extract(HtmlDocument(html), URL)
        assert result is None or msgspec.json.encode(result.items)
