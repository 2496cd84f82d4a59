"""The frontier's server loses its data in mid-crawl: the crawl is not called finished, and services say it."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from tests.servers.crawling import command, gossamer, resolving
from tests.servers.service import up
from tests.servers.valkey import Server, standalone, wait_until

RATE = ("--rate", "50/1", "--domain-concurrency", "4")


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=2, pages=1000)) as running:
        yield running


@pytest.fixture
def memory_only() -> Iterator[Server]:
    with standalone(tcp=True, options={"appendonly": "no"}) as server:
        yield server


def restart(server: Server) -> None:
    server.kill()
    server.start()


def flush(server: Server) -> None:
    server.command("FLUSHALL")


@pytest.mark.parametrize("lose", [restart, flush])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_crawl_whose_frontier_lost_its_data_is_not_finished(
    lose: Callable[[Server], None], processes: str, web: FakeWeb, memory_only: Server, tmp_path: Path
) -> None:
    crawl = ["crawl", *web.seeds(), *resolving(web.resolve_overrides()), *RATE, "--frontier", memory_only.address]
    process = subprocess.Popen(
        command(*crawl, "--processes", processes),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        pages = tmp_path / "pages.jsonl"
        wait_until(lambda: pages.exists() and pages.read_bytes().count(b"\n") >= 10, "some pages")
        lose(memory_only)
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 3, out + error
    assert "keeps nothing on disk" in error
    assert error.count("The frontier lost its data") <= 1
    assert "is not finished: the frontier lost its data" in out
    assert "nothing is lost" not in out + error
    assert "Traceback" not in error


@pytest.mark.parametrize("level", ["error", "info"])
def test_a_server_that_keeps_nothing_is_warned_about_once(
    level: str, web: FakeWeb, memory_only: Server, tmp_path: Path
) -> None:
    flags = ["--frontier", memory_only.address, "--log-level", level]
    with up(tmp_path, *flags, command="serve") as service:
        assert service.said().count("keeps nothing on disk") == 1
        assert service.stop() == 0
    crawl = ["crawl", web.seeds()[0], "--depth", "0", *resolving(web.resolve_overrides()), *flags[:2]]
    done = gossamer(*crawl, *(["-v"] if level == "info" else []), cwd=tmp_path)
    assert done.stderr.count("keeps nothing on disk") == 1


def test_a_server_that_keeps_its_data_is_not_warned_about(web: FakeWeb, tmp_path: Path) -> None:
    with standalone(tcp=True) as server:
        done = gossamer(
            "crawl", web.seeds()[0], "--depth", "0", *resolving(web.resolve_overrides()), "--frontier", server.address,
            cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_service_says_it_once_counts_it_and_goes_on(web: FakeWeb, memory_only: Server, tmp_path: Path) -> None:
    flags = ["--frontier", memory_only.address, *resolving(web.resolve_overrides())]
    with up(tmp_path, *flags) as service, httpx.Client(base_url=service.api) as api:
        assert "keeps nothing on disk" in service.said()
        feed(api, web, "before")
        wait_until(lambda: fetched(api, "before") > 0, "the first page")
        flush(memory_only)
        assert service.said().count("keeps nothing on disk") == 1  # not by its workers, too
        wait_until(lambda: "frontier_lost" in service.said(), "the service to notice")
        feed(api, web, "after")
        wait_until(lambda: fetched(api, "after") == 2, "another crawl to be worked on")
        assert "gossamer_lost_shards_total 1.0" in api.get("/metrics").text
        wait_until(lambda: asyncio.run(default_hits(memory_only)) == 1000, "the policy file to be loaded again")
        assert service.stop() == 0
        assert service.said().count("frontier_lost") == 1
        assert "Traceback" not in service.said()


async def default_hits(server: Server) -> int | None:
    frontier = await ValkeyFrontier.connect(server.address)
    try:
        return (await frontier.domain_policy(None)).hits
    finally:
        await frontier.close()


def feed(api: httpx.Client, web: FakeWeb, crawlid: str) -> None:
    for url in web.seeds():
        asked = {"appid": "mine", "crawlid": crawlid, "url": url, "maxdepth": 0}
        api.post("/v1/crawls", json=asked).raise_for_status()


def fetched(api: httpx.Client, crawlid: str) -> int:
    answer = api.get(f"/v1/crawls/mine/{crawlid}")
    return int(answer.json()["total"]["fetched"]) if answer.is_success else 0
