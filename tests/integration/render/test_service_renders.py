"""A service with a browser builds pages by the rules of the request that asks for it."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gossamer.fakeweb import Answer, WebSpec, html, serve
from gossamer.model.assets import ASSET_SPIDER
from tests.servers.service import talking, up

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

PAGE = """<body><div id=cookies><button class=accept onclick="this.parentNode.remove(); show()">yes</button></div>
<script>const show = () => fetch('/api/items').then(answer => answer.json()).then(items =>
  document.body.insertAdjacentHTML('beforeend', items.map(one => `<h1>${one}</h1>`).join('')))</script>"""
ITEMS = Answer(body=b'["hat", "shoe"]', headers=(("Content-Type", "application/json"),))


async def test_steps_answers_and_a_screenshot_of_a_request(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html(PAGE))
        web.mount("shop.test", "/api/items", ITEMS)
        with up(tmp_path, "--render", "--resolve", "*:127.0.0.1") as service:
            request = {
                "appid": "testapp", "crawlid": "built", "url": f"http://shop.test:{web.port}/", "render": "auto",
                "render_step": ["consent .accept", "wait h1 5"], "render_capture": ["/api/"],
                "render_screenshot": "h1", "wait_for_browser": True,
            }  # fmt: skip
            async with talking(service) as talk:
                await talk.say(request)
                topic = talk.topics.crawled_by("testapp")
                found: list[dict[str, Any]] = await talk.until(topic, lambda found: len(found) == 2)
    page = next(record for record in found if record.get("rendering"))
    image = next(record for record in found if record is not page)
    assert page["rendering"]["steps"] == [1, 1]
    assert [answer["data"] for answer in page["rendering"]["answers"]] == [["hat", "shoe"]]
    assert page["rendering"]["screenshot"] == "taken"
    assert (page["rendering"]["because"], page["render_choice"]) == ("auto", "rendered:sample")
    assert "<h1>shoe</h1>" in page["body"]
    assert (image["spiderid"], image["content_type"], image["render_choice"]) == (ASSET_SPIDER, "image/png", "")
    assert image["request_id"] != page["request_id"], "consumers tell repeated records by it"
