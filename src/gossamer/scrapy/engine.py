"""The only file that touches what Scrapy keeps to itself: how a request's end is seen, and how the engine is woken.

Scrapy has no signal for "this request is done": its answer handled, its items through the pipelines, its requests
scheduled. The engine knows, in `_handle_downloader_output`, whose result fires then; it is wrapped for this engine
only. Checked at the start, so that a Scrapy that works otherwise is refused with its version, not misunderstood.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import scrapy
from scrapy import Request
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.robotstxt import RobotParser
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.reactor import is_asyncio_reactor_installed
from twisted.internet.defer import Deferred

from gossamer.errors import BadInput

Around = Callable[[Any, Request, Callable[[Any, Request], "Deferred[None]"]], "Deferred[None]"]


class EngineDoor:
    """One crawler's engine."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def check(self) -> None:
        """Raises BadInput for a Scrapy or a reactor that this lane cannot work with."""
        engine = self._engine
        for owner, name in (
            (engine, "_handle_downloader_output"),
            (engine, "downloader"),
            (engine, "scraper"),
            (engine, "_start"),
            (engine.downloader, "active"),
            (engine.downloader, "per_slot_settings"),
            (engine.downloader.middleware, "_add_middleware"),
        ):
            if not hasattr(owner, name):
                raise BadInput(
                    f"Scrapy {scrapy.__version__} has no {type(owner).__name__}.{name} any more; use another version"
                )
        if engine.settings.getbool("TWISTED_REACTOR_ENABLED", True) and not is_asyncio_reactor_installed():
            raise BadInput("TWISTED_REACTOR: gossamer.scrapy works on Scrapy's asyncio reactor, the default, only")

    def surround(self, around: Around) -> None:
        """`around(result, request, original)` is called in the place of the engine's own handling of an answer."""
        original = self._engine._handle_downloader_output

        def handle(result: Any, request: Request) -> "Deferred[None]":
            return around(result, request, original)

        self._engine._handle_downloader_output = handle

    def hold_back_start(self, room: Callable[[], Awaitable[None]], wants_item: Callable[[], Awaitable[bool]]) -> None:
        """Wait for `room` after each thing that `start()` yields, and leave out items that are not wanted."""
        start = self._engine._start
        if start is not None:
            self._engine._start = _held_back(start, room, wants_item)

    def unthrottle(self) -> None:
        """The frontier spaces requests, cluster-wide: no second time here, except what DOWNLOAD_SLOTS names."""
        downloader = self._engine.downloader
        downloader.per_slot_settings = _Unthrottled(downloader.per_slot_settings)

    def add_middleware(self, middleware: object) -> None:
        """A downloader middleware, the nearest to the downloader."""
        self._engine.downloader.middleware._add_middleware(middleware)

    def share_robots(self) -> None:
        """Of several requests that wait for one robots.txt, Scrapy (2.14 to 2.19) tells the first what it says, and
        lets the others go whatever it says: they hear None. Here all of them hear the same."""
        for middleware in self._engine.downloader.middleware.middlewares:
            if isinstance(middleware, RobotsTxtMiddleware) and hasattr(middleware, "_parsers"):
                middleware.robot_parser = _shared(middleware)  # type: ignore[method-assign, assignment]

    def wake(self) -> None:
        """There may be a request now, or none left."""
        slot = self._engine._slot
        if slot is not None:
            slot.nextcall.schedule()

    @property
    def scheduler(self) -> Any:
        """None before the spider is open and after it is closed."""
        slot = self._engine._slot
        return slot.scheduler if slot is not None else None

    @property
    def downloading(self) -> int:
        return len(self._engine.downloader.active)

    @property
    def backs_out(self) -> bool:
        """Whether the engine takes no more requests at the moment."""
        return self._engine._slot is None or self._engine.scraper.slot is None or bool(self._engine.needs_backout())


def _shared(middleware: RobotsTxtMiddleware) -> Callable[[Request], Coroutine[Any, Any, RobotParser | None]]:
    original = middleware.robot_parser

    async def robot_parser(request: Request) -> RobotParser | None:
        asked = middleware._parsers.get(urlparse_cached(request).netloc)
        if not isinstance(asked, Deferred):
            return await original(request)
        mine: Deferred[RobotParser | None] = Deferred()

        def hear(parser: RobotParser | None) -> RobotParser | None:
            mine.callback(parser)
            return parser

        asked.addCallback(hear)
        return await maybe_deferred_to_future(mine)

    return robot_parser


async def _held_back(
    start: AsyncIterator[Any], room: Callable[[], Awaitable[None]], wants_item: Callable[[], Awaitable[bool]]
) -> AsyncIterator[Any]:
    async for one in start:
        if isinstance(one, Request) or await wants_item():
            yield one
        await room()


class _Unthrottled(dict[str, dict[str, Any]]):
    """What the downloader asks for a host's own settings: no delay, unless the project says so for this very host."""

    def get(self, key: str, default: Any = None) -> Any:
        return {"delay": 0.0, **(super().get(key) or {})}
