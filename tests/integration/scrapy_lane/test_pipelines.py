"""Pipelines in plain Scrapy projects: look-ups, threads, processes, external programs."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gossamer.scrapy.pipelines.programs import ProgramPool
from gossamer_fakeweb.estate_words import ADDRESSES
from tests.servers.nursery import SCRAPY, Reared
from tests.servers.program import until
from tests.servers.scraping import ROOT, Scraper, together
from tests.servers.valkey import Server, standalone

SPIDERS = ROOT / "tests" / "integration" / "scrapy_lane" / "pipeline_spiders.py"
PIPELINES = "gossamer.scrapy.pipelines"
WORK = "tests.integration.scrapy_lane.pipeline_work"
ITEMS = 1019


class Geocoder:
    """A server that notes each look-up, and answers with the form of Google's."""

    def __init__(self) -> None:
        looked_up: list[tuple[float, str]] = []
        self.looked_up = looked_up
        """Time and address of each request."""
        limited: set[str] = set()
        self.limited = limited
        """Addresses whose next request is refused, as too many are made."""

        noted = self.note

        class Page(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                address = noted(self.path)
                found = {"geometry": {"location": {"lat": len(address), "lng": -1}}}
                is_known = address in ADDRESSES
                answer = {"status": "OK" if is_known else "ZERO_RESULTS", "results": [found] if is_known else []}
                if address in limited:
                    limited.remove(address)
                    answer = {"status": "OVER_QUERY_LIMIT", "results": []}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/json?sensor=false&address={{key}}"

    def note(self, path: str) -> str:
        """Note a request, and return the address that it asks for."""
        address = parse_qs(urlsplit(path).query)["address"][0]
        self.looked_up.append((time.monotonic(), address))
        return address

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def most_in(self, seconds: float) -> int:
        """The most requests in any time of this length."""
        times = sorted(at for at, _ in self.looked_up)
        return max(sum(begin <= at < begin + seconds for at in times) for begin in times)


@pytest.fixture
def geocoder() -> Iterator[Geocoder]:
    started = Geocoder()
    with contextlib.closing(started):
        yield started


def scraper(
    folder: Path, items: list[dict[str, Any]], pipeline: str, settings: dict[str, Any], **options: Any
) -> Scraper:
    (folder / "items.json").write_text(json.dumps(items))
    given = {"ITEM_PIPELINES": f'{{"{pipeline}": 400}}', **settings}
    name, part, parts = options.get("name", "one"), options.get("part", 0), options.get("parts", 1)
    arguments = {"file": str(folder / "items.json"), "part": str(part), "parts": str(parts)}
    return Scraper(folder, "items", frontier=None, name=name, settings=given, arguments=arguments, file=SPIDERS)


def addresses(count: int = ITEMS) -> list[dict[str, Any]]:
    return [{"number": number, "address": [ADDRESSES[number % len(ADDRESSES)]]} for number in range(count)]


def check_places(items: list[dict[str, Any]]) -> None:
    for item in items:
        assert item["location"] == {"lat": len(item["address"][0]), "lon": -1.0}


def test_look_ups_are_made_once_and_kept(tmp_path: Path, geocoder: Geocoder) -> None:
    settings = {"GEO_PIPELINE_URL": geocoder.url, "GEO_PIPELINE_RATE": "100/1"}
    with scraper(tmp_path, addresses(), f"{PIPELINES}.GeocodingPipeline", settings) as running:
        done = running.finish()
    assert done.exit_code == 0, done.log
    assert len(done.items) == ITEMS
    check_places(done.items)
    assert sorted(address for _, address in geocoder.looked_up) == sorted(ADDRESSES)
    assert done.stats["geo_pipeline/misses"] == len(ADDRESSES) == 35
    assert done.stats["geo_pipeline/hits"] == ITEMS - 35


def test_processes_share_the_look_ups_and_their_rate(tmp_path: Path, geocoder: Geocoder, server: Server) -> None:
    server.command("FLUSHALL")
    settings = {"GEO_PIPELINE_URL": geocoder.url, "REDIS_PIPELINE_URL": server.address}
    pipeline = f"{PIPELINES}.GeocodingPipeline"
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                scraper(tmp_path, addresses(), pipeline, settings, name=f"part{part}", part=part, parts=4)
            )
            for part in range(4)
        ]
        parts = together(running)
    items = [item for part in parts for item in part.items]
    assert sorted(item["number"] for item in items) == list(range(ITEMS))
    check_places(items)
    assert sorted(address for _, address in geocoder.looked_up) == sorted(ADDRESSES)
    assert sum(part.stats.get("geo_pipeline/misses", 0) for part in parts) == 35
    assert geocoder.most_in(1.0) <= 5
    names = server.command("KEYS", "*")
    assert {f"geo_pipeline:{address}".encode() for address in ADDRESSES} <= {*names}
    assert -1 not in {server.command("PTTL", name) for name in names}  # each ends, or has ended

    with scraper(tmp_path, addresses(), pipeline, settings, name="again") as again:
        done = again.finish()
    check_places(done.items)
    assert len(geocoder.looked_up) == 35
    assert "geo_pipeline/misses" not in done.stats
    assert done.stats["geo_pipeline/already_set"] == ITEMS


