"""Requests are serialized and deserialized exactly."""

import contextlib
import datetime
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
import pytest
import scrapy
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import FormRequest, HtmlResponse, JsonRequest, Request, XmlRpcRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.linkextractors import LinkExtractor

from gossamer.model.request import Payload, pack, unpack
from gossamer.model.values import ITEM, extended
from gossamer.policy.urls import canonical
from gossamer.scrapy.entries import Unreadable, Unstorable, attrs_of, deserialize, serialize


def bare(function: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """A decorator that does not keep the name."""

    def inner(self: Any, response: Any) -> None:
        function(self, response)

    return inner


class Spider(scrapy.Spider):
    name = "s"

    def leaf(self, response: Any) -> None: ...

    def broke(self, failure: Any) -> None: ...

    def __private(self, response: Any) -> None: ...

    private = property(lambda self: self.__private)

    @bare
    def decorated(self, response: Any) -> None: ...


SPIDER = Spider()
URL = "http://a.test/x?b=2&a=1"


def there_and_back(request: Request) -> Request:
    url = canonical(request.url)
    return deserialize(unpack(pack(serialize(request, SPIDER, url=url))), SPIDER, url=url, priority=request.priority)


def same(one: Request, other: Request) -> bool:
    return type(one) is type(other) and all(getattr(one, name) == getattr(other, name) for name in one.attributes)


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL),
        Request(URL + "#part"),
        Request("http://me:secret@a.test/"),
        Request(URL, SPIDER.leaf, errback=SPIDER.broke, priority=-7, dont_filter=True, flags=["f"]),
        Request(URL, NO_CALLBACK),
        Request(URL, SPIDER.private),
        Request(URL, SPIDER.decorated),
        Request(URL, method="POST", body=b"\x00\xff", encoding="latin-1"),
        Request(URL, body=b"of a GET"),
        Request(URL, headers={"A": ["1", "2"], "b": "\xe4"}, cookies={"c": "d"}),
        Request(URL, cookies=[{"name": "c", "value": "d", "domain": "a.test", "secure": True}]),
        FormRequest(URL, SPIDER.leaf, formdata={"a": "b"}),
        JsonRequest(URL, data={"a": [1, None]}),
        XmlRpcRequest(URL, params=(1, "two"), methodname="m"),
    ],
    ids=str,
)
def test_a_request_comes_back_as_it_was(request_: Request) -> None:
    assert same(there_and_back(request_), request_)


class Thing(scrapy.Item):
    name = scrapy.Field()


class Odd:
    pass


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.dates()
    | st.datetimes(timezones=st.sampled_from([datetime.UTC, None])) | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3)
    | st.tuples(inner, inner)
    | st.dictionaries(st.text() | st.integers(-5, 5), inner, max_size=3)
    | st.frozensets(st.text() | st.integers(), max_size=3),
    max_leaves=8,
)  # fmt: skip


def typed(value: Any) -> Any:
    """With the types that `==` does not see: True is not 1, a tuple not a list."""
    if isinstance(value, list | tuple):
        return (type(value), [typed(one) for one in value])
    if isinstance(value, dict):
        return {(type(key), key): typed(one) for key, one in value.items()}
    return (type(value), value)


@given(values)
def test_meta_keeps_values_and_their_types(value: Any) -> None:
    back = there_and_back(Request(URL, meta={"v": value}, cb_kwargs={"k": [value]}))
    assert typed(back.meta["v"]) == typed(value)
    assert typed(back.cb_kwargs["k"][0]) == typed(value)


def test_scrapys_items_travel() -> None:
    back = there_and_back(Request(URL, meta={"item": Thing(name=(1, Decimal("2.50")))}))
    assert type(back.meta["item"]) is Thing
    assert back.meta["item"]["name"] == (1, Decimal("2.50"))


@dataclass
class Offer:
    name: str
    prices: tuple[Decimal, ...] = ()
    within: "Offer | None" = None
    made: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.made += 1


@dataclass(frozen=True, slots=True)
class Firm:
    name: str


def test_dataclasses_travel() -> None:
    offer = Offer("a", (Decimal("2.50"),), Offer("b"))
    back = there_and_back(Request(URL, meta={"offer": offer, "all": [Firm("x")]}, cb_kwargs={"firm": Firm("y")}))
    assert back.meta == {"offer": offer, "all": [Firm("x")]}
    assert back.meta["offer"].made == 1
    assert back.cb_kwargs == {"firm": Firm("y")}


