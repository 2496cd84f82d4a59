"""The fake web as a process of its own, which is started, asked and stopped from here.

The server's standard input stays open in `FakeWeb` and nowhere else (it ends when that closes, so it never outlives
this process), and its standard error goes to a file, because a full pipe would stop it. The options are those of
`__main__.py`.
"""

import http.client
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from gossamer.errors import FakeWebFailed
from gossamer.fakeweb.answer import Answer, Mounts
from gossamer.fakeweb.control import HOST, HostilePlace, Mount, Stats
from gossamer.fakeweb.journal import Record
from gossamer.fakeweb.site import ADDRESS, Web
from gossamer.fakeweb.spec import WebSpec, spec_arguments

_STOP_SECONDS = 10.0
"""Wait for the server to end by itself; then it is killed."""
_ASK_SECONDS = 30.0
"""Limit for an answer of the control host. The first request for hostile hosts takes seconds."""


class FakeWeb(Web):
    """A fake web in another process, made by `start`. A context manager. The server ends with this process, however
    this one ends.

    Calls block until the server has answered. `pid` is the server's, for measuring it.
    """

    def __init__(
        self,
        spec: WebSpec,
        *,
        scheme: str,
        port: int,
        process: "subprocess.Popen[str]",
        folder: "tempfile.TemporaryDirectory[str]",
    ) -> None:
        super().__init__(spec, scheme=scheme, port=port)
        self._process = process
        self._folder = folder
        self.pid = process.pid
        self.ca_path: Path | None = Path(folder.name, "ca.pem") if scheme == "https" else None
        """The certificate (PEM) that clients must trust; None without TLS."""
        self._mounted: set[str] = set()

    @classmethod
    def start(
        cls,
        spec: WebSpec,
        *,
        tls: bool = False,
        port: int = 0,
        mounts: Mounts | None = None,
        log_file: Path | None = None,
    ) -> Self:
        """Start a server and wait until it listens. Raises `FakeWebFailed` with its error output if it does not."""
        folder = tempfile.TemporaryDirectory(prefix="fakeweb-")
        arguments = [f"--port={port}", "--until-stdin-closes", *spec_arguments(spec)]
        if tls:
            arguments += ["--tls", f"--ca-file={Path(folder.name, 'ca.pem')}"]
        if log_file:
            arguments += [f"--log={log_file}"]
        errors_file = Path(folder.name, "stderr")
        with errors_file.open("wb") as stderr:  # a file: a pipe that is not read would fill up
            process = subprocess.Popen(
                [sys.executable, "-m", "gossamer.fakeweb", *arguments],
                stdin=subprocess.PIPE,  # held open by this process alone: the server ends when it is gone
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert process.stdout
        line = process.stdout.readline()
        if not line:
            process.communicate()
            errors = errors_file.read_text(errors="replace").strip()
            folder.cleanup()
            raise FakeWebFailed(errors)
        bound = int(line.split()[-1].rpartition(":")[2])  # the line ends with the address
        web = cls(spec, scheme="https" if tls else "http", port=bound, process=process, folder=folder)
        try:
            for (host, path), answers in (mounts or {}).items():
                web.mount(host, path, answers)
        except BaseException:
            web.stop()
            raise
        return web

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process and wait for it; print what it wrote to standard error. May be called again."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        errors_file = Path(self._folder.name, "stderr")
        if errors_file.exists() and errors_file.stat().st_size:  # a fault must not go unseen
            sys.stderr.write(errors_file.read_text(errors="replace"))
        self._folder.cleanup()

    def log(self) -> list[Record]:
        """Return all requests since the start or the last reset. Raises `FakeWebFailed` if there were too many to
        log."""
        missed = self.stats().missed
        if missed:
            raise FakeWebFailed(f"the log had no room for {missed:,} requests")
        decoder = msgspec.json.Decoder(Record)
        records: list[Record] = []
        while True:
            fresh = decoder.decode_lines(self._ask("GET", f"/log?from={len(records)}"))
            if not fresh:
                return records
            records += fresh

    def hostile_places(self) -> list[HostilePlace]:
        """Return where each hostile host begins; empty where the web has none."""
        return msgspec.json.Decoder(HostilePlace).decode_lines(self._ask("GET", "/hostile"))

    def stats(self) -> Stats:
        """Return the counters of the server."""
        return msgspec.json.decode(self._ask("GET", "/stats"), type=Stats)

    def reset(self) -> None:
        """Forget the log; pages that fail once fail again."""
        self._ask("POST", "/reset")

    def mount(self, host: str, path: str, answers: Answer | Sequence[Answer]) -> None:
        """Serve these answers at this address from now on, instead of generated ones (see `Answers.mount`)."""
        several = (answers,) if isinstance(answers, Answer) else tuple(answers)
        self._ask("POST", "/mount", msgspec.json.encode(Mount(host=host, path=path, answers=several)))
        if self.site.host_number(host) is None:
            self._mounted.add(host)

    def resolve_overrides(self) -> list[str]:
        """Return `host:address` for each host, mounted ones included."""
        return super().resolve_overrides() + [f"{host}:{ADDRESS}" for host in sorted(self._mounted)]

    def _ask(self, method: str, target: str, body: bytes | None = None) -> bytes:
        """Send a request to the control host and return the body of its answer. Raises `FakeWebFailed`."""
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=_ASK_SECONDS)
        try:
            connected = socket.create_connection((ADDRESS, self.port), timeout=_ASK_SECONDS)
            if self.ca_path:
                context = ssl.create_default_context(cafile=str(self.ca_path))
                connected = context.wrap_socket(connected, server_hostname=HOST)
            connection.sock = connected
            connection.request(method, target, body=body, headers={"Host": HOST})
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise FakeWebFailed(f"the fake web does not answer on port {self.port}: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise FakeWebFailed(content.decode(errors="replace").strip())
        return content
