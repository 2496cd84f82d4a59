"""The budget of bytes in flight: never much more than it, and never everybody waiting."""

import asyncio

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
    budget.yield_lead(quick)
    assert quick.paused, "only the leader can pass it on"
    budget.yield_lead(slow)
    assert not quick.paused
    budget.take(slow, 1)
    assert slow.paused
    budget.give_back(quick, 1)
    assert not slow.paused


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10), st.booleans()), max_size=300))
def test_what_is_kept_counts_too(steps: list[tuple[int, int, bool]]) -> None:
    """Complete bodies are ready, taken up and kept, and let go of one after the other; nobody waits once they are
    gone."""
    budget = ByteBudget(LIMIT)
    bodies = [Body() for _ in range(10)]
    ready: list[int] = []
    kept: list[int] = []
    for index, count, lets_go in steps:
        body = bodies[index]
        if not body.paused:
            body.held += count
            budget.take(body, count)
        if body.held >= BODY:
            held, body.held = body.held, 0
            budget.complete(body, held, held + 1)
            ready.append(held + 1)
            body.paused = False
        elif lets_go and ready and not budget.is_full:
            size = ready.pop(0)
            budget.consume(size)
            budget.retain(size)
            kept.append(size)
        elif lets_go and kept:
            budget.release(kept.pop(0))
        assert (budget.complete_bytes, budget.retained_bytes) == (sum(ready), sum(kept))
        # A body is a byte longer than what was counted of it before it was complete.
        assert budget.held_bytes + sum(ready) + sum(kept) <= LIMIT + BODY + 11 * len(bodies)
        assert ready or kept or not all(other.paused for other in bodies)
    while ready:
        budget.consume(ready.pop())
    while kept:
        budget.release(kept.pop())
    assert not all(other.paused for other in bodies)
    for body in bodies:
        budget.give_back(body, body.held)
    assert (budget.held_bytes, budget.complete_bytes, budget.retained_bytes, budget.waiting) == (0, 0, 0, 0)


def test_nobody_leads_while_something_is_kept() -> None:
    """Or one body after the other would be received and kept without end."""
    budget = ByteBudget(LIMIT)
    first, second = Body(), Body()
    budget.retain(LIMIT)
    budget.take(first, 1)
    budget.take(second, 1)
    assert (first.paused, second.paused) == (True, True)
    budget.retain(LIMIT)
    budget.release(LIMIT)
    assert (first.paused, second.paused) == (True, True)
    budget.release(LIMIT)
    assert (first.paused, second.paused) == (False, False)


def test_nobody_leads_while_something_is_ready() -> None:
    """Or, while nobody comes round to take them up, one body after the other would be received."""
    budget = ByteBudget(LIMIT)
    first, second, third = Body(), Body(), Body()
    budget.take(first, LIMIT)
    budget.complete(first, LIMIT, LIMIT + 1)
    budget.take(second, 1)
    budget.take(third, 1)
    assert (second.paused, third.paused) == (True, True)
    budget.consume(LIMIT + 1)
    assert (second.paused, third.paused) == (False, False)


async def test_there_is_room_while_less_than_half_is_kept() -> None:
    """All who wait come on together, and look again one after the other."""
    budget = ByteBudget(LIMIT)
    budget.retain(LIMIT // 2 - 1)
    await budget.wait_for_room()
    budget.retain(1)
    went_on = []

    async def reads(name: str) -> None:
        await budget.wait_for_room()
        went_on.append(name)
        budget.retain(LIMIT)

    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(reads(name)) for name in "abc"]
        await asyncio.sleep(0)
        assert went_on == []
        budget.release(LIMIT // 2)
        await waiting[0]
        assert went_on == ["a"]
        budget.release(LIMIT)
        await waiting[1]
        assert went_on == ["a", "b"]
        waiting[2].cancel()
    assert budget.retained_bytes == LIMIT
