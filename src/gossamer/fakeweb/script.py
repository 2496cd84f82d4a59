"""An answer that misbehaves on the wire: a list of steps, as data, and who carries them out."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec


class Send(msgspec.Struct, frozen=True, tag="send"):
    """Send `data`, `times` over (0: until the client has left), with a pause of `pause_seconds` after each."""

    data: bytes
    times: int = 1
    pause_seconds: float = 0.0


class Silence(msgspec.Struct, frozen=True, tag="silence"):
    """Send nothing until the client leaves."""


class Reset(msgspec.Struct, frozen=True, tag="reset"):
    """End the connection with a reset instead of a farewell. The last step."""


Step = Send | Silence | Reset


class Wire(Protocol):
    """What a script is carried out on."""

    def write(self, data: bytes) -> None:
        """Send, or keep until it can be sent."""

    async def drained(self) -> None:
        """Until the kernel has taken all that was written."""


async def perform(script: Sequence[Step], wire: Wire) -> bool:
    """Do the steps. True: the connection is to be reset, False: closed. Cancelled when the client has left."""
    for step in script:
        match step:
            case Send(data, times, pause_seconds):
                sent = 0
                while not times or sent < times:
                    wire.write(data)
                    sent += 1
                    await wire.drained()
                    await asyncio.sleep(pause_seconds)  # 0 lets others have a turn
            case Silence():
                await asyncio.get_running_loop().create_future()
            case Reset():
                return True
    return False
