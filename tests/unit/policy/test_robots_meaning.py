"""What each status means for a robots.txt, and how long an origin without an answer is left alone."""

import pytest

from gossamer.policy.robots import RobotsOutcome, asks_nofollow, classify_status, unreachable_delay


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, RobotsOutcome.RULES),
        (206, RobotsOutcome.RULES),
        (304, RobotsOutcome.ALLOW_ALL),
        (401, RobotsOutcome.ALLOW_ALL),
        (404, RobotsOutcome.ALLOW_ALL),
        (429, RobotsOutcome.UNREACHABLE),
        (499, RobotsOutcome.ALLOW_ALL),
        (500, RobotsOutcome.UNREACHABLE),
        (599, RobotsOutcome.UNREACHABLE),
        (999, RobotsOutcome.UNREACHABLE),
        (101, RobotsOutcome.UNREACHABLE),
    ],
)
def test_meaning(status: int, expected: RobotsOutcome) -> None:
    """RFC 9309, section 2.3.1, with 429 as a server in trouble."""
    assert classify_status(status) is expected


def test_backoff_doubles_from_a_minute_to_an_hour() -> None:
    """However often it fails."""
    assert [unreachable_delay(n) for n in (1, 2, 3, 6, 7, 10**9)] == [60, 120, 240, 1920, 3600, 3600]
    assert unreachable_delay(1, retry_after_seconds=100) == 100
    assert unreachable_delay(3, retry_after_seconds=100) == 240
    assert unreachable_delay(1, retry_after_seconds=1e9) == 3600


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([], False),
        ([""], False),
        (["nofollow"], True),
        (["noindex,NOFOLLOW"], True),
        ([" none "], True),
        (["noindex nofollow"], True),
        (["noindex", "nofollow"], True),
        (["nofollower, no-follow, all"], False),
        (["shop-bot: nofollow"], True),
        (["Shop-Bot : noindex , nofollow"], True),
        (["Shop-Bot/2.0: none"], True),
        (["*: nofollow"], True),
        (["otherbot: noindex, nofollow"], False),
        (["otherbot: noindex", "nofollow"], True),
        (["otherbot: noindex, shop-bot: nofollow"], True),
        (["shop-bot: noindex, otherbot: nofollow"], False),
        (["shop: nofollow", "bot: nofollow"], False),
        (["max-snippet:20, nofollow"], True),
        (["max-image-preview: large, unavailable_after: Friday, 25-Jun-10 15:00:00 PST, nofollow"], True),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST"], False),
    ],
)
def test_x_robots_tag(lines: list[str], wanted: bool) -> None:
    for agent in ("Shop-Bot/1.0 (+http://shop.test)", "Mozilla/5.0 (compatible; shop-bot/1.0)"):
        assert asks_nofollow(lines, agent) is wanted
