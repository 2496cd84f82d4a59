"""Uploads that stop before their end, to a real manager."""

import contextlib
import socket
from pathlib import Path

from tests.servers.platform import RunningManager, running
from tests.servers.scrapyd import until


def test_uploads_that_stop_are_not_in_memory(tmp_path: Path) -> None:
    """Six uploads, each of which stops before its end."""
    part, count = 24 * 1024 * 1024, 6
    manager = RunningManager(tmp_path, limit_seconds=60.0)

    def memory() -> int:
        assert manager.process is not None
        status = Path(f"/proc/{manager.process.pid}/status").read_text()
        return 1024 * int(status.partition("RssAnon:")[2].split()[0])

    def kept() -> int:
        """Bytes of files without a name that the manager has open."""
        assert manager.process is not None
        found = 0
        for entry in Path(f"/proc/{manager.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if "uploads" in str(entry.readlink()):
                    found += entry.stat().st_size
        return found

    with running(manager), contextlib.ExitStack() as open_sockets:
        before = memory()
        for path in ("/v1/versions?project=a&version=1", "/addversion.json", "/cloud/api/scrapyd/addversion.json") * 2:
            upload = open_sockets.enter_context(socket.create_connection(("127.0.0.1", manager.port)))
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {part + 1}\r\n\r\n"
            upload.sendall(head.encode() + b"x" * part)
        until(lambda: kept() > 0.9 * part * count, what=lambda: f"{kept()} {manager.said()}")
        assert memory() - before < 2 * part
        assert manager.client.get("/daemonstatus.json").json()["status"] == "ok"
