"""A crawl that is interrupted, killed or shared: nothing lost, and nothing fetched twice that need not be."""

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey.keys import KeyPattern, ShardKeys
from gossamer.model.record import PageRecord
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.shards import Shards
from gossamer_fakeweb import expected, fetched, fetches, graph
from tests.servers.crawling import command, crawl, gossamer, records_of, resolving
from tests.servers.program import until
from tests.servers.valkey import Server

SPEC = WebSpec(hosts=4, pages=100, latency_ms=50)
RATE = ("--rate", "10000/1", "--domain-concurrency", "4")


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def begin(web: FakeWeb, folder: Path, *more: str, dead_after_seconds: float = 0.6) -> "subprocess.Popen[str]":
    """The command, going on in the background."""
    return subprocess.Popen(
        [*command("crawl", *web.seeds(), *resolving(web.resolve_overrides()), *RATE, "--json"), *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "GOSSAMER_WORKER__HEARTBEAT": str(dead_after_seconds)},
    )


def end(process: "subprocess.Popen[str]") -> tuple[int, dict[str, object], str]:
    """(exit code, summary, what was said)."""
    out, said = process.communicate(timeout=60)
    return process.returncode, json.loads(out) if out.strip() else {}, said


def pages(path: Path) -> list[PageRecord]:
    return [record for record in records_of(path) if isinstance(record, PageRecord)]


def test_ctrl_c_drains_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """Exit code 130 and the command to go on with; in the end every page was fetched once, by two runs of it."""
    output = tmp_path / "pages.jsonl"
    with FakeWeb.start(SPEC) as web:
        first = begin(web, tmp_path)
        until(lambda: lines(output) > 30, "some pages")
        first.send_signal(signal.SIGINT)
        code, summary, said = end(first)
        assert (code, summary["state"]) == (130, "interrupted"), said
        done = lines(output)
        assert 0 < done < len(graph(web.site))
        code, summary, said = end(begin(web, tmp_path))
        assert (code, summary["state"]) == (0, "finished"), said
        assert "Resuming" in said
        asked = fetches(web.log())
        assert set(asked) == fetched(expected(web.site))
        assert {url: count for url, count in asked.items() if count > 1} == {}
        assert len(pages(output)) == len({page.url for page in pages(output)}) == len(graph(web.site))


def test_a_finished_crawl_says_so_and_begins_anew_only_when_asked(tmp_path: Path) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=10)) as web:
        assert end(begin(web, tmp_path))[0] == 0
        code, summary, _ = end(begin(web, tmp_path, "-o", "other.jsonl"))
        assert (code, summary["already_finished"], summary["pages_in_all"]) == (0, True, 10)
        assert summary["outputs"] == ["site0.test.jsonl", "other.jsonl"]  # the other one is made from the first
        assert (tmp_path / "other.jsonl").read_text().count("\n") == 10
        assert max(fetches(web.log()).values()) == 1
        code, summary, _ = end(begin(web, tmp_path, "--fresh"))
        assert (code, summary["already_finished"], summary["pages"], summary["run"]) == (0, False, 10, 2)
        assert set(fetches(web.log()).values()) == {2}


def test_a_crawl_may_stay_idle_before_it_is_finished_and_its_worker_ends_it(tmp_path: Path) -> None:
    (tmp_path / "gossamer.toml").write_text("[crawl]\nidle_seconds = 0.3\n")
    with FakeWeb.start(WebSpec(hosts=1, pages=10)) as web:
        code, told, said = end(begin(web, tmp_path))
    assert (code, told["state"], told["pages"]) == (0, "finished", 10), said


def test_a_crawl_that_runs_out_of_time_has_expired_and_begins_anew_only_when_asked(tmp_path: Path) -> None:
    slow = ("--rate", "2/1", "--domain-concurrency", "1", "--expires", "5")
    with FakeWeb.start(WebSpec(hosts=1, pages=30)) as web:
        code, told, said = end(begin(web, tmp_path, *slow))
        assert (code, told["state"]) == (0, "expired"), said
        assert int(str(told["pages"])) < 30
        assert told["dropped"]
        code, again, _ = end(begin(web, tmp_path, *slow))
        assert (code, again["state"], again["already_finished"], again["pages"]) == (0, "expired", True, 0)
        code, fresh, _ = end(begin(web, tmp_path, "--fresh"))
        assert (code, fresh["state"], fresh["run"], fresh["pages"]) == (0, "finished", 2, 30)


