"""Assets, the files that pages embed or link: fetched beside the pages into a folder or WARC files, each once."""

import base64
import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from warcio.archiveiterator import ArchiveIterator

from gossamer import crawl as gossamer_crawl
from gossamer.errors import BadInput
from gossamer.fakeweb import Answer, FakeWeb, WebSpec, html, plain, redirect
from tests.servers.crawling import command, gossamer
from tests.servers.service import talking, up

PNG, GIF, CSS, PDF = "image/png", "image/gif", "text/css", "application/pdf"


def file(body: bytes, content_type: str) -> Answer:
    return Answer(headers=(("Content-Type", content_type),), body=body)


SITE = {
    ("shop.test", "/"): html(
        "<link rel=stylesheet href=/s.css><link rel=icon href=/f.ico><script src=/j.js></script>"
        "<img src=/a.png srcset='/a.png 1x, //cdn.other:PORT/b.png 2x'><img src=/same.png><img src=/gone.png>"
        "<img src=/page.png><div style='background: url(/c.gif)'></div><a href=/price.pdf>prices</a>"
        "<a href=/two>2</a><a href=http://cdn.other:PORT/page>other site</a>"
    ),
    ("shop.test", "/two"): html("<img src=/a.png><img src=/big.png><img src=/moved.png><a href=/>home</a>"),
    ("shop.test", "/s.css"): file(b"@import 't.css'; body { background: url(bg.png) }", CSS),
    ("shop.test", "/t.css"): file(b"h1 { background: url('deep.png') }", CSS),
    ("shop.test", "/a.png"): file(b"A" * 20, PNG),
    ("shop.test", "/same.png"): file(b"A" * 20, PNG),
    ("shop.test", "/bg.png"): file(b"BG", PNG),
    ("shop.test", "/deep.png"): file(b"DEEP", PNG),
    ("shop.test", "/c.gif"): file(b"C", GIF),
    ("shop.test", "/f.ico"): file(b"ICO", "image/x-icon"),
    ("shop.test", "/gone.png"): Answer(status=404),
    ("shop.test", "/page.png"): html("<h1>no image</h1><a href=/never>never</a>"),
    ("shop.test", "/price.pdf"): file(b"%PDF", PDF),
    ("shop.test", "/big.png"): file(b"x" * 5000, PNG),
    ("shop.test", "/moved.png"): redirect("http://cdn.other:PORT/new.png"),
    ("cdn.other", "/robots.txt"): plain("User-agent: *\nDisallow: /new.png\nSitemap: http://cdn.other:PORT/map.xml\n"),
    ("cdn.other", "/b.png"): file(b"B", PNG),
    ("cdn.other", "/new.png"): file(b"new", PNG),
    ("cdn.other", "/page"): html("a page of another site"),
}


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=1, pages=1)) as started:
        mount(started)
        yield started


def mount(web: FakeWeb) -> None:
    for (host, path), answer in SITE.items():
        web.mount(host, path, with_port(answer, web.port))


def with_port(answer: Answer, port: int) -> Answer:
    """The answer with the port of the web in the place of PORT."""
    headers = tuple((name, value.replace("PORT", str(port))) for name, value in answer.headers)
    return msgspec.structs.replace(answer, body=answer.body.replace(b"PORT", str(port).encode()), headers=headers)


