"""Extraction rules: objects, short forms, and the place of a fault."""

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from gossamer.errors import BadExtraction
from gossamer.model import extraction
from gossamer.model.extraction import Extraction, FieldType, ItemField, read_extraction, read_short_form
from gossamer.model.messages.reader import schema


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("h1", ItemField(css="h1")),
        ("  div > p.x  ", ItemField(css="div > p.x")),
        (".price @number", ItemField(css=".price", type=FieldType.NUMBER)),
        ("img.main@src @url", ItemField(css="img.main", attribute="src", type=FieldType.URL)),
        ("@href", ItemField(css=".", attribute="href")),
        (".@data-id @number", ItemField(css=".", attribute="data-id", type=FieldType.NUMBER)),
        (
            "a@HREF @url @list @required",
            ItemField(css="a", attribute="href", type=FieldType.URL, list=True, required=True),
        ),
        ("li::text @list", ItemField(css="li::text", list=True)),
        ("[href='x @y']@href", ItemField(css="[href='x @y']", attribute="href")),
        (".p @number:,", ItemField(css=".p", type=FieldType.NUMBER, argument=",")),
        ("time @date:en, de", ItemField(css="time", type=FieldType.DATE, argument="en, de")),
        (
            "time @date:%d %B %Y @required",
            ItemField(css="time", type=FieldType.DATE, argument="%d %B %Y", required=True),
        ),
        ("pre @count", ItemField(css="pre", type=FieldType.COUNT)),
        ("xpath://img/@src @url", ItemField(xpath="//img/@src", type=FieldType.URL)),
        ("xpath://a[ @href ]", ItemField(xpath="//a[ @href ]")),
        ("XPath: //p", ItemField(xpath="//p")),
        ("jsonld:offers.price @number", ItemField(jsonld="offers.price", type=FieldType.NUMBER)),
        ("meta:og:title", ItemField(meta="og:title")),
        (r"regex:mail @(\w+)", ItemField(regex=r"mail @(\w+)")),
        (r"regex:sku (\w+) @number", ItemField(regex=r"sku (\w+)", type=FieldType.NUMBER)),
        ("css:p", ItemField(css="p")),
    ],
)
def test_a_short_form_is_read(text: str, field: ItemField) -> None:
    assert read_short_form(text) == field


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must be a text"),
        (" ", "must be a text"),
        ("@number", "has no selector"),
        ("@url", "the page's own URL is page_url"),
        ("meta:", "has no selector"),
        (".p @numbr", "did you mean @number?"),
        (".p @foo", "write one of @text"),
        (".p @text @number", "two types"),
        (".p @number:;", "decimal mark"),
        (".p @url:x", "no argument"),
        ("x" * 1001, "characters"),
        ("jsonld:a.b @html", "html needs css or xpath"),
        ("li @count @list", "contradicts the type count"),
    ],
)
def test_a_faulty_short_form_is_explained(text: str, told: str) -> None:
    with pytest.raises(BadExtraction) as caught:
        read_short_form(text)
    assert told in str(caught.value)


def test_an_object_is_the_only_rule_or_has_several() -> None:
    only = {"urls": "/p/", "each": ".p", "fields": {"title": "h1"}}
    assert read_extraction(only) == read_extraction({"rules": [only]})
    assert len(read_extraction({"rules": [only, {"fields": {"a": "b"}}]}).rules) == 2


def test_stored_rules_are_read_back_with_the_order_of_their_fields() -> None:
    given = {"z": "h1", "a": {"each": ".o", "fields": {"y": "b @number", "b": {"css": "i", "default": [1, "x", None]}}}}
    read = read_extraction({"fields": given})
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(read), type=Extraction)
    assert stored == read
    assert list(stored.rules[0].fields) == ["z", "a"]


