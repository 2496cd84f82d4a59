"""/v1/crawls: submit, list, look, stop."""

from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from gossamer import __version__
from gossamer.control.process_facts import OwnFacts
from gossamer.fetch.robots_service import RobotsRecord, pack
from gossamer.model.crawl import CrawlId
from gossamer.model.growth import Growth, PatternCount
from gossamer.model.performance import MeasuredProcess, Measurement, Recording
from gossamer.model.request import Outcome, Settlement
from gossamer.policy.robots import RobotsOutcome

from .conftest import Service, in_session

PROBLEM = "application/problem+json"


def crawl(url: str = "https://example.com/", **fields: Any) -> dict[str, Any]:
    return {"appid": "shop", "crawlid": "prices", "url": url, **fields}


async def test_a_submitted_crawl_is_at_its_location(service: Service) -> None:
    answer = await service.http.post("/v1/crawls", json=crawl(max_pages=7, rate="10/60"))
    assert answer.status_code == 201
    assert answer.json()["added"] is True
    assert answer.headers["location"] == "/v1/crawls/shop/prices"
    shown = (await service.http.get(answer.headers["location"])).json()
    assert (shown["state"], shown["run"], shown["total"]["queued"]) == ("running", 1, 1)
    assert shown["spiders"]["link"]["queued"] == 1
    assert shown["queued_by_priority"] == {"1": 1}
    assert (shown["max_pages"], shown["rate"]) == (7, "10/60")
    assert "queued_by_domain" not in shown


async def test_the_same_again_is_a_duplicate(service: Service) -> None:
    await service.http.post("/v1/crawls", json=crawl())
    answer = await service.http.post("/v1/crawls", json=crawl())
    assert (answer.status_code, answer.json()["added"], answer.json()["reason"]) == (200, False, "duplicate")


async def test_a_running_crawl_refuses_wider_terms_for_a_seen_url_and_is_joined_by_fresh_requests(
    service: Service,
) -> None:
    await service.http.post("/v1/crawls", json=crawl(maxdepth=1))
    answer = await service.http.post("/v1/crawls", json=crawl(maxdepth=2))
    assert answer.status_code == 409
    assert "smaller maxdepth" in answer.json()["detail"]
    answer = await service.http.post("/v1/crawls", json=[crawl("https://example.com/2", maxdepth=2)] * 2)
    assert [item["status"] for item in answer.json()["items"]] == [201, 200]
    answer = await service.http.post("/v1/crawls", json=crawl("https://example.com/3", fresh=True))
    assert (answer.status_code, answer.json()["added"]) == (201, True)
    assert "joined" in answer.json()["reason"]


async def test_each_request_of_a_batch_has_its_own_answer(service: Service) -> None:
    batch = [crawl(), crawl(), crawl(colour=1), crawl("ftp://a.example"), 7, {"uuid": "u", "appid": "shop"}]
    answer = await service.http.post("/v1/crawls", json=batch)
    assert answer.status_code == 207
    body = answer.json()
    assert [item["status"] for item in body["items"]] == [201, 200, 400, 400, 400, 400]
    assert [item["field"] for item in body["items"]] == ["", "", "colour", "url", "", ""]
    assert (body["added"], body["duplicates"], body["refused"]) == (1, 1, 4)


