"""Every schema is sound, closed, described, and true of its own examples; Scrapy Cluster's fields are all in them."""

from importlib import resources
from typing import Any

import jsonschema_rs
import pytest

from gossamer.model.crawl import CONCURRENCY_RANGE, HITS_RANGE, SCALE_RANGE, WINDOW_SECONDS_RANGE
from gossamer.model.messages.reader import ANSWERS, CHANGES, EVENTS, REQUESTS, REST, RESULTS, schema
from gossamer.model.record import ItemRecord, PageRecord

EVERY = (*REQUESTS, *ANSWERS, *EVENTS, *RESULTS, *CHANGES, "dead_letter", *REST)
every_schema = pytest.mark.parametrize("name", EVERY)

ID = {"uuid": "7f1c", "appid": "testapp"}
SAID = {**ID, "server_time": 1700000000}

ORIGINAL: dict[str, dict[str, Any]] = {
    "info": {
        **SAID,
        "crawlid": "abc",
        "spiderid": "link",
        "total_pending": 1,
        "total_domains": 1,
        "domains": {"a.com": {"total": 1, "high_priority": -9, "low_priority": -9}},
        "expires": "1893456000",
    },
    "info_app": {
        **SAID,
        "spiderid": "link",
        "total_pending": 1,
        "total_crawlids": 1,
        "total_domains": 1,
        "crawlids": {
            "abc": {
                "total": 1,
                "distinct_domains": 1,
                "domains": {"a.com": {"total": 1, "high_priority": 1, "low_priority": 1}},
                "expires": 1893456000,
            }
        },
    },
    "stop": {**SAID, "action": "stop", "spiderid": "link", "crawlid": "abc", "total_purged": 0},
    "domain_answer": {**SAID, "action": "domain-remove", "domain": "a.com", "error": "Unable to store"},
    "stats_answer": {**SAID, "stats": "rest", "nodes": {"host": ["0123456789ab"]}},
}
"""Whole answers as Scrapy Cluster 1.2 gives them."""

ORIGINAL_FIELDS = {
    "expired": {"action", "server_time", "crawlid", "spiderid", "appid", "total_expired"},
    "page": {
        *("appid", "crawlid", "url", "response_url", "status_code", "status_msg", "response_headers"),
        *("request_headers", "body", "links", "attrs", "encoding", "timestamp"),
    },
    "page_1_0": {
        *("appid", "crawlid", "url", "response_url", "status_code", "status_msg", "headers", "request_headers"),
        *("body", "links", "attrs", "timestamp"),
    },
}


def valid(name: str, message: object) -> bool:
    return jsonschema_rs.validator_for(schema(name)).is_valid(message)


def test_every_file_is_named() -> None:
    folder = resources.files("gossamer.model.messages") / "schemas"
    assert sorted(file.name for file in folder.iterdir()) == sorted(f"{name}.json" for name in EVERY)


@every_schema
def test_is_a_schema(name: str) -> None:
    jsonschema_rs.meta.validate(schema(name))
    assert schema(name)["$schema"].endswith("2020-12/schema")


@every_schema
def test_takes_no_field_it_does_not_name(name: str) -> None:
    for example in schema(name)["examples"]:
        assert not valid(name, {**example, "colour": "red"})


@every_schema
def test_its_examples_are_valid(name: str) -> None:
    assert schema(name)["examples"]
    for example in schema(name)["examples"]:
        jsonschema_rs.validator_for(schema(name)).validate(example)


@every_schema
def test_needs_what_it_says_it_needs(name: str) -> None:
    for example in schema(name)["examples"]:
        for field in schema(name)["required"]:
            assert not valid(name, {key: value for key, value in example.items() if key != field})


@every_schema
def test_every_field_is_described(name: str) -> None:
    assert schema(name)["title"]
    assert schema(name)["description"]
    for field, part in schema(name)["properties"].items():
        assert part.get("description"), field


@pytest.mark.parametrize("name", [*ANSWERS, *EVENTS, *RESULTS, *CHANGES])
def test_examples_show_every_field_that_is_always_there(name: str) -> None:
    shown = {field for example in schema(name)["examples"] for field in example}
    assert shown >= set(schema(name)["required"])


@pytest.mark.parametrize("name", ORIGINAL)
def test_takes_the_originals_answer(name: str) -> None:
    jsonschema_rs.validator_for(schema(name)).validate(ORIGINAL[name])


@pytest.mark.parametrize("name", ORIGINAL_FIELDS)
def test_always_has_the_originals_fields(name: str) -> None:
    assert set(schema(name)["required"]) >= ORIGINAL_FIELDS[name]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("info", {"expires": 1893456000}),
        ("info", {"server_time": 1.5}),
        ("info", {"total_pending": "3"}),
        ("info_app", {"crawlids": {"a": {"total": 1, "distinct_domains": 1, "domains": {}, "expires": "1893456000"}}}),
        ("info_app_1_0", {"crawlids": {"a": {"total": 1, "low_priority": 1, "high_priority": 1, "expires": 5}}}),
        ("page_1_0", {"attrs": None}),
        ("stats_answer", {"nodes": {}}),
        ("stats_answer", {"total": {"901": 3}}),
        ("finished", {"event_id": "7"}),
    ],
)
def test_holds_to_the_originals_types(name: str, wrong: dict[str, Any]) -> None:
    """Text or number is not a matter of taste: the original's consumers read these as they are."""
    if name == "stats_answer" and "nodes" in wrong:
        example = next(found for found in schema(name)["examples"] if found["stats"] == "spider")
    else:
        example = schema(name)["examples"][0]
    assert valid(name, example)
    assert not valid(name, {**example, **wrong})


def test_every_kind_of_statistics_has_an_example() -> None:
    shown = {example["stats"] for example in schema("stats_answer")["examples"]}
    assert shown == set(schema("stats")["properties"]["stats"]["enum"])


def test_records_and_their_schemas_have_the_same_fields() -> None:
    kept_elsewhere = {"body_address", "body_bytes", "record_address"}
    assert list(schema("page")["required"]) == list(PageRecord.__struct_fields__)
    assert list(schema("item")["required"]) == list(ItemRecord.__struct_fields__)
    assert schema("page")["properties"].keys() - set(schema("page")["required"]) == kept_elsewhere


@pytest.mark.parametrize("name", REQUESTS)
def test_defaults_are_valid(name: str) -> None:
    defaults = {field: part["default"] for field, part in schema(name)["properties"].items() if "default" in part}
    for example in schema(name)["examples"]:
        jsonschema_rs.validator_for(schema(name)).validate({**defaults, **example})


def test_the_ranges_of_rates_and_policies_are_those_of_the_model() -> None:
    domain, crawl = schema("domain")["properties"], schema("crawl")["properties"]
    # 0 stands for a field that an action does not need.
    assert (domain["hits"]["minimum"], domain["hits"]["maximum"]) == (0, HITS_RANGE[1])
    assert (domain["window"]["minimum"], domain["window"]["maximum"]) == (0, WINDOW_SECONDS_RANGE[1])
    assert (domain["scale"]["minimum"], domain["scale"]["maximum"]) == SCALE_RANGE
    concurrency = crawl["domain_concurrency"]
    assert (concurrency["minimum"], concurrency["maximum"]) == CONCURRENCY_RANGE
