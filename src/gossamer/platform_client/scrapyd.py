"""Client of Scrapyd's API, for any Scrapyd: the original, `gossamer scrapyd`, or another server with that interface.

Scrapyd answers errors with status 200; they are raised here. Fixed: paths and fields, which are Scrapyd's.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from gossamer.platform_client.http import HttpSession, ServerRefused, UploadBody
from gossamer.platform_client.targets import DeployTarget

_BUILD_SECONDS: Final = 900.0
"""Longest wait for the answer to a deployment."""


class ScrapydClient:
    """A server with Scrapyd's API."""

    def __init__(self, target: DeployTarget, seconds: float = 30.0) -> None:
        """`seconds`: time limit of a call."""
        self.target = target
        self.session = HttpSession(target.url, target.credentials)
        self._seconds = seconds

    def _call(self, method: str, name: str, **options: Any) -> dict[str, Any]:
        answer = self.session.json(method, f"/{name}.json", **{"seconds": self._seconds, **options})
        if not isinstance(answer, dict) or "status" not in answer:
            raise ServerRefused(f"{self.session.url} is no Scrapyd: {name}.json has no status. Is the address right?")
        if answer["status"] != "ok":
            raise ServerRefused(str(answer.get("message", "no reason given")))
        return answer

    def get(self, name: str, **query: Any) -> dict[str, Any]:
        """Return the answer of an endpoint that reads."""
        return self._call("GET", name, query=query)

    def post(self, name: str, fields: list[tuple[str, str]]) -> dict[str, Any]:
        """Return the answer of an endpoint that changes something."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._call("POST", name, body=urlencode(fields).encode(), headers=headers)

    def deploy(self, project: str, version: str, content: bytes, show: Callable[[int, int], None]) -> dict[str, Any]:
        """Send an egg. Return the answer, with the number of spiders."""
        boundary = uuid.uuid4().hex
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in (("project", project), ("version", version))
        ]
        head = 'Content-Disposition: form-data; name="egg"; filename="project.egg"'
        parts.append(f"--{boundary}\r\n{head}\r\nContent-Type: application/octet-stream\r\n\r\n".encode())
        body = UploadBody([*parts, content, f"\r\n--{boundary}--\r\n".encode()], show)
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        return self._call("POST", "addversion", body=body, headers=headers, seconds=_BUILD_SECONDS)

    def schedule(
        self,
        project: str,
        spider: str,
        arguments: Mapping[str, str],
        settings: Mapping[str, str],
        **more: str,
    ) -> str:
        """Schedule a job and return its id. `more`: jobid, priority, _version."""
        fields = [("project", project), ("spider", spider), *more.items(), *arguments.items()]
        fields += [("setting", f"{name}={value}") for name, value in settings.items()]
        return str(self.post("schedule", fields)["jobid"])

    def state(self, job: str, project: str | None = None) -> str | None:
        """Return `pending`, `running` or `finished` of a job. None: the server knows none of this id."""
        found = self.get("listjobs", project=project)
        for name in ("pending", "running", "finished"):
            if any(each["id"] == job for each in found[name]):
                return name
        return None
