"""Spiders use the page that is open in a browser (`Spider.on_page`)."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import BadInput, PageEnded, ScriptFailed
from gossamer.fakeweb import WebSpec, html, serve
from gossamer.model.rendering import RenderTerms
from gossamer.render.open_page import OpenPage
from tests.integration.render.building import building
from tests.servers.crawling import FAST_FLAGS, gossamer

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

PAGE = """<body><input id=q><button class=more>more</button><ul></ul><p class=no hidden>hidden</p><script>
window.state = {items: 3};
document.querySelector('.more').onclick = () => setTimeout(() =>
  document.querySelector('ul').insertAdjacentHTML('beforeend', `<li>${document.querySelector('#q').value}</li>`), 30);
</script>"""


async def test_it_clicks_fills_reads_and_runs_a_script() -> None:
    found: list[Any] = []
    kept: list[OpenPage] = []

    async def use(tab: OpenPage) -> None:
        kept.append(tab)
        found.append(tab.url.endswith("/"))
        found.append(await tab.fill("#q", "shoes"))
        found.append(await tab.click(".more", 2))
        found.append(await tab.text("ul"))
        found.append(await tab.text(".never"))
        found.append(await tab.wait("li", 2))
        found.append(await tab.wait(".never", 0.1))
        found.append(await tab.evaluate("Promise.resolve(window.state)"))
        found.append("<li>shoes</li>" in await tab.html())
        for script in ("throw new Error('oh')", "window", "("):
            with pytest.raises(ScriptFailed):
                await tab.evaluate(script)
        with pytest.raises(BadInput):
            await tab.click("a::text")

    async with building(browser__quiet=0.06) as builder:
        builder.page("/", PAGE)
        page = await builder.build("/", on_open=use)
        assert b"<li>shoes</li><li>shoes</li>" in page.body
        assert page.rendering is not None
        assert page.rendering.ended == "quiet"
        with pytest.raises(PageEnded, match="on_page has returned"):  # the tab may have another page
            await kept[0].evaluate("1")
    assert found == [True, True, 2, "shoes\nshoes", None, True, False, {"items": 3}, True]


async def test_a_page_that_moves_and_one_whose_time_is_over_end_it() -> None:
    ends: list[str] = []

    async def move(tab: OpenPage) -> None:
        try:
            await tab.evaluate("setTimeout(() => { location = '/other' })")
            await tab.wait(seconds=5)
        except PageEnded as error:
            ends.append(str(error))
            raise

    async def stay(tab: OpenPage) -> None:
        await asyncio.Event().wait()

    async with building(browser__quiet=0.06) as builder:
        builder.page("/", PAGE)
        moved = await builder.build("/", on_open=move)
        assert (moved.moved_to or "").endswith("/other")
        late = await builder.build("/", on_open=stay, terms=RenderTerms(seconds=1))
        assert late.rendering is not None
        assert late.rendering.ended == "time"
        assert b"window.state" in late.body
    assert ends == ["The open page has ended: it leads to another URL"]


SPIDER = """
from gossamer import OpenPage, Page, Spider

class Shop(Spider):
    async def on_page(self, tab: OpenPage):
        if tab.url.endswith("/broken"):
            raise ValueError("no such thing")
        await tab.fill("#q", "shoes")
        await tab.click(".more")
        return {"items": await tab.evaluate("window.state.items")}

    def parse(self, page: Page):
        yield {"url": page.url, "found": page.css("li::text").get(), "opened": page.opened}
        yield page.follow("/broken")
"""


async def test_a_spider_of_a_file_gets_the_page_and_its_error_fails_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SPIDER)
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html(PAGE))
        web.mount("shop.test", "/broken", html(PAGE))
        run = await asyncio.to_thread(
            gossamer, "crawl", f"http://shop.test:{web.port}/", "--spider", "shop.py", "--resolve", "*:127.0.0.1",
            *FAST_FLAGS, "--render", "always", "-o", "items.json", cwd=tmp_path,
        )  # fmt: skip
    (item,) = json.loads((tmp_path / "items.json").read_text())
    assert (item["found"], item["opened"]) == ("shoes", {"items": 3})
    assert "ValueError: no such thing" in run.stderr
    assert "spider_error" in run.stderr
