"""Requests of all pages to one host: at most so many at once."""

import asyncio

from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.render.requests import LoadLimits, PageLoader


class Http:
    """Sends nothing."""

    async def fetch(
        self, request: FetchRequest, timeout_seconds: float | None = None, *, wait_for_room: bool = False
    ) -> FetchResponse:
        raise AssertionError(request.url)


async def test_no_more_than_so_many_pages_send_to_a_host_at_once() -> None:
    loader = PageLoader(Http(), LoadLimits(host_requests=3))
    now, most = dict.fromkeys(("a.test", "b.test"), 0), dict.fromkeys(("a.test", "b.test"), 0)

    async def send(name: str) -> None:
        async with loader.turn(name):
            now[name] += 1
            most[name] = max(most[name], now[name])
            for _ in range(5):
                await asyncio.sleep(0)
            now[name] -= 1

    await asyncio.gather(*(send(name) for name in ("a.test", "b.test") for _ in range(20)))
    assert most == {"a.test": 3, "b.test": 3}
    assert not loader._hosts, "hosts are forgotten"
