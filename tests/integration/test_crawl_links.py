"""Which links of real servers' pages a crawl follows, and what it says of those that it does not."""

import asyncio
import json
from pathlib import Path

import pytest

from gossamer.fakeweb import Answer, WebSpec, html, serve
from tests.servers.crawling import Crawled, crawl, gossamer

NONE = WebSpec(hosts=1, pages=1)
MIB = 2**20


async def crawl_page(folder: Path, page: Answer, **options: object) -> Crawled:
    """Crawl a site whose start page has this answer, and whose other pages are empty."""
    async with serve(NONE) as web:
        web.mount("a.test", "/", page)
        for number in range(9):
            web.mount("a.test", f"/{number}", html("x"))
        return await crawl(folder, [f"http://a.test:{web.port}/"], ["*:127.0.0.1"], **options)


def followed(crawled: Crawled) -> set[str]:
    """Paths of the pages that were fetched, besides the first."""
    return {path for page in crawled.pages if (path := page.url.rpartition("/")[2])}


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1251"])
async def test_links_are_followed_up_to_the_limit_of_bodies(tmp_path: Path, encoding: str) -> None:
    text = f"<a href=/1>x</a>{'é' * MIB}<a href=/2>x</a>{'<p>' * 100_000}{'x' * MIB}<a href=/3>x</a>"
    body = text.encode(encoding, "replace")
    page = Answer(headers=(("Content-Type", f"text/html; charset={encoding}"),), body=body)
    crawled = await crawl_page(tmp_path, page)
    assert followed(crawled) == {"1", "2", "3"}
    assert crawled.summary.tally.unread == {}


async def test_a_page_beyond_the_limit_of_bodies_is_told(tmp_path: Path) -> None:
    crawled = await crawl_page(tmp_path, html(f"<a href=/1>x</a>{'x' * MIB}<a href=/2>x</a>"), fetch__max_body=MIB)
    assert followed(crawled) == {"1"}
    assert [page.truncated for page in crawled.pages] == [True, False]
    told = crawled.summary.as_text()
    assert "  pages whose links were not all read: truncated 1\n    The end of the page is missing: 1, for exam" in told
    assert "GOSSAMER_FETCH__MAX_BODY" in told
    assert json.loads(crawled.summary.as_json())["unread"] == {"truncated": 1}


LINK = b"<!DOCTYPE html><a href=/1>x</a>"
NOSNIFF = ("X-Content-Type-Options", "nosniff")


@pytest.mark.parametrize(
    "types",
    [
        (), ("",), ("html",), ("utf-8",), ("charset=utf-8",), ("text/html charset=utf-8",), ("*/*",),
        ("text/plain", "text/html"), ("text/html", "utf-8"), ("text/html", "text/html; charset=koi8-r"),
        ("application/octet-stream, text/html",),
    ],
)  # fmt: skip
async def test_content_types_are_read_as_browsers_do(tmp_path: Path, types: tuple[str, ...]) -> None:
    lines = tuple((name, value) for name, value in zip(("Content-Type", "content-type"), types, strict=False))
    crawled = await crawl_page(tmp_path, Answer(headers=lines, body=LINK))
    assert followed(crawled) == {"1"}
    assert crawled.summary.tally.unread == {}


@pytest.mark.parametrize(
    "headers",
    [
        (("Content-Type", "text/plain"),),
        (("Content-Type", "text/html"), ("Content-Type", "text/plain")),
        (("Content-Type", "html"), NOSNIFF),
        (NOSNIFF,),
    ],
)
async def test_html_that_no_browser_shows_as_a_page_is_told(
    tmp_path: Path, headers: tuple[tuple[str, str], ...]
) -> None:
    crawled = await crawl_page(tmp_path, Answer(headers=headers, body=LINK))
    assert followed(crawled) == set()
    assert crawled.summary.tally.unread == {"not_html": 1}
    told = crawled.summary.as_text()
    assert "pages whose links were not all read: not_html 1\n    It looks like HTML, but its Content-Type says" in told
    assert "JavaScript" not in told


