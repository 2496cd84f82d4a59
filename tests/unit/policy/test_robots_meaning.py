"""What each status means for a robots.txt, and how long an origin without an answer is left alone."""

import pytest

from gossamer.policy.robots import Meaning, ask_again_delay, meaning


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, Meaning.RULES),
        (206, Meaning.RULES),
        (304, Meaning.ALLOW_ALL),
        (401, Meaning.ALLOW_ALL),
        (404, Meaning.ALLOW_ALL),
        (429, Meaning.UNREACHABLE),
        (499, Meaning.ALLOW_ALL),
        (500, Meaning.UNREACHABLE),
        (599, Meaning.UNREACHABLE),
        (999, Meaning.UNREACHABLE),
        (101, Meaning.UNREACHABLE),
    ],
)
def test_meaning(status: int, expected: Meaning) -> None:
    """RFC 9309, section 2.3.1, with 429 as a server in trouble."""
    assert meaning(status) is expected


def test_backoff_doubles_from_a_minute_to_an_hour() -> None:
    """However often it fails."""
    assert [ask_again_delay(n) for n in (1, 2, 3, 6, 7, 10**9)] == [60, 120, 240, 1920, 3600, 3600]
    assert ask_again_delay(1, retry_after_seconds=100) == 100
    assert ask_again_delay(3, retry_after_seconds=100) == 240
    assert ask_again_delay(1, retry_after_seconds=1e9) == 3600
