"""Pages for people on a manager: every link leads somewhere, whatever text projects and jobs contain; lists are
complete; and the pages have the same access rules as the others."""

from collections.abc import AsyncIterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from sqlalchemy import Connection

from gossamer_platform.manager.artefacts import ArtefactStore
from gossamer_platform.manager.operations import Manager
from gossamer_platform.outcome import AttemptEnd
from gossamer_platform.policy import JobPolicy
from gossamer_platform.scrapyd import browsing
from gossamer_platform.scrapyd.app import ScrapydApp
from gossamer_platform.scrapyd.config import ScrapydConfig, load
from gossamer_platform.scrapyd.files import ScrapydFiles
from gossamer_platform.state import groups, jobs, nodes, projects, schedules, tokens
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.dispatch import JobTaker, take_jobs
from gossamer_platform.state.groups import NewGroup
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.nodes import NewNode
from gossamer_platform.state.tokens import TokenScope

_EVIL = "<script>\"'&amp;x</script>"
_COUNT = 5
_EMPTY_TAGS = {"meta", "input", "br"}


class _Page(HTMLParser):
    """Links and cells of a page. An element that is not closed is an error."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(content)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open += [] if tag in _EMPTY_TAGS else [tag]
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.text.append(data.strip())


def _fill(connection: Connection) -> None:
    for number in range(_COUNT):
        name = f"shop & co #{number}?"
        tokens.record_action(connection, f"person-{number}", "version.deploy", f"{name} 1")
        version = projects.add_version(connection, name, "1", digest=str(number), file=f"{name}/1.egg")
        projects.take_listing(connection, "node")
        projects.record_listing(connection, version, incarnation="node", spiders=[f"spider {_EVIL}"], fault="")
        node = NewNode(f"node-{number}", "folder", "incarnation", 4, [_EVIL], _EVIL, "release")
        nodes.register_node(connection, node, limit_seconds=60)
        columns = {
            "kind": "cron", "rule": "30 2 * * *", "time_zone": "Europe/Berlin", "start_at": 0.0, "jitter": 0.0,
            "missed": "skip", "if_running": "run", "spider": "s", "arguments": {}, "settings": {}, "priority": 0.0,
            "policy": {}, "next_at": 1_800_000_000.0 + number, "last_result": "job 1",
        }  # fmt: skip
        schedules.add_schedule(connection, name, f"schedule-{number}", columns)
    job = NewJob("shop & co #0?", "s", "name", arguments={"a": _EVIL}, policy=JobPolicy(retries=1, retry_seconds=0.0))
    number = jobs.add_job(connection, job)
    for attempt in (1, 2):
        assert take_jobs(connection, JobTaker("node-0", "incarnation", 1), free=1)
        jobs.record_start(connection, number, attempt, pid=1)
        end = AttemptEnd(exit_code=1, finish_reason=_EVIL, stats={_EVIL: _EVIL})
        jobs.record_end(connection, number, attempt, end)
    for each in range(_COUNT):
        groups.add_group(connection, NewGroup(NewJob("shop & co #1?", "s", f"group-{each}"), processes=3))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScrapydConfig:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(browsing, "PAGE_ROWS", 2)
    return replace(load([], {}), items_dir="items")


@pytest.fixture
def manager(database: StateDatabase, tmp_path: Path) -> Manager:
    manager = Manager(database, ArtefactStore(tmp_path / "eggs", tmp_path / "uploads"))
    manager.has_remote_nodes = True
    return manager


@pytest.fixture
async def client(manager: Manager, config: ScrapydConfig) -> AsyncIterator[httpx.AsyncClient]:
    app = ScrapydApp(manager, config, ScrapydFiles(config))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:6800") as client:
        yield client


async def _crawl(client: httpx.AsyncClient) -> dict[str, _Page]:
    """Every page to which links lead from `/`."""
    found: dict[str, _Page] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        answer = await client.get(path)
        assert answer.status_code == 200, path
        found[path] = _Page(answer.text if "text/html" in answer.headers["content-type"] else "")
        waiting += {urljoin(path, link) for link in found[path].links} - {*found, *waiting}
    return found


async def test_every_link_leads_somewhere_and_lists_are_complete(
    client: httpx.AsyncClient, database: StateDatabase, tmp_path: Path
) -> None:
    await database.write(_fill)
    log = tmp_path / "logs/shop & co #0?/s/name.attempt-2.log"
    log.parent.mkdir(parents=True)
    (tmp_path / "items").mkdir()
    log.write_text(f"the last line {_EVIL}\n")
    pages = await _crawl(client)
    job_numbers = range(1, 1 + 1 + 3 * _COUNT)
    assert {f"/jobs/{number}" for number in job_numbers} <= pages.keys()
    assert {f"/groups/{number}" for number in range(1, _COUNT + 1)} <= pages.keys()

    def texts(path: str) -> list[str]:
        return [text for shown, page in pages.items() if shown.partition("?")[0] == path for text in page.text if text]

    for number in range(_COUNT):
        assert texts("/nodes").count(f"node-{number}") == 1
        assert texts("/schedules").count(f"schedule-{number}") == 1
        assert texts(f"/projects/shop%20%26%20co%20%23{number}%3F").count(f"person-{number}") == 1
    assert "2027-01-15 09:00:00 Europe/Berlin" in texts("/schedules")
    of_job = texts("/jobs/1")
    assert any(f"the last line {_EVIL}" in text for text in of_job)
    assert f"a = {_EVIL}" in of_job
    assert "0 of 3 ended" in texts("/groups/1")
    assert "its turn: a slot is free" in texts("/jobs/2")


async def test_a_page_that_does_not_exist_leads_home(client: httpx.AsyncClient) -> None:
    for path in ("/nothing", "/jobs/1", f"/jobs/{10**30}", "/groups/1", "/projects/none", "/history?after=%00"):
        answer = await client.get(path, headers={"X-Forwarded-Prefix": "/below"})
        assert (answer.status_code, "/below/" in _Page(answer.text).links) == (404, True), path
    assert (await client.get("/history?state=x")).status_code == 400
    assert (await client.get("/v1/nothing")).json()["status"] == 404


async def test_pages_are_for_those_who_may_see_all_projects(
    manager: Manager, config: ScrapydConfig, database: StateDatabase
) -> None:
    await database.write(_fill)
    _, everything = await database.write(lambda c: tokens.add_token(c, "all", TokenScope.READ))
    _, single = await database.write(lambda c: tokens.add_token(c, "one", TokenScope.READ, project="shop"))
    closed = replace(config, username="name", password="word")
    app = ScrapydApp(manager, closed, ScrapydFiles(closed))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:6800") as client:
        for path in ("/jobs/1", "/history", "/groups", "/groups/1", "/schedules", "/nodes", "/nothing"):
            expected = {"wrong": 401, single: 403, everything: 404 if path == "/nothing" else 200}
            for token, status in expected.items():
                answer = await client.get(path, headers={"Authorization": f"Bearer {token}"})
                assert answer.status_code == status, path
