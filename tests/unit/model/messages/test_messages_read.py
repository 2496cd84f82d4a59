"""Bytes to requests: what is meant, what is refused, and in which words."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossamer.errors import BadInput, RequestRejected
from gossamer.model.messages.reader import REQUESTS, MessageReader, RequestKind, RequestLimits, schema
from gossamer.model.messages.requests import ActionRequest, CrawlRequest, DomainRequest, StatsRequest

CRAWL: dict[str, Any] = {"appid": "testapp", "crawlid": "abc", "url": "http://example.com/"}
STRUCTS = {"crawl": CrawlRequest, "action": ActionRequest, "stats": StatsRequest, "domain": DomainRequest}
READER = MessageReader()


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(levels - 1):
        inner = {"a": inner}
    return inner


def refusal(message: object, reader: MessageReader = READER) -> RequestRejected:
    """Why it is refused, whether it comes as bytes or as an object."""
    value = message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode()
    with pytest.raises(RequestRejected) as caught:
        reader.read(value)
    if isinstance(message, dict):
        with pytest.raises(RequestRejected) as again:
            reader.read(message)
        assert (again.value.field, again.value.reason) == (caught.value.field, caught.value.reason)
    return caught.value


# --- what is meant ----------------------------------------------------------------------------------------------------


def without_none(found: dict[str, Any]) -> dict[str, Any]:
    """Fields that were given."""
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_examples_are_read_as_what_they_are(name: str) -> None:
    for message in schema(name)["examples"]:
        kind, request = READER.read(json.dumps(message).encode())
        assert kind == name
        assert isinstance(request, STRUCTS[name])
        found = json.loads(msgspec.json.encode(request), object_hook=without_none)
        assert message.items() <= found.items()


@pytest.mark.parametrize("name", REQUESTS)
def test_structs_and_schemas_have_the_same_fields_and_defaults(name: str) -> None:
    properties, struct = schema(name)["properties"], msgspec.structs.fields(STRUCTS[name])
    assert {field.name for field in struct} == set(properties)
    for field in struct:
        assert field.required == (field.name in schema(name)["required"])
        if not field.required:
            assert field.default == properties[field.name].get("default")


def test_null_is_absent() -> None:
    nothing: dict[str, Any] = dict.fromkeys(schema("crawl")["properties"])
    assert READER.read(json.dumps({**nothing, **CRAWL}).encode()) == READER.read(CRAWL)
    assert refusal({**CRAWL, "url": None}).field == "url"


def test_null_inside_attrs_stays() -> None:
    _, request = READER.read({**CRAWL, "attrs": {"a": None}})
    assert request.attrs == {"a": None}


def test_whole_floats_are_integers() -> None:
    """As JSON Schema says; some producers write every number so."""
    _, request = READER.read(
        b'{"appid":"testapp","crawlid":"a","url":"x","priority":20.0,"maxdepth":2e0,"expires":-0.0}'
    )
    assert (request.priority, request.maxdepth, request.expires) == (20, 2, 0)
    assert type(request.priority) is int


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    _, request = READER.read(b'{"appid":"testapp","crawlid":"a","url":"x","priority":1,"priority":7}')
    assert request.priority == 7


@pytest.mark.parametrize("text", ["a:b", "a/b", "http://x", "ü-я-中", "a'b", '"', "{}", "a|b"])
def test_ids_may_be_any_printable_text(text: str) -> None:
    _, request = READER.read({**CRAWL, "crawlid": text, "appid": f"app{text}"})
    assert (request.crawlid, request.appid) == (text, f"app{text}")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"url": None}, "url", 'is missing: what looks like a crawl request needs it. Write, for example, "url": "'),
        ({"url": ""}, "url", "must have at least 1 characters"),
        ({"url": 5}, "url", "must be a string"),
        ({"url": "x" * 65537}, "url", "must have at most 65536 characters"),
        ({"colour": 1}, "colour", "unknown field of a crawl request"),
        ({"ulr": "x", "url": None}, "ulr", "did you mean url?"),
        ({"uuid": "1"}, "uuid", "unknown field of a crawl request"),
        ({"ts": 1.5}, "ts", "unknown field of a crawl request"),
        ({"splash": {}}, "splash", "Splash is not supported"),
        ({"maxdepth": -1}, "maxdepth", "must be at least 0"),
        ({"priority": 101}, "priority", "must be at most 100"),
        ({"priority": "5"}, "priority", "must be an integer"),
        ({"priority": 1.5}, "priority", "must be an integer"),
        ({"priority": True}, "priority", "must be an integer"),
        ({"appid": "ab"}, "appid", "must have at least 3 characters"),
        ({"appid": "a" * 41}, "appid", "must have at most 40 characters"),
        ({"appid": "a b c"}, "appid", "without white space"),
        ({"crawlid": "a\u00a0b"}, "crawlid", "without white space"),
        ({"crawlid": "a\nb"}, "crawlid", "printable"),
        ({"crawlid": "a\n"}, "crawlid", "printable"),
        ({"crawlid": "a\u0000b"}, "crawlid", "printable"),
        ({"crawlid": "a\u202eb"}, "crawlid", "printable"),
        ({"crawlid": ""}, "crawlid", "must have at least 1 characters"),
        ({"crawlid": "a" * 1000}, "crawlid", "must have at most 100 characters"),
        ({"spiderid": "a|b"}, "spiderid", "letters, digits"),
        ({"expires": -5}, "expires", "epoch seconds"),
        ({"expires": 1700000000000}, "expires", "not milliseconds"),
        ({"rate": "fast"}, "rate", "HITS/SECONDS"),
        ({"rate": "0/60"}, "rate", "at least 1 hit"),
        ({"rate": "1/0"}, "rate", "0.001"),
        ({"method": "post"}, "method", "capital letters"),
        ({"order": "random"}, "order", "must be one of fifo, lifo"),
        ({"timeout": 0}, "timeout", "must be more than 0"),
        ({"headers": {"X-A": 1}}, "headers.X-A", "must be a string"),
        ({"headers": {"X-A": None}}, "headers.X-A", "must be a string"),
        ({"headers": {str(at): "" for at in range(101)}}, "headers", "must have at most 100 fields"),
        ({"allowed_domains": "a.com"}, "allowed_domains", "must be an array"),
        ({"allowed_domains": ["a.com", 5]}, "allowed_domains.1", "must be a string"),
        ({"allowed_domains": ["a.com", "a.com"]}, "allowed_domains", "the same item twice"),
        ({"deny_regex": [str(at) for at in range(101)]}, "deny_regex", "must have at most 100 items"),
        ({"attrs": []}, "attrs", "must be an object"),
        ({"attrs": nested(101)}, "attrs", "more than 100 levels"),
        ({"attrs": {"a": [2**64]}}, "attrs", "64 bits"),
        ({"attrs": {"a": -(2**63) - 1}}, "attrs", "64 bits"),
        ({"expires": 2**80}, "expires", "64 bits"),
        ({"body": "a", "body_base64": "YQ=="}, "body_base64", "contradicts body"),
        ({"body_base64": "YQ="}, "body_base64", "is not base64"),
        ({"body_base64": "ä"}, "body_base64", "is not base64"),
    ],
)
def test_a_faulty_crawl_request_is_refused_with_field_and_reason(
    changes: dict[str, Any], field: str, words: str
) -> None:
    fault = refusal({**CRAWL, **changes})
    assert fault.field == field
    assert words in fault.reason
    assert "\n" not in fault.reason
    colon = "" if fault.reason.startswith("is missing") else ":"
    assert str(fault) == f"This request is not valid: {field}{colon} {fault.reason}"


@pytest.mark.parametrize(
    ("message", "field", "words"),
    [
        ({}, "", "empty"),
        ({"uuid": None}, "", "empty"),
        ({"foo": 1}, "", "no kind of request has any of these fields; the kinds are crawl, action, stats, domain"),
        ({"url": "x"}, "appid", "missing: what looks like a crawl request needs it"),
        ({"uuid": "1", "appid": "abc", "url": "x"}, "uuid", "unknown field of a crawl request"),
        ({"appid": "abc", "action": "info"}, "uuid", "missing: what looks like an action request needs it"),
        ({"uuid": "1", "appid": "abc", "spiderid": "link", "action": "stpo"}, "action", "must be one of stop, info"),
        ({"uuid": "1", "appid": "abc", "spiderid": "link", "action": "stop"}, "crawlid", "missing"),
        ({"uuid": "1", "appid": "abc", "stats": "weather"}, "stats", "must be one of kafka-monitor"),
        (
            {"uuid": "1", "appid": "abc", "domain": "a.com", "action": "remove"},
            "action",
            "must be one of domain-update",
        ),
        ({"uuid": "1", "appid": "abc", "action": "blacklist-update"}, "domain", "what looks like a domain request"),
        (
            {"uuid": "1", "appid": "abc", "domain": "a.com", "action": "domain-update"},
            "hits",
            "missing: a domain-update needs hits, window or scale",
        ),
        (
            {"uuid": "1", "appid": "abc", "domain": "a.com", "action": "domain-update", "hits": 1, "window": 0},
            "window",
            "at least 1",
        ),
        (
            {"uuid": "1", "appid": "abc", "domain": "a.com", "action": "domain-update", "scale": 1.5},
            "scale",
            "must be at most 1",
        ),
    ],
)
def test_the_kind_that_is_most_like_it_is_taken_for_meant(message: dict[str, Any], field: str, words: str) -> None:
    fault = refusal(message)
    assert fault.field == field
    assert words in fault.reason


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ({"appid": "abc", "url": 5, "maxdepth": -1, "max_pages": "many"}, ["crawlid", "url", "maxdepth", "max_pages"]),
        ({"appid": "abc", "crawlid": "c", "url": "x", "uuid": "1", "depth": 2}, ["uuid", "depth"]),
        ({"uuid": 1, "appid": "abc", "domain": "", "action": "domain-update"}, ["uuid", "domain"]),
        ({"appid": "abc", "crawlid": "c", "url": "http://a.test/", "allowed_domains": [1, 2]}, ["allowed_domains.0"]),
    ],
)
def test_all_invalid_fields_are_named_at_once(message: dict[str, Any], fields: list[str]) -> None:
    fault = refusal(message)
    faults = [fault, *fault.others]
    assert sorted(one.field for one in faults) == sorted(fields)
    assert all(one.field in fault.detail and one.reason in fault.detail for one in faults)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b'{"appid": "testapp"', "not JSON"),
        (b'{"appid": NaN}', "not JSON"),
        (b'{"attrs": {"a": 1e999}}', "not JSON"),
        (b'{"a": "\\ud800"}', "not JSON"),
        (b"{} {}", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[]", "must be a JSON object"),
        (b'"crawl"', "must be a JSON object"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "levels deep"),
    ],
)
def test_what_is_no_json_object_is_refused_as_a_whole(value: bytes, words: str) -> None:
    fault = refusal(value)
    assert fault.field == ""
    assert words in fault.reason


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"a": float("nan")}, "NaN"),
        ({"a": [float("inf")]}, "NaN or an infinity"),
        ({"a": "\ud800"}, "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        ({"a": object()}, "cannot be encoded as JSON"),
        (nested(20_000), "levels deep"),
    ],
)
def test_an_object_that_no_json_could_give_is_refused(attrs: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestRejected, match=words):
        READER.read({**CRAWL, "attrs": attrs})


def test_what_is_just_allowed_is_taken() -> None:
    attrs = {"deep": nested(99), "large": 2**64 - 1, "small": -(2**63), "text": "\x00\U0010ffff"}
    message = {**CRAWL, "crawlid": "x" * 100, "maxdepth": 1_000_000, "domain_max_pages": 10**9, "attrs": attrs}
    _, request = READER.read(json.dumps(message).encode())
    assert request.attrs == attrs


def test_a_large_message_is_refused_unread() -> None:
    assert "10,000,000 bytes, more than the 1,048,576" in refusal(b"[" * 10_000_000).reason
    small = MessageReader(limits=RequestLimits(message_bytes=100))
    assert small.read(CRAWL)
    assert "more than the 100" in refusal({**CRAWL, "attrs": {"a": "x" * 100}}, small).reason


def test_the_operator_may_set_a_lower_maxdepth() -> None:
    reader = MessageReader(limits=RequestLimits(maxdepth=3))
    assert reader.read({**CRAWL, "maxdepth": 3})
    refused = refusal({**CRAWL, "maxdepth": 4}, reader)
    assert refused.field == "maxdepth"
    assert "the operator set this limit" in refused.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"x" * 900_000: 1},
        {"headers": {"x" * 900_000: 1}},
        {"order": "x" * 900_000},
        {f"field{at}": at for at in range(50_000)},
        {"allowed_domains": [1] * 100_000},
    ],
    ids=["name", "header", "value", "fields", "items"],
)
def test_what_a_hostile_message_says_is_not_repeated_at_length(changes: dict[str, Any]) -> None:
    assert len(str(refusal({**CRAWL, **changes}))) < 600


# --- anything ---------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def near(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Messages that have this kind's fields with values that are often right."""

    def values(part: dict[str, Any]) -> st.SearchStrategy[Any]:
        if "enum" in part:
            right: st.SearchStrategy[Any] = st.sampled_from(part["enum"])
        elif part["type"] == "string":
            right = st.sampled_from(["abc", "10/60", "POST", "YWJj", "http://a.com/", "1", "x" * 50])
        elif part["type"] in ("integer", "number"):
            right = st.integers(0, 200) | st.integers(0, 200).map(float) | st.just(-0.0)
        elif part["type"] == "array":
            right = st.lists(st.sampled_from(["a.com", "b"]), max_size=2)
        elif part["type"] == "boolean":
            right = st.booleans()
        else:
            right = st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3), max_size=2)
        return right | right | right | json_values

    parts: dict[str, Any] = schema(name)["properties"]
    wanted = {field: values(parts[field]) for field in schema(name)["required"]}
    return st.fixed_dictionaries(
        wanted, optional={field: values(part) for field, part in parts.items() if field not in wanted}
    )


