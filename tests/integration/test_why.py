"""How each request of a crawl ended, as `gossamer why` tells it: it knows, or it names what is possible."""

import json
import time
from collections.abc import AsyncIterator, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec, html, plain, redirect
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Run, Terms
from gossamer.model.request import Batch, Outcome, Settlement
from gossamer.policy.urls import fingerprint, host, spider_seed
from tests.servers.crawling import gossamer
from tests.servers.valkey import Server, free_ports

MOUNTS = {
    ("a.test", "/robots.txt"): plain("User-agent: *\nDisallow: /private\n"),
    ("a.test", "/"): html(
        '<h1>Home</h1><a href="/plain">1</a><a href="/gone">2</a><a href="/private">3</a><a href="/one">4</a>'
        '<a href="/one">again</a>'
    ),
    ("a.test", "/plain"): html("<p>no heading</p>"),
    ("a.test", "/one"): html('<h1>One</h1><a href="/moved">5</a>'),
    ("a.test", "/moved"): redirect("/one"),
    ("a.test", "/gone"): html("gone", status=404),
}
RESOLVE = ("--resolve", "*.test:127.0.0.1")


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=1, pages=1), mounts=MOUNTS) as running:
        yield running


class Asked:
    """The answers about one URL."""

    def __init__(self, folder: Path, url: str, *options: str) -> None:
        self._folder = folder
        self._arguments = (url, *RESOLVE, *options)

    @cached_property
    def found(self) -> dict[str, Any]:
        shown = gossamer("why", *self._arguments, "--json", cwd=self._folder)
        assert shown.returncode == 0, shown.stderr
        return dict(json.loads(shown.stdout))

    @cached_property
    def text(self) -> str:
        shown = gossamer("why", *self._arguments, cwd=self._folder)
        assert shown.returncode == 0, shown.stderr
        return shown.stdout

    def line(self, name: str) -> str:
        """The line of this name."""
        [found] = [line for line in self.text.splitlines() if line.startswith(f"  {name:<9}")]
        return found[len("  ") + 9 :]


# --- records in outputs -----------------------------------------------------------------------------------------------