def crawl(web: FakeWeb, folder: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    return gossamer("crawl", *arguments(web), *flags, cwd=folder)


def arguments(web: FakeWeb) -> list[str]:
    return [f"http://shop.test:{web.port}/", "--resolve", "*:127.0.0.1", "--rate", "10000/1"]


def manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """The lines of the manifest by path; each URL must have one line."""
    lines = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    assert max(Counter(line["url"] for line in lines).values()) == 1
    return {line["url"].rpartition("/")[2]: line for line in lines}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {"manifest.jsonl"}


def test_a_folder_has_each_content_once_and_a_manifest(web: FakeWeb, tmp_path: Path) -> None:
    done = crawl(web, tmp_path, "--assets", "images,css,pdf", "--assets-max-bytes", "4000", "-o", "pages.jsonl")
    assert done.returncode == 0, done.stderr
    found = manifest(tmp_path / "assets")
    good = {name for name, line in found.items() if line["success"]}
    assert good == {"s.css", "t.css", "a.png", "same.png", "bg.png", "deep.png", "c.gif", "f.ico", "price.pdf", "b.png"}
    assert found["a.png"]["file"] == found["same.png"]["file"]
    assert files(tmp_path / "assets") == {found[name]["file"] for name in good}
    for name in good:
        line = found[name]
        body = (tmp_path / "assets" / line["file"]).read_bytes()
        host = "cdn.other" if name == "b.png" else "shop.test"
        assert body == SITE[host, f"/{name}"].body
        assert (line["sha256"], line["bytes"]) == (hashlib.sha256(body).hexdigest(), len(body))
    reasons = {name: line["reason"] for name, line in found.items() if not line["success"]}
    assert (
        reasons.items()
        >= {"gone.png": "http_404", "page.png": "wrong_type", "big.png": "too_large", "moved.png": "robots"}.items()
    )
    assert found["deep.png"]["referrer"].endswith("/t.css")
    assert (found["a.png"]["kind"], found["price.pdf"]["kind"]) == ("images", "pdf")
    pages = [json.loads(line)["url"] for line in (tmp_path / "pages.jsonl").read_text().splitlines()]
    assert sorted(url.partition(".test:")[2].partition("/")[2] for url in pages) == ["", "two"]
    assert "\n  2 pages and 10 assets, " in done.stdout
    assert "\n  status codes of pages and assets: 200 " in done.stdout
    refused = gossamer("report", "assets/manifest.jsonl", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "assets/manifest.jsonl lists assets, not pages." in refused.stderr
    assert not {record.path for record in web.log() if record.host.startswith("cdn")} & {
        "/page",
        "/map.xml",
        "/new.png",
    }
    assert "  assets: 10 fetched, in assets\n" in done.stdout
    assert "http_404 1" in done.stdout


def test_a_finished_crawl_says_where_its_assets_are_and_are_not(web: FakeWeb, tmp_path: Path) -> None:
    flags = ("--assets", "images", "--max-pages", "1")
    done = crawl(web, tmp_path, *flags, "--assets-to", "pics", "-o", "p.jsonl")
    assert done.returncode == 0, done.stderr
    for _ in range(2):
        done = crawl(web, tmp_path, *flags, "-o", "w.warc.gz")
        assert "  assets: 5 fetched, in pics\n" in done.stdout
        assert "\n  The 5 assets are in pics, not in w.warc.gz; --fresh fetches them again.\n" in done.stdout
    assert "not in" not in crawl(web, tmp_path, *flags, "--assets-to", "pics", "-o", "p.jsonl").stdout
    archived = ("--crawl-id", "archived", *flags)
    crawl(web, tmp_path, *archived, "-o", "a.warc.gz")
    done = crawl(web, tmp_path, *archived, "--assets-to", "d2", "-o", "a.warc.gz")
    assert "\n  The 5 assets are in a.warc.gz, not in d2; --fresh fetches them again.\n" in done.stdout
    assert not (tmp_path / "d2").exists()


def test_assets_do_not_count_as_pages(web: FakeWeb, tmp_path: Path) -> None:
    done = crawl(web, tmp_path, "--assets", "images", "--max-pages", "1", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["pages"], summary["pages_in_all"], summary["state"]) == (1, 1, "finished")
    # The assets of the only page are fetched although the budget of pages was used up before.
    assert summary["assets"] == summary["assets_in_all"] == 5
    assert {name for name, line in manifest(tmp_path / "assets").items() if line["success"]} == {
        "a.png", "b.png", "same.png", "c.gif", "f.ico",
    }  # fmt: skip


def test_the_number_of_assets_is_limited(web: FakeWeb, tmp_path: Path) -> None:
    done = crawl(web, tmp_path, "--assets", "all", "--max-assets", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert len(manifest(tmp_path / "assets")) == 3
    told = crawl(
        web, tmp_path, "--assets", "all", "--max-assets", "3", "--crawl-id", "b", "--assets-to", "b", "-o", "b.jsonl"
    )
    assert "  assets not fetched: " in told.stdout
    assert " beyond --max-assets\n" in told.stdout
    assert "budget" not in told.stdout
    assert json.loads(done.stdout)["links_dropped"]["max_assets"] > 0


def test_a_crawl_whose_pages_have_no_assets_says_so(web: FakeWeb, tmp_path: Path) -> None:
    web.mount("shop.test", "/", html("only text"))
    done = crawl(web, tmp_path, "--assets", "images", "--assets", "pdf")
    assert "  No assets were found: no page embeds or links any of images, pdf.\n" in done.stdout
    assert not (tmp_path / "assets").exists()


def test_an_asset_that_is_redirected_to_another_domain_counts_once(web: FakeWeb, tmp_path: Path) -> None:
    web.mount("shop.test", "/", html("<img src=/moved.png>"))
    web.mount("cdn.other", "/robots.txt", plain(""))
    done = crawl(web, tmp_path, "--assets", "images", "--max-assets", "1")
    assert done.returncode == 0, done.stderr
    assert [line["success"] for line in manifest(tmp_path / "assets").values()] == [True]
    assert "  assets: 1 fetched, in assets\n" in done.stdout
    assert "not fetched" not in done.stdout


def test_an_unknown_kind_is_bad_input(web: FakeWeb, tmp_path: Path) -> None:
    done = crawl(web, tmp_path, "--assets", "images,pictures")
    assert done.returncode == 2
    assert "--assets: there is no kind 'pictures'. Write images, css, js, fonts, video, audio, pdf" in done.stderr
    assert not (tmp_path / "assets").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--assets-to", "x"], "--assets-to: no assets are asked for"),
        (["--max-assets", "5"], "--max-assets: no assets are asked for"),
        (["--assets", "pdf", "--assets-to", "file"], "is no folder. Name another folder."),
        (["--assets", "pdf", "--assets-to", "/proc/x"], "--assets-to: /proc may not be written ("),
        (["--assets", "pdf", "--assets-to", "s3://bucket"], "is no folder on this machine"),
    ],
)
def test_options_that_cannot_be_used_are_bad_input(
    web: FakeWeb, tmp_path: Path, flags: list[str], message: str
) -> None:
    (tmp_path / "file").write_text("")
    done = crawl(web, tmp_path, *flags)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_killed_crawl_loses_no_asset(web: FakeWeb, tmp_path: Path) -> None:
    flags = [*arguments(web)[:-2], "--rate", "8/1", "--assets", "all"]
    with subprocess.Popen(command("crawl", *flags), cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "assets" / "manifest.jsonl").exists():
            assert process.poll() is None
        process.kill()
    done = gossamer("crawl", *flags, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Resuming" in done.stderr
    assert "wait for the spider" not in done.stderr
    lines = [json.loads(line) for line in (tmp_path / "assets" / "manifest.jsonl").read_text().splitlines()]
    by_request = {line["request_id"]: line for line in lines}  # at most the last batch stands twice
    good = [line for line in by_request.values() if line["success"]]
    assert json.loads(done.stdout)["assets_in_all"] == len(good) == 11
    assert files(tmp_path / "assets") == {line["file"] for line in good}


def test_fresh_begins_with_an_empty_folder_and_leaves_foreign_files(web: FakeWeb, tmp_path: Path) -> None:
    folder = tmp_path / "assets"
    assert crawl(web, tmp_path, "--assets", "images,css,pdf", "-o", "pages.jsonl").returncode == 0
    first = files(folder)
    price = manifest(folder)["price.pdf"]["file"]
    mine = {"notes.txt", f"{price[:2]}/mine.pdf"}
    for name in mine:
        (folder / name).write_text("mine")
    (tmp_path / "victim").write_text("mine")
    hostile = json.loads((folder / "manifest.jsonl").read_text().splitlines()[0]) | {"url": "x/x"}
    with (folder / "manifest.jsonl").open("a") as lines:
        for name in ("../victim", "notes.txt", str(tmp_path / "victim")):
            lines.write(json.dumps(hostile | {"file": name}) + "\n")
    web.mount("shop.test", "/price.pdf", file(b"%PDF-1.7 new", "application/pdf"))
    again = crawl(web, tmp_path, "--assets", "images,css,pdf", "-o", "pages.jsonl", "--fresh")
    assert again.returncode == 0, again.stderr
    second = {line["file"] for line in manifest(folder).values() if line["file"]}
    assert price not in second
    assert len(second) == len(first)
    assert files(folder) == second | mine
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_folder_with_the_assets_of_another_crawl_is_refused_unless_they_are_to_stay(
    web: FakeWeb, tmp_path: Path
) -> None:
    flags = ("--assets", "pdf", "--crawl-id")
    assert crawl(web, tmp_path, *flags, "one", "-o", "one.jsonl").returncode == 0
    before = (tmp_path / "assets" / "manifest.jsonl").read_bytes()
    for more in ((), ("--fresh",)):
        refused = crawl(web, tmp_path, *flags, "two", "-o", "two.jsonl", *more)
        assert refused.returncode == 2
        assert "assets holds the assets of another crawl, one. Name another folder with --assets-to" in refused.stderr
    assert not (tmp_path / "two.jsonl").exists()
    added = crawl(web, tmp_path, *flags, "two", "-o", "two.jsonl", "--append")
    assert added.returncode == 0, added.stderr
    assert (tmp_path / "assets" / "manifest.jsonl").read_bytes().startswith(before)
    lines = [json.loads(line) for line in (tmp_path / "assets" / "manifest.jsonl").read_text().splitlines()]
    assert {line["crawlid"] for line in lines} == {"one", "two"}


def test_an_archive_has_the_assets_and_their_repeated_contents_once(web: FakeWeb, tmp_path: Path) -> None:
    done = crawl(web, tmp_path, "--assets", "images", "--max-pages", "1", "-o", "site.warc.gz", "-o", "pages.csv")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "assets").exists()
    with (tmp_path / "site.warc.gz").open("rb") as stream:
        records = [(record.rec_type, record.rec_headers) for record in ArchiveIterator(stream, check_digests="raise")]
    kinds = {headers["WARC-Target-URI"].rpartition("/")[2]: kind for kind, headers in records if "re" in kind[:2]}
    assert sorted(name for name in kinds if name.endswith((".png", ".gif", ".ico"))) == [
        "a.png", "b.png", "c.gif", "f.ico", "gone.png", "page.png", "same.png",
    ]  # fmt: skip
    assert [kind for kind, _ in records].count("revisit") == 1
    assert len((tmp_path / "pages.csv").read_text().splitlines()) == 2
    done = gossamer("export", "site.warc.gz", "exported.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "exported.jsonl").read_text().splitlines()) == 1


def test_a_program_gets_the_pages_and_a_folder(web: FakeWeb, tmp_path: Path) -> None:
    url = f"http://shop.test:{web.port}/"
    options: dict[str, Any] = {"resolve": "*:127.0.0.1", "rate": "10000/1", "max_pages": 1, "assets": ["images", "pdf"]}
    with pytest.raises(BadInput, match='assets: name the folder for them, for example assets_to="assets"'):
        gossamer_crawl(url, **options)
    crawler = gossamer_crawl(url, assets_to=tmp_path / "files", data_dir=tmp_path / "data", **options)
    assert [page.url for page in crawler] == [url]
    assert (
        crawler.result.assets == len([line for line in manifest(tmp_path / "files").values() if line["success"]]) == 6
    )


async def test_a_service_takes_the_kinds_and_publishes_the_files(tmp_path: Path) -> None:
    request = {"appid": "testapp", "crawlid": "files", "maxdepth": 0, "assets": ["images"], "max_pages": 1}
    with FakeWeb.start(WebSpec(hosts=1, pages=1)) as web:
        mount(web)
        with up(tmp_path, "--resolve", "*:127.0.0.1") as service:
            async with talking(service) as talk, httpx.AsyncClient(base_url=service.api) as http:
                url = f"http://shop.test:{web.port}/"
                made = await http.post("/v1/crawls", json={**request, "url": url, "rate": "1000/1"})
                assert made.status_code < 300, made.text
                messages = await talk.until(talk.topics.crawled_by("testapp"), lambda found: len(found) == 8)
                files = [one for one in messages if one["spiderid"] == "gossamer.assets"]
                assert len(files) == 7
                picture = next(one for one in files if one["url"].endswith("/a.png"))
                assert base64.b64decode(picture["body"]) == b"A" * 20
                refused = await http.post("/v1/crawls", json={**request, "url": url, "assets": ["pictures"]})
                assert refused.status_code == 400
                assert "assets" in refused.json()["errors"][0]["field"]
                taken = {**request, "url": url, "crawlid": "own", "spiderid": "gossamer.assets"}
                refused = await http.post("/v1/crawls", json={**taken, "wait_for_spider": True})
                assert refused.status_code == 400, refused.text
