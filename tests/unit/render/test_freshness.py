"""Freshness of responses, by RFC 9111."""

import pytest

from gossamer.render.freshness import LONGEST_SECONDS, fresh_seconds

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], 0.0),
        ([("Cache-Control", "max-age=60")], 60.0),
        ([("cache-control", 'public, max-age="60"'), ("Age", "20")], 40.0),
        ([("Cache-Control", "max-age=60"), ("Age", "90")], 0.0),
        ([("Cache-Control", "max-age=60, no-store")], 0.0),
        ([("Cache-Control", "no-cache"), ("Cache-Control", "max-age=60")], 0.0),
        ([("Cache-Control", "max-age=999999999")], LONGEST_SECONDS),
        ([("Cache-Control", "max-age=sixty")], 0.0),
        ([("Expires", "Sun, 06 Nov 1994 08:50:37 GMT")], 60.0),
        ([("Expires", "0")], 0.0),
        ([("Cache-Control", "max-age=5"), ("Expires", "Sun, 06 Nov 1994 08:50:37 GMT")], 5.0),
        ([("Last-Modified", "Sun, 06 Nov 1994 08:39:37 GMT")], 60.0),
        ([("Last-Modified", "yesterday")], 0.0),
        ([("Cache-Control", "max-age=60"), ("Vary", "Accept-Encoding, Origin")], 60.0),
        ([("Cache-Control", "max-age=60"), ("Vary", "Cookie")], 0.0),
        ([("Cache-Control", "max-age=60"), ("Vary", "*")], 0.0),
    ],
)
def test_the_time_for_which_a_response_may_be_used_again(headers: list[tuple[str, str]], seconds: float) -> None:
    assert fresh_seconds(200, headers, now=NOW) == pytest.approx(seconds)


def test_an_error_is_not_kept() -> None:
    assert fresh_seconds(500, [("Cache-Control", "max-age=60")], now=NOW) == 0.0
