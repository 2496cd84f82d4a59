"""A pickle is data or it is refused; nothing in one is ever run."""

import datetime
import os
import pickle
import subprocess
from collections import OrderedDict
from decimal import Decimal
from typing import Any

import pytest
from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor

from gossamer.control.scrapy_redis import BadPickle, loads, read_request
from gossamer.errors import BadInput

PLAIN = {
    "url": "http://a.test/", "headers": {b"A": [b"1"]}, "meta": {"depth": 3, "when": datetime.datetime(2026, 1, 2)},
    "cb_kwargs": {"pair": (1, {2}), "price": Decimal("1.5"), "of": OrderedDict(a=frozenset({1}))}, "body": b"\x00\xff",
    "day": datetime.date(2026, 1, 2), "big": 2**80, "callback": None, "zone": datetime.UTC,
}  # fmt: skip


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_of_every_protocol(protocol: int) -> None:
    assert loads(pickle.dumps(PLAIN, protocol)) == PLAIN


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_the_text_of_a_link_is_text(protocol: int) -> None:
    [link] = LinkExtractor().extract_links(HtmlResponse("http://a.test/", body=b"<a href='/'>one</a>"))
    assert type(link.text) is not str
    back = loads(pickle.dumps({"link_text": link.text}, protocol))
    assert back == {"link_text": "one"}
    assert type(back["link_text"]) is str


class Evil:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self._what = (function, arguments)

    def __reduce__(self) -> Any:
        return self._what


@pytest.mark.parametrize(
    "value",
    [
        Evil(os.system, "true"), Evil(eval, "1"), Evil(getattr, "text", "upper"), Evil(subprocess.Popen, ["true"]),
        Evil(__import__, "os"), Exception("x"), os.path.join, PLAIN | {"meta": {"deep": [Evil(os.getpid)]}},
    ],
)  # fmt: skip
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_what_names_code_is_refused(value: Any, protocol: int) -> None:
    with pytest.raises(BadPickle, match="contains"):
        loads(pickle.dumps(value, protocol))


@pytest.mark.parametrize("data", [b"", b"garbage", pickle.dumps(PLAIN)[:-5], b"\x80\x04\x95", b"x" * (16 * 2**20 + 1)])
def test_what_is_no_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(BadPickle):
        loads(data)


@pytest.mark.parametrize(
    "entry",
    [
        b'{"url": "http://a.test/", "meta": {"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
        b'{"url": "http://a.test/", "method": "POST", "body": "\\ud83d"}',
        pickle.dumps({"url": "http://a.test/", "priority": [1]}),
    ],
)
def test_a_request_of_odd_values_is_refused(entry: bytes) -> None:
    with pytest.raises(BadInput):
        read_request(entry)
