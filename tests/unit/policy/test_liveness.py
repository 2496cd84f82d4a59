"""Whoever was cut off waits a heartbeat before it takes others for dead."""

from gossamer.policy.timing import LivenessJudge


def test_a_new_process_is_fair_a_heartbeat_after_its_first_answer() -> None:
    judge = LivenessJudge(9.0)
    assert not judge.may_declare_dead(1000.0)
    judge.on_reply(sent_at=1000.0, now=1001.0)
    assert not judge.may_declare_dead(1009.9)
    judge.on_reply(now=1009.0)
    assert judge.may_declare_dead(1010.0)
    judge.on_reply(sent_at=1500.0, now=1501.0)
    assert judge.may_declare_dead(1501.0)


def test_after_an_outage_the_others_get_a_heartbeat_to_speak() -> None:
    judge = LivenessJudge(9.0)
    judge.on_reply(now=900.0)
    judge.on_failure()
    assert not judge.may_declare_dead(1000.0)
    judge.on_reply(sent_at=1000.0, now=1000.0)
    assert not judge.may_declare_dead(1008.9)
    judge.on_reply(sent_at=1008.0, now=1008.0)
    assert judge.may_declare_dead(1009.0)


def test_an_answer_that_hung_came_through_an_outage() -> None:
    judge = LivenessJudge(9.0)
    judge.on_reply(now=0.0)
    judge.on_reply(sent_at=10.0, now=60.0)
    assert not judge.may_declare_dead(60.0)
    assert judge.may_declare_dead(69.0)