@pytest.mark.parametrize("state", ["refused", "frozen"])
def test_a_cache_that_is_away_fails_no_item(tmp_path: Path, geocoder: Geocoder, state: str) -> None:
    settings = {"GEO_PIPELINE_URL": geocoder.url, "GEO_PIPELINE_RATE": "100/1"}
    with standalone(tcp=True) as away:
        address = f"redis://:s3cret@127.0.0.1:{away.port}"
        if state == "frozen":
            os.kill(away.pid, signal.SIGSTOP)
        else:
            away.kill()
        settings["REDIS_PIPELINE_URL"] = address
        try:
            with scraper(tmp_path, addresses(), f"{PIPELINES}.GeocodingPipeline", settings) as running:
                done = running.finish()
        finally:
            if state == "frozen":
                os.kill(away.pid, signal.SIGCONT)
    assert len(done.items) == ITEMS
    check_places(done.items)
    assert done.stats["geo_pipeline/cache_errors"] > 0
    assert "is away" in done.log
    assert "s3cret" not in done.log


def test_a_cache_that_may_forget_is_used(tmp_path: Path, geocoder: Geocoder) -> None:
    settings = {"GEO_PIPELINE_URL": geocoder.url, "GEO_PIPELINE_RATE": "100/1"}
    options = {"appendonly": "no", "maxmemory": "50mb", "maxmemory-policy": "allkeys-lru"}
    with standalone(options=options) as forgetting:
        settings["REDIS_PIPELINE_URL"] = forgetting.address
        for name in ("one", "two"):
            with scraper(tmp_path, addresses(), f"{PIPELINES}.GeocodingPipeline", settings, name=name) as running:
                done = running.finish()
            check_places(done.items)
            assert "WARNING" not in done.log
    assert len(geocoder.looked_up) == 35
    assert done.stats["geo_pipeline/already_set"] == ITEMS


def test_the_memory_is_bounded(tmp_path: Path, geocoder: Geocoder) -> None:
    settings = {"GEO_PIPELINE_URL": geocoder.url, "GEO_PIPELINE_RATE": "1000/1", "GEO_PIPELINE_MEMORY": "5"}
    settings["CONCURRENT_ITEMS"] = "1"
    with scraper(tmp_path, addresses(105), f"{PIPELINES}.GeocodingPipeline", settings) as running:
        done = running.finish()
    check_places(done.items)
    # The addresses come in turn, so none is still known when it comes again.
    assert done.stats["geo_pipeline/misses"] == 105


def test_a_look_up_that_is_refused_for_now_is_made_again(tmp_path: Path, geocoder: Geocoder, server: Server) -> None:
    server.command("FLUSHALL")
    geocoder.limited |= {ADDRESSES[1], ADDRESSES[2]}
    settings = {"GEO_PIPELINE_URL": geocoder.url, "GEO_PIPELINE_RATE": "100/1", "REDIS_PIPELINE_URL": server.address}
    with scraper(tmp_path, addresses(70), f"{PIPELINES}.GeocodingPipeline", settings) as running:
        done = running.finish()
    check_places(done.items)
    assert done.stats["geo_pipeline/retries"] == 2
    assert len(geocoder.looked_up) == 37


def test_a_service_that_is_away_lets_the_items_pass(tmp_path: Path, geocoder: Geocoder) -> None:
    settings = {"GEO_PIPELINE_URL": "http://127.0.0.1:9/{key}", "GEO_PIPELINE_TRIES": "2"}
    with scraper(tmp_path, addresses(1) * 20, f"{PIPELINES}.GeocodingPipeline", settings) as running:
        done = running.finish()
    assert done.items == addresses(1) * 20
    assert done.stats["geo_pipeline/failures"] == 20
    assert done.stats["geo_pipeline/misses"] == 1
    assert done.stats["geo_pipeline/retries"] == 1


