"""The operator's limits on crawl requests, in a running service."""

from pathlib import Path
from typing import Any

from gossamer.fakeweb import WebSpec, html, serve
from tests.servers.service import talking, up

ALLOWED = 3
PAGES = 10


async def test_no_request_gets_more_pages_of_a_domain_than_the_operator_allows(tmp_path: Path) -> None:
    """A request without the field, and one with 0, once had no limit at all."""
    asked: dict[str, dict[str, Any]] = {
        "absent": {},
        "null": {"domain_max_pages": None},
        "unlimited": {"domain_max_pages": 0},
        "more": {"domain_max_pages": ALLOWED + 5},
        "less": {"domain_max_pages": ALLOWED - 1},
    }
    expected = {name: ALLOWED - 1 if name == "less" else ALLOWED for name in asked}
    links = "".join(f'<a href="/{number}">{number}</a>' for number in range(PAGES))
    mounts = {("a.test", "/"): html(links)} | {("a.test", f"/{number}"): html("a page") for number in range(PAGES)}
    environment = {"GOSSAMER_SERVICE__MAX_DOMAIN_PAGES": str(ALLOWED)}
    async with serve(WebSpec(hosts=1, pages=1), mounts=mounts) as web:
        with up(tmp_path, "--resolve", "a.test:127.0.0.1", environment=environment) as service:
            async with talking(service) as talk:
                url = f"http://a.test:{web.port}/"
                for name, fields in asked.items():
                    await talk.say({"appid": "testapp", "crawlid": name, "url": url, "maxdepth": 1, **fields})
                for name in asked:
                    await talk.event("finished", name)  # its pages were published before
                crawled = await talk.until(
                    talk.topics.crawled_by("testapp"), lambda found: len(found) >= sum(expected.values())
                )
    fetched = [message["crawlid"] for message in crawled if message["status_code"] == 200]
    assert {name: fetched.count(name) for name in asked} == expected
