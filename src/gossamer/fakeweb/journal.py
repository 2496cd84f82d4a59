"""The access log while it is written: columns of numbers, so that a million requests cost tens of megabytes."""

import time
from array import array
from collections.abc import Iterator
from enum import StrEnum
from io import BufferedWriter
from pathlib import Path

import msgspec


class How(StrEnum):
    """End of a request. The spec asks for REFUSE, RESET, CUT and STALL; LEFT is caused by the client."""

    OPEN = "open"
    """It is still being answered."""
    WHOLE = "whole"
    REFUSE = "refuse"
    RESET = "reset"
    CUT = "cut"
    STALL = "stall"
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
    """Bytes of the answer that were sent or on their way when it ended, framing included; inside TLS."""


LIMIT = 5_000_000
"""Records kept in memory, at most. What does not fit is counted: an oracle must never forget silently."""
_HOWS = tuple(How)
_CODES = {how: code for code, how in enumerate(_HOWS)}
_OPEN = _CODES[How.OPEN]


class Journal:
    """Every request and its end, in order of arrival. With a file, each is also a line there once it has ended
    (JSON, the fields of `Record`)."""

    def __init__(self, *, base: str, file: Path | None = None, limit: int = LIMIT) -> None:
        """`base` with `{host}` in it makes a host's URLs, e.g. `http://{host}:8080`. The file is appended to."""
        self._before, self._after = base.split("{host}")
        self._limit = limit
        self._file: BufferedWriter | None = file.open("ab") if file else None
        self._encoder = msgspec.json.Encoder()
        # Monotonic times are comparable between processes of one machine; wall time is derived from the same reading.
        self._wall_offset = time.time() - time.monotonic()
        self._serial = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything so far. Requests still open are not logged when they end. The file keeps its lines."""
        self._first = self._serial
        self.missed = 0
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
        self._lookups: tuple[list[tuple[str, str]], list[str], list[str]] = ([], [], [])

    def __len__(self) -> int:
        return len(self._started)

    def begin(self, host: str, path: str, method: str, status: int, agent: str, connection: int) -> int:
        """Note a request that has arrived, and the status it will get (0: none). Returns the number to end it with."""
        if len(self._started) >= self._limit:
            self.missed += 1
            return -1
        key = (host, path)
        address = self._addresses.get(key)
        if address is None:
            address = self._addresses[key] = len(self._addresses)
            self._lookups[0].append(key)
        self._started.append(time.monotonic())
        self._ended.append(0.0)
        self._address.append(address)
        self._status.append(status)
        self._how.append(_OPEN)
        self._method.append(_number(self._methods, self._lookups[1], method))
        self._agent.append(_number(self._agents, self._lookups[2], agent))
        self._connection.append(connection)
        self._sent.append(0)
        self._serial += 1
        return self._serial - 1

    def end(self, number: int, how: How, sent: int = 0) -> None:
        """The last byte has been handed to the kernel, or the connection is gone. `sent`: see `Record`."""
        index = number - self._first
        if number < 0 or index < 0:
            return
        self._ended[index] = time.monotonic()
        self._how[index] = _CODES[how]
        self._sent[index] = sent
        if self._file:
            self._file.write(self._encoder.encode(self._record(index)) + b"\n")

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """The requests so far, in order of arrival; those still being answered have no end."""
        for index in range(start, len(self) if stop is None else min(stop, len(self))):
            yield self._record(index)

    def lines(self, start: int = 0, stop: int | None = None) -> bytes:
        """`records` as JSON lines."""
        return self._encoder.encode_lines(list(self.records(start, stop)))

    def flush(self) -> None:
        """Hand the lines to the file system."""
        if self._file:
            self._file.flush()

    def close(self) -> None:
        """Write what is left, requests that never ended too, and close the file. Repeatable."""
        if self._file:
            for index in range(len(self)):
                if self._how[index] == _OPEN:
                    self._file.write(self._encoder.encode(self._record(index)) + b"\n")
            self._file.close()
            self._file = None

    def _record(self, index: int) -> Record:
        host, path = self._lookups[0][self._address[index]]
        started = self._started[index]
        how = _HOWS[self._how[index]]
        return Record(
            url=f"{self._before}{host}{self._after}{path}",
            host=host,
            path=path,
            method=self._lookups[1][self._method[index]],
            status=self._status[index],
            how=how,
            started=started,
            ended=None if how is How.OPEN else self._ended[index],
            wall=started + self._wall_offset,
            agent=self._lookups[2][self._agent[index]],
            connection=self._connection[index],
            sent=self._sent[index],
        )


def _number(numbers: dict[str, int], names: list[str], name: str) -> int:
    number = numbers.get(name)
    if number is None:
        number = numbers[name] = len(numbers)
        names.append(name)
    return number
