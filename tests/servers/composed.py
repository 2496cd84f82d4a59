"""The compose files of `deploy`, read as Docker does it, and their services as processes of this machine."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.servers import crawling
from tests.servers.valkey import free_ports

DEPLOY = Path(__file__).parents[2] / "deploy"
_VARIABLE = re.compile(r"\$\{(\w+)(?::[?-][^}]*)?\}|\$\$")
_LOCAL = re.compile(r"127\.0\.0\.1:\d+")


def services(name: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the services of a compose file. Variables are replaced within values, after the file was read."""

    def replaced(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: replaced(value) for key, value in part.items()}
        if isinstance(part, list):
            return [replaced(value) for value in part]
        if not isinstance(part, str):
            return part
        return _VARIABLE.sub(lambda found: variables.get(found[1], "") if found[1] else "$", part)

    found: dict[str, Any] = replaced(yaml.safe_load((DEPLOY / name).read_text())["services"])
    return found


class Composed:
    """A service with the command, the variables and the health check of its container. `elsewhere`: what stands here
    for names of the containers' network and for paths of volumes; ports of the container itself become free ones."""

    def __init__(
        self,
        service: Mapping[str, Any],
        folder: Path,
        elsewhere: Mapping[str, str],
        *options: str,
        **environment: str,
    ) -> None:
        """`options`, `environment`: what this machine needs besides."""
        folder.mkdir(parents=True)
        self._folder, self._elsewhere = folder, {**elsewhere, "0.0.0.0": "127.0.0.1"}
        self._ports: dict[str, str] = {}
        self.port = 0
        """Port of its API. 0: it has none."""
        words = [*shlex.split(service["command"]), *options]
        if "ports" in service:
            outside, _, inside = service["ports"][0].rpartition(":")
            assert outside == f"127.0.0.1:{inside}", "an API must not be published to other machines"
            self.port = int(self._here(f"127.0.0.1:{inside}").rpartition(":")[2])
            words += ["--port", str(self.port)]
        own = {name: self._here(value) for name, value in service["environment"].items()}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GOSSAMER_")}
        self._environment = {**kept, **own, **environment}
        self._command = crawling.command(*map(self._here, words))
        self._check = [
            sys.executable if word == "python" else self._here(word) for word in self._words_of_check(service)
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def _words_of_check(service: Mapping[str, Any]) -> list[str]:
        kind, *words = service.get("healthcheck", {}).get("test", ["CMD"])
        assert kind == "CMD"
        return words

    def _here(self, text: str) -> str:
        """Return a text of the compose file with the places of this machine."""
        for there, here in self._elsewhere.items():
            text = text.replace(there, here)
        return _LOCAL.sub(self._own_port, text) if text not in self._elsewhere.values() else text

    def _own_port(self, found: "re.Match[str]") -> str:
        if any(found[0] in here for here in self._elsewhere.values()):
            return found[0]
        if found[0] not in self._ports and found[0] not in self._ports.values():
            self._ports[found[0]] = f"127.0.0.1:{free_ports(1)[0]}"
        return self._ports.get(found[0], found[0])

    def start(self) -> None:
        """Start the process; return at once."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def is_healthy(self) -> bool:
        """Run the health check, if there is one. Raises AssertionError if the process has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        return not self._check or subprocess.run(self._check, capture_output=True, check=False).returncode == 0

    def said(self) -> str:
        """Return what the process has written."""
        return (self._folder / "log").read_text(errors="replace")

    def run(self, *arguments: str) -> str:
        """Run another command of Gossamer beside it, as `docker compose exec` does, and return what it prints."""
        command = crawling.command(*arguments)
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def stop(self) -> int:
        """Stop it as Docker does, and return its exit code. May be repeated."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(60)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
