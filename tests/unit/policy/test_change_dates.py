"""Dates of changes that sitemaps announce, and which of them tell nothing."""

import pytest

from gossamer.policy.change_dates import FIRST_TRUST, LEAST_TRUST, announced_changes, change_time, learned_trust

NOW = 1_795_000_000.0  # 2026-11-18T11:06:40Z


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-01", 1_793_491_200),
        ("2026-11-01T10:00:00Z", 1_793_527_200),
        ("2026-11-01T11:00:00.123+01:00", 1_793_527_200),
        ("2026-11-01t11:00+0100", 1_793_527_200),
        ("2026-11-01 10:00", 1_793_527_200),
        ("2026-13-01", None),
        ("01.11.2026", None),
        ("2026", None),
        ("", None),
    ],
)
def test_forms_of_dates(text: str, moment: int | None) -> None:
    assert change_time(text) == moment


def test_dates_that_tell_nothing() -> None:
    true = {"a": "2026-11-01", "b": "2026-10-01"}
    assert announced_changes(true, now=NOW).keys() == {"a", "b"}
    assert announced_changes({"a": "2026-11-01"}, now=NOW).keys() == {"a"}
    assert announced_changes({"a": "2026-11-01", "b": "2026-11-01"}, now=NOW) == {}, "all equal"
    assert announced_changes({"a": "2026-11-18T11:06:00Z", "b": "2026-11-18T11:05:00Z"}, now=NOW) == {}, "all of today"
    assert announced_changes({**true, "c": "2027-11-01", "d": "soon"}, now=NOW).keys() == {"a", "b"}, "in the future"


def test_trust_follows_what_fetches_find() -> None:
    trust = FIRST_TRUST
    for _ in range(40):
        trust = learned_trust(trust, was_true=False)
    assert trust < LEAST_TRUST
    for _ in range(20):
        trust = learned_trust(trust, was_true=True)
    assert trust > LEAST_TRUST
