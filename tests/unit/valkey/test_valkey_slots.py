"""Slots, as the Redis Cluster specification computes them."""

import pytest

from gossamer.valkey.address import Endpoint
from gossamer.valkey.slots import read_redirect, read_slots, slot_of

ASKED = Endpoint(host="asked", port=1)


@pytest.mark.parametrize(
    ("key", "slot"),
    [("123456789", 0x31C3), ("foo", 12182), ("{foo}bar", 12182), ("a{foo}{bar}", 12182), ("", 0)],
)
def test_known_slots(key: str, slot: int) -> None:
    assert slot_of(key) == slot


@pytest.mark.parametrize("key", ["foo{}bar", "foo{bar", "foo}bar{"])
def test_a_tag_that_is_none(key: str) -> None:
    assert slot_of(key) != slot_of("bar")
    assert slot_of(key) == slot_of(key.encode())


def test_the_map_has_holes_and_nodes_without_a_name() -> None:
    owners = read_slots([[0, 1, [b"h", 7, b"id"], [b"replica", 8, b"id"]], [5, 5, [None, 9, b"id"]]], asked=ASKED)
    assert owners[:6] == [Endpoint(host="h", port=7)] * 2 + [None] * 3 + [Endpoint(host="asked", port=9)]


def test_redirects() -> None:
    assert read_redirect("MOVED 12 10.0.0.1:7000", asked=ASKED) == (12, Endpoint(host="10.0.0.1", port=7000))
    assert read_redirect("ASK 12 ::1:7000", asked=ASKED) == (12, Endpoint(host="::1", port=7000))
    assert read_redirect("MOVED 12 :7000", asked=ASKED) == (12, Endpoint(host="asked", port=7000))
