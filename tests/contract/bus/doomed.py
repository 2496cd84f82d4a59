"""A member that takes messages and never acknowledges them: `doomed KIND ADDRESS PREFIX COUNT`, to be killed."""

import asyncio
import sys

from .opened import Place, opened


async def _main() -> None:
    kind, address, prefix, count = sys.argv[1:]
    async with opened(Place(kind, address, prefix), soon_missed=True) as bus:
        consumer = await bus.consume(["in"], group="g")
        taken = 0
        while taken < int(count):
            taken += len(await consumer.take(at_most=int(count) - taken, wait_seconds=1.0))
        print("taken", flush=True)
        await asyncio.Event().wait()


asyncio.run(_main())
