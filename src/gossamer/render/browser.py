"""One browser process: starts it without any way to the network, and leaves neither a process nor a folder behind.

The browser loads nothing by itself: its proxy is a port on which nothing listens, and every request of a page is
answered over the DevTools pipe by this program's own HTTP client (`requests.py`). Where this program was killed, the
browser ends with its pipe. A small shell beside it, the janitor, then kills what does not, and deletes the folder. If
the janitor was killed, too, the next browser that is started deletes the folder.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from gossamer.errors import BrowserError, BrowserMissing, BrowserNotStarted, GossamerError
from gossamer.render.devtools import CHARACTER_BYTES, MESSAGE_BYTES, CommandPipe, DevTools
from gossamer.render.program import BrowserUser

DATA_KIB = 2 * 1024 * 1024
"""Data of one process, such as a page's, in KiB. Buffers, images and the document are not in the JavaScript heap;
Chromium itself would permit 16 GiB. With half of it, a long message to the console ends the browser in place of the
page. The memory in the deployment files must be more, or a page would end the worker there."""
_LAUNCHER = f"ulimit -d {DATA_KIB} 2>/dev/null; exec 3<&0 4>&1 </dev/null >/dev/null; trap '' INT TERM HUP; exec \"$@\""
"""Script that becomes the browser. It hands its standard streams on as the DevTools pipe, on descriptors 3 and 4."""
_JANITOR = (
    "trap '' INT TERM HUP; read -r group; read -r _; [ -n \"$group\" ] || { sleep 2; group=none; }; n=0; "
    'while [ $n -lt 80 ] && kill -s 0 -- "-$group"; do sleep 0.1; n=$((n + 1)); done; kill -s KILL -- "-$group"; '
    'rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }'
)
"""Script that waits until this program has ended, and then 8 seconds at most until the group of the browser has. It
reads the number of the group; without one, this program has ended before the browser was there."""
_FOLDER_PREFIX = "gossamer-browser-"
_START_SECONDS = 30.0
_MISSING_STATUSES = (126, 127)
"""Statuses of a shell whose program is missing or cannot be run, and of a program whose library is missing."""
_END_SECONDS = 5.0
"""Time in which a browser ends by itself once its pipe is closed. Then it is killed."""
_KILLED_SECONDS = 5.0
"""Time in which processes that were killed are gone."""
_LEFT_SECONDS = 60.0
"""Age from which the folder of a browser is deleted if no process holds it. One that is younger may have no process
yet."""
_STREAM_BYTES = 1 << 20
_STDERR_BYTES = 8192
LEAST_VERSION = 120
"""Oldest Chromium that is used: older ones lack methods that are called here."""
_VERSION = re.compile(r"/(\d+)\.")

_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    # No network. Without the second flag, names of this machine and link-local addresses would bypass the proxy.
    "--proxy-bypass-list=<-loopback>",
    # Names are not looked up: WebRTC would ask for those of its servers and candidates, which may carry data.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # chromium-headless-shell reads this one
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",  # chromium reads this one
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--dns-prefetch-disable",
    "--no-pings",
    # All frames of a page in one process: one session sees every request of the page.
    "--disable-site-isolation-trials",
    "--disable-features=IsolateOrigins,site-per-process,Translate,BackForwardCache,MediaRouter,OptimizationHints,"
    "AutofillServerCommunication,CertificateTransparencyComponentUpdater,SpeculationRules,Prerender2,WebOTP,DialMediaRouteProvider,"
    "WebRtcHideLocalIpsWithMdns,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable",
    "--disable-back-forward-cache",
    "--block-new-web-contents",
    "--deny-permission-prompts",
    "--disable-notifications",
    "--disable-extensions",
    "--disable-default-apps",
    "--disable-client-side-phishing-detection",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-hang-monitor",
    "--disable-ipc-flooding-protection",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--password-store=basic",
    "--use-mock-keychain",
    "--window-size=1280,1024",
)


class LaunchOptions(msgspec.Struct, frozen=True):
    """Instructions to start browsers."""

    program: str
    """Path of the program."""
    user: BrowserUser | None = None
    """User as whom it runs. None: that of this process."""
    sandbox: bool = True
    """False: pages are not confined, which only a container or a machine of its own makes up for."""
    heap_mib: int = 512
    """Largest JavaScript heap of a page in MiB."""
    document_bytes: int = 0
    """Characters of the longest document that is read. 0: of the usual ones."""


_Streams = tuple[socket.socket, socket.socket, socket.socket]
"""Standard streams of a browser: input, output and error. They are sockets, because uvloop closes the descriptor of a
pipe twice: the second time it may be that of a file which another thread has just opened."""


class _Pipes(NamedTuple):
    """This program's ends of the pipes of a browser."""

    answers: asyncio.StreamReader
    commands: CommandPipe
    complaints: asyncio.StreamReader
    readers: tuple[asyncio.BaseTransport, ...]
    """Transports of the pipes that are read."""


