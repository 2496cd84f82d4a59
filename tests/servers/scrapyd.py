"""`gossamer scrapyd` as a process of its own, and eggs of small projects for it."""

import contextlib
import io
import os
import signal
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.servers.nursery import Reared, serve_in
from tests.servers.valkey import free_ports

_START_SECONDS = 60.0
WAIT_SECONDS = 60.0
"""How long tests wait for what must happen."""


SERVES_NOTHING = """
from scrapy.settings.default_settings import EXTENSIONS_BASE as usual
EXTENSIONS_BASE = {name: at for name, at in usual.items() if "telnet" not in name and "remote_control" not in name}
"""
"""Settings of a project without Scrapy's extensions that serve: Scrapy loads them even if they are turned off."""
FETCHES_NOTHING = f"""{SERVES_NOTHING}
DOWNLOADER_MIDDLEWARES_BASE = {{}}
DOWNLOAD_HANDLERS = dict.fromkeys(("ftp", "http", "https", "s3"))
"""
"""Settings of a project whose spiders fetch no page but those of `data:`. Its jobs start in two thirds of the time."""


def egg(
    spiders: str, *, name: str = "shop", usual: str = FETCHES_NOTHING, settings: str = "", entry_point: bool = True
) -> bytes:
    """A project with these spiders in one module, as setuptools' bdist_egg would pack it. `usual`: settings that come
    before the others, SERVES_NOTHING for spiders that fetch."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr(f"{name}/__init__.py", "")
        packed.writestr(f"{name}/settings.py", f"SPIDER_MODULES = ['{name}.spiders']\n{usual}{settings}\n")
        packed.writestr(
            f"{name}/spiders.py", f"import asyncio, os, signal, subprocess, sys\nimport scrapy\n{spiders}\n"
        )
        packed.writestr("EGG-INFO/PKG-INFO", f"Metadata-Version: 1.0\nName: {name}\nVersion: 1\n")
        if entry_point:
            packed.writestr("EGG-INFO/entry_points.txt", f"[scrapy]\nsettings = {name}.settings\n")
    return content.getvalue()


def wheel(
    name: str, files: Mapping[str, str], *, metadata: str = "", version: str = "1.0", tag: str = "py3-none-any"
) -> bytes:
    """A wheel with these files."""
    info = f"{name}-{version}.dist-info"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for path, text in files.items():
            packed.writestr(path.replace("INFO/", f"{info}/"), text)
        packed.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}")
        packed.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n")
        packed.writestr(f"{info}/RECORD", "")
    return content.getvalue()


def project_wheel(
    spiders: str, *, requires: Sequence[str] = (), settings: str = "", more: Mapping[str, str] | None = None
) -> bytes:
    """A project with these spiders, which fetch nothing, in one module, as a wheel."""
    files = {
        "shop/__init__.py": "",
        "shop/settings.py": f"SPIDER_MODULES = ['shop.spiders']\n{FETCHES_NOTHING}{settings}\n",
        "shop/spiders.py": f"import asyncio, os, sys\nimport scrapy\n{spiders}\n",
        "INFO/entry_points.txt": "[scrapy]\nsettings = shop.settings\n",
    }
    metadata = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    return wheel("shop", {**files, **(more or {})}, metadata=metadata)


def spider(name: str, start: str = "yield {'a': 1}", body: str = "") -> str:
    """The source of a spider whose `start` has this body."""
    lines = "\n".join(f"        {line}" for line in start.splitlines())
    return f"""
class {name.title()}(scrapy.Spider):
    name = '{name}'
{body}
    async def start(self):
{lines}
        for nothing in (): yield nothing
"""


class Scrapyd:
    """One running command, in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        conf: str = "",
        environment: Mapping[str, str] | None = None,
        quick: bool = False,
        python: str = "",
    ) -> None:
        """`quick`: jobs are not run by Scrapy, but by tests/servers/quick_runner.py. `python`: interpreter of the
        server, empty for that of the tests."""
        self._python = python
        self.folder = folder
        self._quick = quick
        self._environment = {**os.environ, **(environment or {})}
        [self.port] = free_ports(1)
        self._log = folder / "scrapyd.log"
        self.process: Reared | subprocess.Popen[bytes] | None = None
        (folder / "scrapyd.conf").write_text(f"[scrapyd]\nhttp_port = {self.port}\nitems_dir = items\n{conf}\n")
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=WAIT_SECONDS)

    def start(self) -> None:
        """Return when it serves."""
        arguments = ("scrapyd", "--log-level", "info")
        if self._python:
            command = [self._python, "-m", "gossamer", *arguments]
            with self._log.open("ab") as log:
                self.process = subprocess.Popen(
                    command,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,
                )
        elif self._quick:
            self.process = Reared(
                "tests.servers.quick_runner",
                arguments,
                environment=self._environment,
                log=self._log,
                folder=self.folder,
                appends=True,
                libraries="servers",
            )
        else:
            self.process = serve_in(self.folder, arguments, environment=self._environment, log=self._log)
        until(self._serves, seconds=_START_SECONDS, what=self.said)

    def _serves(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said()
        with contextlib.suppress(httpx.TransportError):
            return self.client.get("/daemonstatus.json").status_code in (200, 401)
        return False

    def said(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL, to it alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        """SIGTERM; its exit code. May be repeated."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def get(self, endpoint: str, **parameters: Any) -> Any:
        """The answer of an endpoint that is asked with GET."""
        return self.client.get(f"/{endpoint}.json", params=parameters).json()

    def post(self, endpoint: str, **fields: Any) -> Any:
        """The answer of an endpoint that is asked with POST."""
        return self.client.post(f"/{endpoint}.json", data=fields).json()

    def deploy(self, content: bytes, *, project: str = "shop", version: str = "1") -> Any:
        """Deploy an egg."""
        files = {"egg": ("project.egg", content)}
        data = {"project": project, "version": version}
        return self.client.post("/addversion.json", data=data, files=files).json()

    def jobs(self) -> Any:
        """What listjobs.json says."""
        return self.get("listjobs")

    def ended(self, name: str) -> Any:
        """The row of a job once it has ended."""
        found: list[Any] = []

        def has_ended() -> bool:
            found[:] = [job for job in self.jobs()["finished"] if job["id"] == name]
            return bool(found)

        until(has_ended, what=self.said)
        return found[0]

    def running(self, name: str) -> Any:
        """The row of a job once its process runs."""
        found: list[Any] = []

        def runs() -> bool:
            found[:] = [job for job in self.jobs()["running"] if job["id"] == name]
            return bool(found)

        until(runs, what=self.said)
        return found[0]

    def kill_jobs(self) -> None:
        """Kill what is left of its jobs."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"GOSSAMER_ATTEMPT={self.folder}/".encode() in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)


def until(condition: Any, *, seconds: float = WAIT_SECONDS, what: Any = lambda: "") -> None:
    """Return when the condition holds."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < seconds, what()
        time.sleep(min(max(0.05, waited / 5), 0.25))  # most conditions ask a server, which has to work for the answer


@contextlib.contextmanager
def scrapyd(
    folder: Path, *, conf: str = "", environment: Mapping[str, str] | None = None, quick: bool = False
) -> Iterator[Scrapyd]:
    """A server that runs until the end of the block."""
    server = Scrapyd(folder, conf=conf, environment=environment, quick=quick)
    try:
        server.start()
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()
        server.kill_jobs()
        server.client.close()
