"""A crawl of a service that is kept up to date: visits, changes by REST and on the bus, a service that is killed."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import msgspec
import pytest

from gossamer.bus.base import Topics
from gossamer.bus.streams import StreamsBus
from gossamer.control.admission import RequestValidator
from gossamer.errors import BadInput, RequestRejected
from gossamer.fresh.rounds import KeptCrawl
from gossamer.fresh.store import IndexStore, kept_crawl
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, RevisitOptions, RevisitRule, Terms
from gossamer.model.info import CrawlInfo
from gossamer.model.messages.reader import MessageReader, schema
from gossamer.model.messages.requests import CrawlRequest, RecrawlRequest
from gossamer.services.recrawler import Recrawler
from gossamer.settings import Settings
from gossamer.settings.crawl import CrawlSettings
from gossamer.settings.service import ServiceSettings
from gossamer.wiring.recrawling import index_store
from gossamer.wiring.service import app_recrawl
from tests.integration.test_recrawl import Served, serving, write
from tests.servers.crawling import gossamer
from tests.servers.program import until
from tests.servers.service import Up, up
from tests.servers.valkey import Server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("web") / "site") as served:
        write(served, "index.html", links=("a.html", "b.html"))
        write(served, "a.html")
        write(served, "b.html")
        yield served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up"), "--allow-network", "127.0.0.0/8") as service:
        yield service


def submit(service: Up, site: Served, **fields: Any) -> httpx.Response:
    request = {"appid": "app", "crawlid": "docs", "url": f"{site.url}/", "maxdepth": 3, **fields}
    return httpx.post(f"{service.api}/v1/crawls", json=request)


def changes(service: Up, since: int = 0) -> list[dict[str, Any]]:
    answer = httpx.get(f"{service.api}/v1/crawls/app/docs/changes", params={"since": since})
    return answer.json()["items"] if answer.status_code == 200 else []


def told(service: Up, count: int, since: int = 0) -> dict[str, str]:
    """So many changes, by the end of their URL."""
    last_moment = time.monotonic() + 60
    while len(found := changes(service, since)) < count:
        assert time.monotonic() < last_moment, found
        time.sleep(0.05)
    return {one["url"].rpartition("/")[2]: one["change"] for one in found}


def test_pages_are_visited_and_changes_told_also_after_a_kill(service: Up, site: Served) -> None:
    assert submit(service, site, recrawl={"min": "1s", "max": "1s"}).status_code == 201
    assert told(service, 3) == dict.fromkeys(("", "a.html", "b.html"), "new")
    last = changes(service)[-1]["cursor"]
    write(site, "a.html", "other")
    assert told(service, 1, last) == {"a.html": "changed"}
    service.kill()
    (site.folder / "b.html").unlink()
    service.start()
    assert told(service, 2, last) == {"a.html": "changed", "b.html": "gone"}
    assert site.answers["/a.html", 200] in (2, 3), "a visit that was killed before it was settled comes again"
    assert site.answers["/a.html", 304] > 0


def test_changes_are_on_the_bus(service: Up, site: Served) -> None:
    ids = {one["id"] for one in changes(service)}
    done = gossamer(
        "dump", "demo.changes", "--from-beginning", "--limit", str(len(ids)), "-c", "me", cwd=service.folder
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["id"] for line in lines} == ids
    for line in lines:
        jsonschema_rs.validator_for(schema("change")).validate(line)
        assert ("since" in line) == (line["change"] != "new")
    assert {(line["appid"], line["crawlid"]) for line in lines} == {("app", "docs")}


def test_how_up_to_date_the_pages_are_is_told_by_rest_and_commands(service: Up, site: Served) -> None:
    address, name, of_crawl = f"{service.api}/v1/crawls/app/docs", "app/docs", ("--app", "app", "--crawl-id", "docs")
    fresh = httpx.get(f"{address}/freshness").json()
    [domain] = fresh["domains"]
    assert (domain["domain"], domain["live"], domain["gone"]) == ("127.0.0.1", 2, 1)
    assert fresh["cursor"] == changes(service)[-1]["cursor"]
    told = json.loads(gossamer("crawls", "fresh", name, "--json", cwd=service.folder).stdout)
    assert told["domains"][0].keys() == domain.keys()
    assert "127.0.0.1: 2 pages, 1 gone" in gossamer("crawls", "fresh", name, cwd=service.folder).stdout
    assert f"gone      {site.url}/b.html" in gossamer("crawls", "changes", name, cwd=service.folder).stdout
    visits = httpx.get(f"{address}/url", params={"url": f"{site.url}/b.html"}).json()["visits"]
    assert (visits["state"], visits["misses"] >= 2) == ("gone", True)
    page = {"appid": "app", "crawlid": "docs", "url": f"{site.url}/a.html"}
    assert "Next visit" in httpx.get(f"{service.api}/ui/crawl/why", params=page).text
    shown = httpx.get(f"{service.api}/ui/crawl", params={"appid": "app", "crawlid": "docs"}).text
    assert "Kept up to date" in shown
    assert shown.index(f">{site.url}/b.html<") < shown.index(f">{site.url}/a.html<"), "the latest change comes first"
    assert (fresh["goes_on"], "and its pages are not visited any more" in shown) == (True, True)
    why = gossamer("why", f"{site.url}/a.html", *of_crawl, "--resolve", "127.0.0.1:127.0.0.1", cwd=service.folder)
    assert "visits   live, fetched" in why.stdout
    unknown = httpx.get(f"{service.api}/v1/crawls/app/other/freshness")
    assert (unknown.status_code, "is not kept up to date" in unknown.json()["detail"]) == (404, True)
    refused = gossamer("crawls", "fresh", "app/other", cwd=service.folder)
    assert (refused.returncode, "the crawl app/other is not kept up to date" in refused.stderr) == (2, True)


def test_a_crawl_that_is_submitted_again_with_another_scope_adds_and_forgets_pages(service: Up, site: Served) -> None:
    write(site, "s.html", links=("s1.html", "sx.html"))
    write(site, "s1.html", links=("s2.html",))
    for name in ("s2.html", "sx.html"):
        write(site, name)
    options = {"crawlid": "scoped", "url": f"{site.url}/s.html", "recrawl": {"min": "9d", "max": "9d"}}

    def told(count: int) -> list[str]:
        last_moment = time.monotonic() + 60
        while len(found := httpx.get(f"{service.api}/v1/crawls/app/scoped/changes").json().get("items", ())) < count:
            assert time.monotonic() < last_moment, found
            time.sleep(0.05)
        return [one["url"].rpartition("/")[2] for one in found]

    assert submit(service, site, **options | {"maxdepth": 1}).status_code == 201
    assert sorted(told(3)) == ["s.html", "s1.html", "sx.html"]
    last_moment = time.monotonic() + 60
    # Changes are told a little before the run has finished. If the seed is a duplicate, its scope is taken over then.
    while (again := submit(service, site, **options | {"maxdepth": 2, "deny_regex": ["/sx"]})).status_code > 201:
        assert "when the run has finished" in again.text
        assert time.monotonic() < last_moment, again.text
        time.sleep(0.05)
    assert told(4)[3] == "s2.html"
    [index] = [index for index in map(IndexStore(f"{service.folder}/.gossamer/fresh").open,
                                      IndexStore(f"{service.folder}/.gossamer/fresh").names())
               if index.fact("crawl") == "app/scoped"]  # fmt: skip
    assert index.page(f"{site.url}/sx.html") is None
    assert index.page(f"{site.url}/s1.html") is not None
    index.close()


class _Overtaken:
    """A frontier where another request begins the crawl's next run right after the recrawler has looked at it."""

    def __init__(self, frontier: ValkeyFrontier, crawl: Crawl) -> None:
        self._frontier = frontier
        self._crawl = crawl
        self.is_overtaken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frontier, name)

    async def crawl_info(self, crawl: CrawlId) -> CrawlInfo | None:
        found = await self._frontier.crawl_info(crawl)
        if not self.is_overtaken:
            self.is_overtaken = True
            await self._frontier.open_crawl(self._crawl)
        return found