@pytest.mark.parametrize(
    ("value", "place", "told"),
    [
        (None, "", "must be an object"),
        ([], "", "must be an object"),
        ({}, "fields", "is missing"),
        ({"field": {}}, "field", "did you mean fields?"),
        ({"fields": {}}, "fields", "is empty"),
        ({"fields": []}, "fields", "must be an object"),
        ({"rules": []}, "rules", "must be a list of rules"),
        ({"rules": {"fields": {}}}, "rules", "must be a list of rules"),
        ({"rules": [{"fields": {"a": "b"}}], "each": "x"}, "each", "unknown key"),
        ({"rules": [{"fields": {"a": "b"}}, {}]}, "rules[1].fields", "is missing"),
        (
            {"rules": [{"fields": {"a": {"css": "b", "type": "prize"}}}]},
            "rules[0].fields.a.type",
            "did you mean price?",
        ),
        ({"fields": {"a": {"css": "b", "lst": True}}}, "fields.a.lst", "did you mean list?"),
        ({"fields": {"a": {"css": "b", "list": "yes"}}}, "fields.a.list", "true or false"),
        ({"fields": {"a": {"css": 3}}}, "fields.a.css", "must be a text"),
        ({"fields": {"a": {}}}, "fields.a", "has no source"),
        ({"fields": {"a": 3}}, "fields.a", "must be an object or a text"),
        ({"fields": {3: "a"}}, "fields", "must be a text; put it into quotes"),
        ({"fields": {"": "a"}}, "fields.", "1 to 100"),
        ({"fields": {"a\nb": "a"}}, "fields.a\nb", "printable"),
        ({"fields": {"page_url": "a"}}, "fields.page_url", "choose another name"),
        ({"fields": {"a": {"css": "b", "xpath": "c"}}}, "fields.a", "write only one"),
        ({"fields": {"a": {"each": "b"}}}, "fields.a.each", "needs fields"),
        ({"fields": {"a": {"each": "b", "css": "c", "fields": {"d": "e"}}}}, "fields.a.each", "contradicts css"),
        ({"fields": {"a": {"type": "url", "each": "c", "fields": {"d": "e"}}}}, "fields.a.type", "contradicts fields"),
        ({"fields": {"a": {"meta": "b", "attribute": "c"}}}, "fields.a.attribute", "needs css"),
        ({"fields": {"a": {"css": "b", "default": {"c": 1}}}}, "fields.a.default", "must be a text, a number"),
        ({"fields": {"a": {"css": "b", "default": float("nan")}}}, "fields.a.default", "must be a text, a number"),
        ({"fields": {"a": {"css": "b", "default": 2**70}}}, "fields.a.default", "must be a text, a number"),
        ({"urls": 3, "fields": {"a": "b"}}, "urls", "list"),
        ({"urls": ["", "b"], "fields": {"a": "b"}}, "urls[0]", "not empty"),
        ({"fields": {f"f{at}": "a" for at in range(201)}}, "fields", "more than 200"),
        ({"fields": {f"f{at}": "a" * 900 for at in range(100)}}, "", "bytes; at most"),
        ({"fields": {"a": "\ud800"}}, "", "not valid Unicode"),
    ],
)
def test_a_fault_names_its_place(value: object, place: str, told: str) -> None:
    with pytest.raises(BadExtraction) as caught:
        read_extraction(value)
    assert caught.value.place == place
    assert told in caught.value.reason
    assert str(caught.value) == (f"{place}: {caught.value.reason}" if place else caught.value.reason)


def test_fields_nest_only_so_deep() -> None:
    field: Any = "b"
    for _ in range(extraction.MAX_NESTED - 1):
        field = {"each": "x", "fields": {"a": field}}
    read_extraction({"fields": {"a": field}})
    with pytest.raises(BadExtraction, match="nested more than 5 levels"):
        read_extraction({"fields": {"a": {"each": "x", "fields": {"a": field}}}})


def test_the_schema_has_the_keys_and_limits_of_the_model() -> None:
    definitions = schema("crawl")["$defs"]
    field, rule = definitions["field"]["properties"], definitions["rule"]["properties"]
    assert list(field) == list(extraction._FIELD_KEYS)
    assert list(rule) == list(extraction._RULE_KEYS)
    assert definitions["fields"]["maxProperties"] == extraction.MAX_FIELDS
    assert rule["name"]["maxLength"] == extraction.MAX_NAME_LENGTH
    assert field["css"]["maxLength"] == definitions["field"]["maxLength"] == extraction.MAX_TEXT_LENGTH
    whole = schema("crawl")["properties"]["extract"]["properties"]
    assert whole["rules"]["maxItems"] == rule["urls"]["maxItems"] == extraction.MAX_RULES
    assert set(whole) == {"rules", *rule}
    assert all(name in field["type"]["pattern"] for name in FieldType)


@pytest.mark.parametrize(
    "value",
    [
        {"fields": {"title": "h1"}},
        {"urls": "/p/", "each": ".p", "name": "p", "fields": {"a": {"jsonld": "b", "default": ["x"]}}},
        {"rules": [{"urls": ["a", "b"], "fields": {"o": {"each": ".o", "fields": {"x": "y @date:%d.%m.%Y"}}}}]},
    ],
)
def test_the_schema_accepts_what_the_model_reads(value: dict[str, Any]) -> None:
    read_extraction(value)
    request = {"appid": "abc", "crawlid": "x", "url": "http://example.com", "extract": value}
    jsonschema_rs.validator_for(schema("crawl")).validate(request)
