"""Requests that are sent to Scrapyd and to `gossamer scrapyd` alike; the answers are compared."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple


class Sent(NamedTuple):
    """One request."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    after: str = ""
    """What has to be true before: `running JOB`, `ended JOB`, or `running JOB logged`: its log exists, too."""


_FORM = "application/x-www-form-urlencoded"
_GETS = ("daemonstatus", "status", "listprojects", "listversions", "listspiders", "listjobs")
_POSTS = ("addversion", "schedule", "cancel", "delversion", "delproject")


def _post(endpoint: str, form: str | bytes, **more: Any) -> Sent:
    body = form if isinstance(form, bytes) else form.encode()
    return Sent("POST", f"/{endpoint}.json", body=body, content_type=_FORM, **more)


def _get(endpoint: str, query: str = "", **more: Any) -> Sent:
    return Sent("GET", f"/{endpoint}.json", query=query, **more)


def multipart(fields: dict[str, bytes], boundary: str = "xyz") -> tuple[bytes, str]:
    """A form with files, and its content type."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="f"\r\n\r\n'.encode()
        + value
        + b"\r\n"
        for name, value in fields.items()
    ]
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def _deploy(egg: bytes, version: str, project: str = "shop") -> Sent:
    body, content_type = multipart({"project": project.encode(), "version": version.encode(), "egg": egg})
    return Sent("POST", "/addversion.json", body=body, content_type=content_type)


def _methods() -> Iterator[Sent]:
    """Every endpoint with every method, and both spellings of its path."""
    for name in (*_GETS, *_POSTS):
        for method in ("OPTIONS", "HEAD", "GET", "POST"):
            yield Sent(method, f"/{name}.json")
        yield Sent(
            "POST" if name in _POSTS else "GET", f"/{name}.json", query="project=%C3%28&job=1&version=1&spider=1"
        )
    for name in _GETS:
        yield Sent("PUT", f"/{name}.json")
        yield Sent("DELETE", f"/{name}.json")


def _parameters(known: str) -> Iterator[Sent]:
    """Missing, unknown, empty, repeated and broken parameters, with and without the project."""
    for project in (known, "unknown", "a%20b", "%E2%82%AC"):
        for name in ("listversions", "listspiders", "listjobs"):
            yield _get(name, f"project={project}")
        yield _get("listspiders", f"project={project}&_version=none")
        yield _get("listspiders", f"project={project}&_version=")
        for job in ("none", "", "%C3%28"):
            yield _get("status", f"job={job}&project={project}")
            yield _post("cancel", f"project={project}&job={job}")
        yield _get("status", f"project={project}")
        yield _post("schedule", f"project={project}")
        yield _post("schedule", f"project={project}&spider=none")
        yield _post("schedule", f"project={project}&spider=none&_version=none")
        yield _post("schedule", f"project={project}&spider=none&_version=")
        yield _post("delversion", f"project={project}&version=none")
        yield _post("delversion", f"project={project}")
        yield _post("addversion", f"project={project}&version=1")
        yield _post("addversion", f"project={project}&version=1&egg=nozip")
        yield _post("cancel", f"project={project}")
    yield from (_post("delproject", f"project={name}") for name in ("unknown", "..%2Fp", "a%2Fb"))
    yield from (_get("listversions", f"project={name}") for name in ("..%2Fp", "a%2Fb", ".."))
    yield _post("delversion", "project=..%2Fp&version=1")
    yield _get("listversions", f"project={known}&project=unknown")
    yield _get("listversions", f"project=unknown&project={known}")
    yield _get("listversions", f"project={known};x=1")
    yield _get("listversions", "project")
    yield _get("listversions", "&&=&project")
    for name, value in itertools.product(("priority", "jobid", "setting"), ("%C3%28",)):
        yield _post("schedule", f"project={known}&spider=none&{name}={value}")
    for priority in ("x", "", "1,5", "0x10"):
        yield _post("schedule", f"project={known}&spider=none&priority={priority}")
    yield Sent("POST", "/schedule.json", query=f"project={known}", body=b"spider=none", content_type=_FORM)
    yield Sent("POST", "/schedule.json", query="project=unknown&spider=a", body=f"project={known}".encode(),
               content_type=_FORM)  # fmt: skip
    yield Sent("POST", "/schedule.json", body=f"project={known}&spider=a".encode(), content_type="text/plain")
    yield Sent("POST", "/schedule.json", body=b'{"project": "a"}', content_type="application/json")
    yield Sent("POST", "/schedule.json", body=f"project={known}&spider=a".encode(),
               content_type=f"{_FORM}; charset=UTF-8")  # fmt: skip


def _lists() -> Iterator[Sent]:
    yield from (_get(name) for name in ("daemonstatus", "listprojects", "listjobs"))
    for project in ("shop", "other", "gone"):
        yield _get("listversions", f"project={project}")
        yield _get("listspiders", f"project={project}")
        yield _get("listjobs", f"project={project}")


def _jobs() -> Iterator[Sent]:
    """One job occupies the only slot; the others wait."""
    yield _post("schedule", "project=shop&spider=sleepy&jobid=blocker")
    yield _get("listjobs", after="running blocker logged")
    yield _post("schedule", "project=shop&spider=good&jobid=a&x=1&y=%C3%A4+b&setting=A%3D1&setting=B%3Dc%3Dd")
    yield _post("schedule", "project=shop&spider=good&jobid=b&priority=5&_version=1")
    yield _post("schedule", "project=shop&spider=good&jobid=c&priority=-1.5&x=1&x=2&empty=")
    yield _post("schedule", "project=other&spider=good&jobid=d&setting=C%3D%20x%20")
    yield _post("schedule", "project=shop&spider=good&jobid=e&setting=NOEQ")
    yield _post("schedule", "project=shop&spider=good&jobid=f&setting=A%3D1&setting=NOEQ")
    yield _post("schedule", "project=shop&spider=good&jobid=g&z=%C3%28")
    yield _post("schedule", "project=shop&spider=good&jobid=h&_version=9")
    yield _post("schedule", "project=shop&spider=nobody&jobid=i")
    yield Sent("POST", "/schedule.json", query="project=shop&spider=good", body=b"jobid=k&q=body", content_type=_FORM)
    body, content_type = multipart({"project": b"shop", "spider": b"good", "jobid": b"m", "n": b"1\r\n2"})
    yield Sent("POST", "/schedule.json", body=body, content_type=content_type)
    yield from _lists()
    for job in ("blocker", "a", "b", "d", "nothing"):
        yield _get("status", f"job={job}")
        yield _get("status", f"job={job}&project=shop")
        yield _get("status", f"job={job}&project=other")
    yield _post("cancel", "project=other&job=a")
    yield _post("cancel", "project=shop&job=a")
    yield _post("cancel", "project=shop&job=a")
    yield _post("cancel", "project=shop&job=c&signal=TERM")
    yield from _lists()
    for job in ("b", "k", "m"):
        yield _post("cancel", f"project=shop&job={job}")
    yield _post("cancel", "project=other&job=d")
    yield _post("cancel", "project=shop&job=blocker&signal=KILL")
    yield _get("daemonstatus", after="ended blocker")
    yield _get("status", "job=blocker")
    yield _get("status", "job=blocker&project=other")
    yield _get("listjobs")
    yield _post("cancel", "project=shop&job=blocker")


def corpus(egg: bytes, other_egg: bytes) -> Iterator[Sent]:
    """All requests in order."""
    yield from _lists()
    yield from _methods()
    yield from _parameters("shop")
    yield _deploy(egg, "1")
    yield _deploy(other_egg, "2")
    yield _deploy(other_egg, "1", "other")
    yield _deploy(b"PK no zip", "3")
    yield _deploy(egg, "1", "../p")
    yield from _lists()
    yield _get("listspiders", "project=shop&_version=1")
    yield _get("listspiders", "project=shop&_version=2")
    yield from _parameters("shop")
    yield from _jobs()
    yield _post("delversion", "project=shop&version=2")
    yield from _lists()
    yield _post("delversion", "project=shop&version=2")
    yield _post("delversion", "project=shop&version=1")
    yield _post("delproject", "project=other")
    yield _post("delproject", "project=other")
    yield from _lists()
    for path in ("/nothing", "/schedule.jsonx", "/logs/none", "/items/none/", "/logs/..%2f..%2fetc/passwd"):
        yield Sent("GET", path)