class _Started(NamedTuple):
    """Processes of a browser, and its folder."""

    process: subprocess.Popen[bytes]
    """First one of the browser, which leads the group of all others."""
    janitor: subprocess.Popen[bytes]
    folder: Path
    streams: _Streams
    """This program's ends of the standard streams."""


class Browser:
    """A running browser and its DevTools connection."""

    def __init__(
        self, started: _Started, fence: socket.socket, pipes: _Pipes, *, message_bytes: int = MESSAGE_BYTES
    ) -> None:
        """`fence`: the socket that holds the port of the proxy, on which nothing listens. `message_bytes`: longest
        message that is read of it."""
        self.process = started.process
        self.devtools = DevTools(pipes.answers, pipes.commands, message_bytes=message_bytes)
        self.started = time.monotonic()
        self.memory = 0
        """Memory of its processes in bytes, when it was measured last."""
        self.measured = 0.0
        """Monotonic time at which its memory was measured last."""
        self.pages = 0
        """Pages that it has loaded."""
        self.tabs = 0
        """Tabs that are open."""
        self.folder = started.folder
        self._janitor = started.janitor
        self._fence = fence
        self._readers = pipes.readers
        self._complaints = bytearray()
        self._listening = asyncio.get_running_loop().create_task(self._listen(pipes.complaints))

    @classmethod
    async def start(cls, options: LaunchOptions) -> "Browser":
        """Start a browser. Raises BrowserMissing for one that cannot be used here, and BrowserNotStarted."""
        fence = socket.socket()
        try:
            fence.bind(("127.0.0.1", 0))  # without `listen`, so that every connection is refused
            # In a thread, because folders may be slow, and the fork of a large process takes milliseconds.
            started = await asyncio.to_thread(_start_processes, options, fence.getsockname()[1])
        except OSError as error:
            fence.close()
            if options.user is not None and error.errno in (errno.EPERM, errno.EINVAL):
                raise BrowserMissing(
                    f"browser.user: this system lets Gossamer run no program as user {options.user.uid}. Run Gossamer "
                    "as a user that is not root."
                ) from None
            raise BrowserNotStarted(f"{options.program} did not start: {error}") from None
        except BaseException:
            fence.close()
            raise
        message_bytes = max(MESSAGE_BYTES, CHARACTER_BYTES * options.document_bytes)
        browser = cls(started, fence, await _open_pipes(started.streams), message_bytes=message_bytes)
        try:
            await browser._check_version(options)
        except BaseException:
            await browser.close(kill=True)
            raise
        return browser

    @property
    def ended(self) -> bool:
        """True: its pipe has ended."""
        return self.devtools.closed

    def kill(self) -> None:
        """Kill all its processes. May be repeated."""
        # Not `poll`: the number of the group is not given to another one before the first process was waited for.
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def close(self, *, kill: bool = False) -> None:
        """End the browser and delete its folder. `kill` False: it may end by itself first. May be repeated."""
        await self.devtools.close()
        if not kill:
            await asyncio.wait([self._listening], timeout=_END_SECONDS)  # until no process has the other end
        self.kill()
        await asyncio.to_thread(self.process.wait)
        await asyncio.wait([self._listening], timeout=_KILLED_SECONDS)
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        for reader in self._readers:
            reader.close()
        self._fence.close()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
        self._janitor.kill()
        await asyncio.to_thread(self._janitor.communicate)

    async def _check_version(self, options: LaunchOptions) -> None:
        """Wait until the browser answers, and check its version."""
        try:
            answer = await self.devtools.call("Browser.getVersion", seconds=_START_SECONDS)
        except BrowserError as error:
            await asyncio.wait([self._listening], timeout=1.0)
            raise self._explain(options, error) from None
        found = _VERSION.search(str(answer.get("product", "")))
        if found is None or int(found[1]) < LEAST_VERSION:
            raise BrowserMissing(
                f"{options.program} is {answer.get('product')}. Install Chromium {LEAST_VERSION} or newer."
            )

    def _explain(self, options: LaunchOptions, error: BrowserError) -> GossamerError:
        """Return the reason why a browser did not start."""
        complaints = self._complaints.decode(errors="replace")
        if "sandbox" in complaints.lower():
            return BrowserMissing(
                f"{options.program} cannot use its sandbox here. Permit user namespaces (in a container: its seccomp "
                "profile), or set browser.sandbox to no if a container or machine of its own confines the pages."
            )
        lines = complaints.strip().splitlines()
        fault = f"{options.program} did not start: {lines[-1] if lines else error.detail}"
        if self._status() in _MISSING_STATUSES:
            return BrowserMissing(f"{fault}. Install the browser anew.")
        return BrowserNotStarted(fault)

    def _status(self) -> int | None:
        """Return the exit status of its first process; None: it has none."""
        # Not `poll`, as in `kill`: what the process has started still belongs to its group.
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found.si_status if found is not None and found.si_code == os.CLD_EXITED else None

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        """Keep the end of what the browser writes to its standard error."""
        while data := await stream.read(_STDERR_BYTES):
            self._complaints += data
            del self._complaints[:-_STDERR_BYTES]