def test_a_dataclass_that_cannot_be_made_again_is_refused() -> None:
    @dataclass
    class Local:
        name: str

    more = Offer("a")
    more.note = "x"  # type: ignore[attr-defined]
    for value, why in ((Local("a"), "is not found by that name"), (more, "with note, which is not one of its fields")):
        with pytest.raises(Unstorable) as refused:
            there_and_back(Request(URL, meta={"value": value}))
        assert why in str(refused.value)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("subprocess.Popen", {"args": "true"}),
        ("pathlib.Path", {}),
        ("antigravity.Sky", {}),
        (f"{__name__}.Offer", {"prize": 1}),
    ],
)
def test_bytes_make_no_objects_but_items_and_dataclasses(path: str, fields: dict[str, Any]) -> None:
    meta = {"value": extended(ITEM, [path, fields])}
    payload = Payload(scrapy=msgspec.msgpack.encode({"meta": meta}))
    with pytest.raises(Unreadable):
        deserialize(payload, SPIDER, url=URL, priority=0)
    assert "antigravity" not in sys.modules


def test_the_text_of_a_link_travels_as_text() -> None:
    link = LinkExtractor().extract_links(HtmlResponse(URL, body=b"<a href='/'>h\xc3\xb6re</a>", encoding="utf-8"))[0]
    assert type(link.text) is not str
    back = there_and_back(Request(URL, meta={"link_text": link.text, "all": [link.text]}))
    assert typed(back.meta) == typed({"link_text": "h\xf6re", "all": ["h\xf6re"]})


def loop() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (Request(URL, lambda response: None), "its callback <lambda> is not a method of the spider"),
        (Request(URL, SPIDER.leaf, errback=print), "its errback"),
        (Request(URL, Spider().leaf), "its callback"),
        (Request(URL, meta={"a": [{"b": Odd()}]}), "meta['a']['b'] holds a"),
        (Request(URL, cb_kwargs={"a": Odd}), "cb_kwargs['a'] holds a"),
        (Request(URL, meta={"a": {(1, 2): 3}}), "has a key of type tuple"),
        (Request(URL, meta={"a": {2**64: 3}}), "meta['a'] has a key of more than 64 bits"),
        (Request(URL, meta={"a": loop()}), "too deep"),
        (Request(URL, meta={"a": ["\ud83d"]}), "meta['a'] holds half of a surrogate pair"),
        (Request(URL, cb_kwargs={"\udc00": 1}), "half of a surrogate pair"),
    ],
)
def test_what_cannot_be_stored_exactly_is_refused_with_what_to_change(request_: Request, why: str) -> None:
    with pytest.raises(Unstorable, match=r".") as refused:
        there_and_back(request_)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"callback": "gone"}, "no_callback"),
        ({"callback": "name"}, "no_callback"),
        ({"_class": "nowhere.Request"}, "no_class"),
        ({"_class": "subprocess.Popen"}, "no_class"),
        ({"_class": "builtins.eval"}, "no_class"),
        ({"_class": "scrapy.Item"}, "no_class"),
        ({"method_": "x"}, "unreadable"),
        ({"url": "no scheme"}, "unreadable"),
        ({"encoding": "nope"}, "unreadable"),
        ({"callback": 5}, "unreadable"),
        ({"_class": 5}, "unreadable"),
    ],
)
def test_bytes_make_nothing_run_but_requests(fields: dict[str, Any], reason: str) -> None:
    payload = Payload(scrapy=msgspec.msgpack.encode(fields))
    with pytest.raises(Unreadable) as refused:
        deserialize(payload, SPIDER, url=URL, priority=0)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0, 5),
        (1, [[]]),
        (3, "yesterday"),
        (4, 5),
        (5, "1,5"),
        (7, None),
        (7, "many"),
        (99, 1),
        (ITEM, 5),
        (ITEM, [1, 2, 3]),
    ],
)
def test_a_stored_value_of_another_form_is_refused_as_unreadable(code: int, value: object) -> None:
    payload = Payload(scrapy=msgspec.msgpack.encode({"meta": {"a": extended(code, value)}}))
    with pytest.raises(Unreadable) as refused:
        deserialize(payload, SPIDER, url=URL, priority=0)
    assert refused.value.reason == "unreadable"


@given(st.binary(max_size=60))
def test_garbage_never_does_worse_than_be_refused(data: bytes) -> None:
    with contextlib.suppress(Unreadable):
        deserialize(Payload(scrapy=data), SPIDER, url=URL, priority=0)


def test_a_request_of_the_other_lane() -> None:
    request = deserialize(Payload(method="POST", body=b"b", headers={"H": "v"}), SPIDER, url=URL, priority=3)
    assert (request.url, request.method, request.body, request.headers["H"], request.priority) == (
        URL, "POST", b"b", b"v", 3,
    )  # fmt: skip


def test_attrs_for_another_spider_are_plain_data() -> None:
    assert attrs_of({"attrs": {"a": [1, "two"]}}) == {"a": [1, "two"]}
    with pytest.raises(Unstorable) as refused:
        attrs_of({"attrs": {"a": object()}})
    assert "plain data" in str(refused.value)