def test_twice_ctrl_c_stops_at_once_and_loses_nothing(tmp_path: Path) -> None:
    output = tmp_path / "pages.jsonl"
    with FakeWeb.start(WebSpec(hosts=4, pages=60, latency_ms=300)) as web:
        first = begin(web, tmp_path)
        until(lambda: len(web.log()) > 12, "some requests")
        first.send_signal(signal.SIGINT)
        assert first.stderr
        until(lambda: "Ctrl-C" in first.stderr.readline(), "the word that it drains")
        first.send_signal(signal.SIGINT)
        assert end(first)[0] == 130
        web.reset()
        assert end(begin(web, tmp_path, "--domain-concurrency", "64"))[0] == 0
        assert {page.url for page in pages(output)} == graph(web.site)


def test_a_killed_command_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL of everything, the embedded server included: what was in flight is done again, the rest is there."""
    output = tmp_path / "pages.jsonl"
    with FakeWeb.start(SPEC) as web:
        first = begin(web, tmp_path)
        until(lambda: lines(output) > 50, "some pages")
        server = [child for child in psutil.Process(first.pid).children() if "valkey" in child.name()]
        for victim in (*server, first):
            victim.kill()
        first.communicate()
        code, _, said = end(begin(web, tmp_path))
        assert code == 0, said
        wanted = fetched(expected(web.site))
        assert set(fetches(web.log())) == wanted
        written = pages(output)
        assert {page.url for page in written} == wanted
        # A page may be there twice if we died between writing and settling it; its request id tells.
        assert len({page.request_id for page in written}) == len(wanted)


async def test_a_resumed_command_with_its_own_server_waits_for_no_heartbeat(tmp_path: Path) -> None:
    """Its workers trust silence only after an hour, and yet it gets at once what the killed command held."""
    with FakeWeb.start(SPEC) as web:
        first = begin(web, tmp_path)
        until(lambda: lines(tmp_path / "pages.jsonl") > 50, "some pages")
        first.kill()
        first.communicate()
        async with EmbeddedValkey(tmp_path / ".gossamer") as server:
            shards = await Shards.connect(server.address)
            workers = ShardKeys("gossamer", 0).key(KeyPattern.WORKERS)
            silent = await shards.command(workers, "ZRANGE", workers, 0, -1)
            assert silent
            for worker in silent:  # for longer than the heartbeat
                await shards.command(workers, "ZADD", workers, 0, worker)
            await shards.close()
        code, summary, said = end(begin(web, tmp_path, dead_after_seconds=3600.0))
        assert (code, summary["state"]) == (0, "finished"), said
        assert set(fetches(web.log())) == fetched(expected(web.site))


@pytest.mark.parametrize("forks", [True, False])
def test_a_killed_worker_process_is_replaced_and_loses_nothing(tmp_path: Path, forks: bool) -> None:
    """Also where the process that forks worker processes is gone: the new one loads its modules itself."""
    output = tmp_path / "pages.jsonl"
    with FakeWeb.start(SPEC) as web:
        parent = begin(web, tmp_path, "--processes", "2")
        until(lambda: lines(output) > 50, "some pages")
        below = psutil.Process(parent.pid).children(recursive=True)
        workers = [child for child in below if child.name() == "gossamer-worker"]
        assert len(workers) == 2
        if not forks:
            [server] = [child for child in below if child.name() == "gossamer-forks"]
            server.kill()
        workers[0].kill()
        code, summary, said = end(parent)
        assert code == 0, said
        assert f"died ({'signal 9' if forks else 'exit code 1'}); starting another" in said
        assert {page.url for page in pages(output)} == set(fetches(web.log())) == fetched(expected(web.site))
        assert summary["state"] == "finished"


def test_a_worker_that_was_taken_for_dead_starts_afresh(tmp_path: Path) -> None:
    """Stopped for longer than its heartbeat, then woken: another did its work, it drops what it held and goes on."""
    # Each its own output: a process that is stopped while it holds a file's lock would hold up the other there.
    outputs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    server = Server(tmp_path)
    server.start()
    try:
        with FakeWeb.start(SPEC) as web:
            flags = ("--frontier", server.address, "--crawl-id", "ours")
            both = [begin(web, tmp_path, *flags, "-o", str(output)) for output in outputs]
            until(lambda: any(lines(output) > 20 for output in outputs), "some pages")
            sleeper, other = both if lines(outputs[0]) > 20 else reversed(both)
            sleeper.send_signal(signal.SIGSTOP)
            code, summary, said = end(other)
            assert (code, summary["state"]) == (0, "finished"), said
            sleeper.send_signal(signal.SIGCONT)
            code, summary, said = end(sleeper)
            assert (code, summary["state"]) == (0, "finished"), said
            assert {page.url for output in outputs for page in pages(output)} == graph(web.site)
    finally:
        server.stop()


def test_two_commands_share_a_crawl(tmp_path: Path) -> None:
    """Both end when the whole of it is finished; each page is in one of their outputs, and was fetched once."""
    server = Server(tmp_path)
    server.start()
    try:
        # More domains than one command has slots, slow enough that whoever starts last still finds work.
        with FakeWeb.start(WebSpec(hosts=40, pages=10, latency_ms=200)) as web:
            flags = ("--frontier", server.address, "--crawl-id", "ours", "--concurrency", "16")
            flags = (*flags, "--domain-concurrency", "1")
            commands = [begin(web, tmp_path, *flags, "-o", f"{name}.jsonl") for name in ("a", "b")]
            for process in commands:
                code, summary, said = end(process)
                assert code == 0, said
                assert summary["pages_in_all"] == len(graph(web.site)), said
            written = [page.url for name in ("a", "b") for page in pages(tmp_path / f"{name}.jsonl")]
            assert len(written) == len(set(written)) == len(graph(web.site))
            assert lines(tmp_path / "a.jsonl")
            assert lines(tmp_path / "b.jsonl")
            assert max(fetches(web.log()).values()) == 1
    finally:
        server.stop()


def test_a_second_command_on_a_data_directory_in_use_is_refused_by_name(tmp_path: Path) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=500)) as web:
        first = begin(web, tmp_path, "--rate", "1/1")
        until(lambda: lines(tmp_path / "site0.test.jsonl"), "a page")
        second = gossamer("crawl", "http://192.0.2.1/", "--allow-private", "-o", "other.jsonl", cwd=tmp_path)
        first.kill()
        first.communicate()
    assert second.returncode == 2
    assert f"process {first.pid}" in second.stderr
    assert not (tmp_path / "other.jsonl").exists()


async def test_the_frontier_away_for_a_while_only_pauses_a_crawl(tmp_path: Path) -> None:
    """SIGKILL of a frontier's server and its restart: said once, and everything is there in the end."""
    server = Server(tmp_path)
    server.start()
    output = tmp_path / "pages.jsonl"
    try:
        with FakeWeb.start(SPEC) as web:
            process = begin(web, tmp_path, "--frontier", server.address)
            until(lambda: lines(output) > 50, "some pages")
            server.kill()
            assert process.stderr
            until(lambda: "could not be reached" in process.stderr.readline(), "the word that it is away")
            server.start()
            code, summary, said = end(process)
            assert (code, summary["state"]) == (0, "finished"), said
            assert "back" in said
            assert {page.url for page in pages(output)} == graph(web.site)
    finally:
        server.stop()


async def test_a_resumed_run_in_this_process_has_one_record_a_url(tmp_path: Path) -> None:
    """max_pages ends a run; the next one, asked afresh, begins from the seeds."""
    with FakeWeb.start(WebSpec(hosts=1, pages=40)) as web:
        first = await crawl(tmp_path, web.seeds(), web.resolve_overrides(), crawl__max_pages=7)
        assert first.summary.finished
        assert first.summary.info is not None
        assert first.summary.info.total().fetched == 7
        assert sum(page.success for page in first.pages) == 7
