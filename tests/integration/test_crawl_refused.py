"""Sites that refuse some of their pages, through a whole crawl: refusals are no pages, and innocent pages are."""

import json
import logging
from collections import Counter
from pathlib import Path

import pytest

from gossamer.fakeweb import Answer, WebSpec, html, redirect, serve
from gossamer.policy.refusal_rests import IN_A_ROW
from gossamer.policy.repeated_pages import ALIKE, SAME
from tests.servers.crawling import crawl

MOMENT = (
    "<title>Just a moment...</title><script>window._cf_chl_opt={}</script>"
    "<a href='/behind'>behind</a><h1>Not an item</h1>"
)
INCAPSULA = (
    "<html><head><script src='/_Incapsula_Resource?SWJ=7'></script></head><body><iframe id='main-iframe' "
    "src='/_Incapsula_Resource?SWU=3'>Request unsuccessful. Incapsula incident ID: 12</iframe></body></html>"
)
REJECTED = "<title>Request Rejected</title>The requested URL was rejected. Your support ID is: 1<h1>Not an item</h1>"
LOGIN = (
    "<title>Shop</title><form action='/login'><input type='password'></form>"
    "<a href='/help'>help</a><h1>Not an item</h1>"
)
NOT_FOUND = "<title>Page not found</title><h1>Page not found</h1><p>It does not exist.</p><a href='/help'>help</a>"
CONSENT = "<title>Shop</title><h1>Not an item</h1><form><button>Accept all</button></form><a href='/help'>help</a>"
SHELL = "<title>Shop</title><div id='root'></div><script src='/app.js'></script>"
CONTACT = (
    "<title>Contact</title><h1>Contact</h1><div class='g-recaptcha' data-sitekey='6L'></div>"
    "<a href='/imprint'>imprint</a>"
)
ARTICLE = f"<title>How they refuse</title><h1>Article</h1><pre>{REJECTED.replace('<', '&lt;')}</pre>"

SITES: dict[str, dict[str, Answer]] = {
    "challenge.test": {"/": html(MOMENT, status=403, headers=(("cf-mitigated", "challenge"),))},
    "imperva.test": {"/": html(INCAPSULA)},
    "shop.test": {
        "/": html(
            "<h1>Shop</h1>"
            + "".join(
                f"<a href='{to}'>x</a>"
                for to in (
                    "/contact",
                    "/rejected",
                    "/account",
                    "/article",
                    "/secret",
                    "/gone",
                    "/old",
                    "/asked",
                    "/shell",
                )
            )
        ),
        "/contact": html(CONTACT),
        "/imprint": html("<h1>Imprint</h1>"),
        "/rejected": html(REJECTED),
        "/account": redirect("/login?next=%2Faccount"),
        "/login?next=%2Faccount": html(LOGIN),
        "/article": html(ARTICLE),
        "/secret": html("<h1>403 Forbidden</h1>", status=403),
        "/gone": html("<h1>404</h1>", status=404),
        "/old": html(NOT_FOUND),
        "/asked": redirect("/consent?to=/asked"),
        "/consent?to=/asked": html(CONSENT),
        "/shell": html(SHELL),
    },
}


