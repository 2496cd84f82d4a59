"""Everything that goes out is as its schema says."""

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from gossamer.model.crawl import CrawlEvent, CrawlId, CrawlState
from gossamer.model.info import AppInfo
from gossamer.model.messages import answers
from gossamer.model.messages.reader import schema
from gossamer.model.record import ItemRecord, PageRecord, RecordLink, RedirectHop

ID = CrawlId("testapp", "abc")
NOW = 1700000000.75
SHARES = {"a.com": {10: 2, -9: 1}, "b.com": {50: 4}}


def check(name: str, message: dict[str, Any]) -> dict[str, Any]:
    """The message as a consumer gets it, once its schema takes it."""
    received: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(message))
    jsonschema_rs.validator_for(schema(name)).validate(received)
    return received


WHOLE = AppInfo(waiting=7, crawls=1, domains=2)


def backlog(**changes: Any) -> answers.CrawlBacklog:
    facts = {"total": 7, "domains": SHARES, "total_domains": 2, "expires": 1893456000}
    return answers.CrawlBacklog(ID, **{**facts, **changes})


def crawl_info(**changes: Any) -> dict[str, Any]:
    return answers.crawl_info(backlog(**changes), uuid="7", spider="link", now=NOW)


def app_info(**changes: Any) -> dict[str, Any]:
    crawls = [backlog(**changes)]
    return answers.app_info("testapp", uuid="7", spider="link", totals=WHOLE, crawls=crawls, cursor="", now=NOW)


def test_information_about_a_crawl() -> None:
    answer = check("info", crawl_info())
    assert answer["domains"] == {
        "a.com": {"total": 3, "high_priority": 10, "low_priority": -9},
        "b.com": {"total": 4, "high_priority": 50, "low_priority": 50},
    }
    assert answer["expires"] == "1893456000"
    assert answer["server_time"] == 1700000000
    assert "expires" not in check("info", crawl_info(expires=0, domains={}, total=0, total_domains=0))


def test_information_about_an_application() -> None:
    answer = check("info_app", app_info())
    assert (answer["total_pending"], answer["total_crawlids"]) == (7, 1)
    assert answer["crawlids"]["abc"]["expires"] == 1893456000
    assert "expires" not in check("info_app", app_info(expires=0))["crawlids"]["abc"]
    nothing = answers.app_info(
        "testapp", uuid="7", spider="link", totals=AppInfo(0, 0, 0), crawls=[], cursor="0:7", now=NOW
    )
    assert check("info_app", nothing)["total_pending"] == 0
    assert (nothing["cursor"], "cursor" in answer) == ("0:7", False)


def test_information_in_the_form_of_1_0() -> None:
    crawl = check("info_1_0", answers.info_1_0(crawl_info()))
    assert (crawl["high_priority"], crawl["low_priority"], crawl["expires"]) == (50, -9, "1893456000")
    app = check("info_app_1_0", answers.info_1_0(app_info()))
    assert app["total_domains"] == 2
    assert app["crawlids"] == {"abc": {"total": 7, "high_priority": 50, "low_priority": -9, "expires": "1893456000"}}
    idle = answers.info_1_0(crawl_info(total=0, domains={}, total_domains=0, expires=0))
    assert check("info_1_0", idle)["high_priority"] == 0


def test_information_in_the_form_of_1_0_leaves_the_answer_as_it_was() -> None:
    answer = app_info()
    answers.info_1_0(answer)
    assert answer == app_info()


def test_stopped_on_request() -> None:
    answer = check("stop", answers.stop_answer(ID, uuid="7", spider="link", purged=3, now=NOW))
    assert (answer["action"], answer["total_purged"]) == ("stop", 3)


@pytest.mark.parametrize("action", schema("domain")["properties"]["action"]["enum"])
def test_domain_changed(action: str) -> None:
    facts = {"uuid": "7", "appid": "testapp", "action": action, "domain": "a.com", "now": NOW}
    assert "error" not in check("domain_answer", answers.domain_changed(**facts))
    assert check("domain_answer", answers.domain_changed(**facts, error="no"))["error"] == "no"


