"""`gossamer crawls`: what a folder or a shared frontier has is listed, shown, and deleted to its last key."""

import asyncio
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.keys import shard_of
from gossamer.history.store import HistoryStore
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, Rate, Terms
from gossamer.model.info import CrawlInfo, SpiderCounts
from gossamer.model.messages.history import CrawlEnded, RequestFailed
from gossamer.model.request import Batch, Outcome, Settlement
from tests.servers.crawling import command, gossamer, resolving
from tests.servers.valkey import Server, standalone


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=2, pages=15, cross_host_share=0.3)) as started:
        yield started


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with standalone() as started:
        yield started


def flags(web: FakeWeb, crawl_id: str, rate: str = "9999/1") -> list[str]:
    scope = ("--scope", "any", "--rate", rate, "--crawl-id", crawl_id)
    return [*web.seeds(), *resolving(web.resolve_overrides()), *scope]


def listed(folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    done = gossamer("crawls", "list", "--json", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {crawl["crawl_id"]: crawl for crawl in json.loads(done.stdout)["crawls"]}


def traces(server: Server, crawl_id: str) -> list[str]:
    """Return the keys that have the crawl's token or name in their name or their content."""
    words = (CrawlId("cli", crawl_id).token.encode(), crawl_id.encode())
    found = []
    with redis.Redis.from_url(server.address) as client:
        for key in client.scan_iter(count=1000):
            content = client.dump(key) or b""
            content += repr(_content(client, key)).encode()
            found += [key.decode() for word in words if word in key or word in content]
    return found


def _content(client: Any, key: bytes) -> Any:
    """Return the content of a key; a dump of a longer one is compressed."""
    kind = client.type(key)
    if kind == b"hash":
        return client.hgetall(key)
    if kind == b"zset":
        return client.zrange(key, 0, -1)
    if kind == b"set":
        return client.smembers(key)
    return client.lrange(key, 0, -1) if kind == b"list" else client.get(key)


def interrupted(folder: Path, *arguments: str) -> None:
    """Begin a crawl, and interrupt it when it has written some pages."""
    output = folder / "pages.jsonl"
    output.unlink(missing_ok=True)
    with subprocess.Popen(command("crawl", *arguments, "-q"), cwd=folder) as process:
        deadline = time.monotonic() + 60
        while not output.exists() or output.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130


def test_a_folder_lists_shows_and_deletes_its_crawls(web: FakeWeb, tmp_path: Path) -> None:
    gossamer("crawl", *flags(web, "first"), cwd=tmp_path)
    gossamer("crawl", *flags(web, "second"), "-o", "other.jsonl", cwd=tmp_path)
    crawls = listed(tmp_path)
    assert list(crawls) == ["second", "first"]
    assert (crawls["first"]["state"], crawls["first"]["fetched"]) == ("finished", 30)
    assert crawls["second"]["outputs"] == ["other.jsonl"]
    shown = gossamer("crawls", "show", "first", cwd=tmp_path).stdout
    assert "first: finished, run 1" in shown
    assert "fetched 30, failed 0" in shown
    assert "outputs: pages.jsonl" in shown

    done = gossamer("crawls", "delete", "first", "--yes", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Deleted first (30 fetched, 0 waiting)" in done.stdout
    assert "The outputs stay: pages.jsonl." in done.stdout
    assert list(listed(tmp_path)) == ["second"]
    assert len((tmp_path / "pages.jsonl").read_text().splitlines()) == 30

    again = gossamer("crawl", *flags(web, "first"), "-o", "again.jsonl", cwd=tmp_path)
    assert "30 pages" in again.stdout  # from the beginning: nothing is known of it


def test_pages_kept_for_a_report_go_with_their_crawl(web: FakeWeb, tmp_path: Path) -> None:
    def crawl(crawl_id: str, *more: str) -> "list[Path]":
        failing = ("http://dead.test:1/", "--resolve", "dead.test:127.0.0.1", "--retries", "0")  # may be retried later
        done = gossamer("crawl", *flags(web, crawl_id), *failing, "-o", "x.csv", "--append", *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return sorted((tmp_path / ".gossamer" / "report").glob("*"))

    (first,) = crawl("first", "--report", "first.html")
    assert listed(tmp_path)["first"]["outputs"] == ["x.csv"]
    assert "The outputs stay: x.csv." in gossamer("crawls", "delete", "first", "--yes", cwd=tmp_path).stdout
    assert not first.exists()

    assert crawl("first", "--report", "first.html") == [first]
    begins_anew = gossamer("crawl", *flags(web, "first"), "-o", "new.jsonl", "--fresh", cwd=tmp_path)
    assert begins_anew.returncode == 0, begins_anew.stderr
    assert not first.exists()

    (second,) = crawl("second", "--report", "second.html")
    month = 31 * 86_400
    os.utime(second, (time.time() - month, time.time() - month))
    assert crawl("second", "--report", "second.html") == [second]  # its own pages
    os.utime(second, (time.time() - month, time.time() - month))
    assert crawl("third") == []


def test_names_are_whole_in_narrow_terminals_and_pipes_and_a_beginning_is_enough(web: FakeWeb, tmp_path: Path) -> None:
    names = ["a-name-that-is-long-0123456789abcdef", "another-name-that-is-long-0123456789abc"]
    for name in names:
        gossamer("crawl", *flags(web, name), "-o", f"{name}-with-a-long-file-name.jsonl", cwd=tmp_path)
    lines = gossamer("crawls", "list", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["crawl", *reversed(names)]  # in a pipe: one line for each
    assert [line.split()[-1] for line in lines[1:]] == [f"{name}-with-a-long-file-name.jsonl" for name in names[::-1]]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "80"}
    shown = subprocess.run(
        command("crawls", "list"), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    ).stdout
    assert all(name in shown for name in names)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(len(line) for line in plain.splitlines()) < 130  # the outputs are wrapped

    assert gossamer("crawls", "show", "a-n", cwd=tmp_path).stdout.startswith(f"{names[0]}: finished")
    for unclear in ("a", ""):
        refused = gossamer("crawls", "show", unclear, cwd=tmp_path)
        assert refused.returncode == 2
    assert f"2 crawls begin with a: {names[0]}, " in gossamer("crawls", "delete", "a", "--yes", cwd=tmp_path).stderr
    assert f"Deleted {names[1]} (" in gossamer("crawls", "delete", "an", "--yes", cwd=tmp_path).stdout
    assert list(listed(tmp_path)) == names[:1]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_crawl_is_told_from_a_running_one(web: FakeWeb, tmp_path: Path, end: signal.Signals) -> None:
    arguments = ["crawl", *flags(web, "halves", "3/1"), "-q"]
    output = tmp_path / "pages.jsonl"
    with subprocess.Popen(command(*arguments), cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while not output.exists() or output.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert listed(tmp_path)["halves"]["state"] == "running"
        resolve = resolving(web.resolve_overrides())
        assert " (running)" in gossamer("why", f"http://site0.test:{web.port}/", *resolve, cwd=tmp_path).stdout
        process.send_signal(end)
    assert listed(tmp_path)["halves"]["state"] == "interrupted"
    shown = gossamer("crawls", "show", "halves", cwd=tmp_path).stdout
    assert shown.startswith("halves: interrupted, run 1")
    resume = next(line for line in shown.splitlines() if "Resume with: " in line).partition("Resume with: ")[2]
    assert shlex.split(resume)[:2] == ["gossamer", "crawl"]
    resumed = gossamer(*[part for part in shlex.split(resume)[1:] if part not in ("3/1", "--rate")], cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert listed(tmp_path)["halves"]["state"] == "finished"


def test_a_folder_with_crawls_points_to_their_list_and_an_empty_one_names_options_that_exist(
    web: FakeWeb, tmp_path: Path
) -> None:
    empty = gossamer("crawls", "list", cwd=tmp_path).stderr
    assert "--data-dir" in empty
    assert "--crawl-id" not in empty
    assert "crawls list" not in gossamer("stats", cwd=tmp_path).stderr
    gossamer("crawl", *flags(web, "one"), cwd=tmp_path)
    done = gossamer("stats", cwd=tmp_path)
    assert done.returncode == 2
    assert "`gossamer crawls list` shows the 1 crawl of that directory." in done.stderr


def test_the_list_of_a_shared_frontiers_crawls_counts_failures(web: FakeWeb, tmp_path: Path) -> None:
    failing = ("http://dead.test:1/", "--resolve", "dead.test:127.0.0.1", "--retries", "0")
    with standalone() as shared:
        gossamer("crawl", *flags(web, "some"), *failing, "--frontier", shared.address, cwd=tmp_path)
        shown = gossamer("crawls", "list", "--frontier", shared.address, cwd=tmp_path)
    assert [line.split()[:5] for line in shown.stdout.splitlines()] == [
        ["crawl", "state", "fetched", "failed", "waiting"], ["some", "finished", "30", "1", "0"],
    ], shown.stderr  # fmt: skip


def test_a_crawl_that_is_not_finished_is_refused_unless_it_is_stopped(
    web: FakeWeb, server: Server, tmp_path: Path
) -> None:
    here = ("--frontier", server.address)
    interrupted(tmp_path, *flags(web, "unfinished", "3/1"), *here)
    gossamer("crawl", *flags(web, "other"), *here, "-o", "other.jsonl", cwd=tmp_path)
    refused = gossamer("crawls", "delete", "unfinished", "--yes", *here, cwd=tmp_path)
    assert refused.returncode == 2
    assert "unfinished is not finished" in refused.stderr
    assert "--stop" in refused.stderr
    for command_name, state in (("pause", "paused"), ("resume", "running")):
        assert gossamer("crawls", command_name, "unfinished", *here, cwd=tmp_path).returncode == 0
        assert listed(tmp_path, *here)["unfinished"]["state"] == state
    assert traces(server, "unfinished")

    done = gossamer("crawls", "delete", "unfinished", "--yes", "--stop", *here, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert traces(server, "unfinished") == []
    assert listed(tmp_path, *here).keys() == {"other"}
    assert traces(server, "other")


def test_a_finished_crawl_and_a_stopped_one_leave_no_key(web: FakeWeb, server: Server, tmp_path: Path) -> None:
    here = ("--frontier", server.address)
    gossamer("crawl", *flags(web, "over"), *here, cwd=tmp_path)
    gossamer("crawl", *flags(web, "over"), "--fresh", *here, cwd=tmp_path)
    interrupted(tmp_path, *flags(web, "halted", "3/1"), *here)
    stopped = gossamer("crawls", "stop", "cli/halted", *here, cwd=tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    for name in ("over", "halted"):
        assert traces(server, name)
        done = gossamer("crawls", "delete", f"cli/{name}", "--yes", *here, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert traces(server, name) == []


def test_a_crawl_of_a_folder_is_stopped_while_no_process_works_for_it(web: FakeWeb, tmp_path: Path) -> None:
    interrupted(tmp_path, *flags(web, "halted", "3/1"))
    waiting = listed(tmp_path)["halted"]["waiting"]
    stopped = gossamer("crawls", "stop", "halted", "--json", cwd=tmp_path)
    assert json.loads(stopped.stdout) == {"appid": "cli", "crawl_id": "halted", "dropped": waiting}, stopped.stderr
    assert (listed(tmp_path, "--app", "cli")["halted"]["state"], listed(tmp_path, "--app", "shop")) == ("stopped", {})
    assert gossamer("crawls", "list", "--app", "shop", cwd=tmp_path).stdout == "There are no crawls of shop.\n"


def test_deleting_asks_at_a_terminal_and_needs_yes_without_one(web: FakeWeb, tmp_path: Path) -> None:
    gossamer("crawl", *flags(web, "asked"), cwd=tmp_path)
    unasked = gossamer("crawls", "delete", "asked", cwd=tmp_path)
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    for answer, code in (("n", 130), ("y", 0)):
        ours, theirs = pty.openpty()
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            command("crawls", "delete", "asked"), cwd=tmp_path, stdin=theirs, capture_output=True, text=True, timeout=60
        )
        os.close(ours)
        os.close(theirs)
        assert done.returncode == code, done.stderr
        assert "Delete the crawl asked (30 fetched, 0 waiting)? Its outputs stay." in done.stderr
        assert done.stderr.endswith("gossamer: nothing was deleted\n") is (answer == "n")
        assert ("asked" in listed(tmp_path)) is (answer == "n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_at_the_question_ends_the_command_and_deletes_nothing(
    number: signal.Signals, web: FakeWeb, tmp_path: Path
) -> None:
    gossamer("crawl", *flags(web, "asked"), cwd=tmp_path)
    ours, theirs = pty.openpty()
    asking = subprocess.Popen(
        command("crawls", "delete", "asked"), cwd=tmp_path, stdin=theirs, stderr=subprocess.PIPE, bufsize=0
    )
    assert asking.stderr is not None
    shown = b""
    while not shown.endswith(b"[y/N] "):
        more = asking.stderr.read(1)
        assert more, shown
        shown += more
    asking.send_signal(number)  # no answer follows
    _, rest = asking.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert asking.returncode == 130
    assert rest == b"\ngossamer: Interrupted: nothing was deleted\n"
    assert "asked" in listed(tmp_path)


def test_an_unknown_crawl_is_named(tmp_path: Path) -> None:
    none = gossamer("crawls", "list", cwd=tmp_path)
    assert none.returncode == 2
    assert "no crawl was started in this folder. Go to its folder" in none.stderr
    elsewhere = gossamer("crawls", "list", "--data-dir", "other", cwd=tmp_path)
    assert "no crawl was started with the data directory other." in elsewhere.stderr
    assert not (tmp_path / ".gossamer").exists()


def test_crawls_of_the_history_are_listed_newest_first_shown_and_deleted(tmp_path: Path, web: FakeWeb) -> None:
    """A service has remembered crawls that the frontier of its folder does not know any more."""
    done = gossamer("crawl", *flags(web, "latest"), "-q", "-o", "x.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    asyncio.run(_remember(tmp_path / ".gossamer" / "history.db"))
    done = gossamer("crawls", "list", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["crawls"]
    assert [(crawl["crawl_id"], crawl["state"]) for crawl in found] == [
        ("latest", "finished"), ("autumn", "stopped"), ("spring", "lost"),
    ]  # fmt: skip
    assert (found[1]["fetched"], found[1]["failed"]) == (7, 2)
    for name in ("shop/autumn", "shop/aut"):
        shown = gossamer("crawls", "show", name, cwd=tmp_path)
        assert "shop/autumn: stopped, run 1" in shown.stdout
        assert "http_503 2: http://a.test/9" in shown.stdout
    deleted = gossamer("crawls", "delete", "shop/autumn", "--yes", cwd=tmp_path)
    assert deleted.returncode == 0, deleted.stderr
    assert set(listed(tmp_path)) == {"latest", "spring"}


async def _remember(file: Path) -> None:
    store = HistoryStore(f"sqlite:///{file}")
    counts = SpiderCounts(added=9, fetched=7, failed={"http_503": 2})
    infos = [
        CrawlInfo(
            CrawlId("shop", name), "shared", CrawlState.RUNNING, 1, started, None, 0, 9, spiders={"link": counts},
            options=Crawl(id=CrawlId("shop", name)),
        )
        for name, started in (("spring", 1000.0), ("autumn", 2000.0))
    ]  # fmt: skip
    await store.record_crawls(infos, now=2000.0)
    end = CrawlEnded(event_id="e", kind="stopped", appid="shop", crawlid="autumn", run=1, at=3000.0)
    failed = RequestFailed(
        appid="shop", crawlid="autumn", spider="link", request_id="r", url="http://a.test/9", status=503,
        reason="http_503", error="", at=2500.0,
    )  # fmt: skip
    await store.record_messages([end], [failed])
    await store.record_lost([CrawlId("shop", "spring")], now=4000.0)
    await store.close()


def test_what_failed_of_a_services_crawl_is_retried(server: Server, tmp_path: Path) -> None:
    """All, of one reason, or one URL; a crawl of the command line names the command instead."""

    def retry(*words: str) -> subprocess.CompletedProcess[str]:
        return gossamer("crawls", "retry", *words, "--frontier", server.address, cwd=tmp_path)

    asyncio.run(_fail(server.address, CrawlId("shop", "prices"), CrawlId("cli", "alone")))
    assert retry("prices", "--reason", "http_503").stdout == (
        "shop/prices: nothing to retry. It keeps no failed request of this kind.\n"
    )
    assert retry("prices", "--url", "http://a.test/1").stdout == "shop/prices: 1 request waits again.\n"
    shown = json.loads(retry("shop/prices", "--json").stdout)
    assert (shown["retried"], shown["kept"], shown["run"]) == (2, 0, 2)
    assert "nothing to retry" in retry("prices").stdout
    alone = retry("alone")
    assert alone.returncode != 0
    assert "start it again as before" in alone.stderr


def test_a_pause_holds_where_links_of_requests_in_flight_lead(server: Server, tmp_path: Path) -> None:
    asyncio.run(_pause_while_a_request_is_in_flight(server.address, tmp_path))


async def _pause_while_a_request_is_in_flight(address: str, folder: Path) -> None:
    frontier = await ValkeyFrontier.connect(address, prefix="paused", shards=4)

    def batch(domain: str, depth: int) -> Batch:
        url = f"http://{domain}/"
        return Batch("link", domain, depth, 0, [url], [frontier.spiders.fingerprint("link", url)])

    run = await frontier.open_crawl(Crawl(id=CrawlId("shop", "one")))
    await frontier.add(run, Terms(), [batch("a.test", 0)], seeds=True)
    worker = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    while not (leases := await worker.lease(limit=1)):
        await worker.wait_for_work(timeout_seconds=10)
    pausing = await asyncio.create_subprocess_exec(
        *command("crawls", "pause", "shop/one", "--frontier", address, "--json"),
        cwd=folder,
        env={**os.environ, "GOSSAMER_PREFIX": "paused"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert pausing.stdout is not None
    assert pausing.stderr is not None
    assert "Waiting for 1 request in flight" in (await pausing.stderr.readline()).decode()
    elsewhere = next(f"d{n}.test" for n in range(100) if shard_of(f"d{n}.test", 4) != shard_of("a.test", 4))
    await frontier.add(run, Terms(), [batch(elsewhere, 1)])
    await worker.settle([Settlement(leases[0], Outcome.FETCHED)])
    said = json.loads(await pausing.stdout.read())
    assert said == {"appid": "shop", "crawl_id": "one", "paused": True, "in_flight": 0}
    assert await pausing.wait() == 0
    assert await worker.lease(limit=1) == []
    await frontier.set_paused(CrawlId("shop", "one"), paused=False)
    assert [lease.domain for lease in await worker.lease(limit=1)] == [elsewhere]
    await worker.close()
    await frontier.close()


async def _fail(address: str, *crawls: CrawlId) -> None:
    """Make finished crawls with three requests that failed."""
    frontier = await ValkeyFrontier.connect(address)
    for crawl in crawls:
        pool = "shared" if crawl.appid == "shop" else "crawl-alone"
        run = await frontier.open_crawl(Crawl(id=crawl, pool=pool, rate=Rate(1000, 1.0), keep_all_failed=True))
        urls = [f"http://a.test/{number}" for number in range(3)]
        batch = Batch("link", "a.test", 0, 0, urls, [frontier.spiders.fingerprint("link", url) for url in urls])
        await frontier.add(run, Terms(), [batch], seeds=True)
        worker = await frontier.open_leaseholder(pool=pool, spiders=["link"])
        while leases := await worker.lease(limit=3):
            await worker.settle([Settlement(lease, Outcome.FAILED, "http_500") for lease in leases])
        await worker.close()
    await frontier.close()
