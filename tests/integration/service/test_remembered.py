"""Whole services remember crawls: with a private frontier by themselves, with a shared one where a setting says so."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.crawling import command, resolving
from tests.servers.service import Up, up
from tests.servers.valkey import Server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=1, pages=5, cross_host_share=0)) as started:
        yield started


def ask(service: Up, path: str) -> Any:
    answer = httpx.get(f"{service.api}{path}", timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()


def submit(service: Up, crawlid: str, url: str) -> None:
    request = {"appid": "shop", "crawlid": crawlid, "url": url, "maxdepth": 0}
    assert httpx.post(f"{service.api}/v1/crawls", json=request, timeout=30).status_code == 201


def until(found: Callable[[], Any]) -> Any:
    """Return what a call finds at last."""
    deadline = time.monotonic() + 60
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return value


def in_state(service: Up, state: str) -> list[str]:
    listed = ask(service, f"/v1/crawls?state={state}")
    assert listed["remembered"] is True
    return [crawl["crawlid"] for crawl in listed["items"]]


def test_a_service_that_is_killed_goes_on_remembering(web: FakeWeb, tmp_path: Path) -> None:
    seed = web.seeds()[0]
    with up(tmp_path, *resolving(web.resolve_overrides())) as service:
        submit(service, "first", seed)
        submit(service, "first", f"{seed}no-such-page")
        until(lambda: in_state(service, "finished") == ["first"])
        [reason] = ask(service, "/v1/crawls/shop/first/reasons")["items"]
        assert (reason["reason"], reason["count"]) == ("http_404", 1)
        [example] = until(lambda: ask(service, "/v1/crawls/shop/first/reasons")["items"][0]["examples"])
        assert (example["url"], example["status"]) == (f"{seed}no-such-page", 404)
        service.signal(signal.SIGKILL)
        service.kill()
        service.start()
        submit(service, "second", seed)
        until(lambda: in_state(service, "finished") == ["second", "first"])
        [end] = until(lambda: ask(service, "/v1/crawls/shop/second/ends")["items"])
        assert (end["state"], end["run"]) == ("finished", 1)
        assert len(ask(service, "/v1/crawls/shop/first/ends")["items"]) == 1


@contextlib.contextmanager
def working(folder: Path, *flags: str, environment: dict[str, str]) -> Iterator[None]:
    """A worker of a service."""
    process = subprocess.Popen(
        command("worker", "--bus", "streams", "-q", *flags), cwd=folder, env={**os.environ, **environment}
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def test_a_worker_that_knows_no_history_tells_it_of_failures(web: FakeWeb, tmp_path: Path, one_server: Server) -> None:
    folders = [tmp_path / name for name in ("serve", "worker", "other")]
    for folder in folders:
        folder.mkdir()
    shared = {"GOSSAMER_PREFIX": f"remembered{next(_numbers)}"}
    kept = {**shared, "GOSSAMER_HISTORY__DATABASE": f"sqlite:///{tmp_path}/history.db"}
    address = ("--frontier", one_server.address)
    with (
        up(folders[0], *address, command="serve", environment=kept) as service,
        up(folders[2], *address, command="serve", environment=shared) as other,
        working(folders[1], *address, *resolving(web.resolve_overrides()), environment=shared),
    ):
        submit(service, "one", f"{web.seeds()[0]}no-such-page")
        until(lambda: in_state(service, "finished") == ["one"])
        [reason] = ask(service, "/v1/crawls/shop/one/reasons")["items"]
        assert reason["reason"] == "http_404"
        [example] = until(lambda: ask(service, "/v1/crawls/shop/one/reasons")["items"][0]["examples"])
        assert example["status"] == 404
        listed = ask(other, "/v1/crawls")  # a service without the setting answers as ever
        assert (listed["remembered"], [crawl["crawlid"] for crawl in listed["items"]]) == (False, ["one"])
        killed_while_it_stops(service, one_server)
    # What it was about to do is in the audit, and so is all that it did before.
    command_line = command("crawls", "audit", "--json", *address)
    read = subprocess.run(command_line, cwd=folders[0], env={**os.environ, **kept}, capture_output=True, check=True)
    found = [(entry["action"], entry["subject"], entry["outcome"], entry["actor"]) for entry in json.loads(read.stdout)]
    assert found == [
        ("crawl.stop", "shop/one", "begun", "local"),
        ("crawl.submit", "shop/one", "done", "local"),
        ("domains.replace", "*", "done", "policy file"),
    ]


def killed_while_it_stops(service: Up, server: Server) -> None:
    """Ask a service to stop a crawl, and kill it while it waits for the frontier."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(httpx.delete, f"{service.api}/v1/crawls/shop/one", timeout=60)
            until(lambda: ask(service, "/v1/audit")["items"][0]["action"] == "crawl.stop")
            service.kill()
            assert isinstance(asked.exception(), httpx.HTTPError)
    finally:
        os.kill(server.pid, signal.SIGCONT)
