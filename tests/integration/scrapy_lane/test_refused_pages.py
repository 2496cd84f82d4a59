"""Pages that a site refuses, in the Scrapy lane: counted in the stats, and given to the spider as they are."""

from pathlib import Path

from gossamer.fakeweb import FakeWeb, html, redirect
from gossamer.policy.repeated_pages import ALIKE, SAME
from tests.servers.valkey import Server

from .lane import HOST, at, page, scraper

REJECTED = "<title>Request Rejected</title>The requested URL was rejected. Your support ID is: 1<a href='/behind'>x</a>"
LOGIN = "<title>Shop</title><form action='/login'><input type='password'></form>"


async def test_refusals_are_counted_and_reach_the_spider(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/shop", page("/rejected", "/account", "/contact"))
    web.mount(HOST, "/rejected", html(REJECTED))
    web.mount(HOST, "/behind", html(REJECTED))
    web.mount(HOST, "/account", redirect("/login?next=%2Faccount"))
    web.mount(HOST, "/login?next=%2Faccount", html(LOGIN))
    web.mount(HOST, "/contact", html("<title>Contact</title><div class='g-recaptcha' data-sitekey='6L'></div>"))
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{name: widget, kind: captcha, titles: [contact], source: [data-sitekey]}]")
    own = {"GOSSAMER_FETCH__REFUSAL_RULES": str(rules)}
    with scraper(tmp_path, server, "links", [at(web, "/shop")], **own) as running:
        done = running.finish()
    paths = {item["url"].partition(f":{web.port}")[2] for item in done.items}
    assert paths == {"/shop", "/rejected", "/behind", "/login?next=%2Faccount", "/contact"}
    counted = {name: count for name, count in done.stats.items() if name.startswith("gossamer/refused/")}
    assert counted == {"gossamer/refused/denied": 2, "gossamer/refused/login": 1, "gossamer/refused/captcha": 1}
    assert done.log.count("A firewall of the site refuses the page") == 1


async def test_a_page_for_all_paths_is_counted_once_it_is_known(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    paths = [f"/p/{number}" for number in range(ALIKE + SAME + 3)]
    web.mount(HOST, "/shop", page(*paths))
    for path in paths:
        web.mount(HOST, path, html("<title>Shop</title><h1>Welcome</h1><p>We sell shoes, and more shoes.</p>"))
    with scraper(tmp_path, server, "links", [at(web, "/shop")]) as running:
        done = running.finish()
    assert len(done.items) == len(paths) + 1
    assert done.stats["gossamer/refused/same"] == 3
    assert done.log.count("the same page as at") == 1
