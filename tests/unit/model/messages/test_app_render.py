"""Fields about rendered pages that the crawl requests of one application get (service.app_render)."""

from typing import Any

from gossamer.model.messages.reader import MessageReader, RequestLimits
from gossamer.model.messages.requests import CrawlRequest

READER = MessageReader(limits=RequestLimits(app_render={"shop": {"render": "auto", "render_step": ["scroll"]}}))


def request(appid: str, **fields: Any) -> CrawlRequest:
    kind, found = READER.read({"appid": appid, "crawlid": "one", "url": "http://a.test/", **fields})
    assert kind == "crawl"
    assert isinstance(found, CrawlRequest)
    return found


def test_a_request_gets_those_of_its_application() -> None:
    found = request("shop", maxdepth=1)
    assert (found.render, found.render_step, found.maxdepth) == ("auto", ("scroll",), 1)
    assert request("other").render is False


def test_one_that_says_how_pages_are_rendered_gets_none() -> None:
    found = request("shop", render=False)
    assert (found.render, found.render_step) == (False, None)


def test_other_messages_get_none() -> None:
    kind, _ = READER.read({"appid": "shop", "uuid": "u", "spiderid": "link", "action": "info"})
    assert kind == "action"
