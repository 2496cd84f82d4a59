"""Which requests of a Scrapy project are rendered."""

import pytest
from scrapy import Request
from scrapy.http.request import NO_CALLBACK
from scrapy.settings import Settings

from gossamer.scrapy.render_options import RenderRules
from gossamer.settings import load


@pytest.mark.parametrize(("mode", "page"), [("always", "asked"), ("auto", "auto"), ("never", "")])
def test_pages_of_the_spider_are_rendered_and_what_scrapy_itself_downloads_is_not(mode: str, page: str) -> None:
    rules = RenderRules(Settings({"GOSSAMER_RENDER": mode}), load(config=None))
    url = "https://shop.test/robots.txt"
    assert rules.reason(Request(url)) == page
    assert rules.reason(Request(url, callback=NO_CALLBACK)) == ""
    assert not rules.is_asked(Request(url, callback=NO_CALLBACK))
    assert rules.reason(Request(url, callback=NO_CALLBACK, meta={"render": True})) == "asked"
    assert rules.reason(Request(url, meta={"render": False})) == ""
