"""What the pool remembers of origins whose kept connections were lost."""

from gossamer.fetch.pool import LostConnections


def test_an_origin_is_trusted_again_after_ten_minutes_without_a_loss() -> None:
    now = 0.0
    lost = LostConnections(lambda: now)
    lost.record("a")
    assert lost.may_reuse("a")
    now = 599.0
    lost.record("a")
    assert (lost.may_reuse("a"), lost.may_reuse("b")) == (False, True)
    now = 1198.0
    assert not lost.may_reuse("a")
    now = 1199.0
    assert lost.may_reuse("a")
    lost.record("a")
    assert lost.may_reuse("a"), "losses long ago do not count"


def test_only_so_many_origins_are_remembered() -> None:
    lost = LostConnections(lambda: 0.0)
    for number in range(10_001):
        for _ in range(2):
            lost.record(number)
    assert lost.may_reuse(0)
    assert not any(lost.may_reuse(number) for number in range(1, 10_001))