async def test_a_crawl_whose_next_run_a_request_begins_first_is_kept_up_to_date(
    one_server: Server, bus: StreamsBus, tmp_path: Path
) -> None:
    frontier = await ValkeyFrontier.connect(one_server.address, prefix="overtaken")
    crawl = Crawl(id=CrawlId("app", "overtaken"))
    await frontier.open_crawl(crawl)
    await frontier.stop_crawl(crawl.id, state=CrawlState.FINISHED)
    store = IndexStore(str(tmp_path))
    kept = KeptCrawl(crawl=crawl, spider="link", priority=1, terms=Terms(recrawl=RevisitOptions()))
    store.keep([kept])
    index = store.find(crawl.id)
    index.enter(["https://a.test/"], depth=0)
    overtaken = _Overtaken(frontier, crawl)
    role = Recrawler(overtaken, bus, Topics(), store, secret=0, owner="me")  # type: ignore[arg-type]
    await role.run_once()
    assert overtaken.is_overtaken
    await role.run_once()
    assert kept_crawl(index) == kept
    info = await frontier.crawl_info(crawl.id)
    assert info is not None
    assert (info.run, info.total().queued) == (2, 1), "the next step joins the run"
    await role.close()
    index.close()
    store.close()
    await frontier.close()


def test_an_index_that_cannot_be_used_stops_only_its_crawl(service: Up, site: Served) -> None:
    write(site, "whole.html")
    folder = Path(service.folder) / ".gossamer" / "fresh"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{CrawlId('app', 'broken').token}.sqlite").write_text("no database" * 100)
    broken = {"crawlid": "broken", "url": f"{site.url}/whole.html", "recrawl": {"min": "1s", "max": "1s"}}
    refused = submit(service, site, **broken)
    assert refused.status_code == 409
    assert "the page index of app/broken cannot be used" in refused.json()["detail"]
    for fields in (broken, broken | {"crawlid": "whole"}):  # in this order, on the bus
        request = json.dumps({"appid": "app", "maxdepth": 0, **fields})
        done = gossamer("feed", request, cwd=service.folder, env={"GOSSAMER_ALLOW_NETWORKS": '["127.0.0.0/8"]'})
        assert done.returncode == 0, done.stderr
    until(lambda: site.answers["/whole.html", 304] > 1, "visits of the other crawl")
    assert httpx.get(f"{service.api}/v1/crawls/app/broken").status_code == 404


