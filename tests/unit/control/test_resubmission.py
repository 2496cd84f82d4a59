"""A request that submits a crawl again has every option of its submission, or names what it lacks."""

from typing import Any

import msgspec
import pytest

from gossamer.control.resubmission import RepeatedSubmission, request_of
from gossamer.model.logouts import NEVER_FOLLOWED
from gossamer.model.messages.reader import schema
from gossamer.model.messages.requests import CrawlRequest

NAMES = {"appid": "shop", "crawlid": "old"}
KEPT: dict[str, list[Any]] = {
    "maxdepth": [0, 3], "max_pages": [7], "domain_max_pages": [4], "allowed_domains": [["a.test"]],
    "allow_regex": [["/a"]], "deny_regex": [["/b"]], "deny_extensions": [[], ["pdf"]], "useragent": ["Bot/1"],
    "attrs": [{"a": 1}], "headers": [{"X-Team": "a"}], "rate": ["5/2"], "domain_concurrency": [2], "order": ["lifo"],
    "query_order": ["ignored"], "pattern_max_pages": [9], "path_repeats": [0, 1], "drop_parameters": [["utm_*"]],
    "unique": [["sku"]], "sitemaps": [True], "links": [True], "text": [True], "markdown": [True],
    "assets": [["images"]], "max_assets": [5], "session": ["cookies"], "login": ["shop"], "ignore_robots": [True],
    "timeout": [2.5], "retries": [0, 2], "render": [True, "auto"], "render_match": [["/a"]],
    "render_step": [["scroll 3"]], "render_screenshot": ["page"], "render_capture": [["/api"]], "render_seconds": [9.0],
    "render_quiet": [0.5], "render_other_sites": ["none"], "render_load": [["images"]],
}  # fmt: skip
"""Values of fields that are kept."""
LACKING: dict[str, Any] = {
    "cookie": "a=b", "proxy": "http://proxy.test:1", "headers": {"Authorization": "x"}, "recrawl": {"budget": "9/h"},
    "extract": {"fields": {"title": "h1"}},
}  # fmt: skip
"""Values of fields that are named as lacking."""
OF_ONE_URL = {"url", "priority", "method", "body", "body_base64"}
OF_ONE_TIME = {"expires", "fresh", "wait_for_spider", "wait_for_browser"}
WITH_OTHERS = {"spiderid", "chunk", "text_in", "headers_for", "secret_headers"}
"""The spider is a parameter, the form of chunks has a test of its own, and the others concern secrets."""


def again(**options: Any) -> RepeatedSubmission:
    submitted = msgspec.convert({"url": "http://a.test/", **NAMES, **options}, CrawlRequest)
    terms = submitted.terms(domain_max_pages=None, domain_max_pending=None)
    return request_of(submitted.crawl(idle_seconds=1.0), terms, spider="link")


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in KEPT.items() for value in values])
def test_an_option_is_kept(name: str, value: Any) -> None:
    assert again(**{name: value}) == RepeatedSubmission({"maxdepth": 0, **NAMES, name: value}, [])


@pytest.mark.parametrize("name", LACKING)
def test_what_is_not_kept_is_named(name: str) -> None:
    made = again(**{name: LACKING[name]})
    assert (made.left_out, name in made.request) == ([name], False)


@pytest.mark.parametrize(("chunk", "place"), [(None, "items"), (None, "both"), (300, "records"), (300, "both")])
def test_the_place_of_texts_is_kept(chunk: int | None, place: str) -> None:
    made = again(text=True, chunk=chunk, text_in=place).request
    assert (made.get("chunk"), made["text_in"]) == (chunk, place)


@pytest.mark.parametrize("session", [{"session": "cookies"}, {"login": "shop"}])
def test_expressions_that_a_session_brings_are_left_out(session: dict[str, str]) -> None:
    made = again(**session, deny_regex=["/x", *NEVER_FOLLOWED[:1]]).request
    assert made == {"maxdepth": 0, **NAMES, **session, "deny_regex": ["/x"]}


def test_every_field_of_a_request_is_kept_or_named() -> None:
    known = {*KEPT, *LACKING, *OF_ONE_URL, *OF_ONE_TIME, *WITH_OTHERS, *NAMES}
    assert set(schema("crawl")["properties"]) == known
