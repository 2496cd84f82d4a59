"""Pages that scripts build, through the whole command: a real browser, a real frontier, a site whose truth is known."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gossamer.fakeweb import Answer, Server, WebSpec, html, plain, serve
from gossamer.model.record import ItemRecord, PageRecord
from tests.servers.crawling import FAST_FLAGS, command, gossamer, records_of

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

SHELL = """<!doctype html><title>Shop</title><div id=app></div><noscript>without scripts</noscript>
<script src=/app.js></script>"""
APP = """
const app = document.getElementById('app');
fetch('/data.json').then(answer => answer.json()).then(items => {
  app.innerHTML = items.map(x => `<article><h2>Thing ${x} é</h2><a href="/thing/${x}">${x}</a></article>`).join('');
  const host = document.createElement('section');
  host.attachShadow({mode: 'open'}).innerHTML = '<a href="/in-a-shadow">shadow</a>';
  const frame = document.createElement('iframe');
  frame.src = '/frames/one';
  app.append(host, frame);
});
"""
WRITTEN = "<body><script>document.body.innerHTML = '<h1>' + location.pathname + '</h1>'</script>"


def typed(text: str, kind: str) -> Answer:
    """An answer of this type."""
    return Answer(headers=(("Content-Type", kind),), body=text.encode())


def mount_shop(web: Server, *, robots: str = "") -> None:
    """A site that shows nothing without its scripts. Its pages: the first, 3 things, a shadow's, a frame and its link,
    and one whose script leads to another page."""
    web.mount("shop.test", "/", html(SHELL))
    web.mount("shop.test", "/app.js", typed(APP, "text/javascript"))
    web.mount("shop.test", "/data.json", typed("[1, 2, 3]", "application/json"))
    web.mount("shop.test", "/frames/one", html("<a href='two'>in a frame</a>"))
    web.mount("shop.test", "/frames/two", html(WRITTEN))
    web.mount("shop.test", "/in-a-shadow", html("<script>location.href = '/moved'</script>"))
    web.mount("shop.test", "/moved", html(WRITTEN))
    for number in (1, 2, 3):
        web.mount("shop.test", f"/thing/{number}", html(WRITTEN))
    web.mount("shop.test", "/robots.txt", plain(robots))


async def crawl(folder: Path, web: Server, *options: str, exit_code: int = 0) -> list[PageRecord | ItemRecord]:
    """Crawl the shop by the command."""
    arguments = [f"http://shop.test:{web.port}/", "--resolve", "*:127.0.0.1", *FAST_FLAGS, "-o", "pages.jsonl"]
    run = await asyncio.to_thread(gossamer, "crawl", *arguments, *options, cwd=folder)
    assert run.returncode == exit_code, run.stderr
    return records_of(folder / "pages.jsonl")


def paths(records: list[PageRecord | ItemRecord]) -> set[str]:
    """Paths of the fetched pages."""
    return {
        "/" + record.url.split("/", 3)[3] for record in records if isinstance(record, PageRecord) and record.success
    }


async def test_every_page_of_a_site_that_scripts_build_is_found(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        mount_shop(web)
        records = await crawl(tmp_path, web, "--render", "always", "--field", "name=h2")
        pages = {record.url: record for record in records if isinstance(record, PageRecord)}
    things = {f"/thing/{number}" for number in (1, 2, 3)}
    assert paths(records) == {"/", "/in-a-shadow", "/frames/one", "/frames/two"} | things
    first = pages[f"http://shop.test:{web.port}/"]
    assert "Thing 3 é" in first.body
    assert "without scripts" not in first.body
    assert first.encoding == "utf-8"
    assert first.rendering is not None
    assert (first.rendering.because, first.rendering.ended, first.rendering.requests) == ("asked", "quiet", 3)
    moved = pages[f"http://shop.test:{web.port}/in-a-shadow"]
    assert (moved.response_url, moved.redirects[0].status) == (f"http://shop.test:{web.port}/moved", 200)
    assert [record.item["name"] for record in records if isinstance(record, ItemRecord)] == ["Thing 1 é"]


async def test_without_a_browser_the_site_has_one_page_which_is_empty(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        mount_shop(web)
        records = await crawl(tmp_path, web, exit_code=1)
    assert paths(records) == set()
    assert [(record.reason, record.body) for record in records if isinstance(record, PageRecord)] == [
        ("refused_empty", SHELL)
    ]


async def test_only_pages_that_match_are_rendered(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        mount_shop(web)
        records = await crawl(tmp_path, web, "--render-match", "/$")
    bodies = {record.url.rpartition("/")[2]: record.body for record in records if isinstance(record, PageRecord)}
    assert "Thing 3" in bodies[""]
    assert "<h1>" not in bodies["1"].replace("'<h1>'", "")


async def test_only_pages_that_scripts_change_are_rendered_automatically(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        mount_shop(web)
        words = "<p>" + "words " * 100
        web.mount("shop.test", "/thing/1", html(f"{words}<script>document.body.append('built')</script>"))
        web.mount("shop.test", "/thing/2", html(words))
        records = await crawl(tmp_path, web, "--render", "auto")
    assert {"/", "/in-a-shadow", "/frames/one", "/frames/two", "/thing/1", "/thing/2", "/thing/3"} == paths(records)
    found = {r.url.split("/", 3)[3]: r for r in records if isinstance(r, PageRecord)}
    assert {name: page.render_choice for name, page in found.items() if page.rendering is None} == {
        "thing/2": "plain:no_scripts",
        "frames/one": "plain:no_scripts",
    }
    reasons = [one.because for name in ("", "thing/1", "thing/3") if (one := found[name].rendering) is not None]
    assert reasons == ["auto"] * 3
    assert found["thing/1"].render_choice == "rendered:sample"


@pytest.mark.parametrize("mode", ["always", "auto"])
async def test_no_browser_gets_around_a_refusal(mode: str, tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        mount_shop(web)
        challenge = (
            "<title>Making sure you&#39;re not a bot!</title><script id='anubis_challenge'>{}</script>"
            "<body><script>fetch('/passed').then(() => { document.body.innerHTML = '<h1>In</h1>' })</script>"
        )
        web.mount("shop.test", "/thing/1", html(challenge))
        records = await crawl(tmp_path, web, "--render", mode)
        asked = {record.path for record in web.log()}
    (refused,) = [record for record in records if isinstance(record, PageRecord) and record.refusal is not None]
    assert (refused.url.partition("/thing/")[2], refused.reason, refused.rendering) == ("1", "refused_challenge", None)
    assert "/passed" not in asked


async def test_a_page_loads_nothing_that_robots_txt_forbids(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        mount_shop(web, robots="User-agent: *\nDisallow: /data.json\n")
        records = await crawl(tmp_path, web, "--render", "always")
        asked = {record.path for record in web.log()}
    assert paths(records) == {"/"}
    assert "/app.js" in asked
    assert "/data.json" not in asked


async def test_a_response_for_one_site_is_not_used_for_another(tmp_path: Path) -> None:
    """It may permit only the one that asked to read it."""
    (tmp_path / "gossamer.toml").write_text("[browser]\ntabs = 1\n")
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        script = "<script>fetch(`http://data.test:${location.port}/data`)</script>"
        for name in ("shop.test", "other.test"):
            web.mount(name, "/", html(f"{script}<a href='/again'>x</a>"))
            web.mount(name, "/again", html(script))
        headers = (("Cache-Control", "max-age=600"), ("Vary", "Origin"), ("Access-Control-Allow-Origin", "*"))
        web.mount("data.test", "/data", Answer(headers=headers, body=b"data"))
        await crawl(tmp_path, web, f"http://other.test:{web.port}/", "--render", "always")
        asked = [record.path for record in web.log()]
    assert (asked.count("/again"), asked.count("/data")) == (2, 2)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder for the temporary files of programs, which every user reaches."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    while not condition():  # noqa: ASYNC110 (other processes do it)
        await asyncio.sleep(0.05)


def strike_browser(place: Path, strike: signal.Signals) -> None:
    """Send a signal to the main process of the browser whose profile is in this folder."""
    for number, line in browsers_of(place).items():
        if "--type=" not in line and "rm -rf" not in line:
            os.kill(number, strike)


def browsers_of(place: Path) -> dict[int, str]:
    """Processes whose profile is in this folder, with their command lines."""
    found = {}
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = one.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if f"{place}/gossamer-browser-" in line:
                found[int(one.parent.name)] = line
    return found


async def test_no_process_and_no_folder_stays(tmp_path: Path, place: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        mount_shop(web)
        await crawl(tmp_path, web, "--render", "always")
    assert not os.listdir(place)
    assert not browsers_of(place)


@pytest.mark.parametrize("victim", ["crawl", "browser", "frozen browser"])
async def test_nothing_stays_of_what_is_killed(tmp_path: Path, place: Path, victim: str) -> None:
    """A killed crawl leaves no browser behind. A browser that is killed or stands still is replaced, and its pages are
    fetched again."""
    (tmp_path / "gossamer.toml").write_text("[browser]\nseconds = 2.0\n[fetch]\nretry_base = 0.1\n")
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        mount_shop(web)
        web.mount("shop.test", "/thing/1", html("<script>setInterval(() => document.title += 1, 9)</script>"))
        arguments = [f"http://shop.test:{web.port}/", "--resolve", "*:127.0.0.1", *FAST_FLAGS, "--render", "always"]
        process = await asyncio.create_subprocess_exec(*command("crawl", *arguments), cwd=tmp_path)
        await until(lambda: any(record.path == "/thing/1" for record in web.log()))
        if victim == "crawl":
            process.kill()
        else:
            strike_browser(place, signal.SIGKILL if victim == "browser" else signal.SIGSTOP)
        await process.wait()
        await until(lambda: not browsers_of(place) and not list(place.iterdir()))
    if victim != "crawl":
        records = records_of(tmp_path / "shop.test.jsonl")
        assert {"/", "/frames/one", "/frames/two", "/in-a-shadow", "/thing/2", "/thing/3"} <= paths(records)


def test_a_missing_browser_is_named_before_anything_is_fetched(tmp_path: Path) -> None:
    run = gossamer(
        "crawl",
        "http://shop.invalid/",
        "--render",
        "always",
        cwd=tmp_path,
        env={"GOSSAMER_BROWSER__PROGRAM": "no-such"},
    )
    assert run.returncode == 2
    assert "no program no-such" in run.stderr
    assert "nstall a browser: " in run.stderr
    assert not (tmp_path / "shop.invalid.jsonl").exists()


def test_matching_pages_beside_all_pages_is_a_contradiction(tmp_path: Path) -> None:
    run = gossamer("crawl", "http://a.invalid/", "--render", "always", "--render-match", "/x", cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "--render-match: every page is rendered already" in run.stderr


@pytest.mark.parametrize(
    "script", ["while (true) {}", "for (;;) document.title += 1", "setInterval(() => document.title += 1, 5)"]
)
async def test_a_page_that_never_ends_is_taken_as_it_is(tmp_path: Path, script: str) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html(f"<h1>begun</h1><a href='/next'>next</a><script>{script}</script>"))
        web.mount("shop.test", "/next", html("<h1>next</h1>"))
        (tmp_path / "gossamer.toml").write_text("[browser]\nseconds = 1.0\n")
        records = await crawl(tmp_path, web, "--render", "always", "--retries", "0")
    assert "/next" in paths(records) or {r.reason for r in records if isinstance(r, PageRecord)} == {"browser_hung"}
