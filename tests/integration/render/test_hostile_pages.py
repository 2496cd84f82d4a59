"""Pages that would keep a browser for ever, or fill it: each is bounded, and the crawl goes on."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from gossamer.fakeweb import WebSpec, html, redirect, serve
from gossamer.model.record import PageRecord
from tests.servers.crawling import FAST_FLAGS, gossamer, records_of

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

HOSTILE = {
    "loop": "while (true) {}",
    "load-loop": "onload = () => { while (true) {} }",
    "promises": "const f = () => Promise.resolve().then(f); f()",
    "timers": "setInterval(() => document.title += 1, 1)",
    "requests": "for (let n = 0; n < 10000; n++) fetch('/data?' + n).catch(() => 0)",
    "endless": "let n = 0; const f = () => fetch('/data?' + n++).then(f, f); f()",
    "redirected": "fetch('/circle').catch(() => 0)",
    "moving": "location.href = '/moving'",
    "reloading": "location.reload()",
    "dialogs": "for (let n = 0; n < 50; n++) { alert(n); confirm(n); prompt(n) }",
    "leaving": "onbeforeunload = e => { e.preventDefault(); return 'stay' }",
    "popups": "for (let n = 0; n < 50; n++) window.open('/page?' + n)",
    "downloads": "for (let n = 0; n < 20; n++) { const a = document.createElement('a');"
    "a.href = URL.createObjectURL(new Blob(['x'])); a.download = 'x' + n; document.body.append(a); a.click() }",
    "history": "for (let n = 0; n < 2000; n++) history.pushState(n, '', '/history?' + n); history.back()",
    "huge": "document.body.innerHTML = '<p>' + 'x'.repeat(30 * 1024 * 1024)",
    "many": "document.body.innerHTML = '<b>x</b>'.repeat(300000)",
    "deep": "let at = document.body; for (let n = 0; n < 20000; n++) at = at.appendChild(document.createElement('i'))",
    "sockets": "for (let n = 0; n < 500; n++) new WebSocket('ws://' + location.host + '/' + n)",
    "workers": "for (let n = 0; n < 20; n++) new Worker(URL.createObjectURL(new Blob(['while (true) {}'])))",
    "service": "navigator.serviceWorker && navigator.serviceWorker.register('/service.js')",
    "frames": "if (window.name.length < 30) for (let n = 0; n < 3; n++) { const f = document.createElement('iframe');"
    "f.name = window.name + 'x'; f.src = '/page?' + f.name + n; document.body.append(f) }",
    "replaced": "document.open(); document.write('<h1>replaced</h1>'); document.close()",
    "prototype": "Promise = MutationObserver = document.createElement = null; Array.prototype[Symbol.iterator] = 1",
    "halves": "alert('\\ud83d'); document.title = '\\udc00';"
    "document.body.innerHTML = '<h1>half \\ud83d, \\ud83d\\ude00</h1>'",
    "half-requests": "fetch('/page?\\ud83d', {method: 'POST', body: '\\udc00'}); window.open('/page', '\\ud83d');"
    "const a = document.createElement('a'); a.href = 'data:,x'; a.download = '\\ud83d';"
    "document.body.append(a); a.click()",
    "recursion": "const f = () => f(f()); try { f() } catch {} document.body.innerHTML = '<h1>done</h1>'",
}


NAMES = sorted(HOSTILE)
THIRDS = (NAMES[::3], NAMES[1::3], NAMES[2::3])


@pytest.mark.parametrize("names", THIRDS, ids=", ".join)
async def test_each_is_bounded_and_the_crawl_goes_on(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "gossamer.toml").write_text(
        "[browser]\nseconds = 2.0\nmax_requests = 50\n[fetch]\nretry_base = 0.1\nmax_body = 2000000\n"
    )
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        links = "".join(f"<a href='/hostile/{name}'>x</a>" for name in names)
        web.mount("shop.test", "/", html(f"<h1>start</h1>{links}<a href='/healthy'>x</a>"))
        for name in names:
            web.mount("shop.test", f"/hostile/{name}", html(f"<h1>{name}</h1><script>{HOSTILE[name]}</script>"))
        web.mount("shop.test", "/circle", redirect("/circle"))
        web.mount("shop.test", "/moving", html("<script>location.href = '/hostile/moving'</script>"))
        web.mount("shop.test", "/healthy", html("<script>document.write('<h1>well</h1>')</script>"))
        run = await asyncio.to_thread(
            gossamer,
            *("crawl", f"http://shop.test:{web.port}/", "--resolve", "shop.test:127.0.0.1", *FAST_FLAGS),
            *("--render", "always", "--retries", "1", "-o", "pages.jsonl", "--max-pages", "60"),
            cwd=tmp_path,
        )
        asked = [record.path for record in web.log()]
    pages = {
        record.url.partition(f":{web.port}")[2]: record
        for record in records_of(tmp_path / "pages.jsonl")
        if isinstance(record, PageRecord)
    }
    assert run.returncode == 0, run.stderr
    assert {"/", "/healthy"} | {f"/hostile/{name}" for name in names} <= set(pages)
    assert "<h1>well</h1>" in pages["/healthy"].body
    reasons = {"", "browser_hung", "browser_crashed", "redirect_loop"}
    assert {page.reason for path, page in pages.items() if path.startswith("/hostile/")} <= reasons
    assert sum(path.startswith("/data") for path in asked) <= 3 * 50
    assert all(len(page.body) <= 2_000_000 for page in pages.values())
    assert "halves" not in names or "<h1>half \ufffd, \U0001f600</h1>" in pages["/hostile/halves"].body
    assert all(not pages[f"/hostile/{name}"].reason for name in names if name.startswith("half"))
    assert "replaced" not in names or "<h1>replaced</h1>" in pages["/hostile/replaced"].body


async def test_a_page_with_many_hosts_loads_few_bytes_more_than_it_may(tmp_path: Path) -> None:
    (tmp_path / "gossamer.toml").write_text("[browser]\nseconds = 5.0\nmax_bytes = 1000000\n")
    script = "for (let n = 0; n < 60; n++) fetch(`http://h${n}.shop.test:${location.port}/big`, {mode: 'no-cors'})"
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html(f"<h1>many hosts</h1><script>{script}</script>"))
        for number in range(60):
            web.mount(f"h{number}.shop.test", "/big", html("x" * 500_000))
        run = await asyncio.to_thread(
            gossamer,
            *("crawl", f"http://shop.test:{web.port}/", "--resolve", "*:127.0.0.1", *FAST_FLAGS),
            *("--render", "always", "-o", "pages.jsonl"),
            cwd=tmp_path,
        )
        asked = [record.path for record in web.log()]
    assert run.returncode == 0, run.stderr
    assert 2 <= asked.count("/big") <= 2 + 16
