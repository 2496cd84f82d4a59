"""What a rendered page did: answers in JSON, errors in the console, requests that failed."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

import gossamer
from gossamer.errors import BadInput
from gossamer.fakeweb import Answer, WebSpec, html, serve
from gossamer.model.record import CapturedAnswer, FailedLoad, PageRecord
from tests.integration.render.building import building
from tests.servers.crawling import FAST_FLAGS, records_of
from tests.servers.crawling import gossamer as run_gossamer

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)


def data(body: bytes, *, kept: bool = False) -> Answer:
    """An answer in JSON. `kept`: it may be used again."""
    cache = (("Cache-Control", "max-age=600"),) if kept else ()
    return Answer(headers=(("Content-Type", "application/json"), *cache), body=body)


async def test_answers_that_a_page_fetches_are_captured() -> None:
    async with building() as builder:
        builder.captures = lambda url: "/api/" in url
        builder.page("/api/items", data(b'{"items": [1, 2, 3], "large": 123456789012345678901234567890}', kept=True))
        builder.page("/api/text", data(b"no data"))
        builder.page("/api/deep", data(b"[" * 5000 + b"]" * 5000))
        builder.page("/api/long", data(b'"' + b"x" * 5_000_000 + b'"'))
        builder.page("/other", data(b"[]"))
        paths = "['/api/items', '/api/text', '/api/deep', '/api/long', '/other']"
        builder.page("/page", f"<h1>page</h1><script>{paths}.forEach(path => fetch(path))</script>")
        first, again = await builder.build("/page"), await builder.build("/page")
        for page in (first, again):  # the cache answers the second time
            assert page.rendering is not None
            url = f"http://shop.test:{builder.web.port}/api/items"
            expected = {"items": [1, 2, 3], "large": 123456789012345678901234567890}
            assert page.rendering.answers == (CapturedAnswer(url=url, method="GET", status=200, data=expected),)
            assert page.rendering.answers_left_out == 3


async def test_errors_of_the_console_and_failed_requests_are_noted() -> None:
    script = (
        "console.log('fine'); console.error('broken', 7); fetch('/missing');"
        "setTimeout(() => { throw new Error('thrown') }); Promise.reject(new Error('rejected'))"
    )
    async with building() as builder:
        builder.page("/page", f"<h1>page</h1><script>{script}</script>")
        builder.page("/next", "<h1>next</h1>")
        builder.page("/missing", html("none", status=404))
        found = (await builder.build("/page")).rendering
        assert found is not None
        heard = {text.splitlines()[0] for text in found.console}
        assert heard == {"broken 7", "Error: thrown", "Error: rejected"}
        url = f"http://shop.test:{builder.web.port}/missing"
        assert found.failed == (FailedLoad(url=url, reason="http_404"),)
        found = (await builder.build("/next")).rendering
        assert found is not None
        assert (found.console, found.failed) == ((), ())


async def test_a_page_that_floods_the_console_is_bounded_and_the_next_one_is_heard() -> None:
    async with building(browser__tabs=1) as builder:
        flood = "for (let n = 0; n < 3000; n++) console.error('x'.repeat(9999))"
        builder.page("/flood", f"<h1>flood</h1><script>{flood}</script>")
        builder.page("/next", "<h1>next</h1><script>console.error('heard')</script>")
        found = (await builder.build("/flood")).rendering
        assert found is not None
        assert len(found.console) == 20
        assert {len(text) for text in found.console} == {500}
        found = (await builder.build("/next")).rendering
        assert found is not None
        assert found.console == ("heard",)


async def test_commands_and_programs_get_a_rendered_page(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/data", data(b"[1]"))
        script = "fetch('/data').then(() => { document.body.innerHTML = '<h1>built</h1>'; console.error('broken') })"
        web.mount("shop.test", "/", html(f"<body><script>{script}</script>"))
        url = f"http://shop.test:{web.port}/"
        shell = ("shell", url, "--render", "--resolve", "shop.test:127.0.0.1", "-c", "css('h1::text').get()")
        crawl = ("crawl", url, "--resolve", "shop.test:127.0.0.1", *FAST_FLAGS, "--render", "always", "-o", "a.jsonl")
        capture = ("--render-capture", "/data$")
        shown, crawled, page, plain = await asyncio.gather(
            asyncio.to_thread(run_gossamer, *shell, cwd=tmp_path),
            asyncio.to_thread(run_gossamer, *crawl, *capture, cwd=tmp_path),
            asyncio.to_thread(gossamer.get, url, resolve={"shop.test": "127.0.0.1"}, render=True),
            asyncio.to_thread(gossamer.get, url, resolve={"shop.test": "127.0.0.1"}),
        )
    assert shown.stdout == "built\n", shown.stderr
    assert page.css("h1::text").get() == "built"
    assert page.record.rendering is not None
    assert page.record.rendering.console == ("broken",)
    assert plain.css("h1::text").get() is None
    assert crawled.returncode == 0, crawled.stderr
    (record,) = records_of(tmp_path / "a.jsonl")
    assert isinstance(record, PageRecord)
    assert record.rendering is not None
    assert [answer.data for answer in record.rendering.answers] == [[1]]


def test_render_of_get_is_true_or_false() -> None:
    with pytest.raises(BadInput, match="render: cannot use 'auto'"):
        gossamer.get("http://shop.invalid/", render="auto")  # type: ignore[typeddict-item]