def announce(service: Up, **body: Any) -> httpx.Response:
    return httpx.post(f"{service.api}/v1/crawls/app/pings/changed", json=body)


def test_an_announced_page_is_visited_at_once(service: Up, site: Served) -> None:
    assert submit(service, site, crawlid="pings", recrawl={"min": "9d"}).status_code == 201
    last_moment = time.monotonic() + 60
    while site.answers["/z.html", 200] == 0:
        write(site, "z.html")
        answer = announce(service, host="127.0.0.1", urlList=[f"{site.url}/z.html"])
        assert answer.status_code in (200, 400, 404), answer.text  # first the crawl has no page
        assert time.monotonic() < last_moment, answer.text
        time.sleep(0.1)
    for body, reason in (
        ({"host": "other.test", "urlList": ["http://other.test/"]}, "the crawl app/pings has no page of other.test"),
        ({"host": "127.0.0.1", "urlList": ["http://other.test/"]}, "http://other.test/ is not a URL of 127.0.0.1"),
        ({"host": "127.0.0.1", "urlList": []}, "list 1 to 10,000 URLs"),
        ({"urlList": ["http://other.test/"]}, "name the host"),
        (
            {"host": "127.0.0.1", "urlList": ["/z.html"]},
            "urlList: This is not an http or https URL: '/z.html' (write it",
        ),
        ({"host": "127.0.0.1:80", "urlList": [f"{site.url}/"]}, "host: '127.0.0.1:80' is not a domain or host name"),
    ):
        answer = announce(service, **body)
        assert answer.status_code == 400
        assert reason in answer.json()["detail"]


def stop(service: Up, crawl: str, way: str) -> None:
    if way == "command":
        done = gossamer("crawls", "stop", f"app/{crawl}", cwd=service.folder)
        assert "Stopped the visits of app/" in done.stdout
    elif way == "rest":
        answer = httpx.delete(f"{service.api}/v1/crawls/app/{crawl}")
        assert (answer.status_code, answer.json()["state"]) == (200, "finished")
    else:
        request = {"appid": "app", "crawlid": crawl, "uuid": "1", "action": "stop", "spiderid": "link"}
        assert gossamer("feed", json.dumps(request), cwd=service.folder).returncode == 0


@pytest.mark.parametrize("way", ["command", "rest", "message"])
def test_a_crawl_that_is_stopped_between_two_rounds_is_not_visited_until_it_is_submitted_again(
    service: Up, site: Served, way: str
) -> None:
    crawl = f"stopped-{way}"
    address = f"{service.api}/v1/crawls/app/{crawl}"
    body = {"host": "127.0.0.1", "urlList": [f"{site.url}/a.html"]}

    def wait(status: int) -> None:
        until(lambda: httpx.post(f"{address}/changed", json=body).status_code == status, f"the status {status}")

    fields = {"crawlid": crawl, "url": f"{site.url}/a.html", "maxdepth": 0, "recrawl": {"min": "1h"}}
    assert submit(service, site, **fields).status_code == 201
    until(lambda: httpx.get(address).json().get("state") == "finished", "the end of the first round")
    stop(service, crawl, way)
    wait(404)
    answer = httpx.post(f"{address}/changed", json=body)
    assert "is not kept up to date any more" in answer.json()["detail"]
    assert [one["change"] for one in httpx.get(f"{address}/changes").json()["items"]] == ["new"]
    assert httpx.get(f"{address}/freshness").json()["goes_on"] is False
    assert (
        "Run it again to go on." in httpx.get(f"{service.api}/ui/crawl", params={"appid": "app", "crawlid": crawl}).text
    )
    submit(service, site, **fields)
    wait(200)