async def test_refusals_are_no_pages_and_innocent_pages_are(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        for site, answers in SITES.items():
            for path, answer in answers.items():
                web.mount(site, path, answer)
        urls = [f"http://{site}:{web.port}/" for site in SITES]
        done = await crawl(tmp_path, urls, ["*:127.0.0.1"], crawl__field=("name=h1",))
        asked = {(record.host, record.path) for record in web.log()}
    found = {url.split("//")[1].replace(f":{web.port}", ""): page for url, page in done.by_url().items()}
    reasons = {url: page.reason for url, page in found.items()}
    assert reasons == {
        "challenge.test/": "refused_challenge",
        "imperva.test/": "refused_challenge",
        "shop.test/": "",
        "shop.test/contact": "",
        "shop.test/imprint": "",
        "shop.test/rejected": "refused_denied",
        "shop.test/account": "refused_login",
        "shop.test/article": "",
        "shop.test/secret": "http_403",
        "shop.test/gone": "http_404",
        "shop.test/old": "refused_not_found",
        "shop.test/asked": "refused_consent",
        "shop.test/shell": "refused_empty",
    }
    assert not {path for _, path in asked} & {"/behind", "/help"}
    for url, page in found.items():
        refused = page.reason.startswith("refused_")
        assert (page.refusal is not None) == refused, url
        if page.refusal is not None:
            assert (f"refused_{page.refusal.kind}", page.success, page.links) == (page.reason, False, [])
            assert page.refusal.evidence
            assert page.body
    assert {str(item.item["name"]) for item in done.items} == {"Shop", "Contact", "Imprint", "Article"}
    summary = done.summary
    assert json.loads(summary.as_json())["refused_pages"] == {
        "challenge": 2, "denied": 1, "login": 1, "consent": 1, "not_found": 1, "empty": 1,
    }  # fmt: skip
    assert "5 pages were refused by the site" in summary.as_text()
    assert summary.exit_code() == 0


async def test_a_crawl_of_refusals_alone_has_no_pages(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("imperva.test", "/", html(INCAPSULA))
        done = await crawl(tmp_path, [f"http://imperva.test:{web.port}/"], ["*:127.0.0.1"])
    assert done.summary.exit_code() == 1
    assert "no page could be fetched; 1 page was refused by the site" in done.summary.as_text()


async def test_a_site_that_refuses_all_but_one_page_is_told_of_while_it_does_and_fails_the_crawl(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="gossamer")
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html("".join(f"<a href='/{number}'>x</a>" for number in range(IN_A_ROW))))
        for number in range(IN_A_ROW):
            web.mount("shop.test", f"/{number}", html(REJECTED))
        done = await crawl(tmp_path, [f"http://shop.test:{web.port}/"], ["*:127.0.0.1"])
    assert "shop.test has refused 10 pages in a row, and sent none between them" in caplog.text
    summary = json.loads(done.summary.as_json())
    assert (summary["pages"], summary["refusing_hosts"], summary["exit_code"]) == (1, {"shop.test": IN_A_ROW}, 1)
    assert "is finished, but sites refused more pages than they sent" in done.summary.as_text()
    assert "the last 10 of shop.test were all refused" in done.summary.as_text()


async def test_a_domain_rests_after_a_challenge(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        links = "".join(f"<a href='/{number}'>x</a>" for number in range(2))
        web.mount("some.test", "/", html(links))
        for number in range(2):
            web.mount("some.test", f"/{number}", html(INCAPSULA))
        done = await crawl(
            tmp_path, [f"http://some.test:{web.port}/"], ["*:127.0.0.1"], crawl__domain_concurrency=1, crawl__rate="5/1"
        )
        times = [record.started for record in web.log() if record.path in ("/0", "/1")]
    assert [page.reason for page in done.pages].count("refused_challenge") == 2
    assert times[1] - times[0] >= 9.9
    assert list(done.summary.tally.rests) == ["some.test"]


async def test_the_same_page_for_all_paths_is_refused_and_kinds_may_be_taken_for_pages(tmp_path: Path) -> None:
    count = ALIKE + SAME + 5
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("same.test", "/", html("".join(f"<a href='/{number}'>x</a>" for number in range(count))))
        for number in range(count):
            web.mount("same.test", f"/{number}", html("<title>Sorry</title><p>You look like a robot to us."))
        seeds, resolve = [f"http://same.test:{web.port}/"], ["*:127.0.0.1"]
        done = await crawl(tmp_path / "a", seeds, resolve)
        kept = await crawl(tmp_path / "b", seeds, resolve, fetch__accept_refused=("same",))
    reasons = Counter(page.reason for page in done.pages)
    assert reasons == {"": 1 + ALIKE + SAME, "refused_same": 5}
    assert {page.refusal.rule for page in done.pages if page.refusal} == {"same_page"}
    assert Counter(page.reason for page in kept.pages) == {"": 1 + count}


async def test_the_next_start_knows_the_page_of_refusals_and_takes_what_has_come_in_its_place(tmp_path: Path) -> None:
    count = ALIKE + SAME + 5
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("same.test", "/", html("".join(f"<a href='/{number}'>x</a>" for number in range(count))))
        for number in range(count):
            web.mount("same.test", f"/{number}", html("<title>Sorry</title><p>You look like a robot to us."))
        seeds, resolve = [f"http://same.test:{web.port}/"], ["*:127.0.0.1"]
        first = (await crawl(tmp_path, seeds, resolve)).by_url()
        refused = [url for url, page in first.items() if page.reason == "refused_same"]
        number = refused[0].rpartition("/")[2]
        web.mount("same.test", f"/{number}", html("<title>Sorry</title><p>We were wrong. Here is the table."))
        done = await crawl(tmp_path, seeds, resolve)
    assert len(refused) == 5
    again = [page for page in done.pages if page.url in refused][len(refused) :]
    reasons = {page.url: page.reason for page in again}
    assert reasons == {url: "" if url == refused[0] else "refused_same" for url in refused}
    evidence = next(page.refusal.evidence for page in again if page.refusal)
    assert "the same page as when it was refused before" in evidence
    assert done.summary.info is not None
    assert done.summary.info.total().failed == {"refused_same": 4}


EMPTY_OR_LARGE = {
    "empty": "",
    "late title": "\ufeff<!doctype html><style>" + "a {b: c}" * 400 + "</style><title>No</title>Robot?",
    "large": "<title>Sorry</title><p>You look like a robot." + "<p>an entry of the menu" * 3000,
}


@pytest.mark.parametrize("kind", EMPTY_OR_LARGE)
async def test_pages_without_content_and_large_pages_may_be_the_same(tmp_path: Path, kind: str) -> None:
    count = ALIKE + SAME + 2
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("same.test", "/", html("".join(f"<a href='/{number}'>x</a>" for number in range(count))))
        for number in range(count):
            web.mount("same.test", f"/{number}", html(EMPTY_OR_LARGE[kind]))
        done = await crawl(tmp_path, [f"http://same.test:{web.port}/"], ["*:127.0.0.1"])
    assert Counter(page.reason for page in done.pages) == {"": 1 + ALIKE + SAME, "refused_same": 2}


async def test_a_spider_reads_an_empty_page_which_is_none_nevertheless(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        """
from gossamer import Spider

class Shop(Spider):
    def parse(self, page):
        yield {"title": page.css("title::text").get()}
        yield page.follow("/behind")
"""
    )
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html(SHELL))
        web.mount("shop.test", "/behind", html("<title>Behind</title><p>words"))
        done = await crawl(
            tmp_path, [f"http://shop.test:{web.port}/"], ["*:127.0.0.1"], crawl__spider=str(tmp_path / "shop.py")
        )
    assert {page.url.rpartition("/")[2]: page.reason for page in done.pages} == {"": "refused_empty", "behind": ""}
    assert {item.item["title"] for item in done.items} == {"Shop", "Behind"}
    assert json.loads(done.summary.as_json())["pages"] == 1
