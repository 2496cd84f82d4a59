"""Room for requests that are to be rendered among the slots of a worker.

Such a request holds its slot while it waits for a free tab of the browser. Without a bound, a crawl of rendered pages
would hold every slot of a worker, and the plain pages beside it would wait for the browser, too.
"""

from collections.abc import Callable, Sequence

import msgspec

from gossamer.commit.outlinks import returned
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.request import Lease, Settlement


class BrowserRoomLimits(msgspec.Struct, frozen=True):
    """Bounds on the requests of one worker that are to be rendered."""

    held: int
    """Slots that such requests hold at once. More of the lane `browser` are given back."""
    in_browser: int
    """Pages that are built or wait for a tab, from which on no more are leased."""


class BrowserRoom:
    """Leases requests that are to be rendered only while there is room for them, and lets other workers have them
    otherwise."""

    def __init__(
        self, holder: ValkeyLeaseholder, limits: BrowserRoomLimits, in_browser: Callable[[], tuple[int, int]]
    ) -> None:
        """`in_browser` returns the number of pages that are built or wait for a tab, and of those among them that were
        leased as plain ones."""
        self._holder = holder
        self._limits = limits
        self._in_browser = in_browser
        self._held = 0
        self.is_used = False
        """True: the worker has had such a request."""
        self.is_full = False
        """True: none are leased for now."""

    def admit(self, leases: Sequence[Lease]) -> tuple[list[Lease], list[Settlement]]:
        """Return the leases to start, and the settlements of those that are given back for want of room."""
        started, back = [], []
        _, unasked = self._in_browser()
        for lease in leases:
            if lease.render:
                self.is_used = True
                if self._held + unasked >= self._limits.held:
                    back.append(returned(lease).settlement)
                    continue
                self._held += 1
            started.append(lease)
        if self.is_used:
            self.update()
        return started, back

    def leave(self, lease: Lease) -> None:
        """Count a lease no more that was started."""
        if lease.render:
            self._held -= 1
        self.update()

    def update(self) -> None:
        """Stop to lease such requests, or begin again."""
        in_browser, unasked = self._in_browser()
        is_full = self._held + unasked >= self._limits.held or in_browser >= self._limits.in_browser
        if is_full is not self.is_full:
            self.is_full = is_full
            self._holder.rest_browser_lane(rests=is_full)