@given(st.one_of(*map(near, REQUESTS)) | st.dictionaries(st.text(max_size=8), json_values, max_size=4))
@example({**CRAWL, "expires": -0.0, "priority": 1e2})
@example({**CRAWL, "url": "\ud800"})
def test_any_object_is_read_or_refused_in_one_sentence(message: dict[str, Any]) -> None:
    """Never anything but a RequestRejected; and what the schema takes, becomes a request."""
    read, fault = outcome(message)
    if fault is None:
        kind, request = read
        assert isinstance(request, STRUCTS[kind])
        assert READER.read(msgspec.json.encode(message)) == (kind, request)
    else:
        assert 0 < len(fault.reason) <= 300
        assert "\n" not in fault.reason


@given(st.binary(max_size=50) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    _, fault = outcome(value)
    assert fault is None or fault.reason


def outcome(value: bytes | dict[str, Any]) -> tuple[Any, RequestRejected | None]:
    """(what was read, why it was refused)."""
    try:
        return READER.read(value), None
    except RequestRejected as fault:
        return None, fault


# --- plug-ins ---------------------------------------------------------------------------------------------------------

PING = {
    "type": "object",
    "additionalProperties": False,
    "required": ["appid", "ping"],
    "properties": {"appid": {"type": "string"}, "ping": {"type": "integer", "minimum": 1}},
}


def ping(rank: int = 500, **changes: Any) -> RequestKind:
    return RequestKind("ping", {**PING, **changes}, rank, lambda given: given)


def test_a_plug_in_adds_a_kind() -> None:
    reader = MessageReader([ping()])
    assert reader.read(b'{"appid": "testapp", "ping": 3, "other": null}') == ("ping", {"appid": "testapp", "ping": 3})
    assert reader.read(CRAWL)[0] == "crawl"


def test_a_plug_ins_faults_are_told_like_any() -> None:
    reader = MessageReader([ping()])
    assert refusal({"appid": "testapp", "ping": 0}, reader).reason == "must be at least 1"
    assert refusal({"appid": "testapp", "ping": 1, "pong": 1}, reader).reason == (
        "unknown field of a ping request; did you mean ping?"
    )
    assert refusal({"ping": 1}, reader).reason == "is missing: what looks like a ping request needs it"


def test_the_lower_rank_comes_first() -> None:
    everything = {"type": "object"}
    assert MessageReader([RequestKind("any", everything, 99, lambda given: None)]).read(CRAWL) == ("any", None)
    assert MessageReader([RequestKind("any", everything, 101, lambda given: None)]).read(CRAWL)[0] == "crawl"


def test_deep_messages_do_not_get_to_a_plug_in() -> None:
    reader = MessageReader([RequestKind("any", {"type": "object", "minProperties": 1}, 500, lambda given: given)])
    assert "levels deep" in refusal({"tree": nested(101)}, reader).reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "objekt"},
        {"properties": 5},
        {"properties": {"a": {"pattern": "("}}},
        {"$ref": "#/$defs/none"},
        {"$ref": "https://example.com/schema.json"},
        {"$schema": "https://example.com/no-such-draft"},
    ],
)
def test_a_schema_that_is_none_is_refused_at_the_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="the schema of bad: "):
        RequestKind("bad", wrong, 1, lambda given: given)


def test_two_kinds_have_two_names() -> None:
    with pytest.raises(BadInput, match="the same name"):
        MessageReader([ping(), ping()])
    with pytest.raises(BadInput, match="the same name"):
        MessageReader([RequestKind("crawl", PING, 1, lambda given: given)])
