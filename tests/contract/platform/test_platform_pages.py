"""The dashboard beside the platform: every link leads somewhere, whatever text projects and jobs contain; lists are
complete; changes are made; and what each visitor may see and do."""

import asyncio
import csv
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from sqlalchemy import Connection, update
from sqlalchemy import text as sql

from gossamer.dashboard import audit as audit_pages
from gossamer.dashboard.app import OWN_ROUTES
from gossamer.dashboard.crawl_section import ROUTES as CRAWL_ROUTES
from gossamer.dashboard.sessions import COOKIE as COOKIE_OF_CRAWLS
from gossamer.dashboard.visitors import READ, Visitor
from gossamer_platform.cloud.app import CloudApp
from gossamer_platform.dashboard import groups as group_pages
from gossamer_platform.dashboard import jobs as job_pages
from gossamer_platform.dashboard import latest as latest_pages
from gossamer_platform.dashboard import projects as project_pages
from gossamer_platform.dashboard import schedules as schedule_pages
from gossamer_platform.dashboard.gate import COOKIE
from gossamer_platform.dashboard.section import ROUTES
from gossamer_platform.manager.artefacts import ArtefactStore
from gossamer_platform.manager.operations import Manager
from gossamer_platform.outcome import AttemptEnd
from gossamer_platform.policy import JobPolicy
from gossamer_platform.scrapyd.app import ScrapydApp
from gossamer_platform.scrapyd.config import ScrapydConfig, load
from gossamer_platform.scrapyd.files import ScrapydFiles
from gossamer_platform.serving.services import platform_app
from gossamer_platform.state import audit, crawl_firings, groups, jobs, nodes, policies, projects, schedules, tokens
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.dispatch import JobTaker, take_jobs
from gossamer_platform.state.groups import NewGroup
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.nodes import NewNode
from gossamer_platform.state.tables import jobs as job_table
from gossamer_platform.state.tokens import TokenScope

_EVIL = "<script>\"'&amp;x</script>"
_PROJECT = "shop & co #0?"
_COUNT = 5
_EMPTY_TAGS = {"meta", "input", "br", "link", "img"}
_SCOPES = ("read", "run", "deploy", "admin")
_ON_SQLITE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
"""Mark of tests of what is decided before the database is asked."""
_BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class _Page(HTMLParser):
    """Links and texts of a page. An element that is not closed is an error."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.text: list[str] = []
        self.tags: set[str] = set()
        self._open: list[str] = []
        self.feed(content)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open += [] if tag in _EMPTY_TAGS else [tag]
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]
        assert not [name for name, _ in attrs if name == "style" or name.startswith("on")]
        assert tag != "style"

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert not (self._open and self._open[-1] == "script" and data.strip())
        self.text.append(data.strip())


def _fill(connection: Connection) -> None:
    for number in range(_COUNT):
        name = f"shop & co #{number}?"
        audit.record_action(connection, f"person-{number}", "version.deploy", f"{name} 1")
        version = projects.add_version(connection, name, "1", digest=str(number), file=f"{name}/1.egg")
        projects.take_listing(connection, "node")
        projects.record_listing(connection, version, incarnation="node", spiders=["s", f"spider {_EVIL}"], fault="")
        node = NewNode(f"node-{number}", "folder", "incarnation", 4, [_EVIL], _EVIL, "release")
        nodes.register_node(connection, node, limit_seconds=60)
        columns = {
            "kind": "cron", "rule": "30 2 * * *", "time_zone": "Europe/Berlin", "start_at": 0.0, "jitter": 0.0,
            "missed": "skip", "if_running": "run", "spider": "s", "arguments": {}, "settings": {}, "priority": 0.0,
            "policy": {}, "next_at": 1_800_000_000.0 + number, "last_result": "job 1",
        }  # fmt: skip
        schedules.add_schedule(connection, name, f"schedule-{number}", columns)
    job = NewJob(_PROJECT, "s", "name", arguments={"a": _EVIL}, policy=JobPolicy(retries=1, retry_seconds=0.0))
    number = jobs.add_job(connection, job)
    for attempt in (1, 2):
        assert take_jobs(connection, JobTaker("node-0", "incarnation", 1), free=1)
        jobs.record_start(connection, number, attempt, pid=1)
        end = AttemptEnd(exit_code=1, finish_reason=_EVIL, stats={_EVIL: _EVIL, "item_scraped_count": _EVIL})
        jobs.record_end(connection, number, attempt, end)
    for each in range(_COUNT):
        groups.add_group(connection, NewGroup(NewJob("shop & co #1?", "s", f"group-{each}"), processes=3))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScrapydConfig:
    monkeypatch.chdir(tmp_path)
    for pages in (job_pages, group_pages, latest_pages, schedule_pages):
        monkeypatch.setattr(pages, "_A_PAGE", 2)
    (tmp_path / "logs").mkdir()
    (tmp_path / "items").mkdir()
    return replace(load([], {}), items_dir="items")


@pytest.fixture
def manager(database: StateDatabase, tmp_path: Path) -> Manager:
    manager = Manager(database, ArtefactStore(tmp_path / "eggs", tmp_path / "uploads"))
    manager.has_remote_nodes = True
    return manager


def _client(manager: Manager, config: ScrapydConfig) -> httpx.AsyncClient:
    files = ScrapydFiles(config)
    scrapyd = ScrapydApp(manager, config, files)
    app = platform_app(CloudApp(scrapyd, manager, files), scrapyd)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:6800")


@pytest.fixture
async def client(manager: Manager, config: ScrapydConfig) -> AsyncIterator[httpx.AsyncClient]:
    async with _client(manager, config) as client:
        yield client


@pytest.fixture
async def closed(manager: Manager, config: ScrapydConfig) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that has a password."""
    async with _client(manager, replace(config, username="name", password="word")) as client:
        yield client


async def _crawl(client: httpx.AsyncClient, start: str) -> dict[str, _Page]:
    """Every page to which links lead."""
    found: dict[str, _Page] = {}
    waiting = [start]
    while waiting:
        path = waiting.pop()
        answer = await client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        is_page = "text/html" in answer.headers["content-type"]
        found[path] = _Page(answer.text if is_page else "")
        waiting += {urljoin(path, link.partition("#")[0]) for link in found[path].links} - {*found, *waiting, path}
    return found


