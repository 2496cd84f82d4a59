"""The retry table is complete, delays grow within bounds, and Retry-After is obeyed."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import FetchError
from gossamer.policy.retry import (
    RETRY_AFTER_CAP_SECONDS,
    WORTH_A_RETRY,
    GiveUp,
    Retry,
    decide,
    is_worth_a_retry,
    outage_pause,
    parse_retry_after,
    retry_delay,
)

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT, the RFC's own example


def kinds(error: type[FetchError] = FetchError) -> Iterator[str]:
    """The kind of every error of fetching."""
    yield error.kind
    for child in error.__subclasses__():
        yield from kinds(child)


def test_the_table_names_every_kind_of_fetch_error() -> None:
    """A new error must say whether it is worth a retry; and no entry is left of one that is gone."""
    assert {key for key in WORTH_A_RETRY if isinstance(key, str)} == set(kinds())


@pytest.mark.parametrize(
    "failure", ["dns", "connect", "first_byte_timeout", "connection_lost", 408, 429, 500, 503, 522]
)
def test_passing_troubles_are_worth_a_retry(failure: str | int) -> None:
    """They may well be over at the next attempt."""
    assert is_worth_a_retry(failure)
    assert isinstance(decide(failure, 1, 3, random=0.5, base_seconds=10), Retry)


@pytest.mark.parametrize(
    "failure", ["blocked_address", "decode_bomb", "tls", "unheard of", 200, 301, 404, 410, 451, 501]
)
def test_lasting_troubles_are_not(failure: str | int) -> None:
    """Nor is what is no trouble at all."""
    assert decide(failure, 1, 3, random=0.5, base_seconds=10) is GiveUp.NOT_WORTH_IT


def test_retries_are_counted_after_the_first_attempt() -> None:
    """Three retries make four attempts; none makes one."""
    assert [isinstance(decide(503, attempt, 3, random=0.0, base_seconds=10), Retry) for attempt in (1, 2, 3, 4)] == [
        True
    ] * 3 + [False]
    assert decide(503, 4, 3, random=0.0, base_seconds=10) is GiveUp.EXHAUSTED
    assert decide(503, 1, 0, random=0.0, base_seconds=10) is GiveUp.EXHAUSTED


def test_delays_double_up_to_the_cap() -> None:
    """Without jitter's upper half."""
    assert [retry_delay(n, random=0.0, base_seconds=10, cap_seconds=60) for n in (1, 2, 3, 4, 5)] == [5, 10, 20, 30, 30]
    assert retry_delay(1, random=1.0, base_seconds=10, cap_seconds=60) == 10


def test_pauses_of_an_outage_double_from_50_ms_to_5_s() -> None:
    """Jitter takes up to half of them away."""
    assert [outage_pause(n, random=1.0) for n in (1, 2, 3, 8, 9_999)] == [0.05, 0.1, 0.2, 5.0, 5.0]
    assert outage_pause(8, random=0.0) == 2.5


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True), st.floats(0.01, 1e3), st.floats(0.01, 1e6))
def test_a_delay_lies_in_the_upper_half_of_its_bound(attempt: int, random: float, base: float, cap: float) -> None:
    """Never at once, never beyond the cap, whatever the attempt."""
    bound = min(cap, base * 2.0 ** min(attempt - 1, 64))
    assert bound / 2 <= retry_delay(attempt, random=random, base_seconds=base, cap_seconds=cap) <= bound


def test_attempts_are_counted_from_one() -> None:
    """An attempt 0 is a caller's mistake."""
    with pytest.raises(ValueError, match="counted from 1"):
        retry_delay(0, random=0.5, base_seconds=10, cap_seconds=60)


@pytest.mark.parametrize("status", [429, 503])
def test_a_servers_wish_is_kept(status: int) -> None:
    """Never sooner than Retry-After, never later than its cap, never sooner than our own backoff."""
    assert decide(status, 1, 3, random=0.0, base_seconds=10, retry_after_seconds=120) == Retry(120)
    assert decide(status, 1, 3, random=0.0, base_seconds=10, retry_after_seconds=1e9) == Retry(RETRY_AFTER_CAP_SECONDS)
    assert decide(status, 1, 3, random=0.0, base_seconds=10, retry_after_seconds=0) == Retry(5)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("0120", 120.0),
        ("86400", 3600.0),
        ("9" * 10_000, 3600.0),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60.0),
        ("Sun Nov  6 08:50:37 1994", 60.0),
        ("Sun, 06 Nov 1994 09:50:37 +0100", 60.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sat, 05 Nov 1994 08:49:37 GMT", 0.0),
        ("Mon, 07 Nov 2094 08:49:37 GMT", 3600.0),
    ],
)
def test_retry_after_in_every_form(value: str, seconds: float) -> None:
    """Seconds, and HTTP's three date formats; capped at an hour, a past date is now."""
    assert parse_retry_after(value, now=NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "-5",
        "1.5",
        "1e3",
        "٣",
        "Sun, 99 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 99999 08:49:37 GMT",
        "0x10",
        "1 2",
    ],
)
def test_retry_after_that_says_nothing(value: str) -> None:
    """None: as if there were no such header."""
    assert parse_retry_after(value, now=NOW) is None


@given(st.text(max_size=60))
def test_retry_after_never_raises(value: str) -> None:
    """Servers write anything there."""
    seconds = parse_retry_after(value, now=NOW)
    assert seconds is None or (math.isfinite(seconds) and 0 <= seconds <= 3600)
