"""A process that was cut off gives the others the time of a heartbeat before it declares them dead."""

import pytest

from gossamer.policy.liveness import LivenessJudge


def test_a_new_process_declares_nobody_dead_until_a_heartbeat_after_its_first_reply() -> None:
    judge = LivenessJudge(9.0)
    assert not judge.may_declare_dead(1000.0)
    judge.on_call(1000.0)
    judge.on_reply(1001.0)
    assert not judge.may_declare_dead(1009.9)
    judge.on_reply(1009.0)
    assert judge.may_declare_dead(1010.0)
    judge.on_call(1500.0)
    judge.on_reply(1501.0)
    assert judge.may_declare_dead(1501.0)


def test_after_an_outage_the_others_get_the_time_of_a_heartbeat() -> None:
    judge = LivenessJudge(9.0)
    judge.on_reply(900.0)
    judge.on_failure()
    assert not judge.may_declare_dead(1000.0)
    judge.on_call(1000.0)
    judge.on_reply(1000.0)
    assert not judge.may_declare_dead(1008.9)
    judge.on_call(1008.0)
    judge.on_reply(1008.0)
    assert judge.may_declare_dead(1009.0)


def test_a_slow_reply_is_the_end_of_an_outage() -> None:
    judge = LivenessJudge(9.0)
    judge.on_reply(0.0)
    judge.on_call(10.0)
    judge.on_reply(60.0)
    assert not judge.may_declare_dead(60.0)
    assert judge.may_declare_dead(69.0)


@pytest.mark.parametrize(("waited", "may"), [(2.2, True), (2.3, False), (60.0, False)])
def test_nobody_is_declared_dead_while_a_call_is_without_reply(waited: float, may: bool) -> None:
    judge = LivenessJudge(9.0)
    judge.on_reply(0.0)
    judge.on_call(100.0)
    assert judge.may_declare_dead(100.0 + waited) is may


def test_a_call_that_failed_is_no_longer_awaited() -> None:
    judge = LivenessJudge(9.0)
    judge.on_reply(0.0)
    judge.on_call(10.0)
    judge.on_failure()
    judge.on_reply(20.0)
    assert not judge.may_declare_dead(28.9)
    assert judge.may_declare_dead(29.0)
