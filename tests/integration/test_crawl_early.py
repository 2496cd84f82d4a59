"""A person is told within seconds why a URL that was given cannot be fetched, and what to do."""

import asyncio
import json
import math
import os
import pty
import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gossamer.crawling.seeds import find_private_hosts
from gossamer.fakeweb import Answer, FakeWeb, Robots, WebSpec, html, plain, redirect, serve
from gossamer.net.resolve import DnsLimits, Resolver
from gossamer.policy.retry import longest_retrying, retry_delay
from tests.servers.crawling import command, crawl, gossamer

SOON_SECONDS = 5.0
RETRY_BASE_SECONDS = 60.0
RETRIES = 3
NONE = WebSpec(hosts=1, pages=1)


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@asynccontextmanager
async def said_soon(
    folder: Path, urls: list[str], overrides: list[str], capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[str]:
    """What a crawl has said once it has said something. The crawl ends with the context."""
    crawling = asyncio.create_task(
        crawl(
            folder, urls, overrides, fetch__retry_base=RETRY_BASE_SECONDS, fetch__timeout=60.0, fetch__retries=RETRIES
        )
    )
    said, started = "", time.monotonic()
    try:
        while "\n" not in said and not crawling.done() and time.monotonic() - started < 10 * SOON_SECONDS:
            await asyncio.sleep(0.05)
            said += capsys.readouterr().err
        assert time.monotonic() - started < SOON_SECONDS
        yield said
    finally:
        crawling.cancel()
        await asyncio.gather(crawling, return_exceptions=True)


async def test_a_server_that_is_down_is_told_while_it_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = f"http://down.test:{closed_port()}/"
    async with said_soon(tmp_path, [seed], ["down.test:127.0.0.1"], capsys) as said:
        assert f"Cannot fetch {seed}: the server did not accept the connection (" in said
        told = re.search(r"Check whether it is running\. Retrying for up to ([0-9,]+) s;", said)
        assert told is not None
        # Only the first delay is known, and it is spread; the later ones are told at their longest.
        shortest, longest = (
            longest_retrying(1, RETRIES, base_seconds=RETRY_BASE_SECONDS, first_seconds=first)
            for first in (
                retry_delay(1, random=spread, base_seconds=RETRY_BASE_SECONDS, cap_seconds=math.inf)
                for spread in (0.0, 1.0)
            )
        )
        assert shortest - 1 <= int(told[1].replace(",", "")) <= longest + 1  # 390 to 420 s, rounded
        assert said.rstrip().endswith(" s; Ctrl-C stops.")


async def test_a_server_that_does_not_answer_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(keep_silent, "127.0.0.1", 0)
    async with server:
        seed = f"http://silent.test:{server.sockets[0].getsockname()[1]}/"
        async with said_soon(tmp_path, [seed], ["silent.test:127.0.0.1"], capsys) as said:
            assert f"No answer from {seed} for " in said
            assert "waiting for a response." in said


async def test_name_servers_that_do_not_answer_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    async def never(name: str) -> list[str]:
        await asyncio.sleep(60)
        return []

    said: list[str] = []
    resolver = Resolver(lookup=never, limits=DnsLimits(timeout_seconds=SOON_SECONDS))
    assert (
        await find_private_hosts(resolver, ["http://a.test/", "http://b.test/"], allowed=False, say=said.append) == ()
    )
    assert [sentence.partition(":")[0] for sentence in said] == ["Looking up a.test and 1 more takes long"]


def test_a_name_that_does_not_exist_is_told_with_what_to_do(tmp_path: Path) -> None:
    ended = gossamer("crawl", "http://nobody.invalid/", "--retries", "0", cwd=tmp_path)
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[0]
    assert said.startswith("gossamer: Cannot fetch http://nobody.invalid/: the host name could not be resolved (nobody")
    assert said.endswith(
        "Look for a typing error, check your network, or name its address with --resolve HOST:ADDRESS."
    )


def test_a_seed_whose_name_does_not_exist_is_not_retried(tmp_path: Path) -> None:
    """Retries take 35 s at least. The record has the words that were said."""
    started = time.monotonic()
    ended = gossamer("crawl", "http://nobody.invalid/", "-o", "pages.jsonl", cwd=tmp_path)
    assert time.monotonic() - started < 30
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[0]
    assert said.endswith(
        "Look for a typing error, check your network, or name its address with --resolve HOST:ADDRESS."
    )
    (record,) = map(json.loads, (tmp_path / "pages.jsonl").read_text().splitlines())
    assert (record["reason"], record["attempt"]) == ("dns", 0)
    title, _, detail = record["exception"].partition(": ")
    assert said.startswith(f"gossamer: Cannot fetch http://nobody.invalid/: {title.replace('The', 'the')} ({detail}).")


async def test_a_link_to_a_name_that_does_not_exist_is_retried(tmp_path: Path) -> None:
    """In the middle of a crawl, a name server that answers wrongly for a moment loses no page."""
    async with serve(NONE) as web:
        web.mount("a.test", "/", html("<a href=http://nobody.invalid/>x</a>"))
        crawled = await crawl(
            tmp_path,
            [f"http://a.test:{web.port}/"],
            ["a.test:127.0.0.1"],
            crawl__scope="any",
            fetch__retries=2,
            fetch__retry_base=0.01,
        )
    record = crawled.by_url()["http://nobody.invalid/"]
    assert (record.reason, record.attempt) == ("dns", 2)


async def test_a_seed_is_retried_while_the_name_servers_are_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", away)  # the name servers of this machine cannot be stopped
    async with said_soon(tmp_path, ["http://a.test/"], [], capsys) as said:
        assert "(a.test: Temporary failure in name resolution)" in said
        assert "Retrying for up to " in said


def test_a_terminal_shows_when_the_next_retry_is_due(tmp_path: Path) -> None:
    """A command that resumes the crawl shows the same, and which attempts have failed before it."""
    flags = [f"http://down.test:{closed_port()}/", "--resolve", "down.test:127.0.0.1"]
    shows_retry = r"1 queued on 1 domain, 1 of them for a retry; next retry in \d+ s: down\.test"
    for expected in (shows_retry, rf"(?s){shows_retry}.*attempts that failed before: connect \d"):
        main, side = pty.openpty()
        env = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
        with subprocess.Popen(
            command("crawl", *flags), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=side, env=env
        ) as process:
            os.close(side)
            shown = ""
            try:
                while not re.search(expected, shown):
                    shown += os.read(main, 4096).decode(errors="replace")  # fails where the command ends without it
            finally:
                process.terminate()
                os.close(main)


def test_a_certificate_that_is_not_trusted_is_told_with_what_to_do(tmp_path: Path) -> None:
    with FakeWeb.start(NONE, tls=True) as web:
        flags = ["crawl", web.site.url(0, 0), "--resolve", "*:127.0.0.1", "--rate", "100/1"]
        ended = gossamer(*flags, cwd=tmp_path)
        assert ended.returncode == 1
        assert "the secure connection could not be established (" in ended.stderr
        assert "--insecure accepts any certificate." in ended.stderr
        assert "Retrying" not in ended.stderr


async def test_a_first_page_that_redirects_elsewhere_names_the_target_and_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serve(NONE) as web:
        seed, target = f"http://a.test:{web.port}/", f"http://www.b.test:{web.port}/home"
        web.mount("a.test", "/", redirect(target))
        web.mount("www.b.test", "/home", html("home"))
        first = await crawl(tmp_path / "first", [seed], ["*:127.0.0.1"])
        assert first.summary.exit_code() == 1
        said = capsys.readouterr().err
        assert (
            f"Cannot fetch {seed}: it redirects out of the crawl's scope ({target}). To follow it, add "
            "--allow-domain b.test, or start from there."
        ) in said
        second = await crawl(tmp_path / "second", [seed], ["*:127.0.0.1"], crawl__allow_domain=("b.test",))
        assert [page.response_url for page in second.pages] == [target]
        assert capsys.readouterr().err == ""


async def test_few_of_many_seeds_are_told_one_for_each_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serve(NONE) as web:
        seeds = []
        for number in range(40):
            status = (404, 410, 451, 403)[number % 4]
            web.mount("a.test", f"/{number}", html("no", status=status))
            seeds.append(f"http://a.test:{web.port}/{number}")
        await crawl(tmp_path, seeds, ["*:127.0.0.1"])
        said = [line for line in capsys.readouterr().err.splitlines() if "Cannot fetch" in line]
        assert len(said) == 3
        assert len({line.partition(": ")[2].partition(": ")[2] for line in said}) == 3


async def test_pages_that_are_found_later_are_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with serve(NONE) as web:
        web.mount("a.test", "/", html("<a href=/gone>x</a>"))
        crawled = await crawl(tmp_path, [f"http://a.test:{web.port}/"], ["*:127.0.0.1"])
        assert crawled.summary.info is not None
        assert crawled.summary.info.total().failed == {"http_404": 1}
        assert capsys.readouterr().err == ""


async def test_a_site_without_its_robots_txt_does_not_keep_a_crawl_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of its URLs end as records with the reason, though at its rate they would take over a minute; another site
    goes on."""
    async with serve(WebSpec(hosts=2, pages=10, cross_host_share=0.0, robots=(Robots.NONE, Robots.BROKEN))) as web:
        dead = [web.site.url(1, 0), *(f"{web.site.url(1, 0)}x{number}" for number in range(400))]
        started = time.monotonic()
        crawled = await crawl(
            tmp_path,
            [web.site.url(0, 0), *dead],
            web.resolve_overrides(),
            fetch__robots_patience=2.0,
            crawl__rate="5/1",
            crawl__domain_concurrency=1,
        )
        records = crawled.by_url()
        assert {records[url].reason for url in dead} == {"robots_unreachable"}
        assert {records[url].exception for url in dead} == {"robots.txt unreachable for 2 s (500)"}
        assert len(crawled.pages) == 10 + len(dead)
        assert crawled.summary.info is not None
        assert crawled.summary.info.total().failed == {"robots_unreachable": len(dead)}
        assert crawled.summary.exit_code() == 0
        assert time.monotonic() - started < 40
        asked = [record.path for record in web.log() if record.host == "site1.test"]
        assert set(asked) == {"/robots.txt"}
        assert len(asked) <= 3
    said = capsys.readouterr().err
    assert "cannot be fetched (500), so the site's pages wait. They fail if it still cannot in 2 s" in said
    assert "robots.txt could not be fetched, so nothing of the site may be fetched" in said


async def test_pages_that_only_the_sitemap_lists_are_told(tmp_path: Path) -> None:
    """Whether the sitemap was read, with how many; or not, with the option that reads it."""
    async with serve(NONE) as web:
        root = f"http://a.test:{web.port}"
        web.mount("a.test", "/robots.txt", plain(f"Sitemap: {root}/map.xml"))
        paths = ("/", "/linked", "/deep", "/alone", "/other")
        listed = "".join(f"<url><loc>{root}{path}</loc></url>" for path in paths)
        web.mount("a.test", "/map.xml", plain(f"<urlset>{listed}</urlset>"))
        web.mount("a.test", "/", html("<a href=/linked>x</a>"))
        web.mount("a.test", "/linked", html("<a href=/deep>x</a><a href=/>home</a>"))
        for path in ("/deep", "/alone", "/other"):
            web.mount("a.test", path, html("x"))
        with_map = await crawl(tmp_path / "with", [f"{root}/"], ["*:127.0.0.1"], crawl__sitemaps=True)
        assert len(with_map.pages) == 6  # five and the sitemap
        told = with_map.summary.as_text()
        assert "no fetched page links to 2 pages of the sitemap, for example" in told
        assert json.loads(with_map.summary.as_json())["unlinked_pages"] == 2
        without = await crawl(tmp_path / "without", [f"{root}/"], ["*:127.0.0.1"])
        assert len(without.pages) == 3
        assert (
            f"robots.txt names a sitemap that was not read, {root}/map.xml. --sitemaps crawls its pages, too."
            in without.summary.as_text()
        )


@pytest.mark.parametrize(
    ("page", "hint"),
    [
        ("<div id=app></div>", "If JavaScript makes the links, --render auto builds them in a browser, and --sitemaps"),
        ("<a href=http://b.test/>x</a>", "--allow-domain DOMAIN or --scope any follows them."),
        ("<a href=/x>x</a>", ""),
        (plain("<html><a href=/x>x</a>"), "No page is HTML by its Content-Type, so there is no link to follow."),
    ],
)
async def test_a_crawl_of_one_page_says_why_there_are_no_more(tmp_path: Path, page: str | Answer, hint: str) -> None:
    async with serve(NONE) as web:
        web.mount("a.test", "/", html(page) if isinstance(page, str) else page)
        crawled = await crawl(tmp_path, [f"http://a.test:{web.port}/"], ["*:127.0.0.1"])
        assert hint in crawled.summary.as_text()
        assert len(crawled.summary.notes) == bool(hint)
