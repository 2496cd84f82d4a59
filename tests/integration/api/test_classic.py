"""Scrapy Cluster's endpoints: its wrapper, its codes, and no request that is dropped in silence."""

import asyncio
from typing import Any

import pytest

from gossamer.model.crawl import CrawlId

from .conftest import Service, Start, in_session

CRAWL = {"appid": "shop", "crawlid": "prices", "url": "https://example.com/"}
INFO = {"uuid": "u1", "appid": "shop", "crawlid": "prices", "spiderid": "link", "action": "info"}


async def test_the_index_says_how_the_service_is(service: Service) -> None:
    for method in ("GET", "POST"):
        answer = await service.http.request(method, "/")
        assert answer.status_code == 200
        body = answer.json()
        assert body.pop("uptime_sec") >= 0
        assert len(body.pop("my_id")) == 12
        assert body == {"kafka_connected": True, "redis_connected": True, "node_health": "GREEN"}


async def test_a_crawl_is_queued_and_answered_with_nothing(service: Service) -> None:
    body = await service.feed(CRAWL)
    assert body["data"] is None
    info = await service.frontier.crawl_info(CrawlId("shop", "prices"))
    assert info is not None
    assert info.total().queued == 1


async def test_a_url_that_was_seen_is_told_as_a_duplicate(service: Service) -> None:
    await service.feed(CRAWL)
    assert (await service.feed(CRAWL))["data"]["action"] == "duplicate"


async def test_a_question_is_answered_and_the_answer_goes_out_too(service: Service) -> None:
    await service.feed(CRAWL)
    data = (await service.feed(INFO))["data"]
    assert data["uuid"] == "u1"
    assert data["total_pending"] == 1
    assert data["domains"] == {"example.com": {"total": 1, "high_priority": 1, "low_priority": 1}}
    assert service.told == [data]


async def test_one_uuid_twice_at_once_gets_an_answer_each(service: Service) -> None:
    await service.feed(CRAWL)
    stop = {**INFO, "action": "stop"}
    first, second = await asyncio.gather(service.feed(stop), service.feed(stop))
    assert {first["data"]["uuid"], second["data"]["uuid"]} == {"u1"}
    assert max(first["data"]["total_purged"], second["data"]["total_purged"]) == 1


@in_session
@pytest.mark.parametrize(
    ("sent", "message", "cause"),
    [
        (b"{", "The payload must be valid JSON.", "the message is not JSON"),
        (b"", "The payload must be valid JSON.", "the body is empty"),
        (b'{"url": "\xff"}', "The payload must be valid JSON.", "not UTF-8"),
        (b"[" * 100_000, "The payload must be valid JSON.", "levels deep"),
        (b"[1]", "JSON did not validate against schema.", "must be a JSON object"),
        (b'{"appid": "shop", "crawlid": "p"}', "JSON did not validate against schema.", "url is missing: "),
        (
            b'{"appid": "shop", "crawlid": "p", "url": "a.example", "colour": 1}',
            "JSON did not validate against schema.",
            "colour: unknown field",
        ),
        (
            b'{"appid": "shop", "crawlid": "p", "url": "a.example", "maxdepth": -1}',
            "JSON did not validate against schema.",
            "maxdepth: must be at least 0",
        ),
        (
            b'{"appid": "shop", "crawlid": "p", "url": "http://127.0.0.1/"}',
            "JSON did not validate against schema.",
            "url: 127.0.0.1 is not on the public internet",
        ),
        (
            b'{"appid": "shop", "crawlid": "p", "url": "a.example", "attrs": ' + b'{"a":' * 200 + b"1" + b"}" * 201,
            "JSON did not validate against schema.",
            "attrs: is nested more than 100 levels deep",
        ),
    ],
)
async def test_what_is_not_valid_is_refused_with_the_reason(
    shared: Service, sent: bytes, message: str, cause: str
) -> None:
    answer = await shared.http.post("/feed", content=sent)
    assert answer.status_code == 400
    body = answer.json()
    assert (body["status"], body["data"]) == ("FAILURE", None)
    assert body["error"]["message"] == message
    assert cause in body["error"]["cause"]


async def test_a_stopped_crawl_takes_no_more(service: Service) -> None:
    await service.feed(CRAWL)
    await service.feed({**INFO, "action": "stop"})
    answer = await service.http.post("/feed", json={**CRAWL, "url": "https://example.com/2"})
    assert answer.status_code == 400
    assert "is stopped" in answer.json()["error"]["cause"]


@in_session
@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"{", "The payload must be valid JSON."),
        (b"{}", "JSON did not validate against schema."),
        (b'{"poll_id": ""}', "JSON did not validate against schema."),
        (b'{"poll_id": 1}', "JSON did not validate against schema."),
        (b'{"poll_id": "x", "more": 1}', "JSON did not validate against schema."),
        (b"[]", "JSON did not validate against schema."),
    ],
)
async def test_a_poll_that_is_not_valid_is_refused(shared: Service, sent: bytes, message: str) -> None:
    answer = await shared.http.post("/poll", content=sent)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == message


@in_session
async def test_a_poll_for_nothing_is_not_found(shared: Service) -> None:
    answer = await shared.http.post("/poll", json={"poll_id": "nobody"})
    assert answer.status_code == 404
    assert answer.json() == {
        "status": "FAILURE",
        "data": None,
        "error": {"message": "Could not find matching poll_id"},
    }


@in_session
@pytest.mark.parametrize("path", ["/nothing", "/feed/", "/v2/crawls"])
async def test_what_is_not_there_says_so_in_the_wrapper(shared: Service, path: str) -> None:
    for method in ("GET", "POST"):
        answer = await shared.http.request(method, path)
        assert answer.status_code == 404
        assert answer.json()["error"]["message"] == "The desired endpoint does not exist"


@in_session
async def test_a_wrong_method_is_told_the_right_one(shared: Service) -> None:
    answer = await shared.http.get("/feed")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["status"] == "FAILURE"


async def test_what_is_fed_is_counted_with_the_others(start: Start) -> None:
    async with start() as service:
        await service.feed(CRAWL)
        await service.feed(INFO)
        await service.http.post("/feed", json={**CRAWL, "colour": 1})
        await service.http.post("/v1/crawls", json=[CRAWL, {**CRAWL, "url": "https://example.com/2"}])
    async with start() as service:  # the first one has told what it counted
        found = (await service.feed({"uuid": "u", "appid": "shop", "stats": "kafka-monitor"}))["data"]
    assert (found["total"]["900"], found["fail"]["lifetime"]) == (5, 1)
    assert found["plugins"]["ScraperHandler"]["900"] == 3
    assert found["plugins"]["ActionHandler"]["900"] == 1


async def test_all_kinds_of_questions_are_answered(service: Service) -> None:
    asked: list[dict[str, Any]] = [
        {"uuid": "a", "appid": "shop", "stats": "queue"},
        {"uuid": "b", "appid": "shop"},
        {"uuid": "c", "appid": "shop", "domain": "a.example", "action": "domain-update", "hits": 2, "window": 1},
        {"uuid": "d", "appid": "shop", "spiderid": "link", "action": "info"},
    ]
    for request in asked:
        assert (await service.feed(request))["data"]["uuid"] == request["uuid"]
