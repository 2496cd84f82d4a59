"""Links that are known are dropped without being encoded, but only while the frontier still has them."""

from typing import Any

import pytest
from scrapy import Request

from gossamer.scrapy.entries import RequestKey
from gossamer.scrapy.leasing import known_filter
from gossamer.worker.seen import SeenCache

RUN = ("crawl", 1, 1)


class Parent:
    """The part of an ActiveLease that the filter uses."""

    def __init__(self) -> None:
        self.run_key = RUN
        self.known_children = 0
        self.uncounted = 0


def keys(*urls: str) -> dict[str, RequestKey]:
    return {url: RequestKey("spider", url, number) for number, url in enumerate(urls)}


class OwnRequest(Request):
    """A request whose identity may be anything."""


@pytest.mark.parametrize(
    ("request_", "asks"),
    [
        (Request("http://a.test/0"), False),
        (Request("http://a.test/0", meta={"a": 1}), False),
        (Request("http://a.test/0", meta={"spiderid": "other"}), True),
        (Request("http://a.test/0", meta={"verbatim_url": False}), True),
        (Request("http://a.test/0", method="POST"), True),
        (Request("http://a.test/0", body="x"), True),
        (Request("http://a.test/never"), True),
        (OwnRequest("http://a.test/0"), True),
    ],
)
def test_a_plain_link_that_is_known_is_dropped_at_once(request_: Request, asks: bool) -> None:
    seen, parent, asked = SeenCache(), Parent(), []
    seen.remember(RUN, [0])
    known: Any = known_filter(parent, seen, keys("http://a.test/0"), asked.append, epoch=None)  # type: ignore[arg-type]
    assert known(request_) is (None if asks else True)
    assert asked == ([request_] if asks else [])
    assert parent.known_children == parent.uncounted == (0 if asks else 1)


def test_a_link_that_is_new_or_unfiltered_is_kept() -> None:
    seen, parent = SeenCache(), Parent()
    seen.remember(RUN, [0])
    known = known_filter(parent, seen, keys("http://a.test/0", "http://a.test/1"), lambda request: True, epoch=None)  # type: ignore[arg-type]
    assert not known(Request("http://a.test/1"))
    assert not known(Request("http://a.test/0", dont_filter=True))
    assert parent.known_children == 0


def test_after_an_await_a_link_is_not_dropped_if_the_frontier_may_have_lost_it() -> None:
    epoch = 1
    seen, parent = SeenCache(data_epoch=lambda: epoch), Parent()
    seen.remember(RUN, [0], since=seen.data_epoch)
    known = known_filter(
        parent,  # type: ignore[arg-type]
        seen,
        keys("http://a.test/0"),
        lambda request: seen.has_seen(RUN, 0),
        epoch=seen.data_epoch,
    )
    assert known(Request("http://a.test/0"))
    epoch = 2
    assert not known(Request("http://a.test/0"))
