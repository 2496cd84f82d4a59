"""The workers of a run, each with its way to the store: who lives, who was killed, who takes a dead one's place."""

import itertools
import signal
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.checker import Death
from tests.chaos.stores import Store
from tests.chaos.tcp_proxy import Link
from tests.servers.fleet import Fleet, Member

ON_THE_BUS = ("--bus", "streams", "--allow-network", "127.0.0.0/8")
_BEFORE_IT_BEGAN = (130, -signal.SIGTERM)
"""Exit codes of a worker that was told to end while it was starting."""


@dataclass(slots=True)
class Hand:
    """One worker of the crew."""

    place: str
    """Survives it: whoever is started for it writes where it wrote."""
    member: Member
    link: Link
    frozen: bool = False
    leaving: bool = False
    """It was told to end."""


Start = Callable[[str, str, str], Member]
"""(place, name, address of the store) -> a worker that was started."""


class Crew:
    """`start` starts one. `alone`: what a killed one has started lives on, unless it ends by itself."""

    def __init__(self, fleet: Fleet, store: Store, start: Start, *, alone: bool = False) -> None:
        self._alone = alone
        self._fleet = fleet
        self._store = store
        self._start = start
        self._numbers = itertools.count()
        self._places = itertools.count()
        self.hands: list[Hand] = []
        self.services: list[Hand] = []
        self.deaths: list[Death] = []

    def add(self, place: str = "") -> Hand:
        """One more worker, in a place of its own unless it takes over another's."""
        place = place or f"p{next(self._places)}"
        address, link = self._store.way()
        hand = Hand(place, self._start(place, f"w{next(self._numbers)}", address), link)
        self.hands.append(hand)
        return hand

    def add_service(self) -> Hand:
        """One more `gossamer serve`, without workers."""
        address, link = self._store.way()
        name = f"s{next(self._numbers)}"
        command = ["serve", "--port", "0", "--frontier", address, "--data-dir", name, *ON_THE_BUS]
        hand = Hand(name, self._fleet.run(name, command), link)
        self.services.append(hand)
        return hand

    def kill_service(self, whom: float) -> Hand | None:
        """SIGKILL one, and start another; None: there is none."""
        living = [hand for hand in self.services if not hand.leaving]
        if not living:
            return None
        hand = living[int(whom * len(living))]
        hand.leaving = True
        hand.member.kill()
        self.add_service()
        return hand

    def pick(self, whom: float) -> Hand | None:
        """One of those that work now; None: nobody does."""
        working = [hand for hand in self.hands if hand.member.alive and not hand.frozen and not hand.leaving]
        return working[int(whom * len(working))] if working else None

    def kill(self, hand: Hand) -> Hand:
        """SIGKILL; another in its place."""
        hand.leaving = True
        hand.member.kill(alone=self._alone)
        assert hand.member.killed is not None
        self.deaths.append(Death(hand.member.name, hand.member.killed))
        return self.add(hand.place)

    def drain(self, hand: Hand) -> Hand:
        """SIGTERM; another in a new place, because this one still writes to its own."""
        hand.leaving = True
        hand.member.drain()
        return self.add()

    def missing(self, *, may_end: bool) -> list[str]:
        """Who ended without having been told to (which workers `may_end` do when all is done), and who ended badly."""
        faults = []
        for hand in self.everybody:
            code = hand.member.process.poll()
            if code is None or hand.member.killed is not None:
                continue
            fine = (0, *_BEFORE_IT_BEGAN) if hand.leaving else (0,) if may_end else ()
            if code not in fine:
                faults.append(f"{hand.member.name} ended with exit code {code}: {hand.member.log[-500:].strip()}")
        return faults

    @property
    def everybody(self) -> list[Hand]:
        """Workers and services, gone ones too."""
        return [*self.hands, *self.services]

    def leave(self) -> None:
        """Thaw everybody and tell all to end; wait for it."""
        for hand in self.everybody:
            hand.leaving = True
            hand.link.resume()
            hand.link.rejoin()
        self._fleet.drain()
