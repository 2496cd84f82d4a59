"""One browser process: starts it without any way to the network, and leaves neither a process nor a folder behind.

The browser loads nothing by itself: its proxy is a port on which nothing listens, and every request of a page is
answered over the DevTools pipe by this program's own HTTP client (`requests.py`). A small shell process is its parent:
it deletes the browser's folder also where this process was killed, because the browser ends when its pipe does.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from gossamer.errors import BrowserCrashed, BrowserError, BrowserMissing, GossamerError
from gossamer.render.devtools import CommandPipe, DevTools
from gossamer.render.program import BrowserUser

_SUPERVISOR = (
    "exec 3<&0 4>&1 </dev/null >/dev/null; trap '' INT TERM HUP; "
    '"$@" & exec 3<&- 4>&-; wait "$!"; rm -rf -- "$GOSSAMER_BROWSER_FOLDER"'
)
"""Parent of the browser. It hands its standard streams on as the DevTools pipe, which is on descriptors 3 and 4."""
_FOLDER_PREFIX = "gossamer-browser-"
_START_SECONDS = 30.0
_END_SECONDS = 5.0
"""Time in which a browser ends by itself once its pipe is closed. Then it is killed."""
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
    "AutofillServerCommunication,CertificateTransparencyComponentUpdater,SpeculationRules,Prerender2,WebOTP,DialMediaRouteProvider",
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


class _Pipes(NamedTuple):
    """This program's ends of the pipes of a browser."""

    answers: asyncio.StreamReader
    commands: CommandPipe
    complaints: asyncio.StreamReader
    readers: tuple[asyncio.BaseTransport, ...]
    """Transports of the pipes that are read."""


class Browser:
    """A running browser and its DevTools connection."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, fence: socket.socket, pipes: _Pipes) -> None:
        """`fence`: the socket that holds the port of the proxy, on which nothing listens."""
        self.process = process
        self.devtools = DevTools(pipes.answers, pipes.commands)
        self.started = time.monotonic()
        self.memory = 0
        """Memory of its processes in bytes, when it was measured last."""
        self.measured = 0.0
        """Monotonic time at which its memory was measured last."""
        self.pages = 0
        """Pages that it has loaded."""
        self.tabs = 0
        """Tabs that are open."""
        self._folder = folder
        self._fence = fence
        self._readers = pipes.readers
        self._complaints = bytearray()
        self._listening = asyncio.get_running_loop().create_task(self._listen(pipes.complaints))

    @classmethod
    async def start(cls, options: LaunchOptions) -> "Browser":
        """Start a browser. Raises BrowserMissing for one that cannot be used here, BrowserCrashed and BrowserHung."""
        fence = socket.socket()
        try:
            fence.bind(("127.0.0.1", 0))  # without `listen`, so that every connection is refused
            # In a thread, because folders may be slow, and the fork of a large process takes milliseconds.
            process, folder = await asyncio.to_thread(_start_process, options, fence.getsockname()[1])
        except BaseException:
            fence.close()
            raise
        browser = cls(process, folder, fence, await _open_pipes(process))
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
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def close(self, *, kill: bool = False) -> None:
        """End the browser and delete its folder. `kill` False: it may end by itself first. May be repeated."""
        await self.devtools.close()
        if not kill:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self.process.wait, _END_SECONDS)
        self.kill()
        await asyncio.to_thread(self.process.wait)
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        for reader in self._readers:
            reader.close()
        self._fence.close()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

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
        return BrowserCrashed(f"{options.program} did not start: {lines[-1] if lines else error.detail}")

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        """Keep the end of what the browser writes to its standard error."""
        while data := await stream.read(_STDERR_BYTES):
            self._complaints += data
            del self._complaints[:-_STDERR_BYTES]


def _place(user: BrowserUser | None) -> str | None:
    """Return where the folder of a browser is made; None: where temporary files go. Another user needs a place that all
    users reach."""
    place = Path(tempfile.gettempdir())
    if user is None or all(parent.stat().st_mode & 0o001 for parent in (place, *place.parents)):
        return None
    return "/tmp"  # noqa: S108 (the folder itself has a name that nothing can guess)


async def _open_pipes(process: subprocess.Popen[bytes]) -> _Pipes:
    """Connect this program's ends of the pipes to the event loop."""
    loop = asyncio.get_running_loop()
    readers, transports = [], []
    for pipe in (process.stdout, process.stderr):
        reader = asyncio.StreamReader(limit=_STREAM_BYTES)
        transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
        transports.append(transport)
        readers.append(reader)
    _, commands = await loop.connect_write_pipe(CommandPipe, process.stdin)
    return _Pipes(readers[0], commands, readers[1], tuple(transports))


def _start_process(options: LaunchOptions, port: int) -> tuple[subprocess.Popen[bytes], Path]:
    """Make the browser's folder and start its processes. Leaves no folder behind if that fails."""
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=_place(options.user)))
    try:
        if options.user is not None:
            os.chown(folder, *options.user)
        return _spawn(options, folder, port), folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _spawn(options: LaunchOptions, folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start the processes. The browser sees nothing of this process's environment but the path and the language."""
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
    environment = kept | {
        "HOME": home,
        "TMPDIR": home,
        "XDG_CONFIG_HOME": home,
        "XDG_CACHE_HOME": home,
        "GOSSAMER_BROWSER_FOLDER": home,
    }
    return subprocess.Popen(
        ("/bin/sh", "-c", _SUPERVISOR, "sh", options.program, *flags),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=environment,
        cwd=folder,
        start_new_session=True,
        user=None if options.user is None else options.user.uid,
        group=None if options.user is None else options.user.gid,
        extra_groups=None if options.user is None else [],
    )
