"""Extraction rules through the real commands, the bus and the REST service."""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gossamer.extras import install_advice
from gossamer.fakeweb import Answer, FakeWeb, WebSpec, html, plain, serve
from gossamer.model.record import PageRecord
from tests.servers.crawling import crawl, gossamer, records_of, resolving
from tests.servers.service import talking, up

ONE = WebSpec(hosts=1, pages=1)
SHOP = {
    "/": html("<h1>Shop</h1><a href=/p/1>1</a><a href=/p/2>2</a><a href=/p/3>3</a><a href=/gone>4</a><a href=/t>5</a>"),
    "/p/1": html("<h1> Lamp </h1><b class=price>19,90 €</b><img class=main src=../1.png>"),
    "/p/2": html("<h1>Desk</h1><b class=price>on request</b><i class=offer>a<u>1</u></i><i class=offer>b<u>2</u></i>"),
    "/p/3": html("<h1>Chair</h1>" + "<div>" * 20_000),
    "/gone": Answer(status=404, body=b"<h1>not here</h1>"),
    "/t": plain("<h1>no HTML</h1>"),
}
SITE = {("shop.test", path): answer for path, answer in SHOP.items()}
FIELDS = ("title=h1", "price=.price @number", "image=img.main@src @url")


@pytest.fixture
async def shop() -> Any:
    async with serve(ONE, mounts=SITE) as web:
        yield f"http://shop.test:{web.port}"


def items_of(folder: Path) -> list[dict[str, Any]]:
    return [record.item for record in records_of(folder / "pages.jsonl") if not isinstance(record, PageRecord)]


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=1, pages=20)) as started:
        yield started


def flags(web: FakeWeb) -> list[str]:
    return [*web.seeds(), *resolving(web.resolve_overrides()), "--rate", "10000/1"]


async def test_items_are_taken_from_html_pages_with_a_good_status(shop: str, tmp_path: Path) -> None:
    crawled = await crawl(tmp_path, [f"{shop}/"], ["*:127.0.0.1"], crawl__field=FIELDS)
    pages = {record.url: record for record in crawled.pages}
    assert len(pages) == 6
    assert sorted(items_of(tmp_path), key=lambda item: item["page_url"]) == [
        {"page_url": f"{shop}/", "title": "Shop", "price": None, "image": None},
        {"page_url": f"{shop}/p/1", "title": "Lamp", "price": 19.9, "image": f"{shop}/1.png"},
        {"page_url": f"{shop}/p/2", "title": "Desk", "price": None, "image": None},
    ]
    assert {url: page.extract_error for url, page in pages.items() if page.extract_error} == {
        f"{shop}/p/3": "too_complex"
    }
    assert pages[f"{shop}/p/3"].body.startswith("<h1>Chair</h1>")
    item = crawled.items[0]
    assert (item.request_id, item.timestamp) == (pages[item.url].request_id, pages[item.url].timestamp)


async def test_nested_and_repeated_items_of_several_rules(shop: str, tmp_path: Path) -> None:
    rules = {
        "rules": [
            {"name": "offers", "urls": ["/p/"], "each": ".offer", "fields": {"name": ".::text", "n": "u @number"}},
            {
                "name": "products",
                "urls": "/p/2$",
                "fields": {"title": "h1", "offers": {"each": ".offer", "fields": {"n": "u @number"}}},
            },
        ]
    }
    rules["rules"][0]["fields"] = {"name": "i::text", "n": "u @number"}
    await crawl(tmp_path, [f"{shop}/"], ["*:127.0.0.1"], crawl__extract=rules)
    url = f"{shop}/p/2"
    assert items_of(tmp_path) == [
        {"page_url": url, "name": "a", "n": 1},
        {"page_url": url, "name": "b", "n": 2},
        {"page_url": url, "title": "Desk", "offers": [{"n": 1}, {"n": 2}]},
    ]


async def test_a_custom_spider_and_rules_both_give_items(shop: str, tmp_path: Path) -> None:
    own = "class Own(Spider):\n    def parse(self, page):\n        yield {'own': page.url}\n"
    (tmp_path / "own.py").write_text(f"from gossamer import Spider\n\n{own}")
    await crawl(
        tmp_path, [f"{shop}/p/1"], ["*:127.0.0.1"], crawl__field=("title=h1",), crawl__spider=f"{tmp_path}/own.py"
    )
    assert items_of(tmp_path) == [{"own": f"{shop}/p/1"}, {"page_url": f"{shop}/p/1", "title": "Lamp"}]


