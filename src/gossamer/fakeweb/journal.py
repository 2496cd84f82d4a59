"""The access log of a fake web (test server) while it is written.

It is kept in columns of numbers, so that a million requests cost tens of megabytes.

Fixed: the fields of `Record` and the values of `How`. Log files have them as JSON, and the package gossamer-fakeweb
judges crawls by them; fields with a default may be added.
"""

import time
from array import array
from collections.abc import Iterator
from enum import StrEnum
from io import BufferedWriter
from pathlib import Path

import msgspec


class How(StrEnum):
    """End of a request. The web decides on REFUSE, RESET, CUT and STALL (`Ending` in answer.py); the client causes
    LEFT."""

    OPEN = "open"
    """The request is still being answered."""
    WHOLE = "whole"
    """The whole answer was sent."""
    REFUSE = "refuse"
    """The connection was reset before a byte was sent."""
    RESET = "reset"
    """The connection was reset in the middle of the body."""
    CUT = "cut"
    """The connection was closed properly in the middle of the body."""
    STALL = "stall"
    """The headers were sent, then nothing until the client left."""
    LEFT = "left"
    """The client closed the connection before it had the answer."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Times in seconds; `started` and `ended` on the machine's monotonic clock, `wall` since 1970."""

    url: str
    host: str
    """Lower case, without the port."""
    path: str
    """With the query."""
    method: str
    status: int
    """0: no status was sent."""
    how: How
    started: float
    """When the request was complete at the server."""
    ended: float | None
    """When the answer was handed to the kernel, or the connection was gone. None: not yet."""
    wall: float
    """`started` as wall time."""
    agent: str
    """User-Agent; empty if there was none."""
    connection: int
    """Connections are counted from 1; equal numbers mean that the connection was kept alive."""
    sent: int = 0
    """Bytes of the answer, headers included, that were sent or on their way when it ended; counted before
    encryption."""


LIMIT = 5_000_000
"""Maximum number of records kept in memory; further requests are only counted (`missed`), by which a test notices that
the log is incomplete. A record takes about 60 bytes, and each new URL its text."""
_HOWS = tuple(How)
_CODES = {how: code for code, how in enumerate(_HOWS)}
_OPEN = _CODES[How.OPEN]


class Journal:
    """Log of every request and its end, in order of arrival. With a file, each request that has ended is also written
    there, as a line of JSON with the fields of `Record`."""

    def __init__(self, *, base: str, file: Path | None = None, limit: int = LIMIT) -> None:
        """`base`: beginning of all URLs, with `{host}` in place of the host, e.g. `http://{host}:8080`. `file`:
        appended to."""
        self._before, self._after = base.split("{host}")
        self._limit = limit
        self._file: BufferedWriter | None = file.open("ab") if file else None
        self._encoder = msgspec.json.Encoder()
        # Monotonic times are comparable between processes of one machine; wall time is derived from the same reading.
        self._wall_offset = time.time() - time.monotonic()
        self._serial = 0
        """Number of requests ever begun. Not reset by `clear`, so that a number of an earlier request is recognised."""
        self.clear()

    def clear(self) -> None:
        """Forget all requests so far. Those still open are not logged when they end. The file keeps its lines."""
        self._first = self._serial
        """Number of the first request in the columns."""
        self.missed = 0
        """Number of requests that were not logged, because the log had reached its `limit`."""
        # One value for each request. Addresses, methods and agents are numbers of entries in the look-ups below.
        self._started = array("d")
        self._ended = array("d")
        self._address = array("L")
        self._status = array("H")
        self._how = array("B")
        self._method = array("H")
        self._agent = array("L")
        self._connection = array("L")
        self._sent = array("Q")
        self._addresses: dict[tuple[str, str], int] = {}
        self._methods: dict[str, int] = {}
        self._agents: dict[str, int] = {}
        # Host and path, method, User-Agent by number.
        self._address_list: list[tuple[str, str]] = []
        self._method_list: list[str] = []
        self._agent_list: list[str] = []

    def __len__(self) -> int:
        return len(self._started)

    def begin(self, host: str, path: str, method: str, status: int, agent: str, connection: int) -> int:
        """Log a request that has arrived, with the status that it will get (0: none). Returns its number, for `end`;
        -1: the log is full."""
        if len(self._started) >= self._limit:
            self.missed += 1
            return -1
        key = (host, path)
        address = self._addresses.get(key)
        if address is None:
            address = self._addresses[key] = len(self._addresses)
            self._address_list.append(key)
        self._started.append(time.monotonic())
        self._ended.append(0.0)
        self._address.append(address)
        self._status.append(status)
        self._how.append(_OPEN)
        self._method.append(_number(self._methods, self._method_list, method))
        self._agent.append(_number(self._agents, self._agent_list, agent))
        self._connection.append(connection)
        self._sent.append(0)
        self._serial += 1
        return self._serial - 1

    def end(self, number: int, how: How, sent: int = 0) -> None:
        """Log the end of a request: its last byte was handed to the kernel, or the connection is gone. `sent`: as in
        `Record`. Does nothing for -1 and for requests from before the last `clear`."""
        index = number - self._first
        if number < 0 or index < 0:
            return
        self._ended[index] = time.monotonic()
        self._how[index] = _CODES[how]
        self._sent[index] = sent
        if self._file:
            self._file.write(self._encoder.encode(self._record(index)) + b"\n")

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """Yield the requests so far, in order of arrival, from index `start` up to `stop`; those still being answered
        have no end."""
        for index in range(start, len(self) if stop is None else min(stop, len(self))):
            yield self._record(index)

    def lines(self, start: int = 0, stop: int | None = None) -> bytes:
        """Return `records` as JSON lines."""
        return self._encoder.encode_lines(list(self.records(start, stop)))

    def flush(self) -> None:
        """Hand the lines that are buffered to the file system."""
        if self._file:
            self._file.flush()

    def close(self) -> None:
        """Write what is left, also requests that never ended, and close the file. May be called again."""
        if self._file:
            for index in range(len(self)):
                if self._how[index] == _OPEN:
                    self._file.write(self._encoder.encode(self._record(index)) + b"\n")
            self._file.close()
            self._file = None

    def _record(self, index: int) -> Record:
        """Return the record at this index of the columns."""
        host, path = self._address_list[self._address[index]]
        started = self._started[index]
        how = _HOWS[self._how[index]]
        return Record(
            url=f"{self._before}{host}{self._after}{path}",
            host=host,
            path=path,
            method=self._method_list[self._method[index]],
            status=self._status[index],
            how=how,
            started=started,
            ended=None if how is How.OPEN else self._ended[index],
            wall=started + self._wall_offset,
            agent=self._agent_list[self._agent[index]],
            connection=self._connection[index],
            sent=self._sent[index],
        )


def _number(numbers: dict[str, int], names: list[str], name: str) -> int:
    """Return the number of a name; a new name gets the next one, and joins both collections."""
    number = numbers.get(name)
    if number is None:
        number = numbers[name] = len(numbers)
        names.append(name)
    return number
