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
    """What has to be true before: `running JOB`, `ended JOB`, or `running JOB PROJECT`: its log exists, too."""
    differs: str = ""
    """Words of the documentation's list of differences: the answer is another one than Scrapyd's on purpose."""


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
    yield _get("listjobs", after="running blocker shop")
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


def corpus(egg: bytes, other_egg: bytes, empty: bytes) -> Iterator[Sent]:
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
    yield from _pages()
    yield from _differences(egg, empty)


_SLASH = "A path may end with a slash"
_METHOD = "Pages and files answer"


def _pages() -> Iterator[Sent]:
    """Pages and files. The job `blocker` has ended."""
    log = "/logs/shop/sleepy/blocker.log"
    paths = (
        "/jobs", "/logs/", "/logs", "/logs/shop", "/logs/shop/", "/logs/shop/sleepy/", "/items/", "/items",
        "/items/shop", "/items/shop/", log, f"{log}/", f"{log}/x",
        "/nothing", "/nothing/", "/schedule.jsonx", "/schedule.json/x",
        "/jobs/x", "/logs/none", "/items/none/", "/logs/..%2f..%2fetc/passwd", "/logs/../scrapyd.conf",
        "/logs/%2e%2e/scrapyd.conf", "/favicon.ico", "/robots.txt",
    )  # fmt: skip
    for method in ("GET", "HEAD"):
        yield from (Sent(method, path) for path in paths)
        yield from (Sent(method, path, differs=_SLASH) for path in ("/jobs/", "/daemonstatus.json/"))
    for method in ("POST", "OPTIONS", "DELETE"):
        yield from (Sent(method, path, differs=_METHOD) for path in ("/", "/jobs", "/logs/", log))
    yield from _ranges(log)
    yield Sent("GET", log, headers=(("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"),))
    yield Sent("GET", log, headers=(("If-Modified-Since", "Thu, 01 Jan 1970 00:00:00 GMT"),))
    yield Sent("GET", log, headers=(("If-Modified-Since", "yesterday"),))
    yield Sent("GET", "/", differs="`/` and `/jobs`")
    yield Sent("HEAD", "/")
    for prefix, differs in (("/path/to", ""), ("", ""), ("/a b", "An `X-Forwarded-Prefix`")):
        yield Sent("GET", "/jobs", headers=(("X-Forwarded-Prefix", prefix),), differs=differs)
    for method, path in (("GET", "/daemonstatus.json"), ("POST", "/schedule.json"), ("OPTIONS", "/cancel.json")):
        origin = ("Origin", "http://localhost:1")
        yield Sent(method, path, headers=(origin,), differs="Without a password")


def _ranges(log: str) -> Iterator[Sent]:
    for asked in ("bytes=0-9", "bytes=5-", "bytes=-7", "bytes=0-99999999", "bytes=99999999-", "bytes=9-5", "bytes=-0",
                  "lines=1-2", "bytes=x-y"):  # fmt: skip
        yield Sent("GET", log, headers=(("Range", asked),))
        yield Sent("HEAD", log, headers=(("Range", asked),))
    for asked in ("bytes=", "bytes=0-1,4-5"):
        yield Sent("GET", log, headers=(("Range", asked),), differs="several ranges")


def _differences(egg: bytes, empty: bytes) -> Iterator[Sent]:
    """What is answered in another way than by Scrapyd, on purpose."""
    yield _deploy(egg, "1.9", "named")
    yield _deploy(egg, "1.10", "named")
    yield _get("listversions", "project=named", differs="`listversions.json`")
    yield _get("listversions", "project=unnamed")
    yield _deploy(empty, "1", "empty")._replace(differs="An egg without spiders")
    yield _post("cancel", "project=named&job=x&signal=USR1", differs="A signal that is neither")
    yield _post("schedule", "project=named&spider=good&priority=nan", differs="A priority")
    yield _post("schedule", "project=named&spider=sleepy&jobid=last")
    yield _get("status", "job=last", after="running last named")
    yield _post("schedule", "project=named&spider=good&jobid=waiting")
    yield _post("schedule", "project=named&spider=good&jobid=a%2Fb", differs="A job id with")
    yield _post("delproject", "project=named")
    yield _get("listjobs", "", differs="`delproject.json`")
    yield _post("cancel", "project=named&job=last&signal=KILL", differs="A job of a project")


def logins() -> Iterator[tuple[Sent, str]]:
    """Requests to a server with the name `crawler` and the password `pa:ss`, with the header Authorization."""
    logins = (
        "Basic Y3Jhd2xlcjpwYTpzcw==",  # the right one
        "", "Basic", "Basic !!!", "Basic Y3Jhd2xlcg==", "Basic Y3Jhd2xlcjpwYXNz", "Basic OnBhOnNz",
        "Basic Y3Jhd2xlcjo=", "Bearer pa:ss", "basic Y3Jhd2xlcjpwYTpzcw==", "Digest x", "Basic w6Q6w6Q=",
        "Basic //79", f"Basic {'QUFB' * 3000}",
    )  # fmt: skip
    sent = (
        ("GET", "/daemonstatus.json"), ("HEAD", "/jobs"), ("GET", "/logs/"), ("GET", "/jobs"),
        ("POST", "/schedule.json"), ("OPTIONS", "/schedule.json"), ("GET", "/nothing"),
    )  # fmt: skip
    yield from ((Sent(method, path), login) for login in logins for method, path in sent)
