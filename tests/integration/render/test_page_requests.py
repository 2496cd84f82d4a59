"""What pages get for what they ask, and what they may send and take while a browser builds them."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from gossamer.fakeweb import WebSpec, html, serve
from tests.integration.render.building import building
from tests.servers.crawling import FAST_FLAGS, gossamer

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

UNNAMED = (299, 420, 999)
"""Statuses of real servers that have no reason phrase of their own."""
ASK = """<h1>asks</h1><script>
for (const status of STATUSES) fetch('/data/' + status).then(r => document.body.append(`[${r.status}]`));
fetch('/name').then(r => document.body.append(`[${r.headers.get('x-name').length}]`));
fetch('/moved').then(r => r.text()).then(text => document.body.append(`[${text}]`));
</script>"""
SEND = """<h1>sends</h1><script>
const send = n => fetch('/sent', {method: 'POST', body: 'x'.repeat(n)}).then(() => 'sent', () => 'refused');
(async () => { for (const n of [60000, 60000, 30000, 1]) document.body.append(`[${await send(n)}]`) })();
</script>"""
TAKE = """<h1>takes</h1><script>
let n = 0; const taken = [];
try { for (; n < 40; n++) taken.push(new ArrayBuffer(128 << 20)) } catch {}
document.body.append(`[${n}]`);
</script>"""


async def test_pages_get_answers_as_servers_send_them_and_have_bounds() -> None:
    async with building(browser__tabs=1, browser__quiet=0.1, browser__max_bytes=100_000) as builder:
        for status in UNNAMED:
            builder.page(f"/{status}", html("<script>document.write('<h1>built</h1>')</script>", status=status))
            builder.page(f"/data/{status}", html("{}", status=status))
            page = await builder.build(f"/{status}")
            assert (page.status, b"<h1>built</h1>" in page.body) == (status, True)
        builder.page("/name", html("", headers=(("X-Name", "caf\xe9"),)))
        builder.page("/moved", html("", status=302, headers=(("Location", "/caf\xc3\xa9"),)))  # in UTF-8, not encoded
        builder.page("/caf%C3%A9", html("there"))
        builder.page("/asks", ASK.replace("STATUSES", str(list(UNNAMED))))
        asked = (await builder.build("/asks")).body.decode()
        assert {f"[{found}]" for found in (*UNNAMED, 4, "there")} <= set(asked.rpartition("</script>")[2].split("<")[0]
            .replace("][", "] [").split())  # fmt: skip
        builder.page("/sent", html("ok"))
        builder.page("/sends", SEND)
        page = await builder.build("/sends")
        assert b"[sent][refused][sent][sent]" in page.body
        assert page.rendering is not None
        assert page.rendering.refused == 1
        builder.page("/takes", TAKE)
        taken = (await builder.build("/takes")).body
        assert any(b"[%d]" % number in taken for number in range(1, 16)), taken[-100:]


async def test_what_a_page_loads_goes_through_the_proxy_of_the_crawl(tmp_path: Path) -> None:
    """No name is resolved here: only the proxy knows these hosts."""
    loads = "<h1>sent</h1><script>fetch('/data')</script><script src=http://cdn.test/code.js></script>"
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html(loads))
        web.mount("shop.test", "/data", html("data"))
        web.mount("cdn.test", "/code.js", html("document.querySelector('h1').textContent = 'built'"))
        run = await asyncio.to_thread(
            gossamer,
            *("crawl", "http://shop.test/", "--proxy", f"http://127.0.0.1:{web.port}", *FAST_FLAGS),
            *("--render", "always", "-o", "pages.jsonl"),
            cwd=tmp_path,
        )
        asked = {(record.host, record.path) for record in web.log()}
    assert run.returncode == 0, run.stderr
    assert "<h1>built</h1>" in (tmp_path / "pages.jsonl").read_text()
    assert {("shop.test", "/data"), ("cdn.test", "/code.js")} <= asked


@pytest.mark.parametrize("trusted", ["--ca-file", "--insecure", ""])
async def test_what_a_page_loads_is_verified_as_the_page_is(trusted: str, tmp_path: Path) -> None:
    """By the same certificates; where they are not to be verified, the page's own requests are not either."""
    loads = "<h1>sent</h1><script>fetch('/data')</script><script src=https://cdn.test:PORT/code.js></script>"
    async with serve(WebSpec(hosts=1, pages=1), tls=True) as web:
        web.mount("shop.test", "/", html(loads.replace("PORT", str(web.port))))
        web.mount("shop.test", "/data", html("data"))
        web.mount("cdn.test", "/code.js", html("document.querySelector('h1').textContent = 'built'"))
        options = {"--ca-file": ("--ca-file", str(web.ca_path)), "--insecure": ("--insecure",), "": ()}[trusted]
        run = await asyncio.to_thread(
            gossamer,
            *("crawl", f"https://shop.test:{web.port}/", "--resolve", "*:127.0.0.1", *FAST_FLAGS, *options),
            *("--render", "always", "--retries", "0", "-o", "pages.jsonl"),
            cwd=tmp_path,
        )
        asked = {(record.host, record.path) for record in web.log()}
    found = (tmp_path / "pages.jsonl").read_text()
    if not trusted:
        assert (run.returncode, "certificate" in found, asked) == (1, True, set())
        return
    assert run.returncode == 0, run.stderr
    assert "<h1>built</h1>" in found
    assert {("shop.test", "/data"), ("cdn.test", "/code.js")} <= asked
