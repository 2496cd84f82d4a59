"""The other commands, each against real servers."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest

from gossamer.cli.app import parse_and_run
from gossamer.fakeweb import FakeWeb, WebSpec, html, plain, redirect
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Rate, Terms
from gossamer.model.record import PageRecord
from gossamer.model.request import Batch
from gossamer.policy.urls import fingerprint, spider_seed
from gossamer.settings import load as load_settings
from gossamer.wiring.extraction import load_extraction
from gossamer_fakeweb import graph
from tests.servers.crawling import command, gossamer, records_of, resolving
from tests.servers.http_proxy import run_http_proxy
from tests.servers.valkey import Server

MOUNTS = {
    ("a.test", "/robots.txt"): plain("User-agent: *\nDisallow: /private\nCrawl-delay: 0.01\n"),
    ("a.test", "/"): redirect("/home"),
    ("a.test", "/home"): html(
        '<a href="/in">in</a> <a href="http://b.test/out">out</a> <a href="x.zip">zip</a> <a href="/home#top">top</a>'
        '<a href="/no" rel=nofollow>no</a> <a href="mailto:x@a.test">mail</a>'
    ),
    ("a.test", "/in"): html("fine"),
    ("a.test", "/old"): html("<title>Page not found</title><h1>Page not found</h1>"),
    ("a.test", "/rejected"): html(
        "<title>Request Rejected</title>The requested URL was rejected. Your support ID is: 1<h1>x</h1>"
    ),
}


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=1, pages=5), mounts=MOUNTS) as running:
        yield running


def test_fetch_tells_everything_of_a_page(web: FakeWeb, tmp_path: Path) -> None:
    url, resolve = f"http://a.test:{web.port}/", resolving(web.resolve_overrides())
    result = gossamer("fetch", url, *resolve, "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert [hop["url"] for hop in found["hops"]] == [url, f"{url}home"]
    assert found["hops"][0]["location"] == f"{url}home"
    assert found["hops"][0]["robots"] == {"allowed": True, "rule": "no rule applies", "crawl_delay": 0.01}
    assert (found["status"], found["address"], found["encoding"]) == (200, f"127.0.0.1:{web.port}", "utf-8")
    assert found["links_kept"] == [f"{url}in"]
    dropped = {link["url"].partition("//")[2]: link["reason"] for link in found["links_dropped"]}
    own = f"a.test:{web.port}"
    assert dropped == {
        "b.test/out": "offsite",
        f"{own}/x.zip": "extension",
        f"{own}/home": "known",
        f"{own}/no": "nofollow",
    }
    shown = gossamer("fetch", url, *resolve, cwd=tmp_path).stdout
    for word in ("127.0.0.1", "redirect", "allowed", "utf-8", "first_byte", "offsite", "/in"):
        assert word in shown
    assert list(tmp_path.iterdir()) == []


def test_fetch_says_which_rule_refuses_and_what_failed(web: FakeWeb, tmp_path: Path) -> None:
    resolve = resolving(web.resolve_overrides())
    refused = gossamer("fetch", f"http://a.test:{web.port}/private/x", *resolve, cwd=tmp_path)
    assert refused.returncode == 1
    assert "Disallow: /private" in refused.stdout
    nobody = gossamer("fetch", "http://127.0.0.1:1/", "--allow-private", "--ignore-robots", cwd=tmp_path)
    assert nobody.returncode == 1
    assert "error      The server did not accept the connection: 127.0.0.1:1: Connection refused" in nobody.stdout
    assert "advice     Check whether it is running." in nobody.stdout


def test_fetch_and_extract_name_a_refusal_by_the_site(web: FakeWeb, tmp_path: Path) -> None:
    url, resolve = f"http://a.test:{web.port}/rejected", resolving(web.resolve_overrides())
    result = gossamer("fetch", url, *resolve, "--json", cwd=tmp_path)
    found = json.loads(result.stdout)
    assert (result.returncode, found["success"], found["status"]) == (1, False, 200)
    assert (found["refusal"]["kind"], found["refusal"]["rule"]) == ("denied", "f5")
    shown = gossamer("fetch", url, *resolve, cwd=tmp_path).stdout
    assert "refused    A firewall of the site refuses the page" in shown
    assert "evidence   f5: status 200, title request rejected" in shown
    assert "advice     Ask its operator" in shown
    missing = gossamer("fetch", f"http://a.test:{web.port}/old", *resolve, cwd=tmp_path).stdout
    assert "refused    The page says that it was not found" in missing
    assert "advice" not in missing
    extracted = gossamer("extract", url, "--field", "a=h1", *resolve, cwd=tmp_path).stdout
    assert "the site refuses it (denied), so a crawl would take no items from it" in extracted


def test_fetch_through_a_proxy_that_resolves_the_name_shows_no_address(web: FakeWeb, tmp_path: Path) -> None:
    with run_http_proxy() as port:
        url, proxy = f"http://localhost:{web.port}/", f"http://127.0.0.1:{port}"
        arguments = ("fetch", url, "--allow-private", "--ignore-robots", "--proxy", proxy)
        shown = gossamer(*arguments, cwd=tmp_path).stdout
        found = json.loads(gossamer(*arguments, "--json", cwd=tmp_path).stdout)
    [response] = [line for line in shown.splitlines() if line.startswith("  response ")]
    assert response == f"  response   {found['status']} {found['status_msg']} through the proxy"
    assert found["address"] == ""


LOOK = "Look for a typing error, check your network, or name its address with --resolve HOST:ADDRESS."


@pytest.mark.parametrize(
    ("command", "stream"),
    [
        (("fetch",), "stdout"),
        (("extract", "--field", "a=h1"), "stdout"),
        (("shell", "-c", "1"), "stderr"),
        (("crawl",), "stderr"),
    ],
)
def test_all_commands_that_fetch_a_page_give_the_same_advice(
    command: tuple[str, ...], stream: str, tmp_path: Path
) -> None:
    result = gossamer(*command, "http://nobody.invalid/", cwd=tmp_path)
    assert result.returncode == 1
    assert LOOK in getattr(result, stream)
    as_json = gossamer("fetch", "http://nobody.invalid/", "--json", cwd=tmp_path)
    assert json.loads(as_json.stdout)["advice"] == LOOK


def test_a_page_that_redirects_out_of_the_scope_comes_with_the_option_that_follows(tmp_path: Path) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/", redirect(f"http://www.b.test:{web.port}/"))
        for command in (("fetch",), ("extract", "--field", "a=h1")):
            result = gossamer(*command, f"http://a.test:{web.port}/", "--resolve", "*:127.0.0.1", cwd=tmp_path)
            assert "To follow it, add --allow-domain b.test, or start from there." in result.stdout


def test_why_answers_for_a_crawl_that_is_done_and_for_one_that_runs(web: FakeWeb, tmp_path: Path) -> None:
    url, resolve = f"http://a.test:{web.port}/", resolving(web.resolve_overrides())
    crawled = gossamer("crawl", url, *resolve, "--rate", "1000/1", "--crawl-id", "mine", cwd=tmp_path)
    assert crawled.returncode == 0, crawled.stderr

    def why(asked: str) -> dict[str, object]:
        result = gossamer("why", asked, *resolve, "--json", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    done = why(f"{url}in")
    assert (done["crawl_id"], done["crawl"], done["scope"]) == ("mine", "finished", "inside")
    assert (done["known"]["seen"], done["known"]["place"]) == (True, "done")  # type: ignore[index]
    assert (done["record"]["success"], done["record"]["status"]) == (True, 200)  # type: ignore[index]
    assert why(url)["record"]["redirects"] == [{"url": url, "status": 302}]  # type: ignore[index]
    out = why("http://b.test/out")
    assert str(out["scope"]).startswith("offsite")
    assert not out["known"]["seen"]  # type: ignore[index]
    assert "out of scope" in str(out["robots"])
    assert "Disallow: /private" in str(why(f"{url}private/x")["robots"])
    for outside in ("http://b.test/out", f"{url}x.zip"):
        told = gossamer("why", outside, cwd=tmp_path).stdout
        assert "out of scope, so never queued, whether or not a page links to it" in told
    alone = gossamer("why", f"{url}private/x", cwd=tmp_path).stdout
    assert "Disallow: /private" in alone, "the crawl's own overrides hold"
    shown = gossamer("why", f"{url}in", *resolve, cwd=tmp_path).stdout
    assert "done" in shown
    assert "status 200" in shown
    unknown = gossamer("why", url, "--crawl-id", "other", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "mine" in unknown.stderr


def test_a_crawl_that_waits_for_a_robots_txt_says_so_and_why_does_too(tmp_path: Path) -> None:
    mounts = {("a.test", "/robots.txt"): html("", status=503)}
    with FakeWeb.start(WebSpec(hosts=1, pages=1), mounts=mounts) as web:
        url, resolve = f"http://a.test:{web.port}/", resolving(["*:127.0.0.1"])
        crawl = subprocess.Popen(
            command("crawl", url, *resolve, "--rate", "1000/1"), cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        try:
            assert crawl.stderr is not None
            assert f"The robots.txt of http://a.test:{web.port} cannot be fetched (503)" in crawl.stderr.readline()
            # Said before the request is back in the frontier, so it may be there only a moment later.
            while (found := json.loads(gossamer("why", url, "--json", cwd=tmp_path).stdout))["known"][
                "place"
            ] != "later":
                assert found["known"]["place"] == "leased"
            assert found["waits"]["reason"] == "503"
            assert 0 < found["waits"]["asked_again_in_seconds"] <= 60
            assert 200 < found["waits"]["given_up_in_seconds"] <= 300
            told = gossamer("why", url, cwd=tmp_path).stdout
            assert "the site's robots.txt could not be fetched (503)" in told
            crawl.send_signal(signal.SIGINT)
            crawl.communicate(timeout=60)
            assert crawl.returncode == 130
        finally:
            crawl.kill()
            crawl.wait()


def test_why_tells_how_often_a_request_has_failed_and_for_which_reason_it_is_kept(tmp_path: Path) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=1), mounts={("a.test", "/"): html("", status=503)}) as web:
        url, resolve = f"http://a.test:{web.port}/", resolving(["*:127.0.0.1"])
        arguments = ("crawl", url, *resolve, "--rate", "1000/1", "-o", "pages.csv")
        crawl = subprocess.Popen(command(*arguments), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        try:
            assert crawl.stderr is not None
            assert "Cannot fetch" in crawl.stderr.readline()
            # Said before the request is back in the frontier, so it may be there only a moment later.
            while (known := json.loads(gossamer("why", url, "--json", cwd=tmp_path).stdout)["known"])[
                "place"
            ] != "later":
                assert known["place"] == "leased"
            assert (known["failed_attempts"], known["failure"]) == (1, "")
            said = gossamer("why", url, cwd=tmp_path).stdout
            assert "  now      waiting for its next attempt\n           1 attempt failed (the reason" in said
            crawl.send_signal(signal.SIGINT)
            crawl.communicate(timeout=60)
        finally:
            crawl.kill()
            crawl.wait()
        once = ("--retries", "0", "--crawl-id", "once")
        assert gossamer(*arguments, *once, "--append", cwd=tmp_path).returncode == 1
        said = gossamer("why", url, "--crawl-id", "once", cwd=tmp_path).stdout
        sentence = "failed: http_503 (503 Service Unavailable); the next start of the crawl fetches it again"
        assert f"  now      {sentence}\n" in said
        assert "not in this crawl's outputs" not in said


async def test_a_worker_works_for_what_others_submit_until_told_to_stop(web: FakeWeb, tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    output = tmp_path / "pages.jsonl"
    try:
        frontier = await ValkeyFrontier.connect(server.address)
        crawl = Crawl(id=CrawlId("service", "one"), rate=Rate(1000, 1.0))
        run = await frontier.open_crawl(crawl)
        worker = subprocess.Popen(  # noqa: ASYNC220 (it is waited for with a bound)
            [
                *command("worker", "--frontier", server.address, "-o", str(output), "--json"),
                *resolving(["*:127.0.0.1"]),
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        url = f"http://a.test:{web.port}/in"
        mark = fingerprint(url, seed=spider_seed(frontier.secret, "link"))
        await frontier.add(run, Terms(maxdepth=0), [Batch("link", "a.test", 1, 0, [url], [mark])], seeds=True)
        async with asyncio.timeout(60):
            while not ((info := await frontier.crawl_info(crawl.id)) and info.total().fetched):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=60)
        assert worker.returncode == 0
        assert json.loads(out)["pages"] == 1
        (record,) = records_of(output)
        assert isinstance(record, PageRecord)
        assert (record.appid, record.crawlid, record.url, record.success) == ("service", "one", url, True)
        await frontier.close()
    finally:
        server.stop()


async def test_the_summary_of_a_worker_tells_which_output_holds_what(web: FakeWeb, tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        frontier = await ValkeyFrontier.connect(server.address)
        crawl = Crawl(id=CrawlId("service", "one"), rate=Rate(1000, 1.0))
        run = await frontier.open_crawl(crawl)
        outputs = ("-o", "all.jsonl", "-o", "pages.jsonl", "--pages", "-o", "items.jsonl", "--items")
        arguments = command("worker", "--frontier", server.address, *outputs, *resolving(["*:127.0.0.1"]))
        worker = subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
        url = f"http://a.test:{web.port}/in"
        mark = fingerprint(url, seed=spider_seed(frontier.secret, "link"))
        terms = Terms(maxdepth=0, extract=load_extraction(load_settings({"crawl.field": ["elements=* @count"]}).crawl))
        await frontier.add(run, terms, [Batch("link", "a.test", 1, 0, [url], [mark])], seeds=True)
        async with asyncio.timeout(60):
            while not ((info := await frontier.crawl_info(crawl.id)) and info.total().fetched):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await frontier.close()
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=60)
    finally:
        server.stop()
    places = "  pages are in pages.jsonl\n  pages and items are in all.jsonl\n  items are in items.jsonl\n"
    assert places in out, out


def test_demo_shows_where_the_pages_are(tmp_path: Path) -> None:
    result = gossamer("demo", "--pages", "50", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "demo/pages.jsonl" in result.stdout
    assert len(records_of(tmp_path / "demo" / "pages.jsonl")) == 50
    again = gossamer("demo", "--pages", "50", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_a_demo_that_fails_says_only_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_FETCH__PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("GOSSAMER_FETCH__RETRIES", "0")
    done = gossamer("demo", "--pages", "5", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "The demo has failed: none of its pages could be fetched.\n")
    assert "The proxy could not be used: 5, for example" in done.stderr
    assert done.stderr.endswith("Mend that, then run it again: gossamer demo\n")


def test_standard_output_has_nothing_but_records(web: FakeWeb, tmp_path: Path) -> None:
    result = gossamer(
        "crawl", web.url(), *resolving(web.resolve_overrides()), "--rate", "1000/1", "-o", "-", cwd=tmp_path
    )
    assert result.returncode == 0
    assert {json.loads(line)["url"] for line in result.stdout.splitlines()} == graph(web.site)
    assert "is finished" in result.stderr


def test_every_command_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("crawl", "fetch", "why", "worker", "demo"):
        capsys.readouterr()
        assert parse_and_run([name, "--help"]) == 0
        assert len(capsys.readouterr().out) > 500
    assert parse_and_run([]) == 2
    assert "Usage" in capsys.readouterr().out


def test_seeds_come_from_a_file_standard_input_or_a_url(web: FakeWeb, tmp_path: Path) -> None:
    web.mount("site0.test", "/seeds.txt", plain(f"# ours\n{web.url(0, 1)}\n\n"))
    (tmp_path / "seeds.txt").write_text(f"{web.url(0, 2)}\n")
    result = gossamer(
        "crawl", "--seeds", "seeds.txt", "--seeds", "-", "--seeds", web.url(0, "/seeds.txt"),
        "--depth", "0", "--rate", "1000/1", *resolving(web.resolve_overrides()), "-o", "-",
        cwd=tmp_path, stdin=f"{web.url(0, 3)}\n",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert {json.loads(line)["url"] for line in result.stdout.splitlines()} == {web.url(0, n) for n in (1, 2, 3)}


def test_a_damaged_library_for_parquet_is_named_and_the_records_are_kept(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "pyarrow.py").write_text("raise ImportError('built for another numpy')\n")
    with FakeWeb.start(WebSpec(hosts=1, pages=3)) as web:
        arguments = ("crawl", *web.seeds(), *resolving(web.resolve_overrides()), "--rate", "100/1")
        failed = gossamer(*arguments, "-o", "x.parquet", cwd=tmp_path, env={"PYTHONPATH": str(damaged)})
        assert failed.returncode == 1
        assert "Traceback" not in failed.stderr
        assert "pyarrow cannot be loaded (built for another numpy)" in failed.stdout + failed.stderr
        assert gossamer(*arguments, "-o", "x.parquet", cwd=tmp_path).returncode == 0
    assert len(pyarrow.parquet.read_table(tmp_path / "x.parquet")) == 3


def test_refusals_by_rules_of_ones_own(web: FakeWeb, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("version: 3\nrules: [{name: fine, kind: denied, source: [fine], most_bytes: 99}]")
    url, resolve = f"http://a.test:{web.port}/in", resolving(web.resolve_overrides())
    found = json.loads(gossamer("fetch", url, *resolve, "--refusal-rules", str(rules), "--json", cwd=tmp_path).stdout)
    assert (found["refusal"]["rule"], found["refusal"]["version"]) == ("fine", 3)
    crawled = gossamer("crawl", url, *resolve, "--refusal-rules", str(rules), "--json", cwd=tmp_path)
    assert json.loads(crawled.stdout)["refused_pages"] == {"denied": 1}
    rules.write_text("rules: [{name: fine, kind: odd}]")
    refused = gossamer("crawl", url, *resolve, "--refusal-rules", str(rules), cwd=tmp_path)
    [line] = refused.stderr.splitlines()
    assert "--refusal-rules: " in line
    assert "Kinds are challenge, captcha, denied, login" in line
    assert refused.returncode == 2
