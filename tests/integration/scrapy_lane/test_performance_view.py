"""The performance view: a crawl is measured, shown while it runs, and diagnosed at its end."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.model.performance import Recording
from gossamer.telemetry.recordings import read_recording, recordings
from tests.servers.scraping import Scraper
from tests.servers.valkey import Server

from .lane import prefix

PATIENCE_SECONDS = 90.0


def gossamer(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gossamer", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def only_recording(folder: Path) -> Recording:
    (path,) = recordings(folder)
    recording = read_recording(path)
    assert recording is not None
    return recording


def total(recording: Recording, name: str) -> Any:
    return sum(getattr(each, name) for each in recording.measurements)


def test_the_benchmark_spider_prints_its_figures_and_a_diagnosis(tmp_path: Path) -> None:
    ran = gossamer(
        "bench", "--items", "30", "--items-per-page", "3", "--response-time", "0.2", "--concurrency", "4",
        "--pipeline", "wait", "--pipeline-time", "0.05", "--api-calls", "1", "--api-time", "0", "--log-seconds", "0.5",
        folder=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("Performance: limits requests=4 ")
    assert lines[1].split()[1:7] == ["scheduler", "downloader", "scraper", "pipelines", "done", "bytes"]
    assert any(line.startswith("  advice ") for line in lines)
    recording = only_recording(tmp_path / ".gossamer" / "performance")
    assert recording.ended is not None
    assert (total(recording, "items"), recording.measurements[-1].items_in_all) == (30, 30)
    assert total(recording, "page_responses") == 11  # 10 details and an index
    assert total(recording, "responses") == 41  # and 30 calls of the API
    assert total(recording, "item_seconds") >= 30 * 0.05
    assert total(recording, "response_bytes") > 10 * 2000

    shown = msgspec.json.decode(gossamer("diagnose", "--json", folder=tmp_path).stdout)
    assert shown["process"]["name"] == "bench"
    assert shown["job"]["pages"] == 11
    assert "before" not in shown
    ended = gossamer("top", "--once", folder=tmp_path)
    assert ended.stdout.startswith("No crawling process runs in the data directory .gossamer. ")
    ended = gossamer("top", "--once", "bench", folder=tmp_path)
    assert ended.stdout == "bench runs no longer.\nWhat limited the last run: gossamer diagnose bench\n"
    for flag in ("--once", "--json"):
        wrong = gossamer("top", flag, "bnch", folder=tmp_path)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert wrong.stderr == (
            "gossamer: no crawling process is called 'bnch'. Processes of this folder: bench. Another folder: "
            "--data-dir DIR.\n"
        )
    (tmp_path / "log").write_text(ran.stdout)
    from_log = gossamer("diagnose", "log", "--interval", "0.5", "--pages", "5000", folder=tmp_path)
    assert "a job of 5,000 pages would take" in from_log.stdout


@pytest.mark.parametrize("stop", ["ctrl_c", "sigterm"])
def test_a_benchmark_that_is_stopped_ends_its_processes_in_order(tmp_path: Path, stop: str) -> None:
    knobs = ("--items", "1000000", "--response-time", "0.05", "--log-seconds", "0.2")
    command = [sys.executable, "-m", "gossamer", "bench", *knobs]
    ran = subprocess.Popen(
        command, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert ran.stdout is not None
        for _ in range(4):  # the limits, the headings, and figures
            assert ran.stdout.readline().startswith("Performance: ")
        if stop == "ctrl_c":
            os.killpg(ran.pid, signal.SIGINT)  # as a terminal does
        else:
            ran.terminate()
        output, errors = ran.communicate(timeout=PATIENCE_SECONDS)  # until the spider and the server have ended, too
    finally:
        ran.kill()
    assert errors == "gossamer: Finishing requests in flight; press Ctrl-C again to stop at once.\n"
    assert ran.returncode == 130
    assert "More: gossamer diagnose" in output.splitlines()[-1]
    recording = only_recording(tmp_path / ".gossamer" / "performance")
    assert recording.ended is not None
    assert total(recording, "items") == recording.measurements[-1].items_in_all > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_server_of_a_benchmark_ends_at_a_signal(number: int) -> None:
    command = [sys.executable, "-m", "gossamer.fakeweb.benchmark", "{}"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert server.stderr is not None
        assert server.stdout.readline().startswith("http://127.0.0.1:")
        server.send_signal(number)
        assert (server.wait(PATIENCE_SECONDS), server.stderr.read()) == (0, "")
    finally:
        server.kill()
        server.communicate()


def test_a_running_crawl_is_shown_as_a_table_as_json_and_as_metrics(tmp_path: Path) -> None:
    knobs = ("--items", "1000000", "--response-time", "0.05", "--log-seconds", "0", "--data-dir", ".gossamer")
    command = [sys.executable, "-m", "gossamer", "bench", *knobs]
    crawl = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    top = None
    try:
        end = time.monotonic() + PATIENCE_SECONDS
        shown: list[dict[str, Any]] = []
        while not shown or not shown[0]["measurements"] or not shown[0]["measurements"][0].get("items"):
            assert time.monotonic() < end
            shown = msgspec.json.decode(gossamer("top", "--json", folder=tmp_path).stdout)
        assert shown[0]["process"]["name"] == "bench"
        assert shown[0]["process"]["limits"]["requests"] == 16
        command = [sys.executable, "-m", "gossamer", "top", "bench", "--metrics", "127.0.0.1:0"]
        top = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert top.stdout is not None
        assert top.stderr is not None
        assert top.stdout.readline().split()[:4] == ["process", "limited", "by", "items/s"]
        assert top.stdout.readline().startswith("bench ")
        address = top.stderr.readline().split(" at ")[1].removesuffix(".\n")
        with urllib.request.urlopen(address) as answer:
            assert b'gossamer_crawl_items_total{name="bench"}' in answer.read()
        top.send_signal(signal.SIGINT)
        _, errors = top.communicate(timeout=PATIENCE_SECONDS)
        assert (top.returncode, errors) == (0, "")
    finally:
        if top is not None:
            top.kill()
        crawl.send_signal(signal.SIGKILL)  # its spider and its server must end without it
        crawl.wait()
    end = time.monotonic() + PATIENCE_SECONDS
    while gossamer("top", "--json", folder=tmp_path).stdout != "[]\n":
        assert time.monotonic() < end, "the spider outlives the command"


def test_the_fast_worker_is_measured_too(tmp_path: Path, web: FakeWeb) -> None:
    resolve = [part for override in web.resolve_overrides() for part in ("--resolve", override)]
    crawl = ("crawl", *web.seeds(), "--scope", "any", "--rate", "100000/1", "--crawl-id", "fast", "-q", *resolve)
    ran = gossamer(*crawl, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    recording = only_recording(tmp_path / ".gossamer" / "performance")
    assert (recording.process.name, recording.process.kind) == ("fast", "worker")
    assert recording.process.limits.requests == 64
    fetched = len(next(iter(tmp_path.glob("*.jsonl"))).read_text().splitlines())
    assert total(recording, "page_responses") == recording.measurements[-1].pages_in_all == fetched
    assert total(recording, "response_bytes") > 0
    assert recording.ended is not None


def test_a_crawl_on_the_shared_frontier_is_measured_as_well(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    settings = {
        "GOSSAMER_PREFIX": prefix(tmp_path),
        "GOSSAMER_DATA_DIR": str(tmp_path / "data"),
        "GOSSAMER_PERFORMANCE_LOG": "0.2",
        "EXTENSIONS": '{"gossamer.scrapy.PerformanceView": 0, "tests.integration.scrapy_lane.spiders.StatsFile": 0}',
    }
    arguments = {"seeds": ",".join(web.seeds())}
    with Scraper(tmp_path, "links", frontier=server.address, settings=settings, arguments=arguments) as running:
        done = running.finish()
    assert done.exit_code == 0
    recording = only_recording(tmp_path / "data" / "performance")
    assert total(recording, "items") == len(done.items) > 0
    assert total(recording, "requested") == total(recording, "page_responses") == done.stats["response_received_count"]
    assert done.stats["performance/cpu_seconds"] > 0
    assert "Performance: limits" in done.log
    assert "More: gossamer diagnose" in done.log


def test_a_crawl_that_waits_for_its_sites_is_told_so_while_it_runs(tmp_path: Path, web: FakeWeb) -> None:
    resolve = [part for override in web.resolve_overrides() for part in ("--resolve", override)]
    crawl = ("crawl", *web.seeds()[:1], "--rate", "2/1", "--crawl-id", "slow", "-q", *resolve)
    running = subprocess.Popen([sys.executable, "-m", "gossamer", *crawl], cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        shown: dict[str, Any] = {}
        end = time.monotonic() + PATIENCE_SECONDS
        while shown.get("measured_pages", 0) < 6:
            assert time.monotonic() < end, shown
            said = gossamer("diagnose", "slow", "--json", folder=tmp_path).stdout
            shown = msgspec.json.decode(said) if said else {}
    finally:
        running.send_signal(signal.SIGINT)
        running.wait()
    assert (shown["case"], shown["summary"]) == ("rate_limit", "the rate limits of the sites set the pace")
    assert shown["advice"]["setting"] == ""


# --- each limit that a person can set, in real crawls -----------------------------------------------------------------

FAST = ("--rate", "1000/1")


@pytest.fixture(scope="module")
def slow_site() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=1, pages=400, page_bytes=1000, latency_ms=200)) as web:
        yield web


@pytest.mark.parametrize(
    ("flags", "pages", "case", "named"),
    [
        (("--domain-concurrency", "4", *FAST), 60, "site_limit", "--domain-concurrency"),
        (FAST, 250, "site_limit", "--domain-concurrency"),
        (("--concurrency", "4", *FAST), 60, "healthy", "--concurrency"),
        (
            ("--concurrency", "4", "--rate", "8/1"),
            30,
            "rate_limit",
            "(--rate, the site's Crawl-delay, the domain's policy)",
        ),
    ],
)
def test_each_limit_of_a_worker_is_named(
    tmp_path: Path, slow_site: FakeWeb, flags: tuple[str, ...], pages: int, case: str, named: str
) -> None:
    resolve = [part for override in slow_site.resolve_overrides() for part in ("--resolve", override)]
    crawl = ("crawl", *slow_site.seeds(), *flags, "--max-pages", str(pages), "--crawl-id", "one", "-q", *resolve)
    ran = gossamer(*crawl, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    check_diagnosis(tmp_path / ".gossamer" / "performance", tmp_path, case, named)


ONE_SITE = {"CONCURRENT_REQUESTS_PER_DOMAIN": "2"}
DELAY = {"DOWNLOAD_DELAY": "0.1"}
FEW = {"CONCURRENT_REQUESTS": "2", "CONCURRENT_REQUESTS_PER_DOMAIN": "16"}


@pytest.mark.parametrize(
    ("is_shared", "settings", "case", "named"),
    [
        (False, ONE_SITE, "site_limit", "CONCURRENT_REQUESTS_PER_DOMAIN"),
        (True, ONE_SITE, "site_limit", "CONCURRENT_REQUESTS_PER_DOMAIN"),
        (False, DELAY, "rate_limit", "sets the pace: DOWNLOAD_DELAY = 0.1. "),
        (True, DELAY, "rate_limit", "(DOWNLOAD_DELAY = 0.1, the domain's policy)"),
        (False, FEW, "healthy", "CONCURRENT_REQUESTS"),
    ],
)
def test_each_limit_of_a_scrapy_process_is_named(
    tmp_path: Path, server: Server, slow_site: FakeWeb, settings: dict[str, str], case: str, named: str, is_shared: bool
) -> None:
    given = {
        "GOSSAMER_PREFIX": prefix(tmp_path),
        "GOSSAMER_DATA_DIR": str(tmp_path / "data"),
        "CLOSESPIDER_PAGECOUNT": "40",
        "EXTENSIONS": '{"gossamer.scrapy.PerformanceView": 0, "tests.integration.scrapy_lane.spiders.StatsFile": 0, '
        '"scrapy.extensions.closespider.CloseSpider": 0}',
        **settings,
    }
    arguments = {"seeds": ",".join(slow_site.seeds())}
    frontier = server.address if is_shared else None
    with Scraper(tmp_path, "links", frontier=frontier, settings=given, arguments=arguments) as running:
        assert running.finish().exit_code == 0
    check_diagnosis(tmp_path / "data" / "performance", tmp_path, case, named)


def check_diagnosis(recorded: Path, folder: Path, case: str, named: str) -> None:
    """The recording of this folder is diagnosed so. `named` is in the advice, and the only setting that it may change,
    if the machine has a CPU left for that."""
    (path,) = recordings(recorded)
    shown = msgspec.json.decode(gossamer("diagnose", str(path), "--json", folder=folder).stdout)
    advice = shown["advice"]
    assert shown["case"] == case, shown
    if case == "rate_limit":
        assert (named in advice["text"], advice["setting"]) == (True, "")
    else:
        assert advice["setting"] in ("", named)
        assert named in advice["text"] or case == "healthy"
