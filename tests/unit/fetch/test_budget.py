"""The budget of bytes in flight: never much more than it, and never everybody waiting."""

from hypothesis import given
from hypothesis import strategies as st

from gossamer.fetch.budget import ByteBudget

LIMIT = 100
BODY = 40


class Body:
    """Receives up to BODY bytes when it is not paused."""

    def __init__(self) -> None:
        self.held = 0
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10), st.booleans()), max_size=300))
def test_it_is_kept_and_never_blocks_everybody(steps: list[tuple[int, int, bool]]) -> None:
    """Whoever receives, fails or completes in whatever order."""
    budget = ByteBudget(LIMIT)
    bodies = [Body() for _ in range(10)]
    for index, count, fails in steps:
        body = bodies[index]
        if not body.paused:
            body.held += count
            budget.take(body, count)
        if fails or body.held >= BODY:
            held, body.held = body.held, 0
            budget.give_back(body, held)
            body.paused = False
        assert budget.held_bytes == sum(other.held for other in bodies)
        # The budget, the leader's body, and the one read after which each other body was paused.
        assert budget.held_bytes <= LIMIT + BODY + 10 * len(bodies)
        assert not all(other.paused for other in bodies)
        assert budget.waiting == sum(other.paused for other in bodies)
        if budget.held_bytes <= LIMIT:
            assert budget.waiting == 0
    for body in bodies:
        budget.give_back(body, body.held)
    assert (budget.held_bytes, budget.waiting) == (0, 0)


def test_a_leader_that_stalls_lets_another_lead() -> None:
    """So a slow server does not hold up the quick ones."""
    budget = ByteBudget(LIMIT)
    slow, quick = Body(), Body()
    budget.take(slow, LIMIT + 1)
    budget.take(quick, 1)
    assert quick.paused
    budget.pass_on(quick)
    assert quick.paused, "only the leader can pass it on"
    budget.pass_on(slow)
    assert not quick.paused
    budget.take(slow, 1)
    assert slow.paused
    budget.give_back(quick, 1)
    assert not slow.paused


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10), st.booleans()), max_size=300))
def test_what_is_kept_counts_too(steps: list[tuple[int, int, bool]]) -> None:
    """Complete bodies are kept, and let go of one after the other; nobody waits once they are gone."""
    budget = ByteBudget(LIMIT)
    bodies = [Body() for _ in range(10)]
    kept: list[int] = []
    for index, count, lets_go in steps:
        body = bodies[index]
        if not body.paused:
            body.held += count
            budget.take(body, count)
        if body.held >= BODY:
            held, body.held = body.held, 0
            budget.give_back(body, held)
            budget.keep(held)
            kept.append(held)
            body.paused = False
        if lets_go and kept:
            budget.let_go(kept.pop(0))
        assert budget.kept_bytes == sum(kept)
        assert budget.held_bytes + budget.kept_bytes <= LIMIT + BODY + 10 * len(bodies)
        assert kept or not all(other.paused for other in bodies)
    while kept:
        budget.let_go(kept.pop())
    assert not all(other.paused for other in bodies)
    for body in bodies:
        budget.give_back(body, body.held)
    assert (budget.held_bytes, budget.kept_bytes, budget.waiting) == (0, 0, 0)


def test_nobody_leads_while_something_is_kept() -> None:
    """Or one body after the other would be received and kept without end."""
    budget = ByteBudget(LIMIT)
    first, second = Body(), Body()
    budget.keep(LIMIT)
    budget.take(first, 1)
    budget.take(second, 1)
    assert (first.paused, second.paused) == (True, True)
    budget.keep(LIMIT)
    budget.let_go(LIMIT)
    assert (first.paused, second.paused) == (True, True)
    budget.let_go(LIMIT)
    assert (first.paused, second.paused) == (False, False)
