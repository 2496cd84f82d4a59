"""The faults of a schedule, done to a crew and its store."""

import asyncio
import time
from collections.abc import Callable

from tests.chaos.crew import Crew, Hand
from tests.chaos.repeats import Blow
from tests.chaos.schedule import Fault, Kind
from tests.chaos.stores import Store
from tests.chaos.tcp_proxy import Link


class Acts:
    """`say` hears what is done, and to whom. `silences`: when nobody could reach the store."""

    def __init__(self, crew: Crew, store: Store, say: Callable[[str], None]) -> None:
        self._crew = crew
        self._store = store
        self._say = say
        self._store_lock = asyncio.Lock()
        self.silences: list[tuple[float, float]] = []
        self.thaws: list[tuple[str, float]] = []
        self.blows: list[Blow] = []
        """The faults that happened, in the order in which they ended."""

    async def do(self, fault: Fault) -> None:
        """Return when it is over."""
        if fault.kind in self._store.kinds:
            await self._to_store(fault)
        elif fault.kind in (Kind.STALL_ALL, Kind.CUT_ALL):
            await self._to_all(fault)
        elif fault.kind is Kind.KILL_SERVICE:
            hand = await asyncio.to_thread(self._crew.kill_service, fault.whom)
            self._say(f"{fault.kind} {hand.member.name if hand else 'nobody'}")
            if hand is not None:
                self._note(fault, time.monotonic())
        elif (hand := self._crew.pick(fault.whom)) is not None:
            self._say(f"{fault.kind} {hand.member.name} {_lasting(fault)}")
            began = time.monotonic()
            await self._to_worker(fault, hand)
            self._note(fault, began, agent=hand.member.name)
        else:
            self._say(f"{fault.kind}: nobody works")

    async def _to_store(self, fault: Fault) -> None:
        async with self._store_lock:  # one at a time: it cannot be killed while it is frozen
            await self._store.recovered()
            self._say(f"{fault.kind} {_lasting(fault)}")
            began = time.monotonic()
            await self._store.inflict(fault)
            self._note(fault, began)
            self.silences.append((began, time.monotonic()))

    async def _to_all(self, fault: Fault) -> None:
        links = [hand.link for hand in self._crew.everybody]
        self._say(f"{fault.kind} {_lasting(fault)}")
        began = time.monotonic()
        for link in links:
            link.cut() if fault.kind is Kind.CUT_ALL else link.stall()
        if fault.kind is Kind.STALL_ALL:
            await asyncio.sleep(fault.seconds)
            for link in links:
                link.resume()
        self._note(fault, began)
        self.silences.append((began, time.monotonic()))

    def _note(self, fault: Fault, began: float, *, agent: str = "") -> None:
        self.blows.append(Blow(fault.kind, began, time.monotonic(), agent))

    @property
    def done(self) -> list[Kind]:
        """The kinds of the faults that happened."""
        return [blow.kind for blow in self.blows]

    async def _to_worker(self, fault: Fault, hand: Hand) -> None:
        match fault.kind:
            case Kind.KILL_WORKER:
                await asyncio.to_thread(self._crew.kill, hand)
            case Kind.DRAIN_WORKER:
                self._crew.drain(hand)
            case Kind.ADD_WORKER:
                self._crew.add()
            case Kind.SKEW_CLOCK:
                hand.member.skew(fault.seconds)
            case Kind.FREEZE_WORKER:
                hand.frozen = True
                hand.member.freeze()
                await asyncio.sleep(fault.seconds)
                self.thaws.append((hand.member.name, time.monotonic()))
                hand.member.thaw()
                hand.frozen = False
            case _:
                await _to_link(fault, hand.link)


async def _to_link(fault: Fault, link: Link) -> None:
    match fault.kind:
        case Kind.SLOW_LINK:
            link.slow(fault.seconds)
        case Kind.CUT_LINK:
            link.cut()
        case Kind.HALF_OPEN:
            link.half_open()
        case Kind.STALL_LINK:
            link.stall()
            await asyncio.sleep(fault.seconds)
            link.resume()
        case Kind.PART_LINK:
            link.part()
            await asyncio.sleep(fault.seconds)
            link.rejoin()


def _lasting(fault: Fault) -> str:
    return (
        f"{fault.seconds:+.2f} s" if fault.kind in (Kind.SKEW_CLOCK, Kind.SET_STORE_CLOCK) else f"{fault.seconds:.2f} s"
    )
