"""One endless host among a few, for a moment: it gets its turn, and no more."""

from tests.scale.endless import endless

HITS, MAX_PENDING = 20, 100


def test_an_endless_host_among_others() -> None:
    done = endless(hosts=20, pages=12, rate=f"{HITS}/1", max_pending=MAX_PENDING, at_most_seconds=60)
    assert done.lost == 0
    last = done.shares[-1]
    # Its share of the fetches: never more than its own budget allows, however many links it has.
    assert 0 < last.endless_fetched <= HITS * (last.seconds + 1)
    # Its share of the frontier: as much as a domain may queue, although its pages led to many more.
    assert last.endless_fetched * 20 > 2 * MAX_PENDING
    assert MAX_PENDING - HITS <= max(share.endless_queued for share in done.shares) <= MAX_PENDING
    assert 0 < last.endless_memory < last.memory