def _place(user: BrowserUser | None) -> Path:
    """Return where the folder of a browser is made. Another user needs a place that all users reach, and from which it
    can delete the folder."""
    place = Path(tempfile.gettempdir())
    is_open = place.stat().st_mode & 0o002 and all(each.stat().st_mode & 0o001 for each in (place, *place.parents))
    return place if user is None or is_open else Path("/tmp")  # noqa: S108 (nothing can guess the folder's name)


async def _open_pipes(streams: _Streams) -> _Pipes:
    """Connect this program's ends of the pipes to the event loop."""
    loop = asyncio.get_running_loop()
    readers, transports = [], []
    commands_end, *read_ends = streams
    for pipe in read_ends:
        reader = asyncio.StreamReader(limit=_STREAM_BYTES)
        transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
        transports.append(transport)
        readers.append(reader)
    _, commands = await loop.connect_write_pipe(CommandPipe, commands_end)
    return _Pipes(readers[0], commands, readers[1], tuple(transports))


def _start_processes(options: LaunchOptions, port: int) -> _Started:
    """Make the browser's folder and start its processes. Leaves no folder behind if that fails."""
    place = _place(options.user)
    _delete_left_folders(place, options.user)
    folder = place / f"{_FOLDER_PREFIX}{secrets.token_hex(8)}"
    # Before the folder is there, so that it is deleted if this program is killed now.
    janitor = _start(
        ("/bin/sh", "-c", _JANITOR, "sh", str(folder)),
        options.user,
        {"PATH": os.environ.get("PATH", os.defpath)},
        Path("/"),
    )
    try:
        folder.mkdir(0o700)
        # The processes of the browser hold the folder, until the last one has ended.
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            if options.user is not None:
                os.chown(folder, *options.user)
            process, streams = _start_browser(options, folder, port, held)
        finally:
            os.close(held)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        janitor.kill()
        janitor.communicate()
        raise
    assert janitor.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it was killed
        janitor.stdin.write(b"%d\n" % process.pid)
    return _Started(process, janitor, folder, streams)


def _delete_left_folders(place: Path, user: BrowserUser | None) -> None:
    """Delete folders of browsers that no process holds: the janitor was killed, too."""
    owners = {os.geteuid(), *(() if user is None else (user.uid,))}
    for folder in place.glob(f"{_FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, or another process has deleted it
            status = folder.lstat()
            if status.st_uid not in owners or time.time() - status.st_mtime < _LEFT_SECONDS:
                continue
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)


def _start_browser(
    options: LaunchOptions, folder: Path, port: int, held: int
) -> tuple[subprocess.Popen[bytes], _Streams]:
    """Start the browser. Returns also this program's ends of its standard streams. The browser sees nothing of this
    process's environment but the path and the language. `held`: descriptor that its processes keep open."""
    flags = [
        *_FLAGS,
        f"--proxy-server=http://127.0.0.1:{port}",
        f"--user-data-dir={folder}",
        f"--js-flags=--max-old-space-size={options.heap_mib}",
        *([] if options.sandbox else ["--no-sandbox"]),
        "about:blank",
    ]
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ}
    home = str(folder)
    environment = kept | {"HOME": home, "TMPDIR": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
    command = ("/bin/sh", "-c", _LAUNCHER, "sh", options.program, *flags)
    ours, theirs = zip(*(socket.socketpair() for _ in range(3)), strict=True)
    try:
        return _start(command, options.user, environment, folder, streams=theirs, held=(held,)), ours
    except BaseException:
        for end in ours:
            end.close()
        raise
    finally:
        for end in theirs:
            end.close()


def _start(
    command: Sequence[str],
    user: BrowserUser | None,
    environment: Mapping[str, str],
    folder: Path,
    *,
    streams: _Streams | None = None,
    held: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start a process that leads a group. `streams`: its standard streams; None: a pipe as its input, and nowhere to
    write to. `held`: descriptors that it inherits."""
    reads, writes, complains = (
        (subprocess.PIPE, subprocess.DEVNULL, subprocess.DEVNULL)
        if streams is None
        else (end.fileno() for end in streams)
    )
    return subprocess.Popen(
        command,
        stdin=reads,
        stdout=writes,
        stderr=complains,
        pass_fds=held,
        bufsize=0,
        env=environment,
        cwd=folder,
        start_new_session=True,
        user=None if user is None else user.uid,
        group=None if user is None else user.gid,
        extra_groups=None if user is None else [],
    )
