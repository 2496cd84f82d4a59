"""A server of tests as a process of its own: started, killed and stopped alike, whatever it serves."""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_POLL_SECONDS = 0.02
_STOP_SECONDS = 60.0


class ServerProcess:
    """One server in a folder of its own; may be killed and started again there. A subclass has `start`."""

    stop_signal = signal.SIGTERM
    """Signal by which the server stops in order."""
    start_seconds = 60.0
    """Time in which the server must answer, on a busy machine, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Id of the server's first process."""
        assert self._process is not None
        return self._process.pid

    def launch(self, arguments: Sequence[str | Path], answers: Callable[[], bool], *, user: str | None = None) -> None:
        """Start the process, and return when it answers. Raises RuntimeError with the end of its log if it ends, or
        does not answer in time. `user`: runs it; None: this one."""
        log = self.folder / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                arguments, stdout=out, stderr=out, stdin=subprocess.DEVNULL, user=user, start_new_session=True
            )
        last = time.monotonic() + self.start_seconds
        while not answers():
            if self._process.poll() is not None or time.monotonic() > last:
                raise RuntimeError(f"{arguments[0]} did not start: {log.read_text(errors='replace')[-3000:]}")
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """Kill the server at once (SIGKILL). May be repeated."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def stop(self) -> None:
        """Stop the server, and kill it if that takes too long. May be repeated."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
