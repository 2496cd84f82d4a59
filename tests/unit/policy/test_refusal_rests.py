"""A domain rests longer while its site goes on refusing, and not at all where only pages are missing."""

from typing import get_args

import pytest

from gossamer.model.record import RefusalKind
from gossamer.policy.refusal_rests import IN_A_ROW, rest_seconds

KINDS: tuple[RefusalKind, ...] = get_args(RefusalKind)


def test_a_refusal_of_the_client_is_worth_a_rest_at_once_and_a_longer_one_while_it_goes_on() -> None:
    rests = [rest_seconds("captcha", 1 + IN_A_ROW * n) for n in range(6)]
    assert rests == [10, 20, 40, 80, 80, 80]
    assert rest_seconds("challenge", 10**9) == 80


def test_other_refusals_are_worth_one_when_many_in_a_row_have_come() -> None:
    for kind in ("denied", "consent", "same"):
        assert [rest_seconds(kind, count) for count in (1, IN_A_ROW - 1, IN_A_ROW, 2 * IN_A_ROW)] == [0, 0, 10, 20]


@pytest.mark.parametrize("kind", ["login", "not_found", "empty"])
def test_what_a_site_does_not_hold_against_the_client_is_worth_none(kind: RefusalKind) -> None:
    assert kind in KINDS
    assert rest_seconds(kind, 10 * IN_A_ROW) == 0
