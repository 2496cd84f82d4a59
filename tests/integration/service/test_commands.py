"""The commands that ask and tell a running service."""

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest

from gossamer.fakeweb import FakeWeb, WebSpec, html
from tests.servers import crawling
from tests.servers.service import Up, up
from tests.servers.valkey import Server, free_ports, standalone


class Folder:
    """Where the service runs, and where commands find it."""

    def __init__(self, service: Up, seeds: list[str]) -> None:
        self.service = service
        self.seeds = seeds

    def run(self, *arguments: str, code: int | None = 0, stdin: str = "") -> str:
        """What the command says on standard output. `code` None: however it ends."""
        done = subprocess.run(
            crawling.command(*arguments),
            cwd=self.service.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert code in (None, done.returncode), done.stderr + done.stdout
        self.errors = done.stderr
        return done.stdout

    def until(self, said: str, *arguments: str) -> None:
        """Ask until it says so."""
        deadline = time.monotonic() + 60
        while said not in (last := self.run(*arguments, code=None)):
            assert time.monotonic() < deadline, last

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    with FakeWeb.start(WebSpec(hosts=3, pages=15, page_bytes=2000)) as web:
        flags = [part for override in web.resolve_overrides() for part in ("--resolve", override)]
        # The second attempt comes after these tests: between short ones a look would often meet one under way.
        web.mount("site2.test", "/away", html("", status=503, headers=(("Retry-After", "600"),)))
        web.mount("site1.test", "/robots.txt", html("", status=503))
        with up(tmp_path_factory.mktemp("up"), *flags) as service:
            yield Folder(service, web.seeds())


def a_crawl(folder: Folder, crawlid: str, **fields: Any) -> str:
    return json.dumps({"appid": "app", "crawlid": crawlid, "url": folder.seeds[0], **fields})


def test_feed_show_dump_and_stop(folder: Folder) -> None:
    assert folder.run("feed", a_crawl(folder, "one", maxdepth=1)) == "Fed 1 request.\n"
    pages = folder.run("dump", "demo.crawled_app", "--from-beginning", "--limit", "5", "--no-body", "-c", "me")
    lines = [json.loads(line) for line in pages.splitlines()]
    assert len(lines) == 5
    assert all("body" not in line and line["crawlid"] == "one" for line in lines)
    folder.run("feed", '{"appid": "app", "url": "http://a.test/"}', code=2)
    assert (
        'crawlid is missing: what looks like a crawl request needs it. Write, for example, "crawlid": ' in folder.errors
    )
    more = folder.run("dump", "demo.crawled_app", "--from-beginning", "--limit", "1", "--just-body", "-c", "me")
    assert more.startswith("<!DOCTYPE html>")
    folder.run("dump", "demo.crawled_app", "--no-body", "--just-body", code=2)
    assert "contradict" in folder.errors
    folder.run("feed", a_crawl(folder, "one", spiderid="absent", wait_for_spider=True))  # else it may have finished
    assert "app/one" in folder.run("crawls", "show", "app/one")
    assert folder.json("crawls", "list", "--app", "app", "--json")["crawls"][0]["appid"] == "app"
    assert folder.json("crawls", "stop", "app/one", "--json")["crawl_id"] == "one"
    assert "It accepts no more requests. To crawl again, use another crawlid." in folder.run(
        "crawls", "stop", "app/one"
    )
    for command in ("show", "stop", "pause"):
        assert folder.run("crawls", command, "app/nobody", code=2) == ""
        assert "there is no crawl app/nobody" in folder.errors
    assert folder.run("dump", "demo.crawled_ap", "--from-beginning", "--limit", "1") == ""
    assert "demo.crawled_ap has no messages yet. gossamer dump --list shows the topics." in folder.errors
    assert "demo.incoming" in folder.run("dump", "--list")
    assert folder.json("dump", "--list", "--json")["demo.crawled_app"] >= 5


def test_a_group_gets_again_what_dump_could_not_print(folder: Folder) -> None:
    folder.run("feed", a_crawl(folder, "printed"))
    oldest = ("dump", "demo.crawled_app", "--from-beginning", "--no-body", "--limit", "1")
    [page] = folder.run(*oldest).splitlines()
    grouped = crawling.command(*oldest[:-2], "--consumer", "gone")  # without a limit, it ends because none reads
    ended = crawling.nobody_reads(grouped, folder.service.folder)
    assert (ended.returncode, ended.stderr) == (0, "0 messages\n")
    assert folder.run(*oldest, "--consumer", "gone").splitlines() == [page]


def test_requests_of_a_pipe_that_stays_open_are_fed_and_a_signal_ends_it(folder: Folder) -> None:
    command = crawling.command("feed", "-")
    with subprocess.Popen(
        command, cwd=folder.service.folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as feeding:
        assert feeding.stdin is not None
        feeding.stdin.write(a_crawl(folder, "piped") + "\n")
        feeding.stdin.flush()
        folder.until("finished", "crawls", "show", "app/piped")
        feeding.send_signal(signal.SIGTERM)
        assert feeding.wait(timeout=60) == 130
        assert feeding.stderr is not None
        assert feeding.stderr.read() == "gossamer: Interrupted: 1 request fed\n"


def test_a_worker_without_a_bus_warns_that_the_service_gets_none_of_its_pages(folder: Folder, tmp_path: Path) -> None:
    own = str(tmp_path / "own.jsonl")
    command = crawling.command("worker", "-o", own, "--pool", "shared")
    with subprocess.Popen(command, cwd=folder.service.folder, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        deadline = threading.Timer(60, worker.kill)
        deadline.start()
        try:
            lines = takewhile(lambda line: "A crawl service uses this frontier." not in line, worker.stderr)
            before = list(lines)
            assert worker.poll() is None, before
        finally:
            deadline.cancel()
            worker.terminate()


def test_a_crawl_that_has_finished_is_not_stopped_and_begins_another_run(folder: Folder) -> None:
    folder.run("feed", a_crawl(folder, "done"))
    folder.until("finished", "crawls", "show", "app/done")
    assert "app/done has finished; nothing is left to stop." in folder.run("crawls", "stop", "app/done")
    assert folder.json("crawls", "stop", "app/done", "--json")["dropped"] == 0
    assert "finished" in folder.run("crawls", "show", "app/done")
    assert "refuses" not in folder.errors
    folder.run("feed", a_crawl(folder, "done", fresh=True))
    folder.until("run 2", "crawls", "show", "app/done")


def test_feed_says_that_a_url_was_seen_before(folder: Folder) -> None:
    folder.run("feed", a_crawl(folder, "again"))
    assert "has seen" not in folder.errors
    folder.until("finished", "crawls", "show", "app/again")
    folder.run("feed", a_crawl(folder, "again"))
    assert f"The crawl app/again has seen {folder.seeds[0]} before: " in folder.errors
    folder.run("feed", a_crawl(folder, "again", fresh=True))
    assert "has seen" not in folder.errors


def test_feed_warns_once_that_a_stopped_crawl_refuses_its_requests(folder: Folder) -> None:
    endless = a_crawl(folder, "over", spiderid="absent", wait_for_spider=True)  # the crawl runs until it is stopped
    folder.run("feed", "-", stdin=f"{endless}\n{a_crawl(folder, 'over')}\n")
    folder.until("fetched 1", "crawls", "show", "app/over")
    assert "Stopped app/over; 1 waiting request dropped." in folder.run("crawls", "stop", "app/over")
    again = "\n".join(a_crawl(folder, "over", url=f"{folder.seeds[0]}{page}") for page in range(3))
    assert folder.run("feed", "-", stdin=again) == "Fed 3 requests.\n"
    assert folder.errors.count("The crawl app/over was stopped: the service refuses these requests.") == 1
    folder.run("feed", a_crawl(folder, "over", spiderid="wandering"))
    folder.run("feed", a_crawl(folder, "new"))
    assert "refuses" not in folder.errors


def test_a_crawl_is_shown_for_all_spiders_where_none_is_named(folder: Folder) -> None:
    folder.run("feed", a_crawl(folder, "one", appid="shop", spiderid="scrapys", wait_for_spider=True))
    folder.until("waiting 1 on 1 domain", "crawls", "show", "shop/one")
    listed = folder.json("crawls", "list", "--app", "shop", "--json")["crawls"]
    assert [(one["crawl_id"], one["waiting"], one["domains"]) for one in listed] == [("one", 1, 1)]
    [queue] = folder.json("crawls", "show", "shop/one", "--json")["waiting_by_domain"].values()
    assert queue == {"total": 1, "high_priority": 1, "low_priority": 1}
    assert "waiting 0\n" in folder.run("crawls", "show", "shop/one", "--spider", "link")


def test_a_crawl_that_waits_for_retries_says_why(folder: Folder) -> None:
    """Where it is shown, by REST and in the dashboard: after errors of a page, and while a
    site's robots.txt cannot be fetched."""
    folder.run("feed", a_crawl(folder, "late", url=f"{folder.seeds[2]}away", retries=9))
    folder.run("feed", a_crawl(folder, "shut", url=folder.seeds[1]))
    folder.until("waiting 1 on 1 domain, 1 of them for a retry (http_503 ", "crawls", "show", "app/late")
    folder.until("waiting 1 on 1 domain, 1 of them for a retry (robots_unreachable ", "crawls", "show", "app/shut")
    shown = folder.json("crawls", "show", "app/late", "--json")
    assert (shown["waiting_for_retry"], list(shown["retried"]), shown["repairs"]) == (1, ["http_503"], 0)
    address = f"{folder.service.api}/v1/crawls/app/late"
    assert list(httpx.get(address).json()["total"]["retried"]) == ["http_503"]
    page = httpx.get(f"{folder.service.api}/ui/crawl", params={"appid": "app", "crawlid": "late"}).text
    assert "Waiting for another attempt: 1. Failed attempts so far: http_503 " in page


def test_a_file_of_requests_is_checked_line_by_line(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    lines = [a_crawl(folder, f"f{n}") for n in range(3)]
    path.write_text("\n".join([lines[0], "{", lines[1], "", a_crawl(folder, "bad", maxdepth=-1), lines[2]]))
    said = folder.run("feed", str(path), code=2)
    assert said == "Fed 3 requests.\n"
    assert "line 2" in folder.errors
    assert "line 5: maxdepth: must be at least 0" in folder.errors
    fed = json.loads(folder.run("feed", "-", "--json", stdin="\n".join(lines)))
    assert fed == {"fed": 3, "rejected": 0, "faults": []}


def test_a_feed_that_the_bus_cuts_short_says_how_far_it_came(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(a_crawl(folder, f"f{n}", attrs={"x": "y" * 400}) for n in range(4000)))
    (tmp_path / "small.toml").write_text("[topics]\nmax_bytes = 1048576\n")
    # Nobody takes requests with this prefix.
    folder.run("feed", str(path), "--prefix", "lonely", "--config", str(tmp_path / "small.toml"), code=2)
    assert "nothing can be published" in folder.errors
    assert re.search(r"the first [12],000 valid requests were fed", folder.errors)


def test_domains_are_changed_and_shown(folder: Folder, tmp_path: Path) -> None:
    assert folder.run("domains", "set", "example.com", "--hits", "5", "--window", "60") == (
        "example.com: hits 5, window 60\n"
    )
    folder.run("domains", "set", "example.com", "--scale", "0.5")
    folder.run("domains", "blacklist", "bad.example")
    shown = folder.json("domains", "list", "--json")
    assert shown["domains"]["example.com"] == {"hits": 5, "window": 60.0, "scale": 0.5}
    assert shown["domains"]["bad.example"] == {"blacklisted": True}
    audit = folder.run("crawls", "audit", "--action", "domain.change")
    assert audit == "There are no such changes. Those by commands, such as gossamer domains, are not here.\n"
    text = folder.run("domains", "dump")
    folder.run("domains", "remove", "example.com")
    folder.run("domains", "blacklist", "bad.example", "--remove")
    assert folder.json("domains", "list", "--json")["domains"] == {}
    path = tmp_path / "policies.yaml"
    path.write_text(text)
    folder.run("domains", "load", str(path))
    assert folder.json("domains", "list", "--json") == shown
    folder.run("domains", "set", "www.example.com", "--hits", "5", code=2)
    assert "use example.com" in folder.errors
    folder.run("domains", "set", "--hits", "5", code=2)


def test_statistics_and_the_monitor(folder: Folder) -> None:
    folder.run("feed", a_crawl(folder, "counted"))
    counted = folder.json("stats", "kafka-monitor", "--json")
    assert folder.json("stats", "intake", "--json")["nodes"] == counted["nodes"]
    assert counted["total"]["lifetime"] >= 1
    processes = [name for names in counted["nodes"].values() for name in names]
    assert processes
    assert all(re.fullmatch("[0-9a-f]{12}", name) for name in processes)
    everything = folder.run("stats")
    assert "intake plugins" in everything
    assert "kafka" not in everything
    folder.run("stats", "nonsense", code=2)
    spiders = folder.json("stats", "spider", "--json")["spiders"]
    assert spiders["unique_spider_count"] == spiders["total_spider_count"] == 2  # link and wandering, in one process
    seen = folder.json("monitor", "--json")
    assert len(seen["workers"]) == 1
    shown = folder.run("monitor", "--once")
    assert "1 worker" in shown
    assert "running / ended" in shown
    assert re.search(r"app/counted +\S+ .*(for .* s|s ago)", shown)


def test_feeding_where_no_service_listens_is_said(tmp_path: Path) -> None:
    """And not where one does, however young it is."""

    def feed(crawlid: str, server: Server) -> subprocess.CompletedProcess[str]:
        request = json.dumps({"appid": "app", "crawlid": crawlid, "url": "https://example.com/"})
        command = crawling.command("feed", request, "--frontier", server.address)
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    with standalone(tcp=True) as server:
        alone = feed("one", server)
        with up(tmp_path, "--frontier", server.address, command="serve"):
            heard = feed("two", server)
    assert (alone.stdout, heard.stdout) == ("Fed 1 request.\n", "Fed 1 request.\n")
    assert "No service has reported for two minutes" in alone.stderr
    assert heard.stderr == ""


def test_a_log_in_json_has_the_statistics(tmp_path: Path) -> None:
    with up(tmp_path, "--log-format", "json", environment={"GOSSAMER_SERVICE__STATS_INTERVAL": "0.1"}) as service:
        Folder(service, []).run("feed", json.dumps({"uuid": "u", "appid": "app", "stats": "rest"}))
        dumps: list[dict[str, Any]] = []
        last = time.monotonic() + 60
        while not any(dump.get("plugin_StatsHandler_lifetime") for dump in dumps):
            assert time.monotonic() < last, service.said()
            lines = [json.loads(line) for line in service.said().splitlines() if line.startswith("{")]
            dumps = [line for line in lines if line["message"] == "Kafka Monitor Stats Dump"]
    assert dumps[-1]["total_900"] == 1
    assert {"level", "logger", "timestamp"} <= set(dumps[-1])


def test_metrics_have_a_port_of_their_own(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with up(tmp_path, environment={"GOSSAMER_SERVICE__METRICS": f"127.0.0.1:{port}", "GOSSAMER_SERVICE__TOKEN": "t"}):
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").json()["status"] == "ready"
        assert "gossamer_workers" in httpx.get(f"http://127.0.0.1:{port}/metrics").text


def test_where_nothing_runs_it_is_said(tmp_path: Path) -> None:
    for command in (["stats"], ["domains", "list"], ["monitor", "--once"]):
        done = subprocess.run(crawling.command(*command), cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "no crawl and no service is running with the data directory .gossamer" in done.stderr
        assert "`gossamer up` starts a service" in done.stderr