async def test_a_batch_may_be_lines(service: Service) -> None:
    lines = b"\n".join([msgspec.json.encode(crawl(f"https://example.com/{n}")) for n in range(300)] + [b"", b"{"])
    answer = await service.http.post("/v1/crawls", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert answer.status_code == 207
    assert (answer.json()["added"], answer.json()["refused"]) == (300, 1)


@in_session
async def test_a_batch_that_is_too_long_is_refused(shared: Service) -> None:
    answer = await shared.http.post("/v1/crawls", json=[1] * 10_001)
    assert answer.status_code == 400
    assert "10,000" in answer.json()["detail"]


@in_session
@pytest.mark.parametrize(
    ("sent", "detail", "field"),
    [
        (b"{", "the message is not JSON", ""),
        (b"", "the body is empty", ""),
        (b'{"url": "\xff"}', "not UTF-8", ""),
        (b"[" * 200_000, "levels deep", ""),
        (b'"x"', "must be a JSON object or array", ""),
        (b'{"appid": "shop", "crawlid": "p"}', "url is missing: ", "url"),
        (b'{"appid": "shop", "crawlid": "p", "url": "a.example", "colour": 1}', "unknown field", "colour"),
        (b'{"appid": "shop", "crawlid": "p", "url": "http://10.0.0.1/"}', "not on the public internet", "url"),
        (b'{"appid": "shop", "crawlid": "p", "url": "a.example", "allow_regex": ["("]}', "allow_regex", "allow_regex"),
        (b'{"appid": "shop", "crawlid": "p", "url": "a.example", "expires": 12}', "has passed", "expires"),
        (b'{"uuid": "u", "appid": "shop"}', "send it to /feed", ""),
    ],
)
async def test_what_is_not_valid_is_a_problem_that_names_it(
    shared: Service, sent: bytes, detail: str, field: str
) -> None:
    answer = await shared.http.post("/v1/crawls", content=sent)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    body = answer.json()
    assert (body["status"], body["type"], body["title"]) == (
        400,
        "urn:gossamer:problem:invalid-request",
        "Invalid request",
    )
    assert detail in body["detail"]
    assert body["errors"][0]["field"] == field


async def test_crawls_are_listed_by_page_and_application(service: Service) -> None:
    batch = [{"appid": f"app{n % 2}", "crawlid": f"c{n}", "url": "https://a.example/"} for n in range(30)]
    await service.http.post("/v1/crawls", json=batch)
    found: set[str] = set()
    cursor = ""
    while True:
        page = (await service.http.get("/v1/crawls", params={"appid": "app1", "cursor": cursor, "limit": 4})).json()
        found |= {item["crawlid"] for item in page["items"]}
        assert all(item["appid"] == "app1" and item["total"]["queued"] == 1 for item in page["items"])
        cursor = page["cursor"]
        if not cursor:
            break
    assert found == {f"c{n}" for n in range(1, 30, 2)}


async def test_crawls_are_listed_by_state(service: Service) -> None:
    for crawlid in ("one", "two", "three"):
        await service.http.post("/v1/crawls", json=crawl(crawlid=crawlid))
    await service.http.delete("/v1/crawls/shop/two")

    async def listed(**query: str) -> list[str]:
        page = (await service.http.get("/v1/crawls", params=query)).json()
        assert page["cursor"] == ""
        return sorted(item["crawlid"] for item in page["items"])

    assert await listed() == ["one", "three", "two"]
    assert await listed(state="running") == await listed(state="running", appid="shop") == ["one", "three"]
    assert await listed(state="stopped") == ["two"]
    assert await listed(state="finished") == await listed(state="running", appid="else") == []
    refusal = await service.http.get("/v1/crawls", params={"state": "asleep"})
    assert (refusal.status_code, refusal.json()["errors"][0]["field"]) == (400, "state")


async def test_domains_come_by_page(service: Service) -> None:
    batch = [crawl(f"https://d{n}.example/", priority=n % 3 + 1) for n in range(40)]
    await service.http.post("/v1/crawls", json=batch)
    found: dict[str, Any] = {}
    cursor = ""
    while True:
        answer = await service.http.get("/v1/crawls/shop/prices", params={"domains": cursor, "limit": 10})
        page = answer.json()["queued_by_domain"]
        found |= {item["domain"]: item for item in page["items"]}
        cursor = page["cursor"]
        if not cursor:
            break
    assert len(found) == 40
    assert found["d4.example"] == {
        "domain": "d4.example",
        "queued": 1,
        "later": 0,
        "by_priority": {"2": 1},
        "by_spider": {"link": 1},
    }


async def test_a_stopped_crawl_is_purged_once_and_takes_no_more(service: Service) -> None:
    await service.http.post("/v1/crawls", json=[crawl(f"https://a.example/{n}") for n in range(5)])
    assert (await service.http.delete("/v1/crawls/shop/prices")).json()["purged"] == 5
    assert (await service.http.delete("/v1/crawls/shop/prices")).json()["purged"] == 0
    assert (await service.http.get("/v1/crawls/shop/prices")).json()["state"] == "stopped"
    answer = await service.http.post("/v1/crawls", json=crawl())
    assert (answer.status_code, answer.headers["content-type"]) == (409, PROBLEM)
    assert "is stopped" in answer.json()["detail"]


@pytest.mark.parametrize("part", [{}, {"spiderid": "link"}], ids=["crawl", "part"])
async def test_a_finished_crawl_stays_finished_and_may_run_again(service: Service, part: dict[str, str]) -> None:
    """However it is asked to stop: the event said that it has finished."""
    await service.http.post("/v1/crawls", json=crawl())
    worker = await service.frontier.open_leaseholder(pool="shared", spiders=["link"])
    await worker.settle([Settlement(lease, Outcome.FETCHED) for lease in await worker.lease(limit=10)])
    before = (await service.http.get("/v1/crawls/shop/prices")).json()
    assert before["state"] == "finished"
    answer = await service.http.delete("/v1/crawls/shop/prices", params=part)
    assert (answer.json()["purged"], answer.json()["state"]) == (0, "finished")
    stop = {"uuid": "s", "appid": "shop", "crawlid": "prices", "spiderid": "link", "action": "stop"}
    assert (await service.http.post("/feed", json=stop)).json()["data"]["total_purged"] == 0
    assert (await service.http.get("/v1/crawls/shop/prices")).json() == before
    again = await service.http.post("/v1/crawls", json=crawl("https://other.example/"))
    assert again.status_code == 201
    assert (await service.http.get("/v1/crawls/shop/prices")).json()["run"] == 2


async def test_what_failed_is_retried_all_of_one_reason_or_one_url_and_the_counts_go_on(service: Service) -> None:
    async def retry(**query: str) -> Any:
        return await service.http.post("/v1/crawls/shop/prices/retry", params=query)

    async def state() -> Any:
        return (await service.http.get("/v1/crawls/shop/prices")).json()

    async def fetch(**reasons: str) -> set[str]:
        """Settle all that is due: a URL that ends with one of these names fails for its reason."""
        worker, names = await service.frontier.open_leaseholder(pool="shared", spiders=["link"]), set()
        while leases := await worker.lease(limit=10):
            for lease in leases:
                names.add(name := lease.url.rpartition("/")[2])
                outcome = Outcome.FAILED if name in reasons else Outcome.FETCHED
                await worker.settle([Settlement(lease, outcome, reasons.get(name, ""))])
        await worker.close()
        return names

    assert (await retry()).status_code == 404
    urls = [f"https://{name}.example/{name}" for name in ("a", "b", "c", "d")]
    await service.http.post("/v1/crawls", json=[crawl(url, rate="1000/1") for url in urls])
    await fetch(a="http_500", b="http_404", c="http_500")
    why = (await service.http.get("/v1/crawls/shop/prices/url", params={"url": urls[1]})).json()
    assert (why["place"], why["failure"]) == ("done", "http_404")
    before = await state()
    assert (before["state"], before["kept_failed"], before["total"]["fetched"]) == ("finished", 3, 1)
    for query in ({"reason": "http_503"}, {"url": urls[3]}, {"url": "https://a.example/"}):
        assert (await retry(**query)).json()["retried"] == 0
        assert await state() == before  # no run began for nothing
    answer = (await retry(url="HTTPS://A.example/a")).json()
    assert (answer["retried"], answer["kept"], answer["run"]) == (1, 2, 2)
    assert (await retry(reason="http_500")).json()["retried"] == 1  # while it runs
    assert await fetch(c="http_500") == {"a", "c"}
    assert (await state())["total"]["failed"] == {"http_404": 1, "http_500": 1}
    assert (await retry()).json()["retried"] == 2
    assert (await retry()).json()["retried"] == 0
    assert await fetch() == {"b", "c"}
    after = await state()
    assert (after["state"], after["total"]["fetched"], after["total"]["failed"]) == ("finished", 4, {})
    assert (await retry(url="ftp://a.example/")).status_code == 400
    await service.http.post("/v1/crawls", json=crawl("https://e.example/e"))
    await service.http.delete("/v1/crawls/shop/prices")
    assert (await retry()).status_code == 409


async def test_one_spiders_part_is_stopped_alone(service: Service) -> None:
    await service.http.post("/v1/crawls", json=[crawl(), crawl(spiderid="wandering")])
    answer = await service.http.delete("/v1/crawls/shop/prices", params={"spiderid": "wandering"})
    assert answer.json() == {
        "appid": "shop",
        "crawlid": "prices",
        "spiderid": "wandering",
        "purged": 1,
        "state": "running",
    }
    assert (await service.http.get("/v1/crawls/shop/prices")).json()["total"]["queued"] == 1


@in_session
@pytest.mark.parametrize("crawlid", ["a:b", "a/b", "ü+%&?#=", "..%2F", "%41", "*", "a;b=c", "{x}"])
async def test_ids_may_hold_anything_printable(shared: Service, crawlid: str) -> None:
    answer = await shared.http.post("/v1/crawls", json={"appid": "s/h op"[:3] + "op", "crawlid": crawlid, "url": "a.b"})
    assert answer.status_code == 201, answer.text
    shown = await shared.http.get(answer.headers["location"])
    assert (shown.status_code, shown.json()["crawlid"]) == (200, crawlid)
    other = await shared.http.get(f"/v1/crawls/{quote('s/hop', safe='')}/{quote(crawlid, safe='')}")
    assert other.json() == shown.json()


@in_session
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/crawls/no/body"),
        ("DELETE", "/v1/crawls/no/body"),
        ("GET", "/v1/crawls/no/body/events"),
        ("GET", "/v1/crawls/no/body/pages"),
        ("GET", "/v1/crawls/no/body/failures"),
        ("GET", "/v1/nothing"),
        ("GET", "/v1/"),
        ("GET", "/v1"),
    ],
)
async def test_what_is_not_there_is_a_problem(shared: Service, method: str, path: str) -> None:
    answer = await shared.http.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)


