"""Whoever was cut off waits a heartbeat before it takes others for dead."""

from gossamer.policy.timing import LivenessJudge


def test_who_was_never_cut_off_is_fair() -> None:
    witness = LivenessJudge(9.0)
    assert witness.is_fair(0.0)
    witness.answered(asked=0.0, now=1.0)
    witness.answered(now=500.0)
    assert witness.is_fair(500.0)


def test_after_an_outage_the_others_get_a_heartbeat_to_speak() -> None:
    witness = LivenessJudge(9.0)
    witness.failed()
    assert not witness.is_fair(1000.0)
    witness.answered(asked=1000.0, now=1000.0)
    assert not witness.is_fair(1008.9)
    witness.answered(asked=1008.0, now=1008.0)
    assert witness.is_fair(1009.0)


def test_an_answer_that_hung_came_through_an_outage() -> None:
    witness = LivenessJudge(9.0)
    witness.answered(asked=0.0, now=60.0)
    assert not witness.is_fair(60.0)
    assert witness.is_fair(69.0)
