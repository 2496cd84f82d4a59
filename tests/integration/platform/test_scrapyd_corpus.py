"""The answers are those of Scrapyd 1.6.0, but for ids, times, the node's name, and the differences listed here."""

import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.platform.scrapyd_corpus import Sent, corpus, logins
from tests.servers.real_scrapyd import real_scrapyd
from tests.servers.scrapyd import egg, scrapyd, spider, until
from tests.servers.scrapydweb import FILE_ROW, JOB_ROW

_EGG = egg(spider("good") + spider("sleepy", "await asyncio.sleep(600)"))
_OTHER = egg(spider("good") + spider("sleepy", "await asyncio.sleep(600)") + spider("third"))
_EMPTY = egg("")
_DOCUMENTED = " ".join(Path("docs/howto/from-scrapyd.md").read_text().partition("## What differs")[2].split())
_ONLY_OURS = {"state", "reason"}
"""Fields of an ended job that Scrapyd does not have."""
_HEADERS = (
    "allow", "accept-ranges", "access-control-allow-origin", "access-control-allow-methods",
    "access-control-allow-headers", "content-encoding", "content-range", "location", "www-authenticate",
)  # fmt: skip
"""Headers that are compared, beside the content type."""


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _answer(client: httpx.Client, sent: Sent) -> httpx.Response:
    if sent.after:
        word, job, *projects = sent.after.split()
        wanted = {"ended": "finished"}.get(word, word)
        until(lambda: client.get("/status.json", params={"job": job}).json()["currstate"] == wanted)
        for project in projects:  # Scrapyd's jobs open their logs themselves
            until(lambda log=f"/logs/{project}/sleepy/{job}.log": client.get(log).status_code == 200)
    headers = dict(sent.headers) | ({"Content-Type": sent.content_type} if sent.content_type else {})
    # Built by hand, so that the query is sent as it is written.
    url = f"{str(client.base_url).rstrip('/')}{sent.path}" + (f"?{sent.query}" if sent.query else "")
    return client.request(sent.method, url, content=sent.body, headers=headers)


def _comparable(response: httpx.Response) -> Any:
    """What clients may depend on: status, headers, and what they read of the body."""
    media = response.headers.get("content-type", "").partition(";")[0]
    if media == "application/json" and response.content:
        content: Any = _fields(response)
    elif media == "text/html":
        content = _page(response.text)
    else:
        content = bool(response.content)
    return response.status_code, media, _headers(response), content


def _headers(response: httpx.Response) -> dict[str, str]:
    found = {name: response.headers[name] for name in _HEADERS if name in response.headers}
    if "content-range" in found:  # the logs are not equally long
        found["content-range"] = re.sub(r"\d{3,}", "N", found["content-range"])
    if "location" in found:
        found["location"] = httpx.URL(found["location"]).path
    if response.request.method == "HEAD" and response.status_code == 200:
        found["has length"] = str(int(response.headers.get("content-length", 0)) > 0)
    return found


def _fields(response: httpx.Response) -> dict[str, Any]:
    assert response.content.endswith(b"\n")
    fields: dict[str, Any] = json.loads(response.content)
    assert fields.pop("node_name")
    for job in fields.get("running", []) if isinstance(fields.get("running"), list) else []:
        assert isinstance(job.pop("pid"), int)
        assert re.fullmatch(r"[\d-]{10} [\d:]{8}\.\d{6}", job.pop("start_time"))
    for job in fields.get("finished", []) if isinstance(fields.get("finished"), list) else []:
        assert re.fullmatch(r"[\d-]{10} [\d:]{8}\.\d{6}", job.pop("start_time"))
        assert re.fullmatch(r"[\d-]{10} [\d:]{8}\.\d{6}", job.pop("end_time"))
        for name in _ONLY_OURS:
            job.pop(name, None)
    for name in ("spiders", "projects"):  # in the order of the disk
        if isinstance(fields.get(name), list):
            fields[name].sort()
    if isinstance(fields.get("pending"), list):
        fields["pending"].sort(key=lambda job: (job["project"], -0.0, job["id"]))
    if len(fields.get("jobid", "")) == 32:
        fields["jobid"] = ""
    return fields


def _page(text: str) -> Any:
    """Heading, links in a table, and the rows of a table as ScrapydWeb reads them."""
    jobs = [job.groupdict() for job in JOB_ROW.finditer(re.sub(r"<thead>.*?</thead>", "", text, flags=re.DOTALL))]
    for job in jobs:
        for name in ("PID", "Start", "Runtime", "Finish"):
            job[name] = re.sub(r"\d+", "N", job[name] or "")
        for name in ("Log", "Items"):
            job[name] = "".join(re.findall(r"href=['\"](.*?)['\"]", job[name] or ""))
    files = [(row["name"], bool(row["size"]), row["type"], row["encoding"]) for row in FILE_ROW.finditer(text)]
    tables = re.findall(r"<table[\w\W]*</table>", text)
    links = set(re.findall(r"<a href=['\"](.*?)['\"]", "".join(tables) if tables else text))
    return re.findall(r"<h1>(.*?)</h1>", text), jobs, files, sorted(links)


def _compare(requests: Iterable[Sent], theirs: httpx.Client, ours: httpx.Client) -> None:
    different, count = [], 0
    with ThreadPoolExecutor(2) as both:
        for sent in requests:
            count += 1
            expected, found = both.map(lambda client, sent=sent: _comparable(_answer(client, sent)), (theirs, ours))
            if sent.differs:
                assert sent.differs in _DOCUMENTED, sent.differs
                if expected == found:
                    different.append(
                        f"{sent} is answered in the same way, though the documentation says: {sent.differs}"
                    )
            elif expected != found:
                different.append(f"{sent._replace(body=sent.body[:80])}\n  {expected}\n  {found}")
    if different:
        pytest.fail("\n".join([f"{len(different)} of {count} differ (Scrapyd first):", *different]))


def test_the_answers_are_those_of_scrapyd(tmp_path: Path) -> None:
    requests = list(corpus(_EGG, _OTHER, _EMPTY))
    assert len(requests) >= 300
    with (
        real_scrapyd(tmp_path / "real") as theirs,
        scrapyd(_made(tmp_path / "ours"), conf="max_proc = 1") as server,
    ):
        _compare(requests, theirs, server.client)


def test_the_answers_to_logins_are_those_of_scrapyd(tmp_path: Path) -> None:
    conf = "username = crawler\npassword = pa:ss"
    with real_scrapyd(tmp_path / "real", conf) as theirs, scrapyd(_made(tmp_path / "ours"), conf=conf) as server:
        requests = [sent._replace(headers=(("Authorization", login),)) for sent, login in logins()]
        _compare(requests, theirs, server.client)
