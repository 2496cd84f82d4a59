"""What is usual follows a way that becomes longer, and is not taken in by one answer that was held up."""

from gossamer.policy.lateness import START_WITHIN_SECONDS, is_late, usual_seconds


def test_the_first_answer_may_have_been_held_up() -> None:
    assert is_late(usual_seconds(0.0, 0.5), now=0.5)


def test_a_quicker_one_at_once() -> None:
    assert usual_seconds(0.3, 0.001) == 0.001


def test_one_that_was_held_up_is_not() -> None:
    usual = usual_seconds(0.001, 3.0)
    assert is_late(10.0 + usual, now=13.0)


def test_a_way_that_stays_longer_is_believed_after_some() -> None:
    usual, calls = 0.001, 0
    while is_late(usual, now=1.0):
        usual = usual_seconds(usual, 1.0)
        calls += 1
    assert 1 < calls <= 12


def test_what_is_a_little_slower_is_never_late() -> None:
    assert not is_late(usual_seconds(0.001, START_WITHIN_SECONDS), now=START_WITHIN_SECONDS)
