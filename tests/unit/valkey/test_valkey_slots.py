"""Slots, as the Redis Cluster specification computes them."""

import pytest

from gossamer.valkey.address import Endpoint
from gossamer.valkey.topology import read_redirect, read_slots, serves_slot, slot_of

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
    owners = read_slots([[0, 1, [b"h", 7, b"id"], [b"replica", 8, b"id"]], [5, 5, [None, 9, b"id"]]], replied_by=ASKED)
    assert owners[:6] == [Endpoint(host="h", port=7)] * 2 + [None] * 3 + [Endpoint(host="asked", port=9)]


def test_redirects() -> None:
    assert read_redirect("MOVED 12 10.0.0.1:7000", replied_by=ASKED) == (12, Endpoint(host="10.0.0.1", port=7000))
    assert read_redirect("ASK 12 ::1:7000", replied_by=ASKED) == (12, Endpoint(host="::1", port=7000))
    assert read_redirect("MOVED 12 :7000", replied_by=ASKED) == (12, Endpoint(host="asked", port=7000))


NODES = b"""aaa 127.0.0.1:1@11 myself,master - 0 0 1 connected 0-5460
bbb 127.0.0.1:2@12 master - 0 0 2 connected 5461-10000 10002 [10003->-aaa]
ccc 127.0.0.1:3@13 master,fail - 0 0 3 connected 10923-16383
ddd 127.0.0.1:4@14 master,fail? - 0 0 3 connected 10001
eee 127.0.0.1:5@15 slave bbb 0 0 2 connected
"""


@pytest.mark.parametrize(
    ("name", "slot", "speaks"),
    [
        ("aaa", 0, True),
        ("aaa", 5460, True),
        ("aaa", 5461, False),
        ("bbb", 10002, True),
        ("bbb", 10003, False),
        ("ccc", 11000, False),
        ("ddd", 10001, False),
        ("eee", 6000, False),
        ("fff", 0, False),
    ],
)
def test_who_is_held_for_the_primary_of_a_slot(name: str, slot: int, speaks: bool) -> None:
    assert serves_slot(NODES, name, slot) is speaks
