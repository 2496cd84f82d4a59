"""Tabs: one page of a site after the other, and none sees or answers for another."""

import asyncio
import os
import shutil
import signal
from typing import Any

import pytest

from gossamer.errors import BrowserCrashed, BrowserHung
from gossamer.model.rendering import RenderStep
from gossamer.render.browser import Browser
from gossamer.render.pool import BrowserPool
from gossamer.render.tab import Tab
from gossamer.wiring.browser import launch_options
from tests.chaos.browsers import find
from tests.chaos.schedule import Kind
from tests.integration.render.building import Builder, building, settings_of

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

LATE = {
    "soon": "setTimeout(() => { location.href = '/stray' }, 48 + 30 * Math.random())",
    "leaving": "onbeforeunload = onpagehide = onunload = () => { location.href = '/stray' }",
    "often": "setInterval(() => { location.href = '/stray?' + Math.random() }, 48 + 10 * Math.random())",
    "next": "setTimeout(() => { location.href = '/next' }, 48 + 30 * Math.random())",
    "kept": "addEventListener('pagehide', () => fetch('/stray', {keepalive: true}))",
    "frame": "const f = document.createElement('iframe'); document.body.append(f);"
    "setInterval(() => { f.src = '/stray?' + Math.random() }, 60)",
}


async def test_a_page_that_leads_elsewhere_late_never_gets_the_next_response() -> None:
    """Whatever a page begins when its document has been read: the next page is its own."""
    async with building(browser__tabs=1, browser__quiet=0.05) as builder:
        for name, script in LATE.items():
            builder.page(f"/late/{name}", f"<h1>late</h1><script>{script}</script>")
        builder.page("/next", "<h1>next</h1><script>document.querySelector('h1').id = location.pathname</script>")
        builder.page("/stray", "<h1>stray</h1>")
        for name in [*LATE] * 2:
            await builder.build(f"/late/{name}")
            found = await builder.build("/next")
            assert found.rendering is not None
            assert (found.moved_to, found.rendering.ended) == (None, "quiet"), name
            assert b'<h1 id="/next">' in found.body, name


async def test_a_page_that_leads_elsewhere_ends_the_wait_for_an_element() -> None:
    async with building(browser__quiet=0.05) as builder:
        builder.page("/waits", "<h1>waits</h1><script>setTimeout(() => { location.href = '/next' }, 500)</script>")
        page = await builder.build("/waits", steps=(RenderStep("wait", ".never", seconds=20.0),))
    assert page.rendering is not None
    assert (page.rendering.ended, page.rendering.steps) == ("moved", (0,))
    assert page.rendering.seconds < 10


NOWHERE = {
    "an app": "location.href = 'shop://open'",
    "a mail": "location.href = 'mailto:shop@shop.test'",
    "itself": "location.reload()",
    "a form": "const f = document.createElement('form'); f.method = 'post'; document.head.append(f); f.submit()",
}


async def test_a_page_that_tries_to_lead_where_no_page_is_has_no_load_event_and_is_complete() -> None:
    async with building(browser__tabs=1, browser__quiet=0.05) as builder:
        for number, (name, script) in enumerate(NOWHERE.items()):
            builder.page(f"/{number}", f"<h1>stays</h1><script>{script}</script>")
            page = await builder.build(f"/{number}")
            assert page.rendering is not None
            assert (page.rendering.ended, page.moved_to) == ("quiet", None), name
            assert b"<h1>stays</h1>" in page.body, name


async def test_a_page_sees_an_ordinary_window_however_small_it_is_drawn() -> None:
    script = """
    const seen = [innerWidth, innerHeight, devicePixelRatio, visualViewport.scale, visualViewport.width];
    requestAnimationFrame(() => new IntersectionObserver(([entry]) => {
      document.querySelector('h1').textContent = [...seen, entry.rootBounds.width, entry.isIntersecting].join(' ');
    }).observe(document.querySelector('h1')));
    """
    async with building(browser__tabs=1) as builder:
        builder.page("/window", f"<h1>window</h1><script>{script}</script>")
        found = await builder.build("/window")
    assert b"<h1>1280 1024 1 1 1280 1280 true</h1>" in found.body


async def test_a_browser_that_reads_nothing_is_given_up_before_it_fills_the_memory() -> None:
    browser = await Browser.start(launch_options(settings_of()))
    try:
        os.killpg(browser.process.pid, signal.SIGSTOP)
        for _ in range(8):
            browser.devtools.send("Browser.getVersion", x="x" * (1 << 20))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await browser.devtools.wait_for_room()
        with pytest.raises(BrowserHung):
            await browser.devtools.call("Browser.getVersion", seconds=0.05)
        for _ in range(100):
            browser.devtools.send("Browser.getVersion", x="x" * (1 << 20))
        with pytest.raises(BrowserCrashed):
            await browser.devtools.call("Browser.getVersion")
        assert browser.ended
    finally:
        await browser.close(kill=True)


async def test_a_page_that_ends_while_its_tab_is_free_leaves_room_for_others() -> None:
    async with building(browser__tabs=1, browser__quiet=0.05) as builder:
        builder.page("/", "<h1>page</h1>")
        await builder.build("/")
        (browser,) = builder.browsers()
        tab = await free_tab(builder)
        ended = asyncio.Event()

        def listen(method: str, event: dict[str, Any]) -> None:
            tab._on_event(method, event)
            if tab.crashed:
                ended.set()

        browser.devtools.listen(tab._session, listen)
        for pid in find(os.getpid(), Kind.KILL_RENDERER):
            os.kill(pid, signal.SIGKILL)
        await ended.wait()
        for _ in range(2):
            assert b"<h1>page</h1>" in (await builder.build("/")).body
        assert builder.browsers() == [browser]
        assert browser.tabs == 1


async def free_tab(builder: Builder) -> Tab:
    """Wait until a tab is free, and return it."""
    pool = builder.backend._pool
    assert isinstance(pool, BrowserPool)
    while pool._tasks:
        await asyncio.wait(pool._tasks)
    return pool._idle[0]