def test_bad_input_is_refused_with_the_reason(service: Up, site: Served) -> None:
    for fields, reason in (
        ({"min": "2d", "max": "1d"}, "min, 2d, is longer than max, 1d"),
        ({"budget": "many"}, "must be VISITS/TIME, like 5000/1d"),
        ({"max": "soon"}, "must be a time such as 30m, 12h or 7d"),
    ):
        answer = submit(service, site, recrawl=fields)
        assert answer.status_code == 400
        assert reason in answer.json()["detail"]
    answer = httpx.get(f"{service.api}/v1/crawls/app/other/changes")
    assert answer.status_code == 404
    assert "the crawl app/other is not kept up to date" in answer.json()["detail"]
    answer = httpx.get(f"{service.api}/v1/crawls/app/docs/changes", params={"since": 10**9})
    assert answer.status_code == 400
    [error] = answer.json()["errors"]
    assert error["field"] == "since"
    assert error["reason"].startswith("the cursor 1000000000 is not one of this crawl: its last one is ")


def test_a_service_without_a_place_for_indexes_says_so(tmp_path: Path) -> None:
    shared = Settings(data_dir=tmp_path, frontier="redis://127.0.0.1:1")
    assert index_store(shared) is None
    with pytest.raises(RequestRejected, match=r"the setting crawl\.index names one"):
        RequestValidator(now=time.time).admit(
            CrawlRequest(appid="a", crawlid="b", url="http://a.test/", recrawl=RecrawlRequest())
        )
    with pytest.raises(BadInput, match="is the index of a single crawl"):
        index_store(Settings(data_dir=tmp_path, crawl=CrawlSettings(index="some.db")))


def admitted(settings: Settings, **fields: Any) -> RevisitOptions | None:
    validator = RequestValidator(now=time.time, recrawl=app_recrawl(settings, kept=True))
    _, request = MessageReader().read({"appid": "shop", "crawlid": "c", "url": "http://a.test/", **fields})
    return validator.admit(request).terms.recrawl


def test_an_application_has_defaults_of_its_own(tmp_path: Path) -> None:
    options = {"budget": "50/1h", "max": "7d", "rules": [{"match": "/news/", "every": "1h"}], "window": "* 1-5 * * *"}
    settings = Settings(data_dir=tmp_path, service=ServiceSettings(app_recrawl={"shop": options}))
    rule = RevisitRule(match="/news/", shortest=3600.0, longest=3600.0)
    expected = RevisitOptions(
        longest=7 * 86_400.0, budget_visits=50, budget_seconds=3600.0, rules=(rule,), window="* 1-5 * * *"
    )
    assert admitted(settings) == expected
    own = {"max": "9d", "rules": [], "unchanged": True, "time_zone": "Asia/Tokyo"}
    changed = {"longest": 9 * 86_400.0, "rules": (), "unchanged": True, "zone": "Asia/Tokyo"}
    assert admitted(settings, recrawl=own) == msgspec.structs.replace(expected, **changed)
    assert admitted(settings, appid="other") is None
    assert admitted(settings, appid="other", recrawl={}) == RevisitOptions()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"budget": "many"}, r"service.app_recrawl.shop: recrawl.budget: must be VISITS/TIME, like 5000/1d"),
        ({"window": "* * *"}, r"service.app_recrawl.shop: recrawl.window: '\* \* \*' has 3 fields, not five"),
        ({"time_zone": "Mars/X"}, "service.app_recrawl.shop: recrawl.time_zone: 'Mars/X' is unknown"),
        ({"rules": [{"match": "("}]}, "service.app_recrawl.shop: recrawl.rules: "),
        ({"rules": [{"match": "/x", "window": "a b c d e"}]}, "service.app_recrawl.shop: recrawl.rules: minute 'a'"),
        ({"often": True}, "service.app_recrawl.shop: recrawl.often: unknown field"),
    ],
)
def test_defaults_that_no_request_may_have_are_refused(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, service=ServiceSettings(app_recrawl={"shop": options}))
    with pytest.raises(BadInput, match=sentence):
        app_recrawl(settings, kept=True)
    with pytest.raises(BadInput, match=r"the setting crawl\.index names one"):
        app_recrawl(Settings(service=ServiceSettings(app_recrawl={"shop": {}})), kept=False)