@pytest.mark.parametrize("message", schema("stats_answer")["examples"], ids=lambda message: message["stats"])
def test_statistics(message: dict[str, Any]) -> None:
    body = {name: part for name, part in message.items() if name not in ("stats", "uuid", "appid", "server_time")}
    answer = answers.stats(body, kind=message["stats"], uuid=message["uuid"], appid=message["appid"], now=NOW)
    assert check("stats_answer", answer) == message


@pytest.mark.parametrize("spider", ["", "link"])
@pytest.mark.parametrize("kind", [CrawlState.FINISHED, CrawlState.STOPPED, CrawlState.EXPIRED])
def test_events(kind: CrawlState, spider: str) -> None:
    """Told again, they are the same: nothing in them is of the moment of telling."""
    told = CrawlEvent(event_id="ab" * 16, kind=kind, crawl=ID, run=2, spider=spider, at=NOW, purged=5)
    event = check(kind.value, answers.event(told, now=NOW + 60))
    assert event == answers.event(told, now=NOW + 120)
    assert (event["spiderid"], event["server_time"]) == (spider, 1700000000)


def test_rejected_names_what_it_can_of_the_request() -> None:
    given = {"uuid": 5, "appid": "a" * 500, "crawlid": "abc", "spiderid": None, "url": "x" * 5000, "other": "secret"}
    answer = check("rejected", answers.rejected(given, field="uuid", reason="must be a string", now=NOW))
    assert answer == {
        "appid": "a" * 100,
        "crawlid": "abc",
        "url": "x" * 2000,
        "action": "rejected",
        "field": "uuid",
        "reason": "must be a string",
        "server_time": 1700000000,
    }
    check("rejected", answers.rejected({}, field="", reason="the message is not JSON", now=NOW))


def test_duplicate() -> None:
    check("duplicate", answers.duplicate(ID, spider="link", url="http://a.com/", now=NOW))


def test_dead_letter() -> None:
    letter = answers.dead_letter("demo.incoming", "/w==", "base64", field="", reason="this is not UTF-8", now=NOW)
    assert check("dead_letter", letter)["timestamp"] == NOW


def page(**changes: Any) -> PageRecord:
    facts: dict[str, Any] = {
        "appid": "testapp",
        "crawlid": "abc",
        "spiderid": "link",
        "request_id": "0a" * 16,
        "attempt": 0,
        "depth": 1,
        "url": "http://a.com/",
        "response_url": "http://a.com/x",
        "status_code": 200,
        "status_msg": "OK",
        "response_headers": {"Set-Cookie": ["a=1", "b=2"]},
        "request_headers": {"User-Agent": ["x"]},
        "body": "hello",
        "body_encoding": "text",
        "encoding": "utf-8",
        "content_type": "text/html",
        "links": [RecordLink("http://a.com/y", "y")],
        "attrs": None,
        "timestamp": "2030-01-01T12:00:00.000000",
        "success": True,
        "reason": "",
        "exception": "",
        "redirects": [RedirectHop("http://a.com/", 301)],
        "timings": {"dns": 0.0, "total": 0.5},
        "ip": "192.0.2.1",
        "truncated": False,
    }
    return PageRecord(**{**facts, **changes})


ITEM = ItemRecord(
    appid="testapp",
    crawlid="abc",
    spiderid="shop",
    request_id="0a" * 16,
    attempt=0,
    url="http://a.com/",
    attrs=None,
    timestamp="2030-01-01T12:00:00.000000",
    item={"price": 1},
)


def test_pages_and_items() -> None:
    check("page", msgspec.to_builtins(page()))
    check("page", msgspec.to_builtins(page(success=False, reason="dns", status_code=0, ip="", timings={}, links=[])))
    check("item", msgspec.to_builtins(ITEM))


@pytest.mark.parametrize("attrs", [None, {}, {"a": 1}])
def test_pages_and_items_in_the_form_of_1_0(attrs: dict[str, Any] | None) -> None:
    fields = msgspec.structs.asdict(page(attrs=attrs))
    sent = check("page_1_0", answers.page_1_0(fields))
    assert sent["headers"] == {"Set-Cookie": ["a=1", "b=2"]}
    assert sent["attrs"] == (attrs or {})
    assert "response_headers" in fields
    assert check("item", answers.page_1_0(msgspec.structs.asdict(ITEM)))["attrs"] == {}
