"""One endless host among a few, for a moment: it gets its turn, and no more."""

from tests.scale.endless import endless


def test_an_endless_host_among_others() -> None:
    done = endless(hosts=20, pages=12, rate="20/1", at_most_seconds=60)
    assert done.lost == 0
    last = done.shares[-1]
    assert last.endless_fetched > 0
    assert last.endless_queued > 19 * (last.endless_fetched - 40)  # all that its pages led to waits, and is counted
    assert 0 < last.endless_memory < last.memory