@pytest.mark.parametrize(
    "body",
    [
        "<frameset><frame src=/1><noframes><a href=/2>x</a></noframes></frameset>",
        "<iframe src=/1></iframe><noframes><a href=/2>x</a></noframes>",
        "<iframe srcdoc='&lt;a href=/1>'></iframe><iframe src=/2><a href=/3>",
    ],
)
async def test_frames_are_followed(tmp_path: Path, body: str) -> None:
    crawled = await crawl_page(tmp_path, html(body), crawl__links=True)
    assert followed(crawled) == {"1", "2"}
    assert crawled.summary.notes == []
    assert [link.url[-2:] for link in crawled.pages[0].links] == ["/1", "/2"]


@pytest.mark.parametrize("body", ["<iframe src=http://b.test/></iframe>", "<frameset><frame src=http://b.test/>"])
async def test_a_site_of_foreign_frames_says_so(tmp_path: Path, body: str) -> None:
    crawled = await crawl_page(tmp_path, html(body))
    [note] = crawled.summary.notes
    assert "No link was followed: they lead out of the scope." in note


@pytest.mark.parametrize(
    ("lines", "is_followed"),
    [
        (("nofollow",), False),
        (("NoIndex, NONE",), False),
        (("noindex", "unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow"), False),
        (("my-bot: noindex, nofollow",), False),
        (("otherbot: noindex, nofollow", "noindex"), True),
        (("all, max-snippet: 20",), True),
    ],
)
async def test_x_robots_tag_counts_as_the_element_does(
    tmp_path: Path, lines: tuple[str, ...], is_followed: bool
) -> None:
    tags = tuple((name, line) for name, line in zip(("X-Robots-Tag", "x-robots-tag"), lines, strict=False))
    page = Answer(headers=(("Content-Type", "text/html"), *tags), body=LINK)
    (tmp_path / "own.py").write_text(
        "from gossamer import Spider\n\nclass Own(Spider):\n    def parse(self, page):\n"
        "        yield from map(page.follow, page.links.urls)\n"
    )
    for folder, spider in (("link", "link"), ("own", str(tmp_path / "own.py"))):
        crawled = await crawl_page(tmp_path / folder, page, crawl__spider=spider, fetch__user_agent="My-Bot/1.0")
        assert followed(crawled) == ({"1"} if is_followed else set())
        info = crawled.summary.info
        assert info is not None
        assert info.pages.links_dropped == ({} if is_followed or folder == "own" else {"nofollow": 1})
    assert followed(await crawl_page(tmp_path / "all", page, crawl__follow_nofollow=True)) == {"1"}


@pytest.mark.parametrize(
    ("headers", "kept", "dropped", "unread"),
    [
        ((("Content-Type", "html"),), 1, [], ""),
        ((("Content-Type", "text/html"), ("Content-Type", "text/plain")), 0, [], "not_html"),
        ((("Content-Type", "text/html"), ("X-Robots-Tag", "gossamer: none")), 0, ["nofollow"], ""),
        ((("Content-Type", "text/html"), ("X-Robots-Tag", "x: none")), 1, [], ""),
    ],
)
async def test_the_fetch_command_shows_the_same(
    tmp_path: Path, headers: tuple[tuple[str, str], ...], kept: int, dropped: list[str], unread: str
) -> None:
    async with serve(NONE, mounts={("a.test", "/"): Answer(headers=headers, body=LINK)}) as web:
        command = ("fetch", f"http://a.test:{web.port}/", "--resolve", "*:127.0.0.1")
        shown = await asyncio.to_thread(gossamer, *command, "--json", cwd=tmp_path)
        text = await asyncio.to_thread(gossamer, *command, cwd=tmp_path)
    found = json.loads(shown.stdout)
    assert (len(found["links_kept"]), [link["reason"] for link in found["links_dropped"]]) == (kept, dropped)
    assert found["unread"] == unread
    assert ("links      not all read: It looks like HTML" in text.stdout) == bool(unread)


async def test_rules_say_that_they_see_the_beginning_of_a_long_page(tmp_path: Path) -> None:
    page = html(f"<h1>One</h1>{'x' * 2 * MIB}<h2>Two</h2>")
    crawled = await crawl_page(tmp_path, page, crawl__field=("one=h1", "two=h2"))
    assert [item.item["one"] for item in crawled.items] == ["One"]
    assert [page.extract_error for page in crawled.pages] == ["cut"]