@in_session
@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/crawls", "GET, POST"),
        ("/v1/crawls/a/b", "DELETE, GET"),
        ("/v1/domains", "GET, PUT"),
        ("/v1/domains/a.example", "DELETE, GET, PATCH, PUT"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(shared: Service, path: str, allow: str) -> None:
    answer = await shared.http.request("OPTIONS", path)
    assert (answer.status_code, answer.headers["content-type"], answer.headers["allow"]) == (405, PROBLEM, allow)


@in_session
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/crawls?limit=0", "limit"),
        ("/v1/crawls?limit=x", "limit"),
        ("/v1/crawls?limit=1001", "limit"),
        ("/v1/crawls/shop/prices?domains=nonsense", ""),
        (f"/v1/crawls/shop/prices?domains=0:{2**64}", ""),
        ("/v1/crawls?cursor=nonsense", ""),
        ("/v1/crawls/shop/prices/pages?cursor=nonsense", ""),
        ("/v1/crawls/shop/prices/pages?cursor=%C3%BC", ""),
        ("/v1/queues/link/domains?cursor=nonsense", ""),
        ("/v1/stats?stats=weather", "stats"),
        ("/v1/crawls/%FF/b", ""),
    ],
)
async def test_parameters_that_cannot_be_used_are_named(shared: Service, path: str, field: str) -> None:
    await shared.http.post("/v1/crawls", json=crawl())
    answer = await shared.http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM), answer.text
    assert answer.json()["errors"][0]["field"] == field


