"""A tab's answers to the browser."""

from types import SimpleNamespace
from typing import Any

import pytest

from gossamer.fetch.backend import PageLoad
from gossamer.fetch.exchange import FetchRequest, FetchResponse, Timings
from gossamer.render.requests import LoadLimits, PageLoader, PageRequests
from gossamer.render.tab import Tab, _PageState
from tests.unit.render.test_backend import Http, allows


class Sent(list[str]):
    """The methods that a tab calls, in place of a browser."""

    def send(self, method: str, **parameters: Any) -> None:
        self.append(method)

    async def wait_for_room(self) -> None:
        """Implement DevTools."""


@pytest.mark.parametrize(
    ("asked", "answer", "fault"),
    [
        ("http://shop.test/", "Fetch.fulfillRequest", ""),
        ("https://shop.test/", "Fetch.failRequest", "asks for https://shop.test/ in place of http://shop.test/"),
    ],
)
async def test_a_browser_that_takes_another_scheme_does_not_get_the_document(
    asked: str, answer: str, fault: str
) -> None:
    """Chrome asks for https:// in place of http:// where it may."""
    sent: Any = Sent()
    tab = Tab(SimpleNamespace(devtools=sent), "tab", "session", "context", ("crawl", "shop.test"))  # type: ignore[arg-type]
    request = FetchRequest("http://shop.test/")
    request.page = load = PageLoad("crawl", "shop.test", FetchRequest, allows, "asked")
    response = FetchResponse(
        request.url, 200, "OK", "1.1", [], b"", b"", b"", None, False, "127.0.0.1", 80, False, Timings(), 0
    )
    requests = PageRequests(sent, "session", load, PageLoader(Http(), LoadLimits()))
    page = _PageState(request, response, requests)
    asked_for = {"url": asked, "method": "GET"}
    tab._on_paused(page, {"requestId": "1", "resourceType": "Document", "frameId": "tab", "request": asked_for})
    await requests.idle(1)
    assert sent == [answer]
    assert page.fault.endswith(fault)
    assert bool(page.fault) is bool(fault)
