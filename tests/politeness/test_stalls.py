"""Short forms of `python -m tests.politeness --stalls`, and the judge of bursts against logs it must tell apart."""

from tests.politeness.stalls import Stall, bursts, run_stalls


def test_evenly_spaced_requests_and_pairs_are_no_burst() -> None:
    assert bursts([number * 0.05 for number in range(100)]) == []
    assert bursts([0.0, 0.01, 0.05, 0.06, 0.10, 0.11]) == []


def test_three_within_less_than_two_thirds_of_a_gap_are_one() -> None:
    assert bursts([0.0, 0.05, 0.06, 0.07, 0.15]) == [(0.05, 0.06, 0.07)]
    assert bursts([0.0, 0.5, 0.501, 0.502]) == [(0.5, 0.501, 0.502)]


async def test_after_a_stall_requests_are_evenly_spaced_again() -> None:
    said: list[str] = []
    # A test's machine may have much else to do: how much was used is asked by the long form, and so are short rows.
    stalls = [Stall.PAUSE_STORE, Stall.RESTART_STORE]
    faults = await run_stalls(stalls, domains=3, say=said.append, calm_seconds=3.0, used_at_least=0.0, most_in_a_row=6)
    assert faults == [], "\n".join(said)