WITH_PAGES = ("p.jsonl", "p.jsonl.gz", "p.jsonl.zst", "p.csv", "p.json", "p.sqlite", "p.parquet", "p.warc", "p.warc.gz")


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory, web: FakeWeb) -> Path:
    folder = tmp_path_factory.mktemp("crawled")
    outputs = [part for name in WITH_PAGES for part in ("-o", name, "--pages")]
    done = gossamer("crawl", f"http://a.test:{web.port}/", *RESOLVE, "--rate", "1000/1", *outputs, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("output", WITH_PAGES)
def test_a_record_is_found_in_each_kind_of_output(crawled: Path, web: FakeWeb, output: str) -> None:
    away = crawled / "away"
    away.mkdir(exist_ok=True)
    for name in WITH_PAGES:
        if name != output:
            (crawled / name).rename(away / name)
    try:
        page = Asked(crawled, f"http://a.test:{web.port}/one")
        assert page.line("record").startswith("status 200, at depth 1")
        assert f"in {output}" in page.text
        gone = Asked(crawled, f"http://a.test:{web.port}/gone")
        assert gone.found["record"]["status"] == 404
    finally:
        for path in away.iterdir():
            path.rename(crawled / path.name)


@pytest.mark.parametrize(
    ("path", "record"),
    [
        ("private", "robots (robots.txt does not allow it), at depth 1"),
        ("moved", "duplicate (It redirects to a page that was found before: http://a.test:"),
        ("gone", "http_404 (404 Not Found"),
        ("one", "status 200, at depth 1"),
    ],
)
def test_the_record_of_each_end_is_told_in_words(crawled: Path, web: FakeWeb, path: str, record: str) -> None:
    """A page that several pages link to has one record."""
    asked = Asked(crawled, f"http://a.test:{web.port}/{path}")
    assert asked.line("record").startswith(record)
    assert (asked.line("found"), asked.line("now")) == ("yes", "done")


def test_a_unique_beginning_names_the_crawl(tmp_path: Path, web: FakeWeb) -> None:
    url = f"http://a.test:{web.port}/"
    for name in ("shop-1", "shop-22"):
        options = ("--max-pages", "1", "--crawl-id", name, "-o", f"{name}.jsonl")
        crawled = gossamer("crawl", url, *RESOLVE, *options, cwd=tmp_path)
        assert crawled.returncode == 0, crawled.stderr
    assert Asked(tmp_path, url, "--crawl-id", "shop-2").found["crawl_id"] == "shop-22"
    unclear = gossamer("why", url, "--crawl-id", "shop", cwd=tmp_path)
    assert unclear.returncode == 2
    assert "2 crawls begin with shop: " in unclear.stderr


def test_a_failure_is_told_once(tmp_path: Path) -> None:
    """An exception begins with the sentence that explains its reason."""
    url = f"http://a.test:{free_ports(1)[0]}/"
    assert gossamer("crawl", url, *RESOLVE, "--retries", "0", cwd=tmp_path).returncode == 1
    assert Asked(tmp_path, url).line("record").count("did not accept the connection") == 1


def test_a_crawl_that_a_failed_login_has_ended_is_interrupted_and_not_running(tmp_path: Path) -> None:
    """Its requests are waiting for the command that resumes it."""
    session = "site: 127.0.0.1\naccounts:\n  alice: {user: alice, password: {env: SECRET}}\nlogin: {basic: true}\n"
    (tmp_path / "session.yaml").write_text(session)
    mounts = {("127.0.0.1", "/"): html("who?", status=401)}
    with FakeWeb.start(WebSpec(hosts=1, pages=1), mounts=mounts) as web:
        url = f"http://127.0.0.1:{web.port}/"
        arguments = ("crawl", url, "--allow-private", "--session", "session.yaml", "--rate", "100/1")
        done = gossamer(*arguments, cwd=tmp_path, env={"SECRET": "wrong"})
        assert done.returncode == 1
        assert "Check user and password" in done.stderr
        asked = Asked(tmp_path, url)
        assert asked.text.splitlines()[0].endswith(" (interrupted)")
        assert asked.line("now") == "waiting; it is the next in its queue"
        assert asked.line("resume").startswith("gossamer crawl ")
        assert asked.line("resume") == asked.found["resume_command"]


def test_a_table_of_items_has_items_and_no_records(tmp_path: Path, web: FakeWeb) -> None:
    arguments = (f"http://a.test:{web.port}/", *RESOLVE, "--rate", "1000/1", "--field", "title=h1", "-o", "x.csv")
    assert gossamer("crawl", *arguments, cwd=tmp_path).returncode == 0
    one = Asked(tmp_path, f"http://a.test:{web.port}/one")
    assert (one.line("now"), one.line("items")) == ("fetched", "1 item in x.csv")
    assert one.line("record") == "none: these outputs take only items"
    for path in ("plain", "gone", "private", "moved"):
        other = Asked(tmp_path, f"http://a.test:{web.port}/{path}")
        assert other.found["ends"] == {
            "fetched": 3,
            "failed": {"http_404": 1},
            "dropped": {"robots": 1, "duplicate": 1},
            "earlier_run": False,
        }
        assert "its end is not kept, and it is one of these requests of the crawl: 3 fetched, 1 failed" in other.text
        assert other.line("record").startswith("none in the crawl's outputs here")


@pytest.mark.parametrize(("output", "place"), [("-", "standard output"), ("gone.jsonl", "gone.jsonl")])
def test_an_output_that_cannot_be_read_is_named(tmp_path: Path, web: FakeWeb, output: str, place: str) -> None:
    arguments = ("crawl", f"http://a.test:{web.port}/plain", *RESOLVE, "--rate", "1000/1", "--max-pages", "1")
    assert gossamer(*arguments, "-o", output, cwd=tmp_path).returncode == 0
    (tmp_path / "gone.jsonl").unlink(missing_ok=True)
    asked = Asked(tmp_path, f"http://a.test:{web.port}/plain")
    assert asked.line("now") == "fetched"
    assert asked.line("record") == f"not read: it may be in {place}"


def test_what_has_no_record_was_dropped_where_all_others_have_one(tmp_path: Path, web: FakeWeb) -> None:
    """The limit of pages is reached with the first page: the queued links end without a record."""
    arguments = ("crawl", f"http://a.test:{web.port}/", *RESOLVE, "--rate", "1000/1", "--max-pages", "1")
    assert gossamer(*arguments, "-o", "pages.jsonl", cwd=tmp_path).returncode == 0
    asked = Asked(tmp_path, f"http://a.test:{web.port}/plain")
    assert asked.line("now") == "dropped: budget (A limit of pages was reached)"
    assert asked.line("record") == "none: the request was dropped before a worker got it"


@pytest.mark.parametrize(
    ("options", "path", "line"),
    [
        ((), "nowhere", "no fetched page has a link to it that the crawl follows"),
        (("--depth", "1"), "moved", "no fetched page of a depth below 1 has a link to it that the crawl follows"),
        (
            (),
            "no",
            "no fetched page has a link to it that the crawl follows, or it is one of these dropped links: nofollow 1",
        ),
    ],
)
def test_a_url_that_was_never_queued_comes_with_the_limits(
    tmp_path: Path, options: tuple[str, ...], path: str, line: str
) -> None:
    mounts = MOUNTS | ({("a.test", "/plain"): html('<a href="/no" rel=nofollow>no</a>')} if path == "no" else {})
    with FakeWeb.start(WebSpec(hosts=1, pages=1), mounts=mounts) as web:
        arguments = ("crawl", f"http://a.test:{web.port}/", *RESOLVE, "--rate", "1000/1", *options)
        assert gossamer(*arguments, cwd=tmp_path).returncode == 0
        assert Asked(tmp_path, f"http://a.test:{web.port}/{path}").line("found") == f"no: {line}"


# --- requests that the frontier drops ---------------------------------------------------------------------------------


class Queue:
    """A crawl in a frontier, by its own hands."""

    frontier: ValkeyFrontier

    def __init__(self, folder: Path, address: str) -> None:
        self.ahead = 0.0
        """Seconds by which the frontier's time is ahead."""
        self._where = (folder, "--frontier", address)

    async def open(self, name: str, **options: Any) -> Run:
        return await self.frontier.open_crawl(Crawl(id=CrawlId("app", name), **options))

    async def add(self, run: Run, urls: list[str], **terms: Any) -> None:
        seed = spider_seed(self.frontier.secret, "link")
        for url in urls:
            batch = Batch("link", host(url), 1, 0, [url], [fingerprint(url, seed=seed)])
            await self.frontier.add(run, Terms(**terms), [batch], seeds=True)

    async def work(self, outcome: Outcome = Outcome.FETCHED, reason: str = "", *, limit: int = 1) -> None:
        """Lease requests and end them so."""
        holder = await self.frontier.open_leaseholder(pool="shared", spiders=["link"])
        await holder.settle([Settlement(lease, outcome, reason) for lease in await holder.lease(limit=limit)])
        await holder.close()

    def why(self, run: Run, url: str) -> Asked:
        folder, *address = self._where
        return Asked(folder, url, *address, "--app", "app", "--crawl-id", run.crawl.id.crawlid)


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Queue]:
    server = Server(tmp_path)
    server.start()
    made = Queue(tmp_path, server.address)
    made.frontier = await ValkeyFrontier.connect(server.address, clock=lambda: time.time() + made.ahead)
    yield made
    await made.frontier.close()
    server.stop()