def test_a_table_has_the_columns_of_the_rules(web: FakeWeb, tmp_path: Path) -> None:
    (tmp_path / "fields.yaml").write_text(
        "fields:\n  title: title\n  missing: .nix\n  links: 'a @count'\n  first: a@href\n"
    )
    done = gossamer("crawl", *flags(web), "--extract", "fields.yaml", "-o", "items.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "items.csv").open(newline="", encoding="utf-8-sig") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["page_url", "title", "missing", "links", "first"]
    assert len({row["page_url"] for row in rows}) == len(rows) == 20
    assert all(row["title"] and int(row["links"]) > 0 and not row["missing"] for row in rows)
    assert "  no value for missing on any page (20 pages tried)" in done.stdout


def test_a_rule_that_matched_nothing_is_told_with_the_count_of_pages(web: FakeWeb, tmp_path: Path) -> None:
    rules = {
        "rules": [
            {"name": "products", "fields": {"price": ".price @required", "name": ".name"}},
            {"name": "shops", "urls": ["/shop/"], "fields": {"a": "h1"}},
            {"name": "priced", "fields": {"title": "h1", "price": ".price @required"}},
            {"name": "titles", "fields": {"title": "title"}},
        ]
    }
    (tmp_path / "fields.json").write_text(json.dumps(rules))
    command = ("crawl", *flags(web), "--extract", "fields.json", "--processes", "2")
    done = gossamer(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = [line.strip() for line in done.stdout.splitlines()]
    assert "products: matched nothing, no value for price, name on any page (20 pages tried)" in told
    assert "shops: no value for a: no HTML page has a URL that matches its urls" in told
    assert "priced: no value for price on any page (20 pages tried)" in told
    assert "priced: left out 20 items without the required price" in told
    assert not [line for line in told if line.startswith("titles")]
    assert "20 items" in done.stdout
    again = gossamer(*command, "--json", "--crawl-id", "again", "-o", "again.jsonl", cwd=tmp_path)
    counts = json.loads(again.stdout)["rules"]
    assert counts["titles"] == {"pages": 20, "items": 20, "fields": {"title": 20}, "lacking": {}}
    assert counts["shops"]["pages"] == 0


def test_the_rules_are_part_of_the_derived_id(web: FakeWeb, tmp_path: Path) -> None:
    def name(*options: str) -> str:
        done = gossamer(
            "crawl", *flags(web), *options, "--max-pages", "1", "--json", "--fresh", "--append", cwd=tmp_path
        )
        return str(json.loads(done.stdout)["crawl_id"])

    (tmp_path / "f.yaml").write_text("fields: {title: h1}")
    assert name() != name("--field", "title=h1")
    assert name("--field", "title=h1") == name("--extract", "f.yaml")
    assert name("--field", "title=h1", "--field", "a=p") != name("--field", "a=p", "--field", "title=h1")


BAD = [
    (["--field", "x"], "--field: cannot read 'x'. Write NAME=SELECTOR, for example title=h1."),
    (["--field", "a=p:foo"], "--field a: cannot parse the CSS selector 'p:foo'."),
    (["--field", "a=div:has(:is(ul))"], ":is(…) at the beginning of a part of :has(…), which lexbor answers wrongly"),
    (["--field", "a=p @prize"], "did you mean @price?"),
    (["--field", "a=p", "--field", "a=b"], "--field: a is given twice."),
    (["--each", ".x"], "--each: there is no --field"),
    (["--each", ".x(", "--field", "a=b"], "--each: the CSS selector '.x(' lacks a closing )."),
    (["--extract", "two.yaml", "--field", "a=b"], "--field and --extract cannot be combined."),
    (["--extract", "none.yaml"], "--extract: cannot read none.yaml: No such file or directory."),
    (
        ["--extract", "two.yaml"],
        "two.yaml, line 6: rules[1].fields.price.type: unknown type 'prize'; did you mean price?",
    ),
    (["--extract", "at.yaml"], "at.yaml, line 2: is not valid YAML"),
    (["--extract", "at.yaml"], "Put a selector that begins with @ into quotes."),
    (["--extract", "twice.yaml"], "twice.yaml, line 3: is not valid YAML: the key a stands twice."),
    (["--extract", "bad.json"], "bad.json, line 3: fields.a.lst: unknown key; did you mean list?"),
    (["--extract", "twice.json"], "twice.json: cannot be read: the key a stands twice."),
    (["--extract", "escape.yaml"], "escape.yaml, line 2: is not valid YAML"),
    (["--extract", "escape.yaml"], "Put an expression with a backslash into single quotes."),
    (["--extract", "cut.json"], "cut.json, line 1: is not valid JSON"),
    (["--extract", "bad.toml"], "bad.toml: fields.a.xpath: cannot parse the XPath '//['"),
    (["--extract", "empty.yaml"], "empty.yaml: is empty."),
]
FILES = {
    "two.yaml": "rules:\n- fields: {a: h1}\n- urls: [x]\n  fields:\n    title: h1\n    price: {css: b, type: prize}\n",
    "at.yaml": "fields:\n  a: @href\n",
    "twice.yaml": "fields:\n  a: b\n  a: c\n",
    "bad.json": '{"fields": {\n"b": "h1",\n"a": {"css": "b", "lst": 1}}}',
    "cut.json": '{"fields"',
    "twice.json": '{"fields": {"a": "h1", "a": "h2"}}',
    "escape.yaml": 'fields:\n  a: {regex: "\\d+"}\n',
    "bad.toml": '[fields]\na = "xpath://["\n',
    "empty.yaml": "# nothing\n",
}


@pytest.mark.parametrize(("options", "told"), BAD)
def test_bad_rules_end_the_command_before_anything_is_fetched(options: list[str], told: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    before = set(tmp_path.iterdir())
    done = gossamer("crawl", "http://127.0.0.1:9/", "--allow-private", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("package", "field", "extra"),
    [("lxml", "xpath://h1", "xpath"), ("price_parser", "b @price", "prices"), ("dateparser", "b @date:en", "dates")],
)
def test_a_missing_extra_is_named(package: str, field: str, extra: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    done = gossamer(
        "crawl", "http://127.0.0.1:9/", "--field", f"a={field}", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}
    )
    assert done.returncode == 2
    assert install_advice(extra) in done.stderr


# --- gossamer extract -------------------------------------------------------------------------------------------------


def test_extract_shows_what_matched_and_what_did_not(tmp_path: Path) -> None:
    (tmp_path / "p.html").write_text("<h1>Lamp</h1><b class=price>on request</b>")
    fields = [part for field in FIELDS for part in ("--field", field)]
    done = gossamer("extract", "p.html", "--url", "shop.test/p/1", *fields, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert told[0] == "https://shop.test/p/1"
    assert "title found h1" in told
    assert 'price NO VALUE .price @number finds "on request", which is no value of this type' in told
    assert "image NOT FOUND img.main@src @url matches nothing" in told
    assert 'title "Lamp"' in told
    found = json.loads(gossamer("extract", "p.html", "--json", *fields, cwd=tmp_path).stdout)
    assert found["rules"][0]["items"][0]["title"] == "Lamp"
    assert found["rules"][0]["fields"]["price"]["raw"] == ["on request"]
    assert gossamer("extract", "p.html", "--field", "a=.nix", cwd=tmp_path).returncode == 1
    assert gossamer("extract", "p.html", cwd=tmp_path).returncode == 2
    assert "there is no file q.html" in gossamer("extract", "q.html", "--field", "a=b", cwd=tmp_path).stderr


def test_extract_fetches_a_page_as_a_crawl_does(web: FakeWeb, tmp_path: Path) -> None:
    options = [*resolving(web.resolve_overrides()), "--each", "a", "--field", "link=@href @url"]
    done = gossamer("extract", web.seeds()[0], *options, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["status"] == 200
    assert all(item["link"].startswith("http://") for item in found["rules"][0]["items"])
    gone = gossamer("extract", f"{web.seeds()[0]}nowhere", *options, cwd=tmp_path)
    assert "its status is 404, so a crawl would take no items from it" in gone.stdout


# --- the service ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="the embedded server")
async def test_a_service_takes_rules_by_every_interface(tmp_path: Path) -> None:
    rules = {"urls": ["/p/"], "fields": {"title": "h1", "price": {"css": ".price", "type": "number"}}}
    request = {"appid": "testapp", "maxdepth": 1, "extract": rules}
    async with serve(ONE, mounts=SITE) as shop:
        url = f"http://shop.test:{shop.port}/"
        with up(tmp_path, "--resolve", "*:127.0.0.1") as service:
            async with talking(service) as talk, httpx.AsyncClient(base_url=service.api) as http:
                await talk.say({**request, "crawlid": "bus", "url": url})
                fed = await http.post("/feed", json={**request, "crawlid": "classic", "url": url})
                assert fed.status_code == 200, fed.text
                made = await http.post("/v1/crawls", json={**request, "crawlid": "rest", "url": url})
                assert made.status_code < 300, made.text
                done = gossamer("feed", json.dumps({**request, "crawlid": "command", "url": url}), cwd=tmp_path)
                assert done.returncode == 0, done.stderr
                crawls = {"bus", "classic", "rest", "command"}
                wanted = [{"title": "Lamp", "price": 19.9}, {"title": "Desk", "price": None}]
                messages = await talk.until(
                    talk.topics.crawled_by("testapp"),
                    lambda found: sum(message["type"] == "item" for message in found) == len(crawls) * len(wanted),
                )
                items = [message for message in messages if message["type"] == "item"]
                assert {item["crawlid"] for item in items} == crawls
                assert all(list(item["item"]) == ["page_url", "title", "price"] for item in items)
                assert all({k: v for k, v in item["item"].items() if k != "page_url"} in wanted for item in items)
                bad = {**request, "crawlid": "bad", "url": url, "extract": {"fields": {"a": {"css": "p:foo"}}}}
                refused = await http.post("/v1/crawls", json=bad)
                assert refused.status_code == 400
                assert refused.json()["errors"][0]["field"] == "extract.fields.a.css"
                assert "cannot parse the CSS selector 'p:foo'" in refused.text
                slow = {**bad, "extract": {"fields": {"a": {"regex": r"(a)\1"}}}}
                assert "no back-references" in (await http.post("/v1/crawls", json=slow)).text
                odd = {**bad, "extract": {"rules": [{"fields": {"a": {"css": "p", "lst": True}}}]}}
                assert "extract.rules.0.fields.a.lst" in (await http.post("/v1/crawls", json=odd)).text
