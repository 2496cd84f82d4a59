"""Scrapy processes on the shared frontier whose pages a browser builds."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.fakeweb.answer import Answer, html
from gossamer_fakeweb.scripted import STEPS, Scripted
from tests.integration.render.building import NO_SANDBOX, program_of
from tests.integration.scrapy_lane.lane import asking, prefix
from tests.servers.scraping import ROOT, Scraper
from tests.servers.valkey import Server

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

SPIDERS = ROOT / "tests" / "integration" / "scrapy_lane" / "rendering_spiders.py"
PAGES = int(os.environ.get("GOSSAMER_SCRIPTED_PAGES", "28"))
ADDON = {"ADDONS": '{"gossamer.scrapy.Addon": 0}'}
JAR = """<h1></h1><script>
document.querySelector('h1').textContent = document.cookie + (localStorage.seen || 'first');
localStorage.seen = document.cookie = 'seen=1';
</script>"""
BUILT = "<h1>sent</h1><script>document.querySelector('h1').textContent = 'built'</script>"


def scraper(folder: Path, server: Server, spider: str, seed: str, *, name: str = "one", **settings: Any) -> Scraper:
    given = {
        "GOSSAMER_FRONTIER": server.address,
        "GOSSAMER_PREFIX": prefix(folder),
        "GOSSAMER_WORKER__HEARTBEAT": "1",
        "GOSSAMER_BROWSER__QUIET": "0.1",
        "GOSSAMER_BROWSER__SANDBOX": os.environ.get("GOSSAMER_BROWSER__SANDBOX", "yes"),
        "BY": name,
        "EXTENSIONS": "{}",
        **settings,
    }
    frontier = None if "ADDONS" in settings else server.address
    return Scraper(
        folder, spider, frontier=frontier, name=name, settings=given, arguments={"seeds": seed}, file=SPIDERS
    )


@pytest.mark.parametrize(("mode", "addon"), [("always", True), ("auto", False)])
async def test_an_unmodified_spider_sees_all_pages_of_a_site_that_scripts_build(
    tmp_path: Path, server: Server, mode: str, addon: bool
) -> None:
    options = json.dumps({"steps": STEPS})
    settings = {"GOSSAMER_RENDER": mode, "GOSSAMER_RENDER_OPTIONS": options, **(ADDON if addon else {})}
    with FakeWeb.start(WebSpec(hosts=1, pages=1, scripted=PAGES)) as web:
        seed = f"http://scripted.test:{web.port}/"
        with scraper(tmp_path, server, "things", seed, **settings) as process:
            done = await asyncio.to_thread(process.finish, 300)
    assert done.exit_code == 0, done.log[-2000:]
    truth = Scripted(PAGES)
    pages = ["/" + item["page"].split("/", 3)[3] for item in done.items if "page" in item]
    items = {
        "/" + item["item"].split("/", 3)[3]: (item["name"], item["price"]) for item in done.items if "item" in item
    }
    assert sorted(pages) == sorted(truth.paths)
    assert items == truth.items
    assert done.stats["gossamer/rendered/pages"] == PAGES
    assert "ERROR" not in done.log


async def test_requests_say_what_is_rendered_and_how(tmp_path: Path, server: Server) -> None:
    """Those of two cookie jars share nothing in the browser."""
    asked = (
        "<h1>sent</h1><button id=more>more</button><script>document.querySelector('#more').onclick = async () => {"
        "const {text} = await (await fetch('/data')).json(); document.querySelector('h1').textContent = text;"
        "document.querySelector('#more').remove(); };"
        "setTimeout(() => document.body.insertAdjacentHTML('beforeend', '<p id=late>late</p>'), 150)</script>"
    )
    one_tab = {"GOSSAMER_BROWSER__TABS": "1"}
    with FakeWeb.start(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html("<h1>start</h1>"))
        for path in ("/built", "/plain", "/target"):
            web.mount("shop.test", path, html(BUILT))
        for number in (1, 2):
            web.mount("shop.test", f"/jar?{number}", html(JAR))
        web.mount("shop.test", "/asked", html(asked))
        web.mount("shop.test", "/script", html("<script>location.href = '/target'</script>"))
        data = Answer(headers=(("Content-Type", "application/json"),), body=b'{"text": "fetched"}')
        web.mount("shop.test", "/data", data)
        with scraper(tmp_path, server, "asking", f"http://shop.test:{web.port}/", **one_tab) as process:
            done = await asyncio.to_thread(process.finish, 120)
    assert done.exit_code == 0, done.log[-2000:]
    found = {item["path"]: item for item in done.items}
    assert found.keys() == {"built", "plain", "asked", "target", "jar?1", "jar?2"}
    assert {path: item["text"] for path, item in found.items()} == {
        "built": "built", "plain": "sent", "asked": "fetched", "target": "built", "jar?1": "first", "jar?2": "first",
    }  # fmt: skip
    assert [found[path]["flags"] for path in ("built", "plain", "target")] == [["rendered"], [], ["rendered"]]
    assert found["asked"]["steps"] == [1, 1]
    assert found["asked"]["answers"] == [{"text": "fetched"}]
    assert found["asked"]["screenshot"] > 1000
    assert found["built"]["type"] == "text/html; charset=utf-8"
    # What cannot be is refused where it enters, in one line each.
    assert done.stats["gossamer/dropped/bad_render"] == 5
    refusals = [line for line in done.log.splitlines() if " is dropped: meta['render']" in line]
    assert len(refusals) == 5
    assert any("there is no step 'dance'" in line for line in refusals)
    assert any("'step'" in line and "steps, wait" in line for line in refusals)


async def test_requests_to_be_rendered_wait_for_a_process_with_a_browser(tmp_path: Path, server: Server) -> None:
    """A browser without its sandbox is none."""
    with FakeWeb.start(WebSpec(hosts=1, pages=1)) as web:
        seed = f"http://shop.test:{web.port}/"
        web.mount("shop.test", "/", html(BUILT + "<a href=/built>next</a>"))
        web.mount("shop.test", "/built", html(BUILT))
        web.mount("shop.test", "/asked", html("<p id=late>late</p>"))
        without = {"GOSSAMER_BROWSER__PROGRAM": str(program_of(tmp_path, NO_SANDBOX))}
        with scraper(tmp_path, server, "asking", seed, name="none", **without) as one:
            async with asking(tmp_path, server) as frontier:
                while not (lanes := [row for row in await frontier.backlog() if row.rendering]):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                assert lanes[0].spider == "asking"
                assert not await frontier.browser_workers()
            with scraper(tmp_path, server, "asking", seed, name="some") as two:
                done = [await asyncio.to_thread(process.finish, 120) for process in (one, two)]
    assert [part.exit_code for part in done] == [0, 0], done[0].log[-2000:] + done[1].log[-2000:]
    assert [item["path"] for item in done[1].items if "rendered" in item["flags"]] in (
        ["asked", "built"],
        ["built", "asked"],
    )
    assert not [item for item in done[0].items if "rendered" in item["flags"]]
    assert "cannot use its sandbox here" in done[0].log


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"GOSSAMER_RENDER": "sometimes"}, "GOSSAMER_RENDER: 'sometimes' is neither never, auto nor always"),
        ({"GOSSAMER_RENDER_OPTIONS": '{"steps": ["dance"]}'}, "GOSSAMER_RENDER_OPTIONS: there is no step 'dance'"),
        (
            {"GOSSAMER_RENDER": "always", "GOSSAMER_BROWSER__PROGRAM": "no-such-browser"},
            "there is no program no-such-browser. Install a browser",
        ),
        ({"GOSSAMER_RENDER": "always", "GOSSAMER_BROWSER__PROGRAM": NO_SANDBOX}, "cannot use its sandbox here"),
    ],
)
def test_bad_settings_end_the_process(tmp_path: Path, server: Server, settings: dict[str, str], complaint: str) -> None:
    if settings.get("GOSSAMER_BROWSER__PROGRAM") == NO_SANDBOX:
        settings = settings | {"GOSSAMER_BROWSER__PROGRAM": str(program_of(tmp_path, NO_SANDBOX))}
    with scraper(tmp_path, server, "asking", "http://shop.test/", **settings) as process:
        done = process.finish()
    assert done.exit_code == 1
    assert [line for line in done.log.splitlines() if "CRITICAL" in line and complaint in line]
