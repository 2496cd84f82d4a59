"""The answers are those of Scrapyd 1.6.0, but for ids, times, the node's name, and the differences listed here."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.platform.scrapyd_corpus import Sent, corpus
from tests.servers.pip_programs import program
from tests.servers.scrapyd import egg, scrapyd, spider, until
from tests.servers.valkey import free_ports

_EGG = egg(spider("good") + spider("sleepy", "await asyncio.sleep(600)"))
_OTHER = egg(spider("good") + spider("sleepy", "await asyncio.sleep(600)") + spider("third"))
_ONLY_OURS = {"state", "reason"}
"""Fields of an ended job that Scrapyd does not have."""
_UNSPECIFIC = re.compile(r"<class '[^']*'>|[0-9a-f]{32}")


@contextlib.contextmanager
def _real(folder: Path) -> Iterator[str]:
    """Scrapyd itself; its address."""
    [port] = free_ports(1)
    (folder / "logs").mkdir()
    (folder / "items").mkdir()
    (folder / "scrapyd.conf").write_text(
        f"[scrapyd]\nhttp_port = {port}\nitems_dir = items\nmax_proc = 1\npoll_interval = 0.2\n"
    )
    command = program("scrapyd", "scrapyd")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([command], cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
                until(lambda: _serves(client), what=lambda: (folder / "log").read_text())
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def _serves(client: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return client.get("/daemonstatus.json").status_code == 200
    return False


def _answer(client: httpx.Client, sent: Sent) -> httpx.Response:
    if sent.after:
        word, job, *logged = sent.after.split()
        wanted = {"ended": "finished"}.get(word, word)
        until(lambda: client.get("/status.json", params={"job": job}).json()["currstate"] == wanted)
        log = f"/logs/shop/sleepy/{job}.log"
        until(lambda: not logged or client.get(log).status_code == 200)  # Scrapyd's jobs open their logs themselves
    headers = dict(sent.headers) | ({"Content-Type": sent.content_type} if sent.content_type else {})
    # Built by hand, so that the query is sent as it is written.
    url = f"{str(client.base_url).rstrip('/')}{sent.path}" + (f"?{sent.query}" if sent.query else "")
    return client.request(sent.method, url, content=sent.body, headers=headers)


def _comparable(response: httpx.Response) -> Any:
    if not response.headers.get("content-type", "").startswith("application/json") or not response.content:
        return response.status_code, response.headers.get("content-type", "").split(";")[0]
    assert response.content.endswith(b"\n")
    fields = json.loads(response.content)
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
    return response.status_code, fields, response.headers.get("access-control-allow-methods")


def test_the_answers_are_those_of_scrapyd(tmp_path: Path) -> None:
    requests = list(corpus(_EGG, _OTHER))
    assert len(requests) >= 300
    (tmp_path / "real").mkdir()
    (tmp_path / "ours").mkdir()
    different = []
    with (
        _real(tmp_path / "real") as address,
        scrapyd(tmp_path / "ours", conf="max_proc = 1") as server,
        httpx.Client(base_url=address, timeout=60) as theirs,
    ):
        for number, sent in enumerate(requests):
            expected, found = _comparable(_answer(theirs, sent)), _comparable(_answer(server.client, sent))
            if expected != found:
                different.append(f"{number} {sent._replace(body=sent.body[:80])}\n  {expected}\n  {found}")
    if different:
        pytest.fail("\n".join([f"{len(different)} of {len(requests)} differ (Scrapyd first):", *different]))
