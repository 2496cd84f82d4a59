"""The memory of confirmed fingerprints is bounded and never claims what it was not told."""

import os
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.worker.seen import SeenCache, SeenTable

MARKS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40)


@pytest.mark.parametrize("table_limit", [0, 8])
@given(told=st.lists(st.tuples(st.sampled_from("ab"), MARKS), max_size=30), asked=MARKS)
def test_what_it_knows_was_told_to_it_for_that_part(
    table_limit: int, told: list[tuple[str, list[int]]], asked: list[int]
) -> None:
    cache = SeenCache(limit=50, table=SeenTable(table_limit) if table_limit else None)
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


# --- what processes share ---------------------------------------------------------------------------------------------


class Frontier:
    """What a process knows of the frontier's data epoch."""

    def __init__(self) -> None:
        self.data_epoch = 0

    def cache(self, table: SeenTable) -> SeenCache:
        """That of a process which has just connected."""
        return SeenCache(data_epoch=lambda: self.data_epoch, table=table)


def test_what_one_process_has_sent_others_need_not_send() -> None:
    table = SeenTable(100)
    one, other = Frontier().cache(table), Frontier().cache(table)
    one.remember("part", [1, -2, 3], since=one.data_epoch)
    assert other.unseen_positions("part", [1, 5, -2, 3]) == [1]
    assert other.unseen_positions("other part", [1, -2, 3]) == [0, 1, 2]


def test_a_loss_that_one_process_notices_makes_all_forget_what_they_share() -> None:
    """The others may notice it later: what they were told before it may be lost."""
    table, noticing = SeenTable(100), Frontier()
    one, other, third = Frontier().cache(table), noticing.cache(table), Frontier().cache(table)
    one.remember("part", [1, 2], since=one.data_epoch)
    noticing.data_epoch += 1
    assert other.unseen_positions("part", [1, 2]) == [0, 1]
    assert third.unseen_positions("part", [1, 2]) == [0, 1]


def test_a_process_that_has_just_connected_does_not_rely_on_what_others_were_told_before() -> None:
    """The frontier may have lost it since, and a process without a connection does not notice."""
    table = SeenTable(100)
    one = Frontier().cache(table)
    one.remember("part", [1, 2], since=one.data_epoch)
    assert Frontier().cache(table).unseen_positions("part", [1, 2]) == [0, 1]


def test_what_was_sent_before_a_loss_and_confirmed_after_it_is_not_shared() -> None:
    table, noticing = SeenTable(100), Frontier()
    one, other = Frontier().cache(table), noticing.cache(table)
    sent = one.data_epoch
    noticing.data_epoch += 1
    assert other.unseen_positions("part", [1]) == [0]
    one.remember("part", [1], since=sent)
    assert other.unseen_positions("part", [1]) == [0]
    one.remember("part", [1], since=one.data_epoch)  # sent again
    assert other.unseen_positions("part", [1]) == []


def test_a_link_that_only_a_process_without_news_of_a_loss_knows_is_not_shared() -> None:
    """The process does not send a link that it knows from before the loss. It must not enter that link in the table
    together with the other links of the page, which it has sent."""
    table, noticing = SeenTable(100), Frontier()
    one, other = Frontier().cache(table), noticing.cache(table)
    one.remember("part", [1], since=one.data_epoch)
    noticing.data_epoch += 1
    assert other.unseen_positions("part", [1, 2]) == [0, 1]
    since = one.data_epoch
    page = [1, 2]
    sent = {page[at] for at in one.unseen_positions("part", page, data_epoch=since)}
    one.remember("part", page, since=since)  # as a worker does when the frontier has confirmed what was sent
    known = {value for at, value in enumerate(page) if at not in other.unseen_positions("part", page)}
    assert known <= sent


def test_no_epoch_of_the_table_comes_twice() -> None:
    """Two processes may begin one at the same moment, and either may be the one that stays."""
    table = SeenTable(100)
    epochs = set()
    for _ in range(1000):
        table.begin_epoch()
        epochs.add(table.epoch)
    assert len(epochs) == 1000
    assert max(epochs) < 1 << 62  # with the frontier's own, a number for the compiled extension


@pytest.mark.parametrize("limit", [0, 1, 5, 1000])
def test_the_table_is_bounded_and_keeps_what_came_last(limit: int) -> None:
    table = SeenTable(limit)
    one, other = Frontier().cache(table), Frontier().cache(table)
    for first in range(0, 5000, 10):
        one.remember("part", range(first, first + 10), since=one.data_epoch)
    known = 5000 - len(other.unseen_positions("part", range(5000)))
    assert 0.3 * limit < known <= max(4, 2 * limit)
    assert other.unseen_positions("part", [4999]) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only forked processes share memory")
def test_forked_processes_share_the_table() -> None:
    """In a program of its own, because this one may have threads."""
    program = """
        import os
        from gossamer.worker.seen import SeenCache, SeenTable
        table = SeenTable(100)
        cache = SeenCache(table=table)
        if os.fork() == 0:
            own = SeenCache(table=table)
            own.remember(("crawl", 1, 2), [1, -2], since=own.data_epoch)
            os._exit(0)
        assert os.wait()[1] == 0
        cache.data_epoch  # the epoch that the other process has begun
        assert cache.unseen_positions(("crawl", 1, 2), [1, 3, -2]) == [1]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
