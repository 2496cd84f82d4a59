"""ScrapydWeb 1.6 as a process of its own, with the alert poller and LogParser, which it starts itself."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.servers.pip_programs import program
from tests.servers.scrapyd import WAIT_SECONDS, until
from tests.servers.valkey import free_ports

_CELLS = "".join(rf"(?:<td>(?P<{name}>.*?)</td>\s*)?" for name in ("PID", "Start", "Runtime", "Finish", "Log", "Items"))
JOB_ROW = re.compile(
    rf"<tr>\s*<td>(?P<Project>.*?)</td>\s*<td>(?P<Spider>.*?)</td>\s*<td>(?P<Job>.*?)</td>\s*{_CELLS}[\w\W]*?</tr>"
)
"""What ScrapydWeb expects of a row of /jobs: cells without attributes, of which the later ones may be missing."""
FILE_ROW = re.compile(
    r'<tr\sclass="(?:odd|even)">\n\s+<td>(?P<name>.*?)</td>\n\s+<td>(?P<size>.*?)</td>\n\s+<td>(?P<modified>.*?)</td>\n'
    r"\s+<td>(?P<type>.*?)</td>\n\s+<td>(?P<encoding>.*?)</td>\n"
)
"""What it expects of a row of a folder's listing."""
_SETTINGS = """
SCRAPYDWEB_BIND = '127.0.0.1'
SCRAPYD_SERVERS = {servers!r}
LOCAL_SCRAPYD_SERVER = {local!r}
LOCAL_SCRAPYD_LOGS_DIR = {logs!r}
ENABLE_LOGPARSER = {logparser}
SCRAPY_PROJECTS_DIR = {projects!r}
ENABLE_MONITOR = True
POLL_ROUND_INTERVAL = 1
POLL_REQUEST_INTERVAL = 1
ALERT_WORKING_DAYS = [1, 2, 3, 4, 5, 6, 7]
ALERT_WORKING_HOURS = list(range(24))
LOG_CRITICAL_THRESHOLD = 1
LOG_CRITICAL_TRIGGER_STOP = True
JOBS_SNAPSHOT_INTERVAL = 2
DATA_PATH = 'data'
"""
"""The poller asks every second (ScrapydWeb's default: 300) and stops a job that has logged something critical."""


class ScrapydWeb:
    """One running ScrapydWeb for these servers, in a folder of its own."""

    def __init__(self, folder: Path, servers: Sequence[str], *, logs: Path | None = None) -> None:
        """`servers`: `[USERNAME:PASSWORD@]HOST:PORT` of each. `logs`: the folder of logs of the first one, for
        LogParser; None: no LogParser."""
        self.folder = folder
        self.projects = folder / "projects"
        self.projects.mkdir(parents=True)
        [self.port] = free_ports(1)
        settings = _SETTINGS.format(
            # ScrapydWeb sorts them by group and port; so they have the numbers of their places here.
            servers=[f"{server}#{place}" for place, server in enumerate(servers)],
            local=servers[0] if logs else "",
            logs=str(logs or ""),
            logparser=logs is not None,
            projects=str(self.projects),
        )
        (folder / "scrapydweb_settings_v11.py").write_text(settings)
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", timeout=WAIT_SECONDS, follow_redirects=True
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it serves."""
        command = program("scrapydweb", "scrapydweb")
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [command, "--port", str(self.port)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"},
                start_new_session=True,
            )
        until(self._serves, what=self.said)

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        with contextlib.suppress(httpx.TransportError):
            return self.client.get("/hello").status_code == 200
        return False

    def said(self) -> str:
        """What it has written so far; the last of it."""
        return (self.folder / "log").read_text(errors="replace")[-20_000:]

    def page(self, path: str, **query: Any) -> str:
        """A page of the first server, which must not be that of an error."""
        answer = self.client.get(f"/1/{path}", params=query)
        assert answer.status_code == 200, answer.text[-3000:]
        assert "Oops! Something went wrong" not in answer.text, answer.text
        return answer.text

    def post(self, path: str, fields: dict[str, Any], *, node: int = 1, **files: Any) -> str:
        """The page that answers a form."""
        answer = self.client.post(f"/{node}/{path}", data=fields, files=files or None)
        assert answer.status_code == 200, answer.text[-3000:]
        return answer.text

    def api(self, *path: str, node: int = 1) -> Any:
        """What ScrapydWeb's own API answers, which asks a server."""
        return self.client.get(f"/{node}/api/{'/'.join(path)}/").json()

    def close(self) -> None:
        """End it with the processes that it has started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        self.client.close()


@contextlib.contextmanager
def scrapydweb(folder: Path, servers: Sequence[str], *, logs: Path | None = None) -> Iterator[ScrapydWeb]:
    """One that runs until the end of the block."""
    web = ScrapydWeb(folder, servers, logs=logs)
    try:
        web.start()
        yield web
    finally:
        web.close()