def test_a_failure_is_kept_and_its_items_pass_on(tmp_path: Path, geocoder: Geocoder, server: Server) -> None:
    server.command("FLUSHALL")
    items = [{"address": ["Nowhere"]}] * 50 + [{"address": []}]
    settings = {"GEO_PIPELINE_URL": geocoder.url, "REDIS_PIPELINE_URL": server.address}
    for name in ("one", "two"):
        with scraper(tmp_path, items, f"{PIPELINES}.GeocodingPipeline", settings, name=name) as running:
            done = running.finish()
        assert sorted(done.items, key=str) == sorted(items, key=str)
        assert done.stats["geo_pipeline/failures"] == 50
    assert len(geocoder.looked_up) == 1


@pytest.mark.parametrize(
    ("setting", "value"),
    [("GEO_PIPELINE_URL", "http://h/"), ("GEO_PIPELINE_RATE", "fast"), ("REDIS_PIPELINE_URL", "http://:s3cret@h")],
)
def test_a_setting_that_cannot_be_used_stops_the_start(tmp_path: Path, setting: str, value: str) -> None:
    settings = {"GEO_PIPELINE_URL": "http://127.0.0.1:9/{key}", setting: value}
    with scraper(tmp_path, addresses(1), f"{PIPELINES}.GeocodingPipeline", settings) as running:
        done = running.finish()
    assert done.exit_code != 0
    assert f"{setting}: " in done.log
    assert "s3cret" not in done.log


def test_blocking_work_runs_in_so_many_threads(tmp_path: Path) -> None:
    items = [{"number": number} for number in range(40)]
    with scraper(tmp_path, items, f"{WORK}.Blocking", {"THREAD_PIPELINE_THREADS": "4"}) as running:
        done = running.finish()
    assert sorted(item["number"] for item in done.items) == list(range(40)), done.log
    assert all(item["thread"] for item in done.items)
    assert max(item["at_a_time"] for item in done.items) <= 4


def test_a_computing_process_that_dies_costs_no_item(tmp_path: Path) -> None:
    items: list[dict[str, Any]] = [{"number": number} for number in range(40)]
    items[7]["fatal"] = str(tmp_path / "died")
    items[20]["deadly"] = True
    with scraper(tmp_path, items, f"{WORK}.Computing", {"PROCESS_PIPELINE_PROCESSES": "2"}) as running:
        pid = running.process.pid
        done = running.finish()
    assert sorted(item["number"] for item in done.items) == list(range(40)), done.log
    without = [item for item in done.items if "pid" not in item]
    assert [item["number"] for item in without] == [20]
    assert pid not in {item.get("pid") for item in done.items}
    assert done.stats["process_pipeline/failures"] == 1


PROGRAM = """
import os, sys
for line in sys.stdin:
    number = float(line)
    for fault in ("hang", "die", "babble"):
        mark = os.path.join(sys.argv[1], f"{fault}-{number:g}")
        if os.path.exists(mark):
            os.unlink(mark)
            if fault == "babble":
                sys.stdout.write("x" * 3_000_000)
                sys.stdout.flush()
            if fault != "die":
                sys.stdin.read()  # hangs for as long as the crawl lives
            sys.exit(1)
    print(number * 1.2, flush=True)
"""


def program_settings(folder: Path, **settings: str) -> dict[str, str]:
    (folder / "program.py").write_text(PROGRAM)
    command = f"{sys.executable} {folder / 'program.py'} {folder}"
    given = {"COMMAND": command, "PROCESSES": "3", "TIMEOUT": "1", **settings}
    return {f"PROGRAM_PIPELINE_{name}": value for name, value in given.items()}


def test_a_program_that_hangs_or_dies_costs_no_item(tmp_path: Path) -> None:
    for fault in ("hang-5", "die-8", "babble-11"):
        (tmp_path / fault).touch()
    items = [{"number": number, "price": [float(number)]} for number in range(60)]
    with scraper(tmp_path, items, f"{PIPELINES}.ProgramPipeline", program_settings(tmp_path)) as running:
        done = running.finish()
    assert {item["number"]: item["price"] for item in done.items} == {n: [n * 1.2] for n in range(60)}
    assert done.stats["program_pipeline/replaced"] == 3
    assert done.stats["program_pipeline/answers"] == 60


def test_a_program_that_never_answers_lets_the_items_pass(tmp_path: Path) -> None:
    settings = program_settings(tmp_path, COMMAND="false", TRIES="2")
    items = [{"number": number, "price": 1.0} for number in range(4)]
    with scraper(tmp_path, items, f"{PIPELINES}.ProgramPipeline", settings) as running:
        done = running.finish()
    assert sorted(done.items, key=lambda item: item["number"]) == items
    assert done.stats["program_pipeline/failures"] == 4


