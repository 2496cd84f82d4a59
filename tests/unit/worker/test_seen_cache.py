"""The memory of confirmed fingerprints is bounded and never claims what it was not told."""

from hypothesis import given
from hypothesis import strategies as st

from gossamer.worker.context import SeenCache

MARKS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40)


@given(st.lists(st.tuples(st.sampled_from("ab"), MARKS), max_size=30), MARKS)
def test_what_it_knows_was_told_to_it_for_that_part(told: list[tuple[str, list[int]]], asked: list[int]) -> None:
    cache = SeenCache(limit=50)
    said: dict[str, set[int]] = {"a": set(), "b": set()}
    for part, marks in told:
        cache.remember(part, marks)
        said[part].update(marks)
    for part, known in said.items():
        for position, mark in enumerate(asked):
            if position not in cache.unseen_positions(part, asked):
                assert mark in known


def test_it_is_bounded_and_keeps_what_is_used() -> None:
    cache = SeenCache(limit=100)
    for first in range(0, 1000, 10):
        cache.remember("part", [-1, *range(first, first + 10)])
    kept = [mark for mark in range(1000) if mark not in cache.unseen_positions("part", range(1000))]
    assert 0 < len(kept) <= 110
    assert cache.unseen_positions("part", [-1]) == []


def test_in_a_new_era_it_knows_nothing() -> None:
    """Nor what was sent in the last one and confirmed in this."""
    data_epoch = 1
    cache = SeenCache(data_epoch=lambda: data_epoch)
    before = cache.data_epoch
    cache.remember("part", [1, 2], since=before)
    assert cache.unseen_positions("part", [1, 2, 3]) == [2]
    assert cache.has_seen("part", 1)
    data_epoch = 2
    assert not cache.has_seen("part", 1)
    cache.remember("part", [1, 2], since=before)
    assert cache.unseen_positions("part", [1, 2, 3]) == [0, 1, 2]
    cache.remember("part", [3], since=cache.data_epoch)
    assert cache.unseen_positions("part", [1, 2, 3]) == [0, 1]


def test_a_cache_without_room_still_works() -> None:
    cache = SeenCache(limit=0)
    cache.remember("part", [1, 2, 3])
    assert len(cache.unseen_positions("part", [1, 2, 3])) in (0, 3)


@given(MARKS, MARKS, MARKS)
def test_a_view_says_what_the_cache_says(old: list[int], young: list[int], asked: list[int]) -> None:
    data_epoch = 1
    cache = SeenCache(limit=60, data_epoch=lambda: data_epoch)
    cache.remember("part", old)
    cache.remember("part", young)
    first, second = cache.view("part")
    assert [mark in first or mark in second for mark in asked] == [cache.has_seen("part", mark) for mark in asked]
    data_epoch = 2
    assert cache.view("part") == (frozenset(), frozenset())
