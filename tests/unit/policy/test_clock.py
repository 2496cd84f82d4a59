"""A server's clock that is set is noticed; one that drifts, and an answer that was held up, are not taken for that."""

import pytest

from gossamer.policy.server_clock import ServerClock


def looked(*, ahead: float = 100.0) -> ServerClock:
    clock = ServerClock()
    assert clock.expected(10.0) is None
    assert clock.is_due(10.0)
    assert clock.compare(sent=10.0, received=10.002, server_time=10.001 + ahead, corrections=0) == 0.0
    return clock


def test_what_it_shows_is_expected_to_go_on_evenly() -> None:
    clock = looked()
    assert clock.expected(15.0) == pytest.approx(115.0)
    assert not clock.is_due(11.0)
    assert clock.is_due(12.5)


@pytest.mark.parametrize("step", [3600.0, 1.1, -1.1, -20.0, -7200.0])
def test_a_step_asks_for_its_correction(step: float) -> None:
    clock = looked()
    assert clock.compare(sent=20.0, received=20.002, server_time=120.001 + step, corrections=0) == pytest.approx(-step)
    assert clock.expected(20.0) == pytest.approx(120.0), "nothing is believed before it is corrected"


def test_what_another_process_has_corrected_is_believed() -> None:
    clock = looked()
    assert clock.compare(sent=20.0, received=20.002, server_time=125.001, corrections=1) == 0.0
    assert clock.expected(20.0) == pytest.approx(125.0)


def test_a_server_that_forgot_the_corrections_has_to_be_corrected_again() -> None:
    clock = looked()
    clock.adopt(sent=20.0, received=20.002, server_time=125.001, corrections=1)
    assert clock.compare(sent=30.0, received=30.002, server_time=130.001, corrections=0) == pytest.approx(5.0)


def test_an_answer_that_was_held_up_is_no_step_and_teaches_nothing() -> None:
    clock = looked()
    assert clock.compare(sent=20.0, received=26.0, server_time=126.0, corrections=0) == 0.0
    assert clock.expected(30.0) == pytest.approx(130.0)


def test_a_slow_drift_is_followed() -> None:
    clock, ahead = looked(), 100.0
    for second in range(20, 20000, 10):
        ahead += 0.005
        assert (
            clock.compare(sent=second, received=second + 0.002, server_time=second + 0.001 + ahead, corrections=0)
            == 0.0
        )
    assert clock.expected(20000.0) == pytest.approx(20000.0 + ahead, abs=0.1)
