"""Whoever was cut off waits a heartbeat before it takes others for dead."""

from gossamer.policy.timing import LivenessJudge


def test_a_new_process_is_fair_a_heartbeat_after_its_first_answer() -> None:
    witness = LivenessJudge(9.0)
    assert not witness.is_fair(1000.0)
    witness.answered(asked=1000.0, now=1001.0)
    assert not witness.is_fair(1009.9)
    witness.answered(now=1009.0)
    assert witness.is_fair(1010.0)
    witness.answered(asked=1500.0, now=1501.0)
    assert witness.is_fair(1501.0)


def test_after_an_outage_the_others_get_a_heartbeat_to_speak() -> None:
    witness = LivenessJudge(9.0)
    witness.answered(now=900.0)
    witness.failed()
    assert not witness.is_fair(1000.0)
    witness.answered(asked=1000.0, now=1000.0)
    assert not witness.is_fair(1008.9)
    witness.answered(asked=1008.0, now=1008.0)
    assert witness.is_fair(1009.0)


def test_an_answer_that_hung_came_through_an_outage() -> None:
    witness = LivenessJudge(9.0)
    witness.answered(now=0.0)
    witness.answered(asked=10.0, now=60.0)
    assert not witness.is_fair(60.0)
    assert witness.is_fair(69.0)
