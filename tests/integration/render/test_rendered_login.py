"""Rendered pages behind a login: one jar for the page, its scripts and the crawl, and a new login builds them anew."""

import asyncio
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from gossamer.fakeweb import WebSpec, html, serve
from gossamer.model.record import PageRecord
from gossamer_fakeweb.members import Members
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
