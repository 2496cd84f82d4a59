"""The data epoch: the time in which a process may rely on what its servers have confirmed.

Must hold: a new one begins before any call is sent to a server that may have lost writes.
"""

from gossamer.errors import FrontierForgot


class DataEpoch:
    """Number of the current data epoch of a process.

    It grows whenever a server may have lost writes that it confirmed: a connection ended (the server may have restarted
    from an old file), slots moved to another server (a replica may have taken over), or data is known to be lost. In
    most cases nothing was lost.
    """

    def __init__(self) -> None:
        self.number = 0

    def begin(self) -> None:
        """Begin the next epoch."""
        self.number += 1

    def check(self, since: int | None) -> None:
        """Raise FrontierForgot if the current epoch is not `since`. None: accept any epoch."""
        if since is not None and since != self.number:
            raise FrontierForgot
