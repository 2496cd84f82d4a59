"""Idempotency-Key of POST /v1/crawls: a repetition submits nothing again, whatever happened to the first answer."""

from typing import Any

import pytest

from gossamer.api.submit import AnswerMemory
from gossamer.model.request import Outcome, Settlement

from .conftest import Service, Start, in_session

KEY = {"Idempotency-Key": "nightly 1"}


def crawl(url: str = "https://example.com/", **fields: Any) -> dict[str, Any]:
    return {"appid": "shop", "crawlid": "prices", "url": url, "fresh": True, **fields}


async def finish(service: Service) -> None:
    """Fetch all that waits, so that the run ends."""
    worker = await service.frontier.open_leaseholder(pool="shared", spiders=["link"])
    while leases := await worker.lease(limit=10):
        await worker.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])


async def run_of(service: Service) -> tuple[str, int]:
    shown = (await service.http.get("/v1/crawls/shop/prices")).json()
    return shown["state"], shown["run"]


async def test_a_repetition_gets_the_first_answer_after_the_run_has_finished(service: Service) -> None:
    first = await service.http.post("/v1/crawls", json=crawl(), headers=KEY)
    assert (first.status_code, "idempotency-replayed" in first.headers) == (201, False)
    await finish(service)
    assert await run_of(service) == ("finished", 1)
    again = await service.http.post("/v1/crawls", json=crawl(), headers=KEY)
    assert (again.status_code, again.json()) == (201, first.json())
    assert (again.headers["idempotency-replayed"], again.headers["location"]) == ("true", first.headers["location"])
    assert await run_of(service) == ("finished", 1)
    other = await service.http.post("/v1/crawls", json=crawl(), headers={"Idempotency-Key": "nightly 2"})
    assert (other.status_code, await run_of(service)) == (201, ("running", 2))


async def test_an_answer_that_was_never_stored_begins_no_second_run(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after the submission. Each request was sent once, and none is a duplicate."""

    async def lost(self: AnswerMemory, response: Any) -> Any:
        return response

    batch = [crawl(), crawl("https://other.example/"), crawl("https://third.example/", crawlid="more")]
    with monkeypatch.context() as patch:
        patch.setattr(AnswerMemory, "keep", lost)
        assert (await service.http.post("/v1/crawls", json=batch, headers=KEY)).json()["added"] == 3
    await finish(service)
    again = await service.http.post("/v1/crawls", json=batch, headers=KEY)
    assert (again.status_code, again.json()["added"], again.json()["duplicates"]) == (207, 3, 0)
    assert await run_of(service) == ("finished", 1)
    assert (await service.http.get("/v1/crawls/shop/more")).json()["run"] == 1


async def test_another_process_knows_the_key_and_forgets_it_in_time(start: Start) -> None:
    async with start() as one, start() as other:
        first = await one.http.post("/v1/crawls", json=[crawl(), crawl("ftp://a.example")], headers=KEY)
        again = await other.http.post("/v1/crawls", json=[crawl(), crawl("ftp://a.example")], headers=KEY)
        assert (first.status_code, again.json()) == (207, first.json())
        keys = await one.context.shards.command("x", "KEYS", f"{one.context.prefix}:submitted:*")
        assert len(keys) == 2
        for key in keys:
            assert 3590 < await one.context.shards.command(key.decode(), "TTL", key) <= 3600


@in_session
async def test_a_key_is_for_one_request_and_a_refusal_is_not_remembered(shared: Service) -> None:
    headers = {"Idempotency-Key": "refused"}
    refused = await shared.http.post("/v1/crawls", json=crawl("ftp://a.example", appid="keys"), headers=headers)
    assert refused.status_code == 400
    accepted = await shared.http.post("/v1/crawls", json=crawl(appid="keys"), headers=headers)
    assert accepted.status_code == 201
    other = await shared.http.post("/v1/crawls", json=crawl(appid="keys", maxdepth=1), headers=headers)
    assert (other.status_code, other.json()["title"]) == (409, "Key used before")
    too_long = await shared.http.post("/v1/crawls", json=crawl(appid="keys"), headers={"Idempotency-Key": "k" * 201})
    assert (too_long.status_code, too_long.json()["errors"][0]["field"]) == (400, "idempotency-key")