async def test_every_link_leads_somewhere_and_lists_are_complete(
    client: httpx.AsyncClient, database: StateDatabase, tmp_path: Path
) -> None:
    await database.write(_fill)
    for kind, text in (("logs/{}.log", f"the last line {_EVIL}\n"), ("items/{}.jl", f'{{"a": "{_EVIL[:8]}"}}\n')):
        file = tmp_path / kind.format(f"{_PROJECT}/s/name.attempt-2")
        file.parent.mkdir(parents=True)
        file.write_text(text)
    pages = await _crawl(client, "/ui/")
    assert {f"/ui/job?id={number}" for number in range(1, 1 + 1 + 3 * _COUNT)} <= pages.keys()
    assert {f"/ui/group?id={number}" for number in range(1, _COUNT + 1)} <= pages.keys()
    assert {f"/ui/schedule?id={number}" for number in range(1, _COUNT + 1)} <= pages.keys()
    assert {f"/ui{path}" for path, route in ROUTES.items() if route.method == "GET"} <= {
        path.partition("?")[0] for path in pages
    }

    def texts(path: str) -> list[str]:
        return [text for shown, page in pages.items() if shown.partition("?")[0] == path for text in page.text if text]

    for number in range(_COUNT):
        assert texts("/ui/nodes").count(f"node-{number}") == 1
        assert f"schedule-{number}" in texts("/ui/schedules")
        assert f"person-{number}" in texts("/ui/project")
    assert f"a={_EVIL}" in texts("/ui/job")
    assert any(f"the last line {_EVIL}" in text for text in texts("/ui/job/log"))
    assert _EVIL[:8] in texts("/ui/job/items")
    assert any("its turn: a slot is free" in text for text in texts("/ui/job"))