def test_an_unknown_program_stops_the_start(tmp_path: Path) -> None:
    settings = program_settings(tmp_path, COMMAND="no-such-program --x")
    with scraper(tmp_path, [], f"{PIPELINES}.ProgramPipeline", settings) as running:
        done = running.finish()
    assert done.exit_code != 0
    assert "PROGRAM_PIPELINE_COMMAND: there is no program 'no-such-program'" in done.log


@contextlib.asynccontextmanager
async def one_program(command: list[str]) -> AsyncIterator[tuple[ProgramPool, list[str]]]:
    """A pool of one program, and the events that it counts."""
    events: list[str] = []
    pool = ProgramPool(command, processes=1, timeout_seconds=30, start_seconds=30, tries=2, count=events.append)
    try:
        yield pool, events
    finally:
        await pool.close()


async def test_items_pass_where_the_program_cannot_be_started(tmp_path: Path) -> None:
    path = tmp_path / "no-program"
    path.write_text("of no known format")
    path.chmod(0o755)
    async with one_program([str(path)]) as (pool, events):
        assert await pool.ask("1") is None
    assert events[:2] == ["start_failures", "replaced"]


async def test_a_line_too_many_is_not_the_answer_to_the_next_item(tmp_path: Path) -> None:
    program = "import sys\nfor line in sys.stdin: print(f'{line}{line}', end='', flush=True)"
    async with one_program([sys.executable, "-c", program]) as (pool, events):
        assert [await pool.ask(str(number)) for number in range(3)] == ["0", "1", "2"]
    assert events == ["replaced", "replaced"]


def priced(count: int) -> list[dict[str, Any]]:
    return [{"number": number, "price": float(number)} for number in range(count)]


def begin_in_terminal(folder: Path, items: list[dict[str, Any]], settings: dict[str, str]) -> Reared:
    """A `scrapy runspider` in a process group of its own, as a terminal starts it."""
    (folder / "items.json").write_text(json.dumps(items))
    arguments = ["runspider", str(SPIDERS), "-a", f"file={folder / 'items.json'}"]
    arguments += ["-o", f"{folder / 'out.jsonl'}", "-s", "TELNETCONSOLE_ENABLED=False"]
    arguments += [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return Reared(SCRAPY, arguments, environment=environment, log=folder / "log", folder=folder)


def test_ctrl_c_is_not_passed_on(tmp_path: Path) -> None:
    count = 6
    for number in range(count):
        (tmp_path / f"hang-{number}").touch()
    settings = program_settings(tmp_path, TIMEOUT="3", START_SECONDS="3")
    settings["ITEM_PIPELINES"] = f'{{"{PIPELINES}.ProgramPipeline": 1}}'
    process = begin_in_terminal(tmp_path, priced(count), settings)
    try:
        # A mark is removed by a program that has got its line and hangs.
        until(lambda: len([*tmp_path.glob("hang-*")]) <= count - 3, "lines in programs")
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    log = (tmp_path / "log").read_text()
    prices = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {item["number"]: item["price"] for item in prices} == {n: n * 1.2 for n in range(count)}, log
    assert "it has ended" not in log


@pytest.mark.parametrize("reactor", ["selectreactor.SelectReactor", "asyncioreactor.AsyncioSelectorReactor"])
def test_pipelines_work_in_this_reactor(reactor: str, tmp_path: Path, geocoder: Geocoder) -> None:
    settings = {
        **program_settings(tmp_path),
        "TWISTED_REACTOR": f"twisted.internet.{reactor}",
        "GEO_PIPELINE_URL": geocoder.url,
        "ITEM_PIPELINES": json.dumps({
            f"{PIPELINES}.TidyPipeline": 100,
            f"{WORK}.Blocking": 200,
            f"{PIPELINES}.GeocodingPipeline": 400,
            f"{WORK}.Computing": 500,
            f"{PIPELINES}.ProgramPipeline": 600,
        }),
        "PROCESS_PIPELINE_PROCESSES": "1",
    }  # fmt: skip
    process = begin_in_terminal(tmp_path, priced(10), settings)
    process.wait(60)
    log = (tmp_path / "log").read_text()
    done = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {item["number"]: item["price"] for item in done} == {n: n * 1.2 for n in range(10)}, log
    assert all(item["thread"] and item["pid"] for item in done)