async def test_what_waits_who_works_and_what_was_done(service: Service) -> None:
    await service.http.post("/v1/crawls", json=[crawl(f"https://d{n % 2}.example/{n}") for n in range(6)])
    seat = await service.frontier.open_leaseholder(pool="shared", spiders=["link"])
    assert (await service.http.get("/v1/queues")).json() == {
        "total": 6,
        "items": [{"spiderid": "link", "queued": 6, "domains": 2}],
        "spiders": 1,
    }
    page = (await service.http.get("/v1/queues/link/domains")).json()
    assert sorted((item["domain"], item["queued"]) for item in page["items"]) == [("d0.example", 3), ("d1.example", 3)]
    await seat.lease(limit=1)
    await service.context.counters.beat("rest", "here:1")
    workers = (await service.http.get("/v1/workers")).json()
    assert [(worker["name"], worker["leased"]) for worker in workers["items"]] == [(seat.worker, 1)]
    assert workers["processes"]["rest"] == {"here": ["1"]}
    assert workers["facts"] == []
    measured = Measurement(seconds=2, cpu=1, lag=0.25, page_responses=8)
    process = MeasuredProcess(name="shared", kind="worker")
    facts = OwnFacts(name=seat.worker).of_worker(Recording(process=process, measurements=[measured]))
    await service.context.counters.report_facts("here:1", facts)
    await service.context.counters.report_facts("here:2", {"memory_bytes": "of another version"})
    [fact] = (await service.http.get("/v1/workers")).json()["facts"]
    assert (fact["process"], fact["worker"], fact["version"]) == ("here:1", seat.worker, __version__)
    assert (fact["cpu"], fact["lag_seconds"], fact["pages_per_second"]) == (0.5, 0.25, 4)
    assert fact["memory_bytes"] > 10_000_000
    page = (await service.http.get("/ui/workers")).text
    assert "250.0 ms" in page
    assert fact["finding"] in page
    await service.context.counters.report_facts("here:1", None)
    assert (await service.http.get("/v1/workers")).json()["facts"] == []
    assert (await service.http.get("/v1/stats", params={"stats": "queue"})).json()["queues"]["total_backlog"] == 5
    assert set((await service.http.get("/v1/stats")).json()) == {"kafka-monitor", "redis-monitor", "crawler", "rest"}
    await seat.close()


