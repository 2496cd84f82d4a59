"""The faults of a schedule, done to a crew and its store."""

import asyncio
import time
from collections.abc import Callable

from tests.chaos import browsers
from tests.chaos.crew import Crew, Hand
from tests.chaos.repeats import Blow
from tests.chaos.schedule import BROWSERS, PROXY, Fault, Kind
from tests.chaos.stores import Store
from tests.chaos.tcp_proxy import Link

_POLL_SECONDS = 0.05
_FINDS_SECONDS = 10.0
"""Time in which a worker has a browser to hit, unless it has nothing to render."""
_NOTICES_SECONDS = 60.0
"""Time in which a worker notices that what it waits for is frozen. An idle tab is not waited for."""


class Acts:
    """`say` hears what is done, and to whom. `proxy`: the way through the operator's proxy. `silences`: when nobody
    could reach the store."""

    def __init__(self, crew: Crew, store: Store, say: Callable[[str], None], *, proxy: Link | None = None) -> None:
        self._crew = crew
        self._proxy = proxy
        self._store = store
        self._say = say
        self._store_lock = asyncio.Lock()
        self.silences: list[tuple[float, float]] = []
        self.thaws: list[tuple[str, float]] = []
        self.is_over = False
        """True: the crawl is over, so nothing frozen will be noticed any more."""
        self.blows: list[Blow] = []
        """The faults that happened, in the order in which they ended."""

    async def do(self, fault: Fault) -> None:
        """Return when it is over."""
        if fault.kind in self._store.kinds:
            await self._to_store(fault)
        elif fault.kind in (Kind.STALL_ALL, Kind.CUT_ALL):
            await self._to_all(fault)
        elif fault.kind in PROXY and self._proxy is not None:
            self._say(f"{fault.kind} {_lasting(fault)}")
            began = time.monotonic()
            await _to_link(fault, self._proxy)
            self._note(fault, began)
        elif fault.kind is Kind.KILL_SERVICE:
            hand = await asyncio.to_thread(self._crew.kill_service, fault.whom)
            self._say(f"{fault.kind} {hand.member.name if hand else 'nobody'}")
            if hand is not None:
                self._note(fault, time.monotonic())
        elif fault.kind in BROWSERS:
            await self._to_browser(fault)
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

    async def _to_browser(self, fault: Fault) -> None:
        """Hit a process of a worker's browser, and return when it is gone."""
        deadline = time.monotonic() + _FINDS_SECONDS
        while not (found := self._browser_processes(fault.kind)):
            if time.monotonic() > deadline or self.is_over:
                self._say(f"{fault.kind}: nobody has such a process")
                return
            await asyncio.sleep(_POLL_SECONDS)
        name, pid = found[int(fault.whom * len(found))]
        began = time.monotonic()
        browsers.hit(pid, fault.kind)
        last = began + _NOTICES_SECONDS
        while not (browsers.has_ended(pid) or self.is_over or time.monotonic() > last):  # noqa: ASYNC110 (of others)
            await asyncio.sleep(_POLL_SECONDS)
        self._note(fault, began, agent=name)
        self._say(f"{fault.kind} {name}: process {pid} was gone after {time.monotonic() - began:.2f} s")

    def _browser_processes(self, kind: Kind) -> list[tuple[str, int]]:
        """Return the processes that such a fault may hit, each with the name of its worker."""
        members = [hand.member for hand in self._crew.hands if hand.member.alive and not hand.frozen]
        return [(member.name, pid) for member in members for pid in browsers.find(member.process.pid, kind)]

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
        case Kind.STALL_LINK | Kind.STALL_PROXY:
            link.stall()
            await asyncio.sleep(fault.seconds)
            link.resume()
        case Kind.PART_LINK | Kind.PART_PROXY:
            link.part()
            await asyncio.sleep(fault.seconds)
            link.rejoin()


def _lasting(fault: Fault) -> str:
    return (
        f"{fault.seconds:+.2f} s" if fault.kind in (Kind.SKEW_CLOCK, Kind.SET_STORE_CLOCK) else f"{fault.seconds:.2f} s"
    )
