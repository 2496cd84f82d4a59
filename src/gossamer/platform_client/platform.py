"""Client of the platform's own API under /v1. Each method is one call, or a few; answers are the API's JSON.

A change may be repeated after a connection broke, because it is sent with a key by which the server knows it again.
Fixed: nothing but the API's own paths and fields, which docs/reference/platform.md has.
"""

import http.client
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from gossamer.platform_client.http import HttpSession, ServerRefused, ServerUnreachable, UploadBody
from gossamer.platform_client.targets import DeployTarget

T = TypeVar("T")

_SILENCE_SECONDS: Final = 60.0
"""Longest silence of a stream of events; the server sends a comment every 15 seconds."""
_BUILD_SECONDS: Final = 900.0
"""Longest wait for the answer to a deployment."""
_LOOK_SECONDS: Final = 0.5
"""Pause between two looks at what is to change."""
_RETRIES: Final = 4
"""Number of times that a call is repeated whose answer was lost."""
_PAGE: Final = 1000
"""Entries of a page: the most that the API returns."""
ENDED: Final = frozenset({"finished", "failed", "cancelled"})
"""States in which a job has ended. The API's: fixed."""
_ANSWER_SECONDS: Final = 5
"""Time after which the server answers although it still builds a version, and the client reports that. At most 50:
proxies cut longer calls off."""


class PlatformClient:
    """A server with the API /v1."""

    def __init__(self, target: DeployTarget) -> None:
        self.target = target
        self.session = HttpSession(target.url, target.credentials)

    def call(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer of an endpoint below /v1. A call that reads is repeated when the connection broke."""
        return _repeated(lambda: self.session.json(method, f"/v1{path}", **options), times=_RETRIES * (method == "GET"))

    def create(self, path: str, body: Mapping[str, Any] | None) -> Any:
        """Create something, once even if the call has to be repeated. `body` None: the path says it all."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return _repeated(
            lambda: self.session.json("POST", f"/v1{path}", body=body and dict(body), headers=headers), times=_RETRIES
        )

    # --- versions -----------------------------------------------------------------------------------------------------

    def deploy(
        self,
        project: str,
        version: str,
        content: bytes,
        show: Callable[[int, int], None],
        on_building: Callable[[str], None],
        **query: Any,
    ) -> dict[str, Any]:
        """Send an artefact, and wait until its spiders are listed. Return the version. Raises ServerRefused with the
        reason if it is broken.

        `on_building` is called when the server still builds it after some seconds, and then for each new reason why the
        server has to try again; it gets that reason. Empty: there is none."""
        answer = self.session.json(
            "POST",
            "/v1/versions",
            query={"project": project, "version": version, "wait_seconds": _ANSWER_SECONDS, **query},
            body=UploadBody([content], show),
            headers={"Content-Type": "application/zip"},
            seconds=_BUILD_SECONDS,
        )
        reported: str | None = None
        while answer["state"] == "building":
            if answer["reason"] != reported:
                reported = answer["reason"]
                on_building(reported)
            time.sleep(_LOOK_SECONDS)
            number = answer["id"]
            found = [each for each in self.call("GET", "/versions", query={"project": project}) if each["id"] == number]
            if not found:
                raise ServerRefused(f"version {version} was deleted while it was built")
            answer = found[0]
        if answer["state"] == "broken":
            raise ServerRefused(answer["reason"], 422)
        return dict(answer)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def jobs(self, limit: int, **filters: Any) -> list[dict[str, Any]]:
        """Return up to `limit` jobs, the latest first."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while len(found) < limit:
            query = {**filters, "after": after, "limit": min(_PAGE, limit - len(found))}
            page = self.call("GET", "/jobs", query=query)
            found += page["jobs"]
            after = page["next"]
            if after is None:
                break
        return found

    def send_input(self, project: str, name: str, content: bytes) -> str:
        """Send a file for jobs of a project, and return the digest by which jobs name it."""
        query = {"project": project, "name": name}
        headers = {"Content-Type": "application/octet-stream"}
        options = {"query": query, "body": content, "headers": headers, "seconds": _BUILD_SECONDS}
        answer = _repeated(lambda: self.session.json("POST", "/v1/inputs", **options), times=_RETRIES)
        return str(answer["digest"])

    def wait_for_group(self, number: int, on_change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Return a group once all its jobs have ended. An outage of the server is waited for. `on_change` gets the
        group at first, and whenever the states of its jobs have changed, until all have ended."""
        shown: dict[str, int] | None = None
        while True:
            group = dict(_outlasting(lambda: self.call("GET", f"/groups/{number}")))
            if ENDED.issuperset(group["jobs"]):
                return group
            if group["jobs"] != shown:
                on_change(group)
            shown = group["jobs"]
            time.sleep(_LOOK_SECONDS)

    def job(self, number: int) -> dict[str, Any]:
        """Return a job."""
        return dict(self.call("GET", f"/jobs/{number}"))

    def wait(self, number: int, on_retry: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Return a job once it has ended. An outage of the server is waited for. `on_retry` gets the job whenever
        another attempt of it has failed, and it is to be tried again."""
        failed = 0
        while True:
            job = _outlasting(lambda: self.job(number))
            if job["state"] in ENDED:
                return job
            if on_retry is not None and len(job["earlier_attempts"]) > failed:
                on_retry(job)
            failed = len(job["earlier_attempts"])
            time.sleep(_LOOK_SECONDS)

    def follow(self, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (kind, data) of each event of a job, `log` or `state`, until it has ended. An outage of the server is
        waited for; after it, the events continue where they were."""
        place = ""
        while True:
            headers = {"Last-Event-ID": place} if place else {}
            try:
                with self.session.open(
                    "GET", f"/v1/jobs/{number}/events", headers=headers, seconds=_SILENCE_SECONDS
                ) as response:
                    for kind, identity, data in _events(response):
                        place = identity or place
                        if kind == "end":
                            return
                        yield kind, data
            except (ServerUnreachable, ServerRefused) as error:
                if not error.is_passing:
                    raise
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(_LOOK_SECONDS)  # also where a proxy ends each stream at once

    def read(self, path: str, **query: Any) -> Iterator[bytes]:
        """Yield the content of a file below /v1, in parts."""
        return self.session.parts("GET", f"/v1{path}", query=query)


def _repeated(call: Callable[[], Any], *, times: int) -> Any:
    """Return the result of a call, repeated when the server could not be reached or was not ready."""
    for left in range(times, -1, -1):
        try:
            return call()
        except (ServerUnreachable, ServerRefused) as error:
            if not left or (isinstance(error, ServerUnreachable) and error.never_arrived):
                raise
            _wait_out(error)
    raise AssertionError


def _outlasting(call: Callable[[], T]) -> T:
    """Return the result of a call, however long the server is away. Raises failures that do not pass."""
    while True:
        try:
            return call()
        except (ServerUnreachable, ServerRefused) as error:
            _wait_out(error)


def _wait_out(error: ServerUnreachable | ServerRefused) -> None:
    """Wait a moment for a server whose failure passes. Raises any other failure."""
    if not error.is_passing:
        raise error
    time.sleep(_LOOK_SECONDS)


def _events(response: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (event, id, data) of a stream of server-sent events."""
    fields: dict[str, str] = {}
    for raw in response:
        line = raw.decode(errors="replace").rstrip("\r\n")
        if not line and fields:
            yield fields.get("event", "message"), fields.get("id", ""), json.loads(fields.get("data", "{}"))
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