async def test_health_and_metrics(service: Service) -> None:
    assert (await service.http.get("/healthz")).json() == {"status": "ok"}
    assert (await service.http.get("/readyz")).json() == {
        "status": "ready",
        "frontier": True,
        "bus": True,
        "troubles": [],
    }
    await service.http.post("/v1/crawls", json=crawl())
    text = (await service.http.get("/metrics")).text
    assert 'gossamer_http_requests_total{method="POST",route="/v1/crawls",status="201"} 1.0' in text
    assert 'gossamer_requests_total{kind="crawl",result="accepted"} 1.0' in text


@in_session
async def test_only_the_documentation_is_html(shared: Service) -> None:
    for path in ("/redoc", "/docs/nothing", "/v1/crawls", "/openapi.json", "/nothing"):
        answer = await shared.http.get(path, headers={"Accept": "text/html"})
        assert answer.headers["content-type"].startswith(("application/json", PROBLEM))


async def test_parameters_are_left_out_of_a_submitted_url_and_unknown_fields_of_items_are_refused(
    service: Service,
) -> None:
    request = {"appid": "mine", "crawlid": "shop", "url": "a.test/p?ref=x&q=1", "drop_parameters": ["ref", "utm_*"]}
    answer = await service.http.post("/v1/crawls", json=request)
    assert (answer.status_code, answer.json()["url"]) == (201, "http://a.test/p?q=1")
    again = await service.http.post("/v1/crawls", json={**request, "url": "a.test/p?q=1&utm_source=mail"})
    assert (again.status_code, again.json()["reason"]) == (200, "duplicate")
    for fields, named in (
        ({"drop_parameters": ["a&b"]}, "drop_parameters"),
        ({"unique": ["sku"]}, "unique"),
        ({"unique": ["sku"], "extract": {"fields": {"name": "h1"}}}, "unique"),
    ):
        refused = await service.http.post("/v1/crawls", json={**request, **fields})
        assert refused.status_code == 400, refused.text
        assert named in refused.text
    allowed = {"unique": ["name"], "extract": {"fields": {"name": "h1"}}, "url": "a.test/other"}
    assert (await service.http.post("/v1/crawls", json={**request, **allowed})).status_code == 201