HERE = "http://127.0.0.1:9/"
"""Address at which nothing listens: the commands ask it for its robots.txt."""
BUS = "it may be in the outputs of the service's workers: its bus (gossamer dump), unless they were given others"


@pytest.mark.parametrize("is_purged", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("end", ["stopped", "stopped part", "expired", "budget"])
async def test_a_request_that_the_frontier_dropped_was_dropped(queue: Queue, end: str, is_purged: bool) -> None:
    run = await queue.open("one", max_pages=1 if end == "budget" else None)
    await queue.add(run, [f"{HERE}1", f"{HERE}2"], **({"expires": time.time() + 60} if end == "expired" else {}))
    fetched = 0
    match end:
        case "stopped":
            await queue.frontier.stop_crawl(run.crawl.id)
        case "stopped part":
            await queue.frontier.stop_crawl(run.crawl.id, spider="link")
        case "expired":
            queue.ahead = 61
            await queue.work()  # finds that their time is over
        case _:
            fetched = 1
            await queue.work()
    if is_purged:
        await queue.frontier.maintain()
    asked = queue.why(run, f"{HERE}2")
    words = {
        "stopped": "The crawl was stopped",
        "expired": "The time of the crawl was over, or the window of the visit",
    }
    reason = end.split()[0]
    if fetched and not asked.found["known"]["dropped"]:  # by then, its entry is gone
        expected = "1 fetched, 1 dropped for budget (A limit of pages was reached)"
        assert asked.line("now").endswith(f"one of these requests of the crawl: {expected}")
    else:
        assert asked.line("now") == f"dropped: {reason} ({words.get(reason, 'A limit of pages was reached')})"
        assert asked.line("record") == "none: the request was dropped before a worker got it"


@pytest.mark.parametrize(
    ("outcome", "reason", "now", "record"),
    [
        (Outcome.FETCHED, "", "fetched", f"not read: {BUS}"),
        (Outcome.FAILED, "http_404", "failed: http_404 (404 Not Found)", f"not read: {BUS}"),
        (Outcome.DROPPED, "blacklisted", "dropped: blacklisted (The domain is blacklisted)", f"not read: {BUS}"),
        (Outcome.DROPPED, "robots", "dropped: robots (robots.txt does not allow it)", f"not read: {BUS}"),
    ],
)
async def test_a_request_that_a_worker_ended_has_a_record(
    queue: Queue, outcome: Outcome, reason: str, now: str, record: str
) -> None:
    run = await queue.open("one")
    await queue.add(run, [f"{HERE}1"])
    await queue.work(outcome, reason)
    asked = queue.why(run, f"{HERE}1")
    assert (asked.line("now"), asked.line("record")) == (now, record)


async def test_advice_on_a_crawl_of_a_service_is_for_those_who_send_it_requests(queue: Queue) -> None:
    """They have no command that starts the crawl, and write fields in place of flags."""
    run = await queue.open("one", keep_all_failed=True)
    await queue.add(run, [f"{HERE}1"])
    await queue.work(Outcome.FAILED, "refused_login")
    asked = queue.why(run, f"{HERE}1")
    assert asked.line("now").endswith("; gossamer crawls retry app/one fetches it again")
    assert asked.line("advice").startswith('"login": "NAME"')
    assert "--session" not in asked.text
    assert asked.found["retry_command"] == "gossamer crawls retry app/one"


async def test_where_several_ends_are_possible_each_is_named(queue: Queue) -> None:
    """Of an earlier run, not even the numbers are left."""
    run = await queue.open("one")
    await queue.add(run, [f"http://127.0.0.{number}:9/" for number in range(1, 5)])
    for outcome, reason in (
        (Outcome.FETCHED, ""),
        (Outcome.FETCHED, ""),
        (Outcome.FAILED, "dns"),
    ):
        await queue.work(outcome, reason)
    await queue.work(Outcome.DROPPED, "offsite")
    ways = "2 fetched, 1 failed for dns (The host name could not be resolved), 1 dropped for offsite (It redirects"
    assert ways in queue.why(run, "http://127.0.0.1:9/").line("now")
    run = await queue.open("one")
    await queue.add(run, ["http://127.0.0.5:9/"])
    assert queue.why(run, "http://127.0.0.1:9/").line("now") == "done in an earlier run of the crawl"
    await queue.work()
    assert queue.why(run, "http://127.0.0.1:9/").line("now").endswith("1 fetched, all those of earlier runs")


# --- submissions ------------------------------------------------------------------------------------------------------


async def test_a_rest_after_a_refusal_is_no_retry_after(queue: Queue) -> None:
    """A shorter block changes nothing, a longer one counts with its own cause."""
    run = await queue.open("one")
    await queue.add(run, [f"{HERE}1"])
    for seconds, rests, line in (
        (100, True, "its domain rests after a refusal for 1 min"),
        (50, False, "its domain rests after a refusal for 1 min"),
        (400, False, "its domain is blocked (Retry-After) for 6 min"),
        (800, True, "its domain rests after a refusal for 13 min"),
    ):
        await queue.frontier.block_domain("127.0.0.1", seconds=seconds, rests=rests)
        assert line in queue.why(run, f"{HERE}1").text


async def test_each_request_has_the_scope_of_its_own_submission(queue: Queue) -> None:
    """While it waits or is held it is known; else the verdict of each submission is told."""
    run = await queue.open("one")
    await queue.add(run, [f"{HERE}a"], allowed_hosts=("127.0.0.1",), deny_regex=("/private",))
    await queue.add(run, [f"{HERE}private/b"], allowed_hosts=("127.0.0.2",))
    await queue.add(run, [f"{HERE}c"], allowed_hosts=("127.0.0.3",))
    own = queue.why(run, f"{HERE}private/b")
    assert own.line("scope") == "offsite: allowed hosts: 127.0.0.2"
    assert own.line("found") == "yes: it was submitted; the scope is for links and redirects"
    assert queue.why(run, f"{HERE}a").line("scope") == "inside"
    unseen = queue.why(run, f"{HERE}private/x")
    assert sorted(unseen.found["scopes"].items()) == [
        ("deny_regex: denied by: /private", 1),
        ("offsite: allowed hosts: 127.0.0.2", 1),
        ("offsite: allowed hosts: 127.0.0.3", 1),
    ]
    assert unseen.text.count(" (of 1 of 3 kinds of submissions)") == 3
    second = queue.why(run, "http://127.0.0.2:9/private/x")
    assert (second.found["scope"], second.found["scopes"]["inside"]) == ("inside", 1)


def test_a_later_command_that_added_nothing_has_not_changed_the_scope(tmp_path: Path, web: FakeWeb) -> None:
    crawl = ("crawl", f"http://a.test:{web.port}/", *RESOLVE, "--rate", "1000/1", "--crawl-id", "mine")
    for options in (("--deny", "/one"), ("--deny", "/two", "--append")):
        done = gossamer(*crawl, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert Asked(tmp_path, f"http://a.test:{web.port}/two").found["scope"] == "inside"
    assert Asked(tmp_path, f"http://a.test:{web.port}/one").found["scope"] == "deny_regex: denied by: /one"
