"""Which fault explains a repeated fetch, and which does not."""

import msgspec
import pytest

from gossamer.fakeweb.journal import How, Record
from tests.chaos.repeats import Blow, by_cause, repeats, unexplained
from tests.chaos.schedule import Kind


def page(at: float, agent: str, *, seconds: float = 0.1) -> Record:
    return Record(
        url="http://a.test/p/1", host="a.test", path="/p/1", method="GET", status=200, how=How.WHOLE, started=at,
        ended=at + seconds, wall=at, agent=agent, connection=1,
    )  # fmt: skip


FIRST, AGAIN = page(10.0, "w1"), page(14.0, "w2")

EXPLAINED = {
    "its worker was killed before it could be settled": Blow(Kind.KILL_WORKER, 10.5, 10.5, "w1"),
    "its worker was killed while it was being sent": Blow(Kind.KILL_WORKER, 10.05, 10.05, "w1"),
    "its worker was frozen": Blow(Kind.FREEZE_WORKER, 10.5, 13.0, "w1"),
    "its worker could not reach the store": Blow(Kind.PART_LINK, 9.0, 13.0, "w1"),
    "the second worker woke with a lease that others had": Blow(Kind.FREEZE_WORKER, 9.0, 13.5, "w2"),
    "its browser was killed": Blow(Kind.KILL_BROWSER, 10.5, 10.6, "w1"),
    "the page's process stood still until it was killed": Blow(Kind.FREEZE_RENDERER, 9.0, 13.0, "w1"),
    "a primary forgot its last steps": Blow(Kind.KILL_PRIMARY, 11.0, 12.0),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_fault_explains_it(name: str) -> None:
    found = repeats([FIRST, AGAIN], [EXPLAINED[name]])
    assert by_cause(found) == {EXPLAINED[name].kind: 1}
    assert unexplained(found) == []


STRANGE = {
    "nothing happened": [],
    "another worker was killed": [Blow(Kind.KILL_WORKER, 10.5, 10.5, "w3")],
    "it was settled long before its worker was killed": [Blow(Kind.KILL_WORKER, 13.9, 13.9, "w1")],
    "its worker was killed only after the second fetch": [Blow(Kind.KILL_WORKER, 14.5, 14.5, "w1")],
    "its worker had woken long before": [Blow(Kind.FREEZE_WORKER, 5.0, 8.0, "w1")],
    "its worker was drained": [Blow(Kind.DRAIN_WORKER, 10.5, 10.5, "w1")],
    "the browser of another worker was killed": [Blow(Kind.KILL_BROWSER, 10.5, 10.6, "w3")],
    "only the shell beside its browser was killed": [Blow(Kind.KILL_JANITOR, 10.5, 10.6, "w1")],
    "the store's process died and came back with all it had": [Blow(Kind.KILL_STORE, 10.5, 12.0)],
}


@pytest.mark.parametrize("name", STRANGE)
def test_no_fault_explains_it(name: str) -> None:
    (repeat,) = unexplained(repeats([AGAIN, FIRST], STRANGE[name]))
    assert str(repeat) == "http://a.test/p/1 (by w1 at 10.00, by w2 at 14.00)"


def test_while_the_store_is_away_nothing_is_settled() -> None:
    """A worker that dies during an outage holds what it fetched before."""
    killed = [Blow(Kind.KILL_WORKER, 13.9, 13.9, "w1")]
    assert unexplained(repeats([FIRST, AGAIN], killed, silences=[(10.5, 13.8), (11.0, 12.0)])) == []
    assert unexplained(repeats([FIRST, AGAIN], killed, silences=[(10.5, 11.0)])) != []
    own = Blow(Kind.STALL_LINK, 10.2, 13.8, "w1")
    assert unexplained(repeats([FIRST, AGAIN], [*killed, own])) == []


def test_each_fetch_beyond_the_first_needs_a_cause_of_its_own() -> None:
    third = page(20.0, "w3")
    found = repeats([FIRST, AGAIN, third], [Blow(Kind.KILL_WORKER, 10.5, 10.5, "w1")])
    assert [repeat.later.agent for repeat in unexplained(found)] == ["w3"]


def test_what_was_not_sent_whole_is_no_repeat() -> None:
    assert repeats([msgspec.structs.replace(FIRST, how=How.LEFT), AGAIN], []) == []


def test_a_page_that_is_rendered_is_settled_later() -> None:
    late = [Blow(Kind.KILL_BROWSER, 13.9, 13.9, "w1")]
    assert unexplained(repeats([FIRST, AGAIN], late)) != []
    assert unexplained(repeats([FIRST, AGAIN], late, settles_within=30.0)) == []
