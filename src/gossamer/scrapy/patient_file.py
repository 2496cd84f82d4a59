"""A file that takes what is written even while its disk is full, and hands it on when there is room."""

import contextlib
from collections import deque
from typing import IO, Any

_PIECE_BYTES = 512
"""A buffered file takes what is no larger than its buffer whole or not at all; no buffer is smaller than this."""


class PatientFile:
    """Around a buffered file. What it cannot take now is kept in memory, in order, and written before all that comes
    later; `flush` says whether everything is out. All else is the file's own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._late: deque[bytes] = deque()

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """All of it, always. Raises ValueError for a closed file."""
        view = memoryview(data)
        self._late.extend(bytes(view[at : at + _PIECE_BYTES]) for at in range(0, len(view), _PIECE_BYTES))
        with contextlib.suppress(OSError):  # whoever flushes hears of it
            self._hand_on()
        return len(view)

    def flush(self) -> None:
        """Raises OSError while there is no room; it may be repeated."""
        self._hand_on()
        self._file.flush()

    def tell(self) -> int:
        """As if everything were written."""
        return self._file.tell() + sum(map(len, self._late))

    def close(self) -> None:
        """Raises OSError where there is no room; it is closed all the same."""
        try:
            if not self._file.closed:
                self.flush()
        finally:
            self._file.close()

    def _hand_on(self) -> None:
        while self._late:
            self._file.write(self._late[0])
            self._late.popleft()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
