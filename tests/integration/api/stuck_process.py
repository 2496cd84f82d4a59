"""An API whose answers to one kind of request never come. Arguments: the server's address, the prefix of keys."""

import asyncio
import sys
from typing import Any

from tests.integration.api.conftest import running
from tests.integration.api.test_waiting import SLOW


class _Stuck:
    async def handle(self, request: dict[str, Any], *, format_1_0: bool) -> list[dict[str, Any]]:
        await asyncio.Event().wait()
        return []


async def _main(address: str, prefix: str) -> None:
    stuck = {"slow": _Stuck()}
    async with running(
        address, prefix=prefix, kinds=[SLOW], handlers=stuck, feed_wait_seconds=0.05, owner_timeout_seconds=0.3
    ) as service:
        print(service.http.base_url, flush=True)
        await asyncio.Event().wait()


asyncio.run(_main(sys.argv[1], sys.argv[2]))
