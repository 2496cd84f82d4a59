"""Takes leases for a Scrapy process while there is room, and knows when the whole crawl is over."""

from collections.abc import Callable, Sequence

from gossamer.commit.seat import Seat
from gossamer.errors import FrontierUnavailable
from gossamer.frontier.base import Frontier, Leaseholder
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.request import Lease

_LOOK_SECONDS = 1.0
"""An idle process looks so often whether the crawl is over. Work that arrives wakes it at once."""


class Leasing:
    """Runs in the spider's event loop until it is cancelled."""

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        seat: Seat,
        crawl: CrawlId,
        *,
        room: Callable[[], int],
        give: Callable[[Sequence[Lease]], None],
        idle: Callable[[], bool],
        tell: Callable[[], None],
    ) -> None:
        """`room`: how many leases can be started now. `give` takes them. `idle`: nothing is under way here. `tell`:
        `over` has changed, or `state` of what is over."""
        self._frontier = frontier
        self._holder = holder
        self._seat = seat
        self._crawl = crawl
        self._room = room
        self._give = give
        self._idle = idle
        self._tell = tell
        self.over = False
        """The crawl is over, and nothing is under way here."""
        self.state: CrawlState | None = None
        """How the crawl stood when it was last looked at. None: not looked at, or no such crawl."""

    def want(self) -> None:
        """There is room, or something was committed: look for work now."""
        self._seat.progress.set()

    def not_over(self) -> None:
        """Something was added: whatever was known of the end no longer holds."""
        self.over = False
        self.want()

    async def run(self) -> None:
        """For ever; cancel it."""
        empty = 0
        while True:
            self._seat.progress.clear()
            room = self._room()
            if room <= 0:
                await self._seat.progress.wait()
                continue
            try:
                leases = await self._holder.lease(limit=room)
            except FrontierUnavailable:
                await self._seat.until_reached()
                continue
            if leases:
                self.over = False
                self._give(leases)
            if len(leases) >= room:
                empty = 0
                continue
            empty = 0 if leases else empty + 1
            if not leases and self._idle():
                await self._look()
            await self._seat.until_work(at_most_seconds=_LOOK_SECONDS if self._idle() else 5.0, empty=empty)

    async def _look(self) -> None:
        try:
            info = await self._frontier.crawl_info(self._crawl)
            if info is None:
                await self._frontier.check_data()
        except FrontierUnavailable:
            return
        before, self.state = self.state, info.state if info else None
        over = info is None or info.state is not CrawlState.RUNNING or not info.total().added
        over = over and self._idle() and not self._seat.progress.is_set()
        if over != self.over or (over and self.state is not before):
            self.over = over
            self._tell()
