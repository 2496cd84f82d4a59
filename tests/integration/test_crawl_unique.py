"""Pages and items that are the same but for where a link was clicked: --drop-parameter and --unique."""

import asyncio
import csv
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer.fakeweb import Answer, WebSpec, html, redirect, serve
from tests.servers.crawling import FAST_FLAGS, command, crawl, gossamer, resolving
from tests.servers.program import until

PRODUCTS = 40


def shop() -> Mapping[tuple[str, str], Answer]:
    """A list of products, each linked twice, with a parameter that says from where; and pages that link back."""
    links = "".join(
        f'<a href="/p/{n}?ref=list">{n}</a><a href="/p/{n}?utm_source=top&amp;ref=x">{n}</a>' for n in range(PRODUCTS)
    )
    mounts = {("shop.test", "/"): html(links)}
    for number in range(PRODUCTS):
        page = html(f'<h1>Product {number}</h1><p class=sku>s{number}</p><a href="/?ref=back">back</a>')
        for query in ("", "?ref=list", "?utm_source=top&ref=x"):
            mounts["shop.test", f"/p/{number}{query}"] = page
    for query in ("?ref=back", "?ref=start"):
        mounts["shop.test", f"/{query}"] = html(links)
    return mounts


async def test_links_that_differ_in_a_parameter_are_one_page(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1), mounts=shop()) as web:
        seed = f"http://shop.test:{web.port}/?ref=start"
        options = {"crawl__drop_parameter": ("ref", "utm_*"), "crawl__field": ("sku=.sku",)}
        crawled = await crawl(tmp_path, [seed], ["*:127.0.0.1"], **options)
        asked = [record.path for record in web.log() if record.path != "/robots.txt"]
    assert sorted(asked) == sorted(["/", *(f"/p/{number}" for number in range(PRODUCTS))])
    assert len(crawled.items) == PRODUCTS
    assert {page.url.partition("?")[1] for page in crawled.pages} == {""}


async def test_a_site_that_adds_the_parameter_itself_is_followed(tmp_path: Path) -> None:
    mounts = {
        ("shop.test", "/"): html('<a href="/p?ref=a">p</a><a href="/q?ref=b">q</a>'),
        ("shop.test", "/p"): redirect("/p?ref=server"),
        ("shop.test", "/p?ref=server"): html("<h1>p</h1>"),
        ("shop.test", "/q"): redirect("/p?ref=server"),
    }
    async with serve(WebSpec(hosts=1, pages=1), mounts=mounts) as web:
        seed = f"http://shop.test:{web.port}/"
        crawled = await crawl(tmp_path, [seed], ["*:127.0.0.1"], crawl__drop_parameter=("ref",))
    ends = {page.url.rpartition("/")[2]: (page.status_code, page.response_url.rpartition("/")[2], page.reason)
            for page in crawled.pages}  # fmt: skip
    assert ends["p"] == (200, "p?ref=server", "")
    assert ends["q"][2] == "duplicate"


@pytest.mark.parametrize("processes", [1, 2])
async def test_one_item_for_each_key(tmp_path: Path, processes: int) -> None:
    """Without the other option: every product has three pages."""
    async with serve(WebSpec(hosts=1, pages=1), mounts=shop()) as web:
        options = [*resolving(["*:127.0.0.1"]), *FAST_FLAGS, "--field", "sku=.sku", "--field", "name=h1"]
        options += ["--unique", "sku", "-o", "items.csv", "-o", "all.jsonl", "--processes", str(processes)]
        urls = [f"http://shop.test:{web.port}/"]
        run = await asyncio.to_thread(gossamer, "crawl", *urls, *options, "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    summary = json.loads(run.stdout)
    with (tmp_path / "items.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert Counter(row["sku"] for row in rows) == {f"s{number}": 1 for number in range(PRODUCTS)}
    records = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert Counter(record["type"] for record in records) == {"page": 2 * PRODUCTS + 2, "item": PRODUCTS}
    assert (summary["items"], summary["repeated_items"]) == (PRODUCTS, PRODUCTS)


async def test_a_combination_of_fields_tells_items_apart_and_items_without_them_stay(tmp_path: Path) -> None:
    body = "".join(
        f"<div><i>{color}</i><b>{size}</b></div>"
        for color, size in [("red", "1"), ("red", "2"), ("red", "1"), ("", ""), ("", ""), ("blue", ""), ("blue", "")]
    )
    async with serve(WebSpec(hosts=1, pages=1), mounts={("shop.test", "/"): html(body)}) as web:
        crawled = await crawl(
            tmp_path, [f"http://shop.test:{web.port}/"], ["*:127.0.0.1"],
            crawl__field=("color=i", "size=b", "page=div @count"), crawl__each="div", crawl__unique=("size", "color"),
        )  # fmt: skip
    assert [(item.item["color"], item.item["size"]) for item in crawled.items] == [
        ("red", "1"), ("red", "2"), (None, None), (None, None), ("blue", None),
    ]  # fmt: skip
    assert crawled.summary.tally.repeated_items == 2


def kill_while_it_writes(arguments: list[str], folder: Path) -> None:
    """Run a crawl until it has written some pages, and kill it."""

    def lines() -> int:
        return pages.read_bytes().count(b"\n") if pages.exists() else 0

    pages = folder / "pages.jsonl"
    before = lines()
    with subprocess.Popen(command(*arguments), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
        until(lambda: one.poll() is not None or lines() > before + 5, "further pages")
        one.send_signal(signal.SIGKILL)


async def test_a_killed_crawl_that_is_resumed_loses_and_repeats_no_key(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1), mounts=shop()) as web:
        options = [*resolving(["*:127.0.0.1"]), "--rate", "30/1", "--field", "sku=.sku", "--unique", "sku"]
        arguments = ["crawl", f"http://shop.test:{web.port}/", *options, "-o", "items.sqlite", "-o", "pages.jsonl"]
        for _ in range(2):
            await asyncio.to_thread(kill_while_it_writes, arguments, tmp_path)
        run = await asyncio.to_thread(gossamer, *arguments, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        run = await asyncio.to_thread(gossamer, "export", "items.sqlite", "items.jsonl", cwd=tmp_path)
        assert run.returncode == 0, run.stderr
    items = [json.loads(line)["item"]["sku"] for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert Counter(items) == {f"s{number}": 1 for number in range(PRODUCTS)}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"crawl__unique": ("sku",)}, "takes no items"),
        ({"crawl__unique": ("sku",), "crawl__field": ("name=h1",)}, "there is no field sku. Name one of: name"),
        ({"crawl__drop_parameter": ("a=b",)}, "no name of a query parameter"),
    ],
)
async def test_options_that_would_do_nothing_are_refused(
    options: Mapping[str, object], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=reason):
        await crawl(tmp_path, ["http://shop.test/"], **options)
