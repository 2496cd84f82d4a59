"""Crawls with --text and --markdown: what records and items have, and what a page that takes too much does to them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gossamer.fakeweb import Answer, WebSpec, html, plain, serve
from gossamer.model.record import ItemRecord
from tests.servers.crawling import FAST_FLAGS, Crawled, crawl, gossamer

ONE = WebSpec(hosts=1, pages=1)
SENTENCE = "A sentence of the article. "
HEAD = "<head><title>An article</title><meta name=author content='Ann'></head>"
LINKS = "<nav><a href='/huge'>h</a> <a href='/plain'>p</a> <a href='/gone'>g</a></nav>"
TEXT = f"<h1>An article</h1><p>{SENTENCE * 20}</p><h2>More</h2><pre>x = 1\n\ny = 2</pre><p>{SENTENCE * 20}</p>"
ARTICLE = f"<html lang=en>{HEAD}<body>{LINKS}<main>{TEXT}</main></body></html>"
HUGE = "<html><body><main><table>" + ("<tr>" + "<td>cell</td>" * 60 + "</tr>") * 3000 + "</table></main></body></html>"
SITE = {
    ("a.test", "/"): html(ARTICLE),
    ("a.test", "/huge"): html(HUGE),
    ("a.test", "/plain"): plain("no HTML"),
    ("a.test", "/gone"): Answer(status=404, body=b"<html><body>not here</body></html>"),
}


async def crawl_site(folder: Path, **options: Any) -> Crawled:
    async with serve(ONE, mounts=SITE) as web:
        return await crawl(folder, [f"http://a.test:{web.port}/"], ["*:127.0.0.1"], **options)


def record(crawled: Crawled, path: str) -> Any:
    [found] = [one for one in crawled.pages if one.url.endswith(path)]
    return found


async def test_records_have_the_content_of_html_pages(tmp_path: Path) -> None:
    crawled = await crawl_site(tmp_path, crawl__markdown=True, crawl__text=True)
    content = record(crawled, "/").content
    assert (content.title, content.author, content.language, content.error) == ("An article", "Ann", "en", "")
    assert content.markdown.startswith(f"# An article\n\n{SENTENCE.strip()}")
    assert "## More\n\n```\nx = 1\n\ny = 2\n```" in content.markdown
    assert "More\n\nx = 1\n\ny = 2" in content.text
    assert record(crawled, "/plain").content is None
    assert record(crawled, "/gone").content is None
    assert not [one for one in crawled.records if isinstance(one, ItemRecord)]


async def test_a_table_that_is_named_later_has_the_content_that_the_records_have(tmp_path: Path) -> None:
    async with serve(ONE, mounts=SITE) as web:
        start = ["crawl", f"http://a.test:{web.port}/", "--resolve", "*:127.0.0.1", *FAST_FLAGS, "--markdown"]
        first = await asyncio.to_thread(gossamer, *start, "-o", "pages.jsonl", cwd=tmp_path)
        assert first.returncode == 0, first.stderr
        later = await asyncio.to_thread(gossamer, *start, "-o", "text.json", cwd=tmp_path)
    assert later.returncode == 0, later.stdout
    assert "Exported 2 items from pages.jsonl to text.json." in later.stdout
    rows = {row["page_url"].rpartition("/")[2]: row for row in json.loads((tmp_path / "text.json").read_bytes())}
    assert set(rows) == {"", "huge"}
    assert rows[""]["title"] == "An article"
    assert rows[""]["markdown"].startswith("# An article")


async def test_without_the_options_records_have_no_content(tmp_path: Path) -> None:
    crawled = await crawl_site(tmp_path)
    assert {one.content for one in crawled.pages} == {None}


@pytest.mark.parametrize(
    ("limits", "reason"), [({"text__cpu": 0.5}, "cpu_limit"), ({"text__memory": 40 * 2**20}, "memory_limit")]
)
async def test_a_page_beyond_a_limit_has_a_record_with_the_reason(tmp_path: Path, limits: Any, reason: str) -> None:
    crawled = await crawl_site(tmp_path, crawl__markdown=True, text__processes=1, **limits)
    huge = record(crawled, "/huge")
    assert huge.success
    assert huge.body == HUGE
    assert (huge.content.error, huge.content.markdown) == (reason, None)
    assert record(crawled, "/").content.markdown
    assert crawled.summary.tally.no_content == {reason: 1}
    assert f"\n  without text: {reason} 1\n" in f"{crawled.summary.as_text()}\n"


async def test_chunks_are_items(tmp_path: Path) -> None:
    crawled = await crawl_site(tmp_path, crawl__markdown=True, crawl__chunk=300, crawl__depth=0)
    items = [one.item for one in crawled.records if isinstance(one, ItemRecord)]
    assert record(crawled, "/").content is None
    assert [item["chunk"] for item in items] == [*range(1, len(items) + 1)]
    assert {item["chunks"] for item in items} == {len(items)}
    assert all(len(item["markdown"]) <= 300 for item in items)
    assert list(items[0]) == [
        "page_url",
        "title",
        "author",
        "date",
        "language",
        "chunk",
        "chunks",
        "headings",
        "markdown",
    ]
    assert items[-1]["headings"] == ["An article", "More"]


async def test_content_as_items_and_the_error_in_the_record(tmp_path: Path) -> None:
    crawled = await crawl_site(tmp_path, crawl__text=True, crawl__text_in="items", text__cpu=0.5)
    items = {one.url.rpartition("/")[2]: one.item for one in crawled.records if isinstance(one, ItemRecord)}
    assert items[""]["text"].startswith("An article\n\n")
    assert items["huge"] == {"page_url": record(crawled, "/huge").response_url, "error": "cpu_limit"}
    assert record(crawled, "/").content is None
    assert record(crawled, "/huge").content.error == "cpu_limit"
