"""Rendered pages behind a login: one jar for the page, its scripts and the crawl, and a new login builds them anew."""

import asyncio
import json
import os
import re
import shutil
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest

from gossamer.fakeweb import Answer, WebSpec, html, serve
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.model.record import PageRecord
from gossamer.session.site_session import SiteSession
from gossamer_fakeweb.members import Members
from tests.integration.render.building import Builder, building
from tests.servers.crawling import FAST_FLAGS, gossamer, records_of

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)


async def test_pages_that_scripts_build_have_the_session_of_the_crawl(tmp_path: Path) -> None:
    async with serve(WebSpec(members=5)) as web:
        site = web.extra_site_of("members.test")
        assert isinstance(site, Members)
        site.has_scripts = True
        base = web.site.base("members.test")
        document = {
            "accounts": {"alice": {"user": "alice", "password": {"env": "ALICE"}}},
            "login": {"form": f"{base}/login", "fields": {"user": "user", "password": "password"}},
        }
        (tmp_path / "members.json").write_text(json.dumps(document))
        flags = ("--session", "members.json", "--render", "always", "--resolve", "members.test:127.0.0.1", *FAST_FLAGS)
        run = await asyncio.to_thread(
            gossamer, "crawl", f"{base}/", *flags, "-o", "pages.jsonl", cwd=tmp_path, env={"ALICE": "wonderland"}
        )
    assert run.returncode == 0, run.stderr
    pages = [one for one in records_of(tmp_path / "pages.jsonl") if isinstance(one, PageRecord)]
    built = {"/" + page.url.split("/", 3)[3]: page for page in pages if 'id="member"' in page.body}
    assert set(built) == {"/", "/p/1", "/p/2", "/p/3", "/p/4"}
    assert site.logins == ["alice"]
    assert site.logouts == 0
    for page in built.values():
        assert re.search(r"<p>token=\d+</p>", page.body)  # what scripts may read, and not the session itself
    left = (tmp_path / "pages.jsonl").read_text()
    assert not any(name in left for name in site.session_names)


SHOWS_COOKIES = "<p id=seen></p><script>document.getElementById('seen').textContent = document.cookie</script>"
SETS_COOKIES = f"""{SHOWS_COOKIES}<a href='/next'>next</a><script>
document.cookie = 'choice=all; path=/; max-age=3600';
document.cookie = 'given=; path=/; max-age=0';
</script>"""


async def test_cookies_that_scripts_set_and_remove_are_those_of_the_crawl(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html("<a href='/app'>app</a>", headers=(("Set-Cookie", "given=1; Path=/"),)))
        web.mount("shop.test", "/app", html(SETS_COOKIES))
        web.mount("shop.test", "/next", html(SHOWS_COOKIES))
        flags = ("--session", "cookies", "--render", "always", "--resolve", "*:127.0.0.1", *FAST_FLAGS)
        arguments = ("crawl", f"http://shop.test:{web.port}/", *flags, "-o", "pages.jsonl")
        run = await asyncio.to_thread(gossamer, *arguments, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    pages = [one for one in records_of(tmp_path / "pages.jsonl") if isinstance(one, PageRecord)]
    shown = {page.url.rpartition("/")[2]: re.findall('<p id="seen">(.*?)</p>', page.body) for page in pages}
    assert shown == {"": [], "app": ["given=1"], "next": ["choice=all"]}


SCRIPT = (("Cache-Control", "max-age=3600"), ("Set-Cookie", "server=a; Path=/"))
CHANGES_AND_ASKS = """<h1>page</h1><script src=/app.js></script><script>
document.cookie = 'choice=all; path=/';
fetch('/api').then(() => document.body.append('[asked]'));
</script>"""


async def build_in(session: SiteSession, builder: Builder, path: str) -> tuple[FetchResponse, dict[str, str]]:
    """Build a page in a session. Returns it, and the Cookie headers of what it loads by paths."""
    request, sent = builder.request(path), {}

    def request_for(url: str) -> FetchRequest:
        made = FetchRequest(url, allow_private=True)
        session.add_to(made)
        return made

    async def allows(request: FetchRequest) -> bool:
        sent["/" + request.url.split("/", 3)[3]] = dict(request.headers)["Cookie"]
        return True

    given = session.script_cookies(request.url)
    assert request.page is not None
    request.page = msgspec.structs.replace(
        request.page,
        request_for=request_for,
        allows=allows,
        script_cookies=given,
        on_response=partial(session.receive, number=0),
        merge_cookies=session.merge_cookies,
        on_script_cookies=partial(session.receive_from_scripts, given, number=0),
    )
    return await builder.backend.fetch(request), sent


async def test_what_a_page_loads_has_each_cookie_once_and_as_its_scripts_left_it() -> None:
    """A script from the cache does not set again what its response set."""
    session = SiteSession("shop.test", None)
    async with building() as builder:
        url = f"http://shop.test:{builder.web.port}/"
        lines = ("choice=no; Path=/", "sid=1; Path=/; HttpOnly")
        session._stored.jar.receive(url, [("Set-Cookie", line) for line in lines], now=time.time())
        builder.page("/app.js", Answer(headers=(("Content-Type", "text/javascript"), *SCRIPT), body=b"0"))
        builder.page("/api", html("{}"))
        for number, server in enumerate("ab"):
            builder.page(f"/{number}", CHANGES_AND_ASKS)
            page, sent = await build_in(session, builder, f"/{number}")
            assert b"[asked]" in page.body
            assert sorted(sent["/api"].split("; ")) == ["choice=all", f"server={server}", "sid=1"]
            assert ("/app.js" in sent) is (number == 0)
            session._stored.jar.receive(url, [("Set-Cookie", "server=b; Path=/")], now=time.time())
