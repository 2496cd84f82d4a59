"""Verdicts on URL patterns, whether rendering changes the pages, that workers of a crawl share and that outlive them.

The frontier's server keeps them. A worker looks a pattern up when it meets it first, and before it renders a page of it
again; it writes when a verdict is new, several at a time. A server that does not answer costs renderings, no page.
"""

import asyncio
import contextlib
import hashlib
import time

from gossamer.errors import FrontierError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.policy.render_learning import RenderKey, RenderVerdict

_WRITE_SECONDS = 0.5
"""Time for which verdicts are collected before they are written. Longer, and other workers render more samples."""
_BROWSERS_SECONDS = 5.0
"""Time for which it is remembered whether workers with a browser are announced."""


class SharedChoices:
    """Verdicts that one worker reads and writes."""

    def __init__(self, frontier: ValkeyFrontier, pool: str) -> None:
        """`pool`: that of the worker."""
        self._frontier = frontier
        self._pool = pool
        self._new: dict[tuple[str, str], dict[bytes, bytes]] = {}
        """Verdicts that are still to be written, by crawl and site."""
        self._writing: asyncio.Task[None] | None = None
        self._has_browsers = False
        self._browsers_known_until = 0.0

    async def read(self, key: RenderKey, site: str) -> RenderVerdict | None:
        """Return the verdict of others. None: there is none, or the server does not answer."""
        try:
            found = await self._frontier.read_render_choice(key.crawl, site, _field(key))
        except FrontierError:
            return None
        return None if found is None else _verdict(found)

    def write(self, key: RenderKey, site: str, verdict: RenderVerdict) -> None:
        """Store a verdict, a moment later."""
        self._new.setdefault((key.crawl, site), {})[_field(key)] = b"%d %d" % (verdict.renders, verdict.interval)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_later())

    async def has_browsers(self) -> bool:
        """Return whether a worker with a browser is announced for the pool."""
        now = time.monotonic()
        if now >= self._browsers_known_until:
            self._browsers_known_until = now + _BROWSERS_SECONDS
            with contextlib.suppress(FrontierError):
                self._has_browsers = self._pool in await self._frontier.browser_workers()
        return self._has_browsers

    async def close(self) -> None:
        """Write what is left."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})
        await self._write()

    async def _write_later(self) -> None:
        while self._new:  # also what came while the others were being written
            await asyncio.sleep(_WRITE_SECONDS)
            await self._write()

    async def _write(self) -> None:
        new, self._new = self._new, {}
        for (crawl, site), learnt in new.items():
            with contextlib.suppress(FrontierError):  # others learn it for themselves
                await self._frontier.save_render_choices(crawl, site, learnt)


def _field(key: RenderKey) -> bytes:
    """Return the field of a pattern. Must not change: other workers may be of another version."""
    name = f"{'empty' if key.is_empty else 'full'} {key.pattern}"
    return hashlib.blake2b(name.encode(), digest_size=12).digest()


def _verdict(found: bytes) -> RenderVerdict | None:
    """Return a stored verdict. None: another version has written it."""
    renders, _, interval = found.partition(b" ")
    if renders not in (b"0", b"1") or not interval.isdigit() or len(interval) > 9:
        return None
    return RenderVerdict(renders == b"1", int(interval))
