"""Turns of nodes: whatever answers get lost or come late, nothing is given twice and nothing is forgotten."""

import asyncio
import random
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gossamer_platform.lifecycle import ENDED
from gossamer_platform.link import AttemptId, Ended, Listed, ListingResult, NodeOrders, NodeTurn, Returned, Started
from gossamer_platform.manager.artefacts import ArtefactStore
from gossamer_platform.manager.files import JobPlaces
from gossamer_platform.manager.nodes import NodeKey, NodeOperations, known_attempts
from gossamer_platform.manager.operations import Manager
from gossamer_platform.outcome import AttemptEnd
from gossamer_platform.state import jobs, nodes, projects
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.nodes import NewNode

_SLOTS = 3
_STEPS = 100
_PLACES = JobPlaces(output="", items="", arguments={}, settings={})


class _Node:
    """A node as its agent works, but that its calls may fail in every way."""

    def __init__(self, operations: NodeOperations, name: str) -> None:
        self._operations = operations
        self._name = name
        self.key = NodeKey(name, "")
        self.has: dict[AttemptId, bool] = {}
        """Attempts that it has; True: the process was started."""
        self.lists: set[int] = set()
        self.received: Counter[AttemptId] = Counter()
        self.listings = 0
        self._late: list[tuple[NodeKey, NodeTurn]] = []
        """Calls that the manager has not carried out yet, and whose answers nobody waits for."""

    async def restart(self) -> None:
        self.key = NodeKey(self._name, uuid.uuid4().hex)
        self.lists.clear()
        new = NewNode(self._name, self._name, self.key.incarnation, _SLOTS, (), "", "")
        known = known_attempts(await self._operations.register(new))
        for attempt in known:
            if attempt not in self.has:
                await self._operations.report(self.key, Returned(attempt))
        self.has = {attempt: known[attempt] for attempt in self.has if attempt in known}

    def _asked(self) -> NodeTurn:
        return NodeTurn(_SLOTS - len(self.has), list(self.has), sorted(self.lists))

    async def _turn(self, key: NodeKey, asked: NodeTurn) -> NodeOrders:
        return await self._operations.turn(key, asked, places=lambda _: _PLACES)

    async def turn(self) -> None:
        orders = await self._turn(self.key, self._asked())
        for each in orders.jobs:
            assert self.received[each.id] == 0, f"{each.id} was given twice"
            self.received[each.id] += 1
            self.has[each.id] = False
        assert len(self.has) <= _SLOTS
        for listing in orders.listings:
            assert listing.version_id not in self.lists, f"listing {listing.version_id} was given twice"
            self.lists.add(listing.version_id)
            self.listings += 1

    async def lose_an_answer(self) -> None:
        await self._turn(self.key, self._asked())

    async def repeat_at_once(self) -> None:
        """The answer to the first call is lost; the second one comes while the first is carried out."""
        await asyncio.gather(self.lose_an_answer(), self.turn())

    async def delay_a_call(self) -> None:
        self._late.append((self.key, self._asked()))

    async def carry_out_a_late_call(self, chance: random.Random) -> None:
        if self._late:
            await self._turn(*self._late.pop(chance.randrange(len(self._late))))

    async def advance(self, chance: random.Random) -> None:
        """Start, give back or end one attempt, and report it once or twice."""
        if not self.has:
            return
        attempt = chance.choice(sorted(self.has, key=str))
        times = chance.choice((1, 2))
        if not self.has[attempt] and chance.random() < 0.2:
            for _ in range(times):
                await self._operations.report(self.key, Returned(attempt))
            del self.has[attempt]
        elif not self.has[attempt]:
            for _ in range(times):
                await self._operations.report(self.key, Started(attempt, 7))
            self.has[attempt] = True
        else:
            for _ in range(times):
                end = AttemptEnd(exit_code=0, finish_reason="finished")
                await self._operations.report(self.key, Ended(attempt, end))
            del self.has[attempt]

    async def finish_a_listing(self) -> None:
        if self.lists:
            version = min(self.lists)
            await self._operations.report(self.key, Listed(version, ListingResult(spiders=["a"])))
            self.lists.discard(version)


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_given_twice_and_nothing_is_forgotten(
    database: StateDatabase, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    manager = Manager(database, ArtefactStore(tmp_path / "eggs", tmp_path / "uploads"))
    two = [_Node(NodeOperations(manager, limit_seconds=60), name) for name in ("one", "two")]
    for node in two:
        await node.restart()
    version = await database.write(lambda c: projects.add_version(c, "shop", "1", digest="d", file="shop/1.egg"))
    added: list[int] = []

    async def add_job() -> None:
        name = f"job {len(added)}"
        added.append(await database.write(lambda c: jobs.add_job(c, NewJob("shop", "a", name))))

    async def stop_a_job() -> None:
        if added:
            number = chance.choice(added)
            await database.write(lambda c: jobs.stop_job(c, number, signal=15))

    async def want_listing() -> None:
        await database.write(lambda c: projects.want_listing(c, version))

    async def drain() -> None:
        name, is_draining = chance.choice(("one", "two")), chance.random() < 0.5
        await database.write(lambda c: nodes.set_draining(c, name, is_draining=is_draining))

    for _ in range(_STEPS):
        node = chance.choice(two)
        steps: list[tuple[int, Any]] = [
            (6, add_job),
            (1, stop_a_job),
            (1, want_listing),
            (1, drain),
            (6, node.turn),
            (3, node.lose_an_answer),
            (1, node.repeat_at_once),
            (2, node.delay_a_call),
            (2, lambda node=node: node.carry_out_a_late_call(chance)),
            (8, lambda node=node: node.advance(chance)),
            (2, node.finish_a_listing),
            (1, node.restart),
        ]
        [step] = chance.choices([act for _, act in steps], [weight for weight, _ in steps])
        await step()
    await _finish(database, two, chance)
    rows = await database.read(lambda c: [jobs.find_job(c, number) for number in added])
    assert {row.state for row in rows if row is not None} <= set(ENDED)
    assert sum(node.listings for node in two) >= 1
    assert (await database.read(lambda c: projects.version_row(c, version))).listing == ""


async def _finish(database: StateDatabase, two: list[_Node], chance: random.Random) -> None:
    """Let the nodes work without faults until nothing changes."""
    for node in two:
        name = node.key.name
        await database.write(lambda c, name=name: nodes.set_draining(c, name, is_draining=False))  # type: ignore[misc]
    idle = 0
    while idle < 2:
        idle += 1
        for node in two:
            await node.turn()
            while node.has or node.lists:
                idle = 0
                await node.advance(chance)
                await node.finish_a_listing()


async def test_work_whose_answer_got_lost_is_given_again_and_jobs_also_while_the_node_is_drained(
    database: StateDatabase, tmp_path: Path
) -> None:
    manager = Manager(database, ArtefactStore(tmp_path / "eggs", tmp_path / "uploads"))
    node = _Node(NodeOperations(manager, limit_seconds=60), "one")
    await node.restart()
    await database.write(lambda c: projects.add_version(c, "shop", "1", digest="d", file="shop/1.egg"))
    await node.lose_an_answer()
    await node.turn()
    await node.finish_a_listing()
    for name in ("first", "second", "third", "fourth"):
        await database.write(lambda c, name=name: jobs.add_job(c, NewJob("shop", "a", name)))  # type: ignore[misc]
    await node.lose_an_answer()
    await database.write(lambda c: nodes.set_draining(c, "one", is_draining=True))
    await node.turn()
    assert [attempt.job for attempt in node.has] == [1, 2, 3]