async def test_the_pace_of_a_crawl_names_the_limit_that_each_domain_waits_for(service: Service) -> None:
    frontier = service.frontier
    urls = [
        f"https://{name}.example/{n}" for name in ("plain", "asked", "robots", "site", "off", "list") for n in (1, 2)
    ]
    assert (await service.http.get("/v1/crawls/shop/prices/pace")).status_code == 404
    await service.http.post("/v1/crawls", json=[crawl(url) for url in urls])
    await frontier.set_crawl_delay("robots.example", seconds=20)
    await frontier.block_domain("site.example", seconds=60)
    for name, change in (("off", {"scale": 0}), ("list", {"blacklisted": True}), ("plain", {"hits": 4, "window": 2})):
        await service.http.patch(f"/v1/domains/{name}.example", json=change)
    worker = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await worker.lease(limit=50)
    held = {lease.domain for lease in leases}
    assert {"plain.example", "robots.example"} <= held
    found = (await service.http.get("/v1/crawls/shop/prices/pace?limit=20")).json()
    assert found["workers"] == 1
    causes = {item["domain"].partition(".")[0]: item for item in found["items"]}
    assert {name: item["limited_by"] for name, item in causes.items()} == {
        "plain": "policy", "asked": "policy", "robots": "robots", "site": "site", "off": "paused", "list": "blacklist",
    }  # fmt: skip
    assert (causes["robots"]["used"], causes["robots"]["hits"], causes["robots"]["least_seconds"]) == (1, 1, 20)
    assert [item["domain"] for item in found["items"][:2]] == ["off.example", "robots.example"]  # longest first
    assert (found["items"][0]["window"], found["items"][0]["least_seconds"]) == (None, None)
    await service.http.post("/v1/crawls", json=crawl("https://alone.example/", crawlid="fast", rate="5/10"))
    [fast] = (await service.http.get("/v1/crawls/shop/fast/pace")).json()["items"]
    assert (fast["limited_by"], fast["hits"], fast["window"], fast["least_seconds"]) == ("crawl", 5, 10, 2)
    record = RobotsRecord(RobotsOutcome.RULES, 1000.0, b"User-agent: *\nDisallow: /a")
    await frontier.save_robots("plain.example", "https://plain.example", pack(record), ttl_seconds=60)
    load = (await service.http.get("/v1/domains/plain.example/load")).json()
    used = sum(lease.domain == "plain.example" for lease in leases)
    assert load["limits"] == [{"cause": "policy", "hits": 4, "window": 2, "used": used}]
    assert (load["in_flight"], load["is_paused"]) == (used, False)
    [robots] = load["robots"]
    assert (robots["outcome"], robots["text"]) == ("rules", "User-agent: *\nDisallow: /a")
    assert (await service.http.get("/v1/domains/site.example/load")).json()["blocked_until"] > 1e9
    assert (await service.http.get("/v1/domains/a..b/load")).status_code == 400
    await worker.close()


async def test_pages_that_may_have_no_end_are_named_with_the_fields_that_bound_them(service: Service) -> None:
    """Several workers count them, each its own; few patterns of a run are kept, and those of other runs are not."""
    await service.http.post("/v1/crawls", json=crawl("https://a.example/"))
    frontier, crawl_id = service.context.frontier, CrawlId("shop", "prices")
    run = await frontier.latest_run(crawl_id)
    assert run is not None
    pattern, example = "https://a.example/cal?month=*", "https://a.example/cal?month=230"
    for pages, depth in ((200, 201), (30, 90)):
        await frontier.note_growth(run, pattern, PatternCount(Growth.DEEP, pages, depth, example), pages=pages)
    for number in range(30):
        count = PatternCount(Growth.DEEP, 1, 30, f"https://a.example/{number}")
        await frontier.note_growth(run, f"https://a.example/{number}", count, pages=1)
    info = await frontier.crawl_info(crawl_id)
    assert info is not None
    assert len(info.growing) == 20
    [shown] = (await service.http.get("/v1/crawls/shop/prices")).json()["growing"]
    assert (shown["pattern"], shown["pages"], shown["depth"], shown["example"]) == (pattern, 230, 201, example)
    assert '"pattern_max_pages": N' in shown["advice"]
    await frontier.note_growth(
        msgspec.structs.replace(run, number=run.number + 1), pattern, PatternCount(Growth.DEEP, 9, 9, example), pages=9
    )
    info = await frontier.crawl_info(crawl_id)
    assert info is not None
    assert info.growing[pattern].pages == 230
