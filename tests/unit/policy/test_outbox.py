"""How long links wait for others."""

from gossamer.frontier.valkey.additions import URLS_A_CALL
from gossamer.policy.outbox import OUTBOX_LINKS, OUTBOX_SECONDS, outbox_wait


def test_links_wait_longer_the_busier_a_server_is_and_never_where_it_has_time() -> None:
    waits = [outbox_wait(percent / 100) for percent in range(150)]
    assert waits == sorted(waits)
    assert {outbox_wait(load) for load in (0.0, 0.2, 0.4)} == {0.0}
    assert outbox_wait(0.5) == OUTBOX_SECONDS / 2
    assert max(waits) == outbox_wait(0.6) == OUTBOX_SECONDS <= 0.2


def test_what_waits_fits_into_one_call() -> None:
    assert OUTBOX_LINKS <= URLS_A_CALL