async def test_lists_have_the_latest_entry_first_and_pages_of_a_bounded_size(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    """Entries that are made meanwhile move no page."""
    await database.write(_fill)
    await database.write(lambda c: [tokens.add_token(c, f"token-{n}", TokenScope.READ) for n in range(_COUNT)])
    for name in ("schedules", "projects", "nodes", "tokens"):
        everything = (await client.get(f"/v1/{name}")).json()
        numbers = sorted((each["id"] for each in everything), reverse=True)
        found: list[int] = []
        while len(found) < len(numbers):
            after = {"after": found[-1]} if found else {}
            query = {"limit": 2, "latest_first": True, **after}
            part = (await client.get(f"/v1/{name}", params=query)).json()
            assert 0 < len(part) <= 2
            found += [each["id"] for each in part]
        assert found == numbers
        first = _Page((await client.get(f"/ui/{name}")).text)
        assert any(link.startswith(f"/ui/{name}?after=") for link in first.links)
        assert (
            len([text for text in first.text if re.fullmatch(r"(schedule|node|token)-\d|shop & co #\d\?", text)]) >= 2
        )
    counts = (await client.get("/v1/node-counts")).json()
    states = [node["state"] for node in (await client.get("/v1/nodes")).json()]
    assert counts["nodes"] == {state: states.count(state) for state in set(states)}
    for state in ("online", "lost", "draining", "offline"):
        shown = (await client.get("/v1/nodes", params={"state": state})).json()
        assert [node["state"] for node in shown] == [state] * states.count(state)


def _fill_one_page(connection: Connection, name: str, spiders: list[str]) -> None:
    """Add an entry to each list: the second call fills a page of two."""
    version = projects.add_version(connection, "shop", name, digest=name, file=f"shop/{name}.egg")
    projects.take_listing(connection, "node")
    projects.record_listing(connection, version, incarnation="node", spiders=spiders, fault="")
    policies.set_spider_policy(connection, "shop", name, JobPolicy(retries=1), max_running=None)
    nodes.register_node(connection, NewNode(name, "folder", name, 1, [], "", ""), limit_seconds=60)
    tokens.add_token(connection, name, TokenScope.READ)
    columns = {"kind": "every", "rule": "60", "time_zone": "UTC", "start_at": 0.0, "jitter": 0.0, "missed": "skip",
               "if_running": "run", "spider": "", "arguments": {}, "settings": {}, "priority": 0.0, "policy": {},
               "crawl": [{"appid": "a", "crawlid": "c", "url": "http://a.test/"}], "next_at": None}  # fmt: skip
    schedules.add_schedule(connection, "shop", name, columns)
    schedule = schedules.find_schedule(connection, 1)
    assert schedule is not None
    crawl_firings.add_firing(connection, schedule, instant=1.0, name=name)
    audit.record_action(connection, name, "version.deploy", f"shop {name}")


async def test_a_list_with_exactly_one_full_page_has_no_next_one(
    client: httpx.AsyncClient, database: StateDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pages, names in ((project_pages, ("_VERSIONS", "_SPIDERS", "_POLICIES")), (audit_pages, ("_A_PAGE",))):
        for name in names:
            monkeypatch.setattr(pages, name, 2)
    await database.write(lambda c: _fill_one_page(c, "first", ["second"]))
    await database.write(lambda c: _fill_one_page(c, "second", ["second", "first"]))
    await database.write(lambda c: projects.project_id(c, "second"))
    for each in ("first", "second"):
        new = NewGroup(NewJob("shop", "second", each), processes=1 if each == "first" else 2)
        await database.write(partial(groups.add_group, group=new))
    job = (await client.get("/v1/jobs", params={"group": 1})).json()["jobs"][0]
    items = tmp_path / f"items/shop/second/{job['name']}.jl"
    items.parent.mkdir(parents=True)
    items.write_text('{"n": "first"}\n{"n": "second"}\nbroken\n')
    lists = {"/jobs?group=2": "/job?", "/projects": "shop", "/project?project=shop": "second", "/schedules": "second",
             "/schedule?id=1": "waiting", "/groups": "second", "/group?id=2": "/job?", "/nodes": "second",
             "/tokens": "second", f"/job/items?id={job['id']}": "second", "/audit": "second"}  # fmt: skip
    for path, entry in lists.items():
        page = (await client.get(f"/ui{path}")).text
        assert entry in page, path
        assert 'rel="next"' not in page, path
    for path in ("/v1/jobs?group=2", "/v1/groups?", "/v1/schedules/1/firings?", f"/v1/jobs/{job['id']}/items?"):
        assert (await client.get(f"{path}&limit=2")).json()["next"] is None, path
        assert (await client.get(f"{path}&limit=1")).json()["next"], path
    with_links = [path.stem for path in _templates() if re.search(r'rel="next"|p\.next\(', path.read_text())]
    paged = {name.removesuffix("_live") for name in with_links if name != "platform_macros"}
    assert paged == {path.strip("/").partition("?")[0].replace("/", "_") for path in lists if path != "/audit"}


def _templates() -> Iterator[Path]:
    """Templates of the platform's pages."""
    return Path(str(files("gossamer_platform.dashboard") / "templates")).glob("*.html")


def _fill_project(connection: Connection) -> None:
    """A project with many versions, spiders and policies, among many projects."""
    for number in range(45):
        version = projects.add_version(connection, "big", f"v{number}", digest=str(number), file=f"big/v{number}.egg")
        projects.take_listing(connection, "node")
        spiders = [f"spider-{number}-{each}" for each in range(4)]
        projects.record_listing(connection, version, incarnation="node", spiders=spiders, fault="")
        policies.set_spider_policy(connection, "big", f"spider-{number:02}", JobPolicy(retries=1), max_running=None)
    for number in range(105):
        projects.project_id(connection, f"project-{number}")


async def test_the_page_of_a_project_costs_what_it_shows_and_leads_to_the_rest(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    await database.write(_fill_project)

    async def all_of(name: str, entry: str, most: int) -> list[str]:
        found: list[str] = []
        address = "/ui/project?project=big"
        while address:
            page = (await client.get(address)).text
            shown = re.findall(entry, page)
            assert 0 < len(shown) <= most
            found += shown
            address = next(map(unescape, re.findall(rf'href="([^"]*[?&;]{name}=[^"#]*)#{name}" rel="next"', page)), "")
        return found

    assert await all_of("versions", r"<tr><td>(v\d+)", 20) == [f"v{n}" for n in range(44, -1, -1)]
    spiders = sorted(f"spider-{number}-{each}" for number in range(25, 45) for each in range(4))
    assert await all_of("spiders", r">(spider-\d+-\d)</a>", 50) == spiders
    assert await all_of("policies", r"<b>(spider-\d+)</b>", 20) == [f"spider-{n:02}" for n in range(45)]


async def test_a_form_offers_so_many_entries_that_a_person_finds_one_and_takes_any_other(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    await database.write(_fill_project)
    for path in ("/jobs/new", "/schedules/new", "/tokens"):
        page = (await client.get(f"/ui{path}")).text
        offered = re.findall(r'<option value="(project-\d+)">', page)
        assert offered == [f"project-{n}" for n in range(104, 4, -1)]
        assert 'list="f-project-names"' in page
    page = (await client.get("/ui/jobs/new", params={"project": "big"})).text
    assert 'value="big"' in page
    assert len(re.findall(r"<option>(spider-[^<]*)<", page)) == 80
    assert re.findall(r"<option>(v\d+)<", page)[:2] == ["v44", "v43"]
    job = {"project": "big", "spider": "spider-1-1", "version": "v1"}  # no longer offered
    assert (await client.post("/ui/jobs/create", data=job)).status_code == 303


async def test_the_page_of_a_project_follows_a_version_that_is_built(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    def begin(connection: Connection) -> int:
        number = projects.add_version(connection, "shop", "1", digest="1", file="shop/1.egg")
        assert number is not None
        projects.take_listing(connection, "node")
        return number

    def end(connection: Connection) -> None:
        projects.record_listing(connection, version, incarnation="node", spiders=["prices"], fault="")

    version = await database.write(begin)
    page = (await client.get("/ui/project?project=shop&versions=99")).text
    address = unescape(re.findall(r'data-refresh="([^"]*)"', page)[0])
    assert address == "/ui/project?project=shop&versions=99&part=live"
    before = (await client.get(f"{address}&x=1")).text  # browsers share the part of an address for a second
    await database.write(end)
    after = (await client.get(address)).text
    assert [re.findall(r'class="state (\w+)"', part) for part in (before, after)] == [["building"], ["ready"]]
    assert ["prices" in part for part in (before, after)] == [False, True]
    assert not re.search('<(input|textarea|select)(?! type="hidden")', after)  # what is typed is not replaced
    refused = await client.post("/ui/project/variable", data={"project": "shop", "name": "1 x", "value": "y"})
    assert refused.status_code == 400
    again = unescape(re.findall(r'data-refresh="([^"]*)"', refused.text)[0])
    assert "ready" in (await client.get(again)).text


@_ON_SQLITE
async def test_the_overview_names_jobs_that_have_finished_with_errors_in_their_logs(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    """The latest ones of the last day, a few, each with a link to the job and to its errors."""
    stats: list[Any] = [{"log_count/ERROR": 3, "log_count/CRITICAL": 2}, {"log_count/CRITICAL": 1}, {}, {}]
    stats += [{"log_count/ERROR": 0}, {"log_count/ERROR": _EVIL}, {"log_count/ERROR": 7}]

    def end(connection: Connection) -> None:
        nodes.register_node(connection, NewNode("node", "f", "incarnation", 99, [], "host", "1"), limit_seconds=60)
        for place, each in enumerate(stats):
            number = jobs.add_job(connection, NewJob("shop", "s", f"job-{place}"))
            assert take_jobs(connection, JobTaker("node", "incarnation", 99), free=1)
            jobs.record_start(connection, number, 1, pid=1)
            jobs.record_end(connection, number, 1, AttemptEnd(exit_code=0, finish_reason="finished", stats=each))
        connection.execute(update(job_table).where(job_table.c.id == 7).values(ended_at=job_table.c.ended_at - 90000))

    await database.write(lambda c: _fill_one_page(c, "shop", ["s"]))
    await database.write(end)
    part = (await client.get("/ui/?part=live")).text
    notices = part.partition('<ul class="notices">')[2].partition("</ul>")[0]
    links = [unescape(link) for link in re.findall(r'href="(/ui/job[^"]*)"', notices)]
    assert links == [
        *("/ui/job?id=6", "/ui/job/log?id=6&contains=ERROR"),
        *("/ui/job?id=2", "/ui/job/log?id=2&contains=CRITICAL"),
        *("/ui/job?id=1", "/ui/job/log?id=1&contains=ERROR"),
    ]
    assert [unescape(count) for count in re.findall(r"errors in its log: <[^>]*>([^<]*)</span>", notices)] == [
        _EVIL,
        "1",
        "5",
    ]


def write_items(folder: Path, lines: str) -> None:
    """Write the items of the job that `_fill` makes."""
    file = folder / f"items/{_PROJECT}/s/name.attempt-2.jl"
    file.parent.mkdir(parents=True)
    file.write_text(lines)


async def test_a_condition_for_items_may_have_a_comma(
    client: httpx.AsyncClient, database: StateDatabase, tmp_path: Path
) -> None:
    await database.write(_fill)
    write_items(
        tmp_path, '{"name": "shoe, red", "price": 1}\n{"name": "shoe, red", "price": 9}\n{"name": "shoe", "price": 9}\n'
    )
    query = {"id": "1", "filter": "name=shoe, red\r\nprice>5\r\n"}
    page = (await client.get("/ui/job/items", params=query)).text
    assert re.findall(r"<tr><td>([^<]*)</td><td>([^<]*)</td></tr>", page) == [("shoe, red", "9")]
    none = (await client.get("/ui/job/items", params={**query, "filter": "price 9"})).text  # a field of that name
    assert "No item fits. Conditions have the forms <code>price=10</code>" in none
    export = unescape(re.findall(r'href="([^"]*form=csv[^"]*)"', page)[0])
    assert (await client.get(export)).text.splitlines()[1:] == ['"shoe, red",9']


async def test_a_table_of_items_has_no_formulas_and_a_bounded_number_of_columns(
    client: httpx.AsyncClient, database: StateDatabase, tmp_path: Path
) -> None:
    await database.write(_fill)
    lines: list[dict[str, object]] = [{"name": "=1+1", "price": -1}]
    lines += [{str(number): number for number in range(start, start + 600)} for start in (0, 600)]
    write_items(tmp_path, "".join(f"{json.dumps(line)}\n" for line in lines))
    exported = (await client.get("/ui/job/export", params={"id": "1", "form": "csv"})).text
    header, first, *_ = exported.splitlines()
    assert (header.split(",")[:2], first[:10]) == (['"name"', '"price"'], '"\'=1+1",-1')
    *_, last = csv.DictReader(io.StringIO(exported))
    assert len(last) == 901
    assert json.loads(last["other_fields"]) == {str(number): number for number in range(898, 1200)}
    plain = (await client.get("/v1/jobs/1/items.csv")).text
    assert plain.splitlines()[1].startswith("=1+1,-1,")


async def test_the_pages_that_clients_of_scrapyd_read_stay_and_lead_to_the_dashboard(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    await database.write(_fill)
    sent = await client.get("/", headers={**_BROWSER, "X-Forwarded-Prefix": "/below"})
    assert (sent.status_code, sent.headers["location"]) == (303, "/below/ui/")
    for path in ("/", "/jobs", "/logs/", "/items/"):
        answer = await client.get(path)
        assert answer.status_code == 200
        assert "/ui/" in _Page(answer.text).links
        assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "/ui/job?id=1" in _Page((await client.get("/jobs")).text).links
    assert (await client.get("/cloud/p/1")).headers["location"].endswith("ui/project?project=shop+%26+co+%230%3F")


async def test_below_a_proxys_path_every_link_and_redirect_stays_there(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    await database.write(_fill)
    below = {"X-Forwarded-Prefix": "/below/us"}
    for path in ("/ui/", "/ui/jobs", "/ui/job?id=1", "/ui/projects", "/nothing"):
        page = _Page((await client.get(path, headers=below)).text)
        assert page.links
        assert all(link.startswith("/below/us/") for link in page.links if link.startswith("/"))
    moved = await client.post("/ui/schedule/change", data={"id": "1", "action": "pause"}, headers=below)
    assert moved.headers["location"] == "/below/us/ui/schedule?id=1"
    for prefix in ("//evil.test", "https://evil.test", "/a/../..//evil.test", "/a b", "/<x>"):
        page = _Page((await client.get("/ui/", headers={"X-Forwarded-Prefix": prefix})).text)
        assert all(link.startswith("/ui/") for link in page.links if link[:1] == "/")


@pytest.mark.parametrize(
    "path", ["/ui/job?id=1", "/ui/job?id=x", "/ui/job", f"/ui/job?id={10**30}", "/ui/group?id=7", "/ui/nothing",
             "/ui/project?project=none", "/ui/project", "/ui/schedule?id=3", "/ui/job/log?id=9", "/ui/job/export?id=9"],
)  # fmt: skip
async def test_what_does_not_exist_is_told_on_a_page(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    assert "Not possible (404)" in answer.text


async def test_bad_parameters_are_told_on_a_page(client: httpx.AsyncClient) -> None:
    for path in ("/ui/jobs?state=x", "/ui/jobs?after=x", "/ui/jobs?schedule=x", "/ui/schedules?after=x", "/ui/%00"):
        answer = await client.get(path)
        assert answer.status_code == 400, path


# --- changes --------------------------------------------------------------------------------------------------------


async def _go(client: httpx.AsyncClient, path: str, **form: Any) -> str:
    """Send a form; return where it leads."""
    answer = await client.post(f"/ui{path}", data=form)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def _alert(answer: httpx.Response) -> str:
    return unescape(re.findall(r'role="alert"[^>]*>(.*?)</(?:p|div)>', answer.text)[0])


async def test_a_job_is_made_shown_cancelled_and_run_again(client: httpx.AsyncClient, database: StateDatabase) -> None:
    await database.write(_fill)
    form = {"project": _PROJECT, "spider": "s", "arguments": "a=1\n b = x=y ", "settings": "", "tags": "one two"}
    place = await _go(client, "/jobs/create", **form, priority="3.5")
    number = place.rpartition("=")[2]
    made = (await client.get(f"/v1/jobs/{number}")).json()
    assert (made["arguments"], made["priority"], made["tags"]) == ({"a": "1", "b": "x=y"}, 3.5, ["one", "two"])
    again = (await client.get(f"/v1/jobs/{(await _go(client, '/job/again', id=number)).rpartition('=')[2]}")).json()
    same = ("project", "spider", "arguments", "settings", "priority", "tags", "time_limit", "requested_version")
    assert {name: again[name] for name in same} == {name: made[name] for name in same}
    assert await _go(client, "/job/cancel", id=number) == f"/ui/job?id={number}"
    assert (await client.get(f"/v1/jobs/{number}")).json()["state"] == "cancelled"
    for change, told in (({"arguments": "nothing"}, "Write NAME=VALUE"), ({"priority": "x"}, "Write a number"),
                         ({"spider": "none"}, "none")):  # fmt: skip
        answer = await client.post("/ui/jobs/create", data={**form, **change})
        assert (answer.status_code, told in _alert(answer)) == (400, True)
        at = [f'id="e-{name}">' in answer.text and f' aria-invalid="true" aria-describedby="e-{name}' in answer.text
              for name in change]  # fmt: skip
        assert at == ["Write" in told], answer.text  # the API names no field of a spider that there is not
        assert "one two" in answer.text  # what was typed is kept


async def test_the_list_of_jobs_has_its_filter_in_the_address(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    await database.write(_fill)
    page = (await client.get("/ui/jobs", params={"state": "failed", "project": _PROJECT})).text
    assert re.findall(r"/ui/job\?id=(\d+)", page) == ["1"]
    assert unescape(re.findall(r'class="reason">([^<]*)<', page)[0]) == "Its process ended with the exit code 1."
    page = (await client.get("/ui/jobs")).text
    assert re.findall(r"/ui/job\?id=(\d+)", page) == ["16", "15"]  # the latest first
    following = unescape(re.findall(r'href="([^"]*)" rel="next"', page)[0])
    assert re.findall(r"/ui/job\?id=(\d+)", (await client.get(following)).text) == ["14", "13"]


async def test_a_schedule_is_made_paused_run_and_deleted(client: httpx.AsyncClient, database: StateDatabase) -> None:
    await database.write(_fill)
    form = {"project": _PROJECT, "spider": "s", "name": "nightly", "cron": "30 2 * * *"}
    place = await _go(client, "/schedules/create", **form, time_zone="Europe/Berlin", if_running="skip")
    number = place.rpartition("=")[2]
    assert "Next times" in (await client.get(place)).text
    await _go(client, "/schedule/change", id=number, action="pause")
    assert (await client.get(f"/v1/schedules/{number}")).json()["paused"]
    await _go(client, "/schedule/change", id=number, action="resume")
    assert not (await client.get(f"/v1/schedules/{number}")).json()["paused"]
    assert (await _go(client, "/schedule/change", id=number, action="run")).startswith("/ui/job?id=")
    assert await _go(client, "/schedule/change", id=number, action="delete") == "/ui/schedules"
    assert (await client.get(f"/v1/schedules/{number}")).status_code == 404
    both = await client.post("/ui/schedules/create", data={**form, "every": "5"})
    assert (both.status_code, "these are: the cron line, the minutes." in _alert(both)) == (400, True)
    none = await client.post("/ui/schedules/create", data={**form, "cron": ""})
    assert (none.status_code, "one of the three" in _alert(none)) == (400, True)


class _Form(HTMLParser):
    """What a browser would send with the form of a page, as it is filled."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._name = ""
        self._takes_text = False
        self.feed(page.partition("<main")[2])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("input", "textarea", "select") and "name" in given:
            self._name = given["name"]
            self.fields[self._name] = given.get("value", "")
            self._takes_text, self._options = tag == "textarea", 0
        elif tag == "option":
            self._options += 1
            if self._options == 1 or "selected" in given:
                self.fields[self._name] = given.get("value", "")
                self._takes_text = "value" not in given

    def handle_data(self, data: str) -> None:
        if self._takes_text:
            self.fields[self._name] = data.replace("\n", "\r\n")

    def handle_endtag(self, tag: str) -> None:
        self._takes_text = False


def _filled(page: str) -> dict[str, str]:
    return _Form(page).fields


_RULES = [
    {"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "start": "2099-01-31T02:30:00+01:00", "jitter": 7.5},
    {"every": 20, "end": "2999-06-30T12:00:00Z", "missed": "once", "if_running": "queue", "priority": -2.25},
    {"at": "2998-07-01T00:00:30Z", "time_zone": "Asia/Kolkata", "arguments": {"a": "1", "b": "x=y"}, "retries": 3},
    {"every": 604800.5, "settings": {"X": "one\ntwo"}},
]


@_ON_SQLITE
@pytest.mark.parametrize("rule", _RULES)
async def test_a_form_changes_only_those_fields_of_a_schedule_that_were_changed_in_it(
    client: httpx.AsyncClient, database: StateDatabase, rule: dict[str, Any]
) -> None:
    await database.write(_fill)
    made = (await client.post("/v1/schedules", json={"project": _PROJECT, "spider": "s", "name": "n", **rule})).json()
    path, number = f"/v1/schedules/{made['id']}", str(made["id"])
    form = _filled((await client.get(f"/ui/schedule/edit?id={number}")).text)
    assert await _go(client, "/schedule/save", **form) == f"/ui/schedule?id={number}&changed=yes"
    assert (await client.get(path)).json() == made
    assert "schedule.change" not in (await client.get("/ui/audit")).text
    shown = (await client.post("/ui/schedules/preview?part=live", data=form)).text
    assert re.findall(r'data-time="([^"]*)"', shown) == made["next"]
    await _go(client, "/schedule/save", **{**form, "jitter": "60", "spider": f"spider {_EVIL}"})
    expected = {**made, "jitter": 60.0, "spider": f"spider {_EVIL}"}
    assert (await client.get(path)).json() == expected
    assert f"{number} {_PROJECT}/n jitter, spider" in unescape((await client.get("/ui/audit")).text)
    another = {"cron": "", "every": "", "at": "", "end": ""} | (
        {"every": "90"} if "cron" in rule else {"cron": "@daily"}
    )
    await _go(client, "/schedule/save", **{**form, **another})
    changed = (await client.get(path)).json()
    assert (changed["kind"], changed["rule"], changed["end"]) == (
        ("every", "5400.0", None) if "cron" in rule else ("cron", "@daily", None)
    )
    assert (changed["arguments"], changed["settings"]) == (made["arguments"], made["settings"])
    assert bool(changed["next"])
    if "at" in rule:
        assert changed["next"][0] < "2998"  # the only time of before is no beginning of the new rule
    faults: list[tuple[dict[str, str], str]] = [
        ({"cron": "x", "every": "", "at": ""}, '<a href="#f-cron">'),
        ({"cron": "@daily", "every": "5"}, "these are: the cron line, the minutes"),
        ({"time_zone": "Nowhere"}, '<a href="#f-time_zone">Time zone</a>: '),
        ({"end": "soon"}, "soon"),
        ({"jitter": "x"}, "</a>: cannot read x. Write a number"),
        ({"end": "1999-01-01T00:00"}, "end is before start"),
    ]
    for fault, told in faults:
        refused = await client.post("/ui/schedule/save", data={**form, **fault})
        assert (refused.status_code, told in _alert(refused)) == (400, True), (fault, refused.text)
        assert all(f'value="{value}"' in refused.text for value in fault.values() if value)  # what was typed is kept
    assert (await client.get(path)).json() == changed


@_ON_SQLITE
async def test_times_of_a_form_are_those_of_its_time_zone(client: httpx.AsyncClient, database: StateDatabase) -> None:
    await database.write(_fill)
    form = {"project": _PROJECT, "spider": "s", "name": "n", "at": "2998-07-01T09:00", "time_zone": "Europe/Berlin"}
    number = (await _go(client, "/schedules/create", **form)).rpartition("=")[2]
    path = f"/v1/schedules/{number}"
    assert (await client.get(path)).json()["next"] == ["2998-07-01T07:00:00Z"]
    filled = _filled((await client.get(f"/ui/schedule/edit?id={number}")).text)
    assert filled["at"] == "2998-07-01T09:00:00"
    await _go(client, "/schedule/save", **{**filled, "time_zone": "UTC"})
    assert (await client.get(path)).json()["next"] == ["2998-07-01T09:00:00Z"]
    shown = await client.post("/ui/schedules/preview?part=live", data={"at": "1999-01-01T00:00"})
    assert "No time comes." in shown.text
    empty = await client.post("/ui/schedules/preview?part=live", data={"cron": " "})
    assert "Fill in when" in empty.text


async def test_a_schedule_of_crawl_requests_is_edited(client: httpx.AsyncClient, database: StateDatabase) -> None:
    requests = [{"url": "http://a.test/", "appid": "shop", "crawlid": "n", "fresh": True}]
    columns = {"kind": "every", "rule": "3600.0", "time_zone": "UTC", "start_at": 0.0, "jitter": 0.0, "missed": "skip",
               "if_running": "run", "spider": "", "crawl": requests, "arguments": {}, "settings": {}, "priority": 0.0,
               "policy": {}, "next_at": 1e10}  # fmt: skip
    await database.write(lambda c: schedules.add_schedule(c, "shop", "n", columns))
    form = _filled((await client.get("/ui/schedule/edit?id=1")).text)
    assert "spider" not in form
    refused = await client.post("/ui/schedule/save", data={**form, "crawl": "{"})
    assert (refused.status_code, "cannot read it as JSON" in _alert(refused)) == (400, True)
    refused = await client.post("/ui/schedule/save", data={**form, "crawl": '{"maxdepth": 1}'})
    assert (refused.status_code, "crawl" in _alert(refused)) == (400, True)
    await _go(client, "/schedule/save", **{**form, "every": "30"})
    assert (await client.get("/v1/schedules/1")).json()["rule"] == "1800.0"


@_ON_SQLITE
async def test_the_overview_tells_nodes_that_are_draining_from_none(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    without = (await client.get("/ui/")).text
    assert "No node runs" in without
    assert "Nothing needs attention" not in without
    await database.write(lambda c: nodes.register_node(c, NewNode("n", "f", "i", 1, [], "", ""), limit_seconds=60))
    await _go(client, "/node/change", name="n", action="drain")
    draining = (await client.get("/ui/")).text
    assert "All nodes are draining" in draining
    assert re.search(r'<strong>1</strong><span class="label">of these draining: 1</span>', draining)
    await _go(client, "/node/change", name="n", action="undrain")
    assert "Nothing needs attention." in (await client.get("/ui/")).text


async def test_nodes_groups_projects_and_variables_are_changed(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    await database.write(_fill)
    await _go(client, "/node/change", name="node-1", action="drain")
    assert (await client.get("/v1/nodes/node-1")).json()["state"] == "draining"
    await _go(client, "/node/change", name="node-1", action="undrain")
    assert (await client.get("/v1/nodes/node-1")).json()["state"] == "online"
    refused = await client.post("/ui/node/change", data={"name": "node-1", "action": "forget"})
    assert (refused.status_code, "only a node that is lost" in _alert(refused)) == (409, True)
    await _go(client, "/group/cancel", id="1")
    assert set((await client.get("/v1/groups/1")).json()["jobs"]) == {"cancelled"}
    await _go(client, "/project/change", project=_PROJECT, memory_limit="1.5GB")
    limits = {each["name"]: each["memory_limit"] for each in (await client.get("/v1/projects")).json()}
    assert limits[_PROJECT] == 1_500_000_000
    page = await client.get("/ui/project", params={"project": _PROJECT})
    assert 'name="memory_limit"' in page.text
    assert 'value="1500 MB"' in page.text
    wrong = {"project": _PROJECT, "memory_limit": "much"}
    refused = await client.post("/ui/project/change", data=wrong)
    assert (refused.status_code, "cannot read much. Write a number of bytes such as 512 MB." in refused.text) == (
        400,
        True,
    )
    await _go(client, "/project/change", project=_PROJECT, max_running="3", retries="2", retry_seconds="1.5")
    changed = [each for each in (await client.get("/v1/projects")).json() if each["name"] == _PROJECT]
    assert (changed[0]["max_running"], changed[0]["retries"], changed[0]["retry_seconds"]) == (3, 2, 1.5)
    page = (await client.get("/ui/project", params={"project": _PROJECT})).text
    assert 'name="retry_seconds" inputmode="decimal" value="1.5"' in page
    await _go(client, "/project/change", project=_PROJECT, time_limit="1234567.25")
    page = (await client.get("/ui/project", params={"project": _PROJECT})).text
    assert 'name="time_limit" inputmode="decimal" value="1234567.25"' in page  # the form sends it back
    refused = await client.post("/ui/project/change", data={"project": _PROJECT, "retries": "1000"})
    assert (refused.status_code, "retries" in _alert(refused)) == (400, True)
    await _go(client, "/project/variable", project=_PROJECT, name="PLACE", value=_EVIL)
    page = await client.get("/ui/project", params={"project": _PROJECT})
    assert _EVIL in _Page(page.text).text
    await _go(client, "/project/variable", project=_PROJECT, name="PLACE", delete="yes")
    await _go(client, "/project/pin", project=_PROJECT, version="1", action="pin")
    assert "pinned one, 1." in (await client.get("/ui/project", params={"project": _PROJECT})).text


@_ON_SQLITE
async def test_a_version_that_a_time_names_has_the_time_beside_it(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    await database.write(lambda c: _fill_one_page(c, "1767225600", ["s"]))
    await database.write(lambda c: projects.add_version(c, "shop", "20260101", digest="x", file="shop/x.egg"))
    for path in ("project?project=shop", "projects"):
        page = (await client.get(f"/ui/{path}")).text
        assert re.search(r"1767225600 <time [^>]*>2026-01-01 00:00:00 UTC<", page), path
        assert not re.search(r"20260101 <time", page)
    assert "Deploy a new version" in (page := (await client.get("/ui/project?project=shop")).text)
    assert "Pin keeps a version the default" in page


async def test_a_bad_upload_is_told(client: httpx.AsyncClient) -> None:
    empty = await client.post("/ui/project/deploy", data={"project": "shop"}, files={"artefact": ("a", b"")})
    assert 'name="project" value="shop"' in empty.text
    assert (empty.status_code, "Give a project" in _alert(empty)) == (400, True)
    form = {"project": "shop", "version": "1"}
    no_node = await client.post("/ui/project/deploy", data=form, files={"artefact": ("a.egg", b"an egg")})
    assert (no_node.status_code, "node" in _alert(no_node)) == (503, True)
    broken = await client.post(
        "/ui/project/deploy", content=b"x", headers={"Content-Type": "multipart/form-data; boundary=y"}
    )
    assert broken.status_code == 400


async def test_every_address_and_every_form_is_answered_with_a_page_whose_links_exist(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    """Also a part that a page does not have, the address of a form, and a form that is refused."""
    await database.write(_fill)
    await database.write(lambda c: [tokens.add_token(c, f"token-{n}", TokenScope.READ) for n in range(_COUNT)])
    for path, route in ROUTES.items():
        opened = await client.get(f"/ui{path}", params={"id": "1", "project": _PROJECT, "part": "x"})
        assert opened.status_code == (200 if route.method == "GET" else 405) or path.startswith("/job/"), path
        if route.method == "POST":
            assert (opened.headers["allow"], "Not possible (405)" in opened.text) == ("POST", True)
            refused = await client.post(f"/ui{path}", data={"days": "x", "max_running": "x"})
            assert refused.status_code < 500, path
            for address in set(re.findall(r'(?:href|data-refresh)="(/ui/[^"]*)"', refused.text)):
                assert (await client.get(unescape(address))).status_code == 200, (path, address)


async def test_a_filter_of_the_address_stays_when_another_one_is_added(client: httpx.AsyncClient) -> None:
    page = (await client.get("/ui/jobs?schedule=7&group=8&name=n")).text
    assert all(
        f'name="{name}" value="{value}"' in page for name, value in (("schedule", 7), ("group", 8), ("name", "n"))
    )


async def test_a_number_that_is_none_is_refused_and_never_taken_for_no_limit(client: httpx.AsyncClient) -> None:
    for days in ("0", "nan", "inf", "-1", "x"):
        answer = await client.post("/ui/tokens/make", data={"name": "anna", "scope": "read", "days": days})
        assert (answer.status_code, "gsm_" in answer.text) == (400, False), days
        assert _alert(answer)


async def test_a_token_is_shown_once_and_its_owner_may_only_look(client: httpx.AsyncClient) -> None:
    made = await client.post("/ui/tokens/make", data={"name": "anna", "scope": "read", "project": "", "days": "30"})
    secret = re.findall(r"gsm_[\w-]+", made.text)[0]
    assert '<option value="read">look only (read)</option>' in made.text
    assert ">look only (read)</td>" in made.text
    for sent, told in (
        ({"Host": "localhost:99"}, "enters it at /ui/."),  # whoever sends it may name any
        (
            {"Origin": "http://localhost:5", "Host": "localhost:5"},
            "at http://localhost:5/ui/. Only this machine reaches",
        ),
    ):
        other = await client.post("/ui/tokens/make", data={"name": "ben", "scope": "read"}, headers=sent)
        assert told in other.text, sent
        newest = max(token["id"] for token in (await client.get("/v1/tokens")).json())
        await client.delete(f"/v1/tokens/{newest}")
    assert made.headers["cache-control"] == "no-store"
    listed = (await client.get("/ui/tokens")).text
    assert "anna" in listed
    assert "gsm_" not in listed
    assert "token.make" in (await client.get("/ui/audit")).text
    headers = {"Authorization": f"Bearer {secret}"}
    assert (await client.get("/v1/jobs", headers=headers)).status_code == 200
    await _go(client, "/tokens/revoke", id="1")
    assert (await client.get("/v1/jobs", headers=headers)).status_code == 401


# --- who may --------------------------------------------------------------------------------------------------------


async def _session(client: httpx.AsyncClient, secret: str) -> dict[str, str]:
    """Log in. Return the header with the session."""
    answer = await client.post("/ui/login", data={"token": secret})
    client.cookies.clear()
    assert answer.status_code == 303, answer.text
    return {"Cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}


def _below(scope: str) -> Iterator[str]:
    yield from _SCOPES[: _SCOPES.index(scope)]


@_ON_SQLITE
@pytest.mark.parametrize("path", [*OWN_ROUTES, *ROUTES])
async def test_each_page_is_for_those_with_its_scope(
    closed: httpx.AsyncClient, database: StateDatabase, path: str
) -> None:
    """Every route, with each scope, with none, and with a wrong session."""
    await database.write(_fill)
    route = {**OWN_ROUTES, **ROUTES}[path]
    method, needed = route.method, route.scope
    query = {"id": "1", "project": _PROJECT}
    for cookie in ("", "x" * 43, "x" * 10_000, "ü"):
        headers = {"Cookie": f"{COOKIE}={cookie}".encode()}
        answer = await closed.request(method, f"/ui{path}", params=query, headers=headers)
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/ui/login")
        assert _PROJECT not in unescape(answer.text)
    for scope in _SCOPES:
        _, secret = await database.write(lambda c, scope=scope: tokens.add_token(c, scope, TokenScope(scope)))
        answer = await closed.request(method, f"/ui{path}", params=query, headers=await _login(database, secret))
        is_refused = answer.status_code == 403 and "needs the permission" in answer.text
        assert is_refused == (scope in _below(needed)), (scope, answer.text)
        assert answer.status_code != 500


async def _login(database: StateDatabase, secret: str) -> dict[str, str]:
    """Return the header of a new session, without the page that limits how often a client may log in."""
    from gossamer_platform.state import sessions

    def begin(connection: Connection) -> str:
        owner = tokens.find_principal(connection, secret)
        assert owner is not None
        return sessions.begin_session(connection, token_id=owner.token, seconds=60)

    return {"Cookie": f"{COOKIE}={await database.write(begin)}"}


@pytest.mark.parametrize("path", [path for path, route in {**OWN_ROUTES, **ROUTES}.items() if route.method == "GET"])
async def test_a_token_of_one_project_shows_no_other(
    closed: httpx.AsyncClient, database: StateDatabase, path: str
) -> None:
    await database.write(_fill)
    _, secret = await database.write(lambda c: tokens.add_token(c, "one", TokenScope.ADMIN, project="shop & co #2?"))
    session = await _login(database, secret)
    for query in ({}, {"id": "1", "project": _PROJECT}):
        answer = await closed.get(f"/ui{path}", params=query, headers=session)
        shown = unescape(answer.text)
        # The name that was asked for may be repeated; nothing of the project may be.
        others = [f"shop & co #{number}?" for number in (0, 1, 3, 4) if query.get("project") != f"shop & co #{number}?"]
        assert not [text for text in (*others, "schedule-0", "person-0", "node-0", _EVIL) if text in shown]
        assert answer.status_code in (200, 403, 404)
    assert (await closed.get("/ui/", headers=session)).status_code == 200


async def test_a_database_that_cannot_say_who_the_visitor_is_is_told_on_a_page(
    closed: httpx.AsyncClient, database: StateDatabase
) -> None:
    _, secret = await database.write(lambda c: tokens.add_token(c, "all", TokenScope.READ))
    session = await _login(database, secret)
    for table in ("browser_session", "token"):
        await database.write(lambda c, table=table: c.execute(sql(f"ALTER TABLE {table} RENAME TO away_{table}")))
    asked = [closed.get("/ui/jobs", headers=session), closed.get("/ui/nothing", headers=session)]
    asked += [closed.get("/ui/jobs", headers={"Authorization": f"Bearer {secret}"})]
    asked += [closed.post("/ui/login", data={"token": secret}), closed.post("/ui/logout", headers=session)]
    for answer in [await each for each in asked]:
        assert (answer.status_code, "cannot find out who you are" in _alert(answer)) == (503, True)
    assert (await closed.get("/ui/jobs")).status_code == 303


async def test_a_token_of_a_node_opens_nothing(closed: httpx.AsyncClient, database: StateDatabase) -> None:
    _, secret = await database.write(lambda c: tokens.add_token(c, "node", TokenScope.NODE))
    assert (await closed.post("/ui/login", data={"token": secret})).status_code == 403
    assert not Visitor(scope="node").may(READ)


async def test_a_session_is_new_ends_at_logout_and_with_what_it_was_begun_with(
    manager: Manager, config: ScrapydConfig, database: StateDatabase, closed: httpx.AsyncClient
) -> None:
    planted = {"Cookie": f"{COOKIE}=planted"}
    entered = await closed.post("/ui/login", data={"token": "name:word"}, headers=planted)
    cookie = entered.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/ui"} <= set(cookie.split("; "))
    assert not cookie.startswith(f"{COOKIE_OF_CRAWLS}=")  # a browser sends that to all ports
    assert "planted" not in cookie  # no session is that of a cookie which another site has put there
    assert (await closed.get("/ui/jobs", headers=planted)).status_code == 303
    closed.cookies.clear()
    session = {"Cookie": cookie.partition(";")[0]}
    assert "Log out" in (await closed.get("/ui/jobs", headers=session)).text
    # A login ends the session before it; logging out ends a session on the server, not only in the browser.
    renewed = await closed.post("/ui/login", data={"token": "name:word"}, headers=session)
    closed.cookies.clear()
    assert (await closed.get("/ui/jobs", headers=session)).status_code == 303
    session = {"Cookie": renewed.headers["set-cookie"].partition(";")[0]}
    await closed.post("/ui/logout", headers=session)
    assert (await closed.get("/ui/jobs", headers=session)).status_code == 303
    # Another password, and a token that is revoked, end their sessions.
    session = await _session(closed, "name:word")
    async with _client(manager, replace(config, username="name", password="other")) as changed:
        assert (await changed.get("/ui/jobs", headers=session)).status_code == 303
    number, secret = await database.write(lambda c: tokens.add_token(c, "all", TokenScope.READ))
    session = await _session(closed, secret)
    assert (await closed.get("/ui/jobs", headers=session)).status_code == 200
    await database.write(lambda c: tokens.delete_token(c, number))
    assert (await closed.get("/ui/jobs", headers=session)).status_code == 303


async def test_a_browser_that_has_given_the_password_to_scrapyds_pages_need_not_log_in(
    closed: httpx.AsyncClient, database: StateDatabase
) -> None:
    _, secret = await database.write(lambda c: tokens.add_token(c, "reader", TokenScope.READ))
    for auth, status in ((("name", "word"), 200), (("x", secret), 200), (("name", "x"), 303)):
        assert (await closed.get("/ui/jobs", auth=auth)).status_code == status
    cross = {"Sec-Fetch-Site": "cross-site"}  # it sends the password with forms of any page, too
    assert (await closed.post("/ui/tokens/make", auth=("name", "word"), headers=cross)).status_code == 403
    assert (await closed.get("/ui/tokens", auth=("x", secret))).status_code == 403


@pytest.mark.parametrize("way", ["form", "/v1/jobs", "/daemonstatus.json", "/cloud/api/listprojects.json"])
async def test_passwords_cannot_be_tried_quickly(closed: httpx.AsyncClient, database: StateDatabase, way: str) -> None:
    """Guesses that are sent in one way count in all others. The right password tells nothing then; a token is not
    guessed, and goes on."""
    _, secret = await database.write(lambda c: tokens.add_token(c, "reader", TokenScope.READ))

    async def guess(password: str) -> int:
        if way == "form":
            return (await closed.post("/ui/login", data={"token": f"name:{password}"})).status_code
        return (await closed.get(way, auth=("name", password))).status_code

    statuses = [await guess("wrong")]
    assert statuses[0] in (401, 403)
    while statuses[-1] != 429:
        statuses.append(await guess(str(len(statuses))))
        assert len(statuses) < 1000
    assert set(statuses) == {statuses[0], 429}

    async def refused(send: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
        """The answer to the right password while the address may guess no more."""
        for _ in range(20):  # each while half a second has not passed since the guesses
            await asyncio.gather(*(guess(str(number)) for number in range(5)))
            if (answer := await send()).status_code == 429:
                return answer
        raise AssertionError("the right password was never refused")

    for path in ("/v1/jobs", "/daemonstatus.json", "/cloud/api/listprojects.json"):
        answer = await refused(partial(closed.get, path, auth=("name", "word")))
        assert answer.headers.get("retry-after", "1") == "1"
    await refused(partial(closed.post, "/ui/login", data={"token": "name:word"}))
    assert (await closed.get("/v1/jobs", headers={"Authorization": f"Bearer {secret}"})).status_code == 200
    assert (await closed.get("/v1/jobs", auth=("x", secret))).status_code == 200


async def test_pages_lead_to_the_login_once_there_is_a_token_for_it(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    await database.write(lambda c: tokens.add_token(c, "one", TokenScope.NODE))
    assert "/ui/login" not in _Page((await client.get("/ui/jobs")).text).links
    await database.write(lambda c: tokens.add_token(c, "colleague", TokenScope.READ))
    assert "/ui/login" in _Page((await client.get("/ui/jobs")).text).links


async def test_without_a_password_only_this_machine_is_let_in(client: httpx.AsyncClient) -> None:
    assert (await client.get("/ui/jobs")).status_code == 200
    assert (await client.get("/ui/jobs", headers={"Host": "evil.test"})).status_code == 303
    answer = await client.get("/ui/jobs", headers={"Origin": "http://evil.test"})
    assert answer.status_code == 303


@_ON_SQLITE
@pytest.mark.parametrize(
    "path", ["/logout", "/login", *(path for path, route in ROUTES.items() if route.method == "POST")]
)
@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://evil.test"}]
)
async def test_a_page_of_another_site_changes_nothing(
    client: httpx.AsyncClient, database: StateDatabase, path: str, headers: dict[str, str]
) -> None:
    await database.write(_fill)
    before = (await client.get("/v1/audit")).json()
    answer = await client.post(f"/ui{path}", data={"id": "1", "project": _PROJECT, "token": "x"}, headers=headers)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    assert (await client.get("/v1/audit")).json() == before


async def test_every_change_is_in_the_audit(client: httpx.AsyncClient, database: StateDatabase) -> None:
    await database.write(_fill)
    await _go(client, "/group/cancel", id="1")
    await _go(client, "/node/change", name="node-1", action="drain")
    found = [(entry["actor"], entry["action"]) for entry in (await client.get("/v1/audit")).json()[:2]]
    assert found == [("local", "node.drain"), ("local", "group.cancel")]


# --- the crawl service of a manager -----------------------------------------------------------------------------------


@pytest.fixture
async def with_crawls(manager: Manager, config: ScrapydConfig) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with a password and a crawl service that is away."""
    changed = replace(config, username="name", password="word", crawl_service="http://127.0.0.1:9")
    async with _client(manager, changed) as client:
        yield client


async def test_a_crawl_service_that_is_away_is_told_and_the_rest_is_shown(
    with_crawls: httpx.AsyncClient, database: StateDatabase
) -> None:
    await database.write(_fill)
    session = await _session(with_crawls, "name:word")
    page = (await with_crawls.get("/ui/", headers=session)).text
    assert "the crawl service at http://127.0.0.1:9 cannot be reached" in unescape(page)
    assert "Running jobs" in page
    for path in ("/crawls", "/workers", "/domains", "/bus"):
        answer = await with_crawls.get(f"/ui{path}", headers=session)
        assert (answer.status_code, "cannot be reached" in _alert(answer)) == (502, True)


@_ON_SQLITE
@pytest.mark.parametrize("path", list(CRAWL_ROUTES))
async def test_the_crawl_service_is_for_those_with_the_scope_of_the_page(
    with_crawls: httpx.AsyncClient, database: StateDatabase, path: str
) -> None:
    """The manager's own token for the service permits everything, so its pages must not."""
    route = CRAWL_ROUTES[path]
    for scope in _SCOPES:
        for project in ("", "one"):
            _, secret = await database.write(
                lambda c, s=scope, p=project: tokens.add_token(c, s, TokenScope(s), project=p)
            )
            session = await _login(database, secret)
            answer = await with_crawls.request(route.method, f"/ui{path}", headers=session)
            refused = scope in _below(route.scope) or bool(project)
            assert (answer.status_code == 403) == refused, (scope, project, answer.text)


@pytest.mark.parametrize("scope", ["read", "run", "deploy"])
async def test_no_message_on_the_bus_changes_a_policy_for_those_whose_scope_does_not(
    with_crawls: httpx.AsyncClient, database: StateDatabase, scope: str
) -> None:
    _, secret = await database.write(lambda c: tokens.add_token(c, scope, TokenScope(scope)))
    change = '{"appid": "a", "uuid": "1", "domain": "*", "action": "domain-update", "hits": 1000, "window": 1}'
    answer = await with_crawls.post(
        "/ui/bus/replay",
        headers=await _login(database, secret),
        data={"topic": "demo.incoming", "message": change, "message_encoding": "text"},
    )
    assert answer.status_code == 403


async def test_parts_are_shared_only_by_visitors_with_the_same_rights(
    closed: httpx.AsyncClient, database: StateDatabase
) -> None:
    await database.write(_fill)
    shown = {}
    for scope, project in (("admin", ""), ("read", ""), ("admin", "shop & co #2?")):
        _, secret = await database.write(
            lambda c, s=scope, p=project: tokens.add_token(c, "one name", TokenScope(s), project=p)
        )
        answer = await closed.get("/ui/jobs?part=live", headers=await _login(database, secret))
        shown[scope, project] = unescape(answer.text)
    assert _PROJECT not in shown["admin", "shop & co #2?"]
    assert "shop & co #1?" in shown["admin", ""]
    assert "shop & co #1?" in shown["read", ""]
