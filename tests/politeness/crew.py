"""The workers of a run, two to an egress: struck down and replaced; and what the dead ones held, and until when."""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.politeness.plan import Blow, Kind, Plan
from tests.politeness.usage import Interval
from tests.servers.fleet import Fleet, Member
from tests.servers.valkey import Server

_DOMAIN = re.compile(rb"site\d+\.test")
_LOOK_SECONDS = 0.05
_LONGEST_HOLD_SECONDS = 30.0


@dataclass(slots=True)
class Hand:
    """One worker. Its name as the web sees it is `<member>/<egress>`."""

    member: Member
    egress: str
    away: list[Interval] = field(default_factory=list)
    """When it was frozen."""
    gone: float | None = None
    """When it was killed."""


class Crew:
    """Workers in numbered places; a killed one's place is taken by another at once."""

    def __init__(self, fleet: Fleet, server: Server, plan: Plan, *, flags: Sequence[str] = ()) -> None:
        self._fleet = fleet
        self._server = server
        self._flags = list(flags)
        self._egresses = [plan.egresses[place % len(plan.egresses)] for place in range(plan.workers)]
        self.all: list[Hand] = []
        self.places: list[Hand] = []
        self.holds: dict[str, list[Interval]] = {}
        """By domain: from a worker's death until what it held there was taken back."""
        self.struck: list[tuple[Kind, str, float]] = []
        """What was done to whom when."""

    def start(self) -> None:
        """All of them."""
        self.places = [self._start(egress) for egress in self._egresses]

    def _start(self, egress: str) -> Hand:
        name = f"w{len(self.all)}"
        member = self._fleet.start(
            frontier=self._server.address,
            name=name,
            flags=("--egress", egress, *self._flags),
            environment={"GOSSAMER_FETCH__USER_AGENT": f"{name}/{egress}"},
        )
        hand = Hand(member, egress)
        self.all.append(hand)
        return hand

    async def strike(self, blow: Blow) -> None:
        """Kill a worker and start another, or freeze it for a while. Returns when nobody holds for it any more."""
        hand = self.places[blow.whom]
        if not hand.member.alive or (hand.away and hand.away[-1][1] > time.monotonic()):
            return
        since = time.monotonic()
        self.struck.append((blow.kind, hand.member.name, since))
        if blow.kind is Kind.KILL:
            await asyncio.to_thread(hand.member.kill)
            hand.gone = since
            self.places[blow.whom] = self._start(hand.egress)
            await self._watch(hand, since, since + _LONGEST_HOLD_SECONDS)
        else:
            hand.away.append((since, since + blow.seconds))
            hand.member.freeze()
            watching = asyncio.create_task(self._watch(hand, since, since + blow.seconds))
            await asyncio.sleep(max(0.0, since + blow.seconds - time.monotonic()))
            hand.member.thaw()
            hand.away[-1] = (since, time.monotonic())
            await watching

    async def _watch(self, hand: Hand, since: float, until: float) -> None:
        """Note which domains it has leases of, and until when."""
        pattern = f"*:l:*-{hand.member.process.pid}-*"
        keys = await asyncio.to_thread(self._server.command, "KEYS", pattern)
        domains = set()
        for key in keys:
            for value in await asyncio.to_thread(self._server.command, "HVALS", key):
                domains |= set(_DOMAIN.findall(value)[:1])
        while True:
            held = [await asyncio.to_thread(self._server.command, "EXISTS", key) for key in keys]
            if not any(held) or time.monotonic() >= until:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        over = time.monotonic()
        for domain in domains:
            self.holds.setdefault(domain.decode(), []).append((since, over))

    def outages(self, first_seen: dict[str, float], end: float) -> dict[str, list[Interval]]:
        """By egress: when none of its workers worked. `first_seen`: by worker, when its first request came."""
        found: dict[str, list[Interval]] = {}
        for egress in set(self._egresses):
            working: list[Interval] = []
            for hand in self.all:
                since = first_seen.get(hand.member.name)
                if hand.egress != egress or since is None:
                    continue
                at = since
                for away_since, away_until in sorted(hand.away):
                    working.append((at, away_since))
                    at = away_until + 1.0
                working.append((at, hand.gone if hand.gone is not None else end))
            found[egress] = [(since, until) for since, until in _gaps(working, end)]
        return found


def _gaps(working: Sequence[Interval], end: float) -> list[Interval]:
    """Between minus infinity and the end, what none of them covers."""
    gaps: list[Interval] = []
    at = float("-inf")
    for since, until in sorted(working):
        if since > at:
            gaps.append((at, since))
        at = max(at, until)
    if at < end:
        gaps.append((at, end))
    return gaps
