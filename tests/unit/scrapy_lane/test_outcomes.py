"""Outcomes of responses: they must agree with Scrapy's HttpErrorMiddleware, which decides whether a callback runs."""

from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.spidermiddlewares.httperror import HttpError, HttpErrorMiddleware
from scrapy.utils.test import get_crawler

from gossamer.scrapy.leasing import OutcomeRules


class Active:
    """The part of an ActiveLease that the rules use."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.reason = ""

    def fail(self, reason: str) -> None:
        self.reason = reason


@pytest.mark.parametrize("status", [200, 204, 301, 404, 500])
@pytest.mark.parametrize("meta", [{}, {"handle_httpstatus_list": [404]}, {"handle_httpstatus_all": True}])
@pytest.mark.parametrize("spider_list", [None, [], [500]])
@pytest.mark.parametrize("settings", [{}, {"HTTPERROR_ALLOWED_CODES": [301]}, {"HTTPERROR_ALLOW_ALL": True}])
def test_a_response_is_a_page_where_scrapy_calls_the_callback(
    status: int, meta: dict[str, Any], spider_list: list[int] | None, settings: dict[str, Any]
) -> None:
    crawler = get_crawler(Spider, settings)
    spider = Spider.from_crawler(crawler, name="example")
    if spider_list is not None:
        spider.handle_httpstatus_list = spider_list  # type: ignore[attr-defined]
    crawler.spider = spider
    request = Request("http://a.test/", meta=meta)
    response = Response(request.url, status=status, request=request)
    try:
        HttpErrorMiddleware.from_crawler(crawler).process_spider_input(response)
        expected = ""
    except HttpError:
        expected = f"http_{status}"
    active: Any = Active(request)
    OutcomeRules(spider, Settings(settings)).apply(active, response)
    assert active.reason == expected
