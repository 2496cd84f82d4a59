"""Pages without end: they are named while the crawl goes on, and options end it."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from gossamer.fakeweb import WebSpec, html, serve
from gossamer.fakeweb.server import Server as Web
from gossamer.model.crawl import Terms
from gossamer.telemetry.patterns import growth_sentences
from gossamer.wiring.worker import open_worker
from gossamer_fakeweb import fetches
from tests.integration.test_worker_service import Request, open_service
from tests.servers.crawling import FAST_FLAGS, command, crawl, gossamer, resolving

HOSTILE = WebSpec(hosts=1, pages=1, hostile=True)


async def run(web: Web, case: str, folder: Path, *options: str) -> tuple[dict[str, object], str]:
    """Crawl a trap of the hostile web. Return the summary, and what was said meanwhile."""
    flags = [*resolving(["*.test:127.0.0.1"]), *FAST_FLAGS, "-o", "pages.jsonl", "--json", *options]
    done = await asyncio.to_thread(gossamer, "crawl", f"http://bad-{case}.test:{web.port}/", *flags, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("case", "pattern", "advice"),
    [
        ("calendar", "/calendar?month=*", "--pattern-max-pages"),
        ("soft", "/x…", "--pattern-max-pages"),
        ("deeper", "/…/", "--path-repeats"),
        ("relative", "/…/", "--path-repeats"),
        ("sessions", "/page/N?sid=*", "--drop-parameter sid"),
        ("queries", "/list?…", "--deny"),
    ],
)
async def test_what_grows_is_named_in_the_summary(case: str, pattern: str, advice: str, tmp_path: Path) -> None:
    async with serve(HOSTILE) as web:
        pages = {"soft": 500, "queries": 5000}.get(case, 2500)  # each page of `soft` leads to one more
        flags = [*resolving(["*.test:127.0.0.1"]), *FAST_FLAGS, "-o", "pages.jsonl", "--max-pages", str(pages)]
        done = await asyncio.to_thread(gossamer, "crawl", f"http://bad-{case}.test:{web.port}/", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert f"{pattern}" in said
    assert "may have no end" in said
    assert advice in said


async def test_what_grows_is_named_while_the_crawl_goes_on(tmp_path: Path) -> None:
    async with serve(HOSTILE) as web:
        process = await asyncio.create_subprocess_exec(
            *command("crawl", f"http://bad-calendar.test:{web.port}/", *resolving(["*.test:127.0.0.1"]), *FAST_FLAGS),
            "-o", "pages.jsonl", cwd=tmp_path, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stderr is not None
        try:
            async with asyncio.timeout(120):
                while b"may have no end" not in (line := await process.stderr.readline()):
                    assert line, "the crawl has ended without a word"
            process.send_signal(signal.SIGINT)
            await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
    assert b"/calendar?month=*" in line
    assert b"--pattern-max-pages" in line


async def test_a_service_names_what_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker logs it once, and everyone who asks for the crawl is told, with the fields of a request."""
    monkeypatch.setattr("gossamer.wiring.worker._GROWTH_POLL_SECONDS", 0.05)
    async with serve(HOSTILE) as web, open_service(tmp_path) as service:
        terms = Terms(allowed_domains=("bad-calendar.test",))
        run = await service.submit(Request(f"http://bad-calendar.test:{web.port}/", terms))
        async with open_worker(service.settings(), service.frontier, pool="shared") as worker:
            working = asyncio.create_task(worker.run())
            while not (info := await service.frontier.crawl_info(run.crawl.id)) or not info.growing:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            assert worker.tally().growing == {}  # which has no crawl to which it belongs
        info = await service.frontier.crawl_info(run.crawl.id)  # it went on meanwhile
        assert info is not None
        [sentence] = growth_sentences(info)
        shown = await asyncio.to_thread(
            gossamer, "crawls", "show", "app/c", "--frontier", service.address, cwd=tmp_path
        )
    assert "/calendar?month=* may have no end: " in sentence
    assert '"pattern_max_pages": N' in sentence
    logged = [message for message in caplog.messages if message.startswith("pages_without_end app/c: ")]
    assert len(logged) == 1
    assert sentence in shown.stdout


@pytest.mark.parametrize(
    ("case", "options", "most"),
    [
        ("calendar", ("--pattern-max-pages", "50"), 51),
        ("soft", ("--pattern-max-pages", "50"), 60),
        ("sessions", ("--pattern-max-pages", "50"), 51),
        ("sessions", ("--drop-parameter", "sid"), 21),
        ("relative", ("--path-repeats", "1"), 200),
        ("deeper", ("--path-repeats", "0"), 70),
        ("relative", ("--pattern-max-pages", "20", "--processes", "2"), 1500),
    ],
)
async def test_an_option_ends_it(case: str, options: tuple[str, ...], most: int, tmp_path: Path) -> None:
    async with serve(HOSTILE) as web:
        summary, _ = await run(web, case, tmp_path, *options)
    assert summary["state"] == "finished"
    assert isinstance(summary["pages"], int)
    assert 20 < summary["pages"] <= most


async def test_relative_links_without_end_end_by_themselves(tmp_path: Path) -> None:
    """Two words, each a link to a directory below every page, as a template without its leading slash makes them."""
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        paths = [""]
        for _ in range(9):
            paths += [
                f"{path}{word}/"
                for path in paths
                for word in ("news", "shop")
                if path.count("/") == paths[-1].count("/")
            ]
        for path in paths:
            web.mount("a.test", f"/{path}", html("<a href='news/'>n</a><a href='shop/'>s</a>"))
        crawled = await crawl(tmp_path, [f"http://a.test:{web.port}/"], ["*:127.0.0.1"])
    assert crawled.summary.info is not None
    assert crawled.summary.info.pages.links_dropped["pattern"] > 0
    assert {page.status_code for page in crawled.pages} == {200}


async def test_urls_that_a_pattern_leaves_out_are_few_and_the_others_are_all_fetched(tmp_path: Path) -> None:
    """The same links on every page: a URL that was passed on once does not use up the number again."""
    links = "".join(f'<a href="/p/{n}">p</a><a href="/word{chr(97 + n % 26)}">w</a>' for n in range(200))
    mounts = {("a.test", "/"): html(links)}
    mounts |= {("a.test", f"/p/{n}"): html(links) for n in range(200)}
    mounts |= {("a.test", f"/word{chr(97 + n)}"): html(links) for n in range(26)}
    async with serve(WebSpec(hosts=1, pages=1), mounts=mounts) as web:
        crawled = await crawl(tmp_path, [f"http://a.test:{web.port}/"], ["*:127.0.0.1"], crawl__pattern_max_pages=30)
        asked = fetches(web.log())
    assert max(asked.values()) == 1
    paths = [page.url.rpartition("/")[2] for page in crawled.pages]
    assert sum(path.isdecimal() for path in paths) == 30
    assert sum(path.startswith("word") for path in paths) == 26
