"""Fetchers of other packages: the contract that they are checked by, and a crawl with one."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gossamer.fetch import contract
from gossamer.fetch.exchange import ResponseLimits, Timeouts
from gossamer.fetch.foreign import FetcherParts, ForeignFetcher
from gossamer.net.resolve import Resolver
from tests.servers.crawling import gossamer
from tests.servers.nginx import run_nginx

PACKAGE = '''
import asyncio, time
import msgspec
from gossamer.errors import FetchError, NotSentInTime
from gossamer.fetch.client import HttpClient
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.foreign import OWN, make_fetcher


class Fetcher:
    """Gossamer's own client, with a fault."""

    def __init__(self, parts, fault=""):
        if "endless" in fault:
            parts = msgspec.structs.replace(parts, limits=msgspec.structs.replace(parts.limits, body_bytes=1 << 40))
        self.own = make_fetcher(OWN, parts)
        self.fault = fault
        self.cookie = ()

    async def fetch(self, request, timeout_seconds=None, *, wait_for_room=False):
        fault = self.fault
        if fault == "late":
            request = msgspec.structs.replace(request, send_by=None)
        elif fault == "anywhere":
            request = msgspec.structs.replace(request, allow_private=True)
        elif fault == "headers":
            request = msgspec.structs.replace(request, headers=request.headers[::-1])
        elif fault == "cookies":
            request = msgspec.structs.replace(request, headers=(*request.headers, *self.cookie))
            self.cookie = (("Cookie", "a=b"),)
        try:
            if fault == "deaf":
                return await asyncio.shield(self.own.fetch(request))
            response = await self.own.fetch(request)
        except FetchError as error:
            if fault == "words" and not isinstance(error, NotSentInTime):
                raise RuntimeError("something happened")
            if fault == "twice":
                return await self.own.fetch(msgspec.structs.replace(request, send_by=None))
            raise
        if fault == "follows" and response.status == 302:
            return await self.own.fetch(msgspec.structs.replace(request, url=request.url.replace("/moved", "/page")))
        if fault == "raises" and response.status >= 400:
            raise RuntimeError("not found")
        if fault == "page":
            response.ip = ""
        if fault == "wire":
            response.wire_body = b""
        return response

    async def close(self):
        if self.fault != "open":
            await self.own.close()


def make(fault):
    return lambda parts: Fetcher(parts, fault)
'''
BROKEN = {
    "page": "returns status, headers, body and address",
    "headers": "sends method, headers in order, and body",
    "raises": "returns any status",
    "follows": "follows no redirect",
    "cookies": "keeps no cookies",
    "twice": "sends a charged request once",
    "late": "sends nothing after the latest time",
    "endless": "cuts a body at its limit, and reads no more",
    "wire": "decodes bodies, and keeps them as sent on demand",
    "words": "names each failure",
    "anywhere": "connects only to approved addresses",
    "deaf": "can be cancelled",
    "open": "closes all connections, also twice",
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an installed package with a good fetcher and bad ones."""
    folder = tmp_path_factory.mktemp("packages")
    makers = "".join(f"make_{fault} = make({fault!r})\n" for fault in ("good", *BROKEN))
    (folder / "odd_fetchers.py").write_text(f"{PACKAGE}\n{makers}")
    info = folder / "odd_fetchers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-fetchers\nVersion: 1.0\n")
    entries = "".join(f"{fault} = odd_fetchers:make_{fault}\n" for fault in ("good", *BROKEN))
    (info / "entry_points.txt").write_text(f"[gossamer.fetchers]\n{entries}missing = odd_fetchers:nothing\n")
    return folder


@pytest.fixture
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package can be imported."""
    monkeypatch.syspath_prepend(str(packages))


async def test_the_own_client_keeps_the_contract() -> None:
    assert {words: fault for words, fault in (await contract.check("gossamer")).items() if fault} == {}


async def test_the_fetcher_of_the_page_has_the_coroutines_of_a_fetcher() -> None:
    page = Path(__file__).parents[2] / "docs/howto/fetcher.md"
    [code] = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    resolver = Resolver()
    fetcher = names["make"](FetcherParts(resolver, ResponseLimits(), Timeouts(), ""))
    await fetcher.close()
    resolver.close()
    for name in ("fetch", "close"):
        assert inspect.iscoroutinefunction(getattr(fetcher, name))
        wanted = list(inspect.signature(getattr(ForeignFetcher, name)).parameters.values())[1:]
        shown = list(inspect.signature(getattr(fetcher, name)).parameters.values())
        assert [(one.name, one.kind, one.default) for one in shown] == [
            (one.name, one.kind, one.default) for one in wanted
        ]


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_broken_promise_is_found(fault: str, installed: None) -> None:
    promise = BROKEN[fault]
    assert await contract._try(fault, contract.PROMISES[promise])
    assert not await contract._try("good", contract.PROMISES[promise])


def test_the_program_shows_the_promises(packages: Path) -> None:
    def run(name: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "gossamer.fetch.contract", name],
            env={"PYTHONPATH": str(packages)}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    unknown = run("nobody")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "Installed fetchers: " in unknown.stderr
    assert "good" in unknown.stderr
    assert run("missing").returncode == 2
    told = run("follows")
    assert told.returncode == 1
    assert "broken  follows no redirect: status, and number of requests: (200, 2), not (302, 1)" in told.stdout
    assert "kept  returns any status" in told.stdout


def test_a_crawl_with_a_fetcher_of_another_package(tmp_path: Path, packages: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="/two.html">two</a>')
    (tmp_path / "two.html").write_text("<title>two</title>")
    (tmp_path / "nginx").mkdir()
    env = {"PYTHONPATH": str(packages)}
    with run_nginx(tmp_path, tmp_path / "nginx") as server:
        url = f"http://127.0.0.1:{server.port}/"
        done = gossamer(
            "crawl",
            url,
            "--allow-private",
            "--backend",
            "page",
            "-o",
            "p.jsonl",
            "--rate",
            "100/1",
            cwd=tmp_path,
            env=env,
        )
        assert done.returncode == 0, done.stderr
        pages = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
        assert [(one["url"], one["ip"]) for one in pages] == [(url, ""), (f"{url}two.html", "")]
        refused = gossamer("crawl", url, "--allow-private", "--backend", "nobody", cwd=tmp_path, env=env)
        assert refused.returncode == 2
        assert "--backend" in refused.stderr
        fetched = gossamer("fetch", url, "--allow-private", "--backend", "good", "--json", cwd=tmp_path, env=env)
        assert json.loads(fetched.stdout)["status"] == 200
