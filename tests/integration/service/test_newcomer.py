"""A person who has read nothing, in a real browser: submits a crawl, finds out why it is slow, makes its site faster,
finds the seven pages that failed, and retries them. PICTURES=docs/images makes the pictures of the documentation."""

from pathlib import Path

import httpx

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.browser import browser
from tests.servers.crawling import resolving
from tests.servers.service import up

WEB = WebSpec(hosts=1, pages=150, server_error=0.045, errors_once=True, page_bytes=2000, seed=2)
"""Seven of its pages fail when they are asked for the first time."""


def test_seven_of_a_hundred_and_fifty_pages_are_found_and_retried_from_the_pages_alone(tmp_path: Path) -> None:
    slow = "default: {hits: 2, window: 1}\n"
    for folder in ("browser", "service"):
        (tmp_path / folder).mkdir()
    with (
        FakeWeb.start(WEB) as web,
        up(tmp_path / "service", *resolving(web.resolve_overrides()), policies=slow) as service,
        browser(tmp_path / "browser") as chromium,
    ):
        root = f"{service.api}/ui"
        chromium.size(1280, 800)
        chromium.scheme("light")
        chromium.open(f"{root}/")
        chromium.click("header a.primary", "document.querySelector('#f-url')")
        for field, value in (("url", web.seeds()[0]), ("crawlid", "spring"), ("maxdepth", "9"), ("retries", "0")):
            chromium.fill(f"#f-{field}", value)
        chromium.click("form.request button.primary", "location.pathname === '/ui/crawl'")
        # Why is it slow? The page says so, and leads to the domain.
        chromium.wait("document.querySelector('#counts strong').textContent > 3 && document.querySelector('td.reason')")
        reason = chromium.evaluate("document.querySelector('td.reason').textContent")
        assert reason == "the domain's policy: 2 in 1 s"
        chromium.click(
            "section[aria-labelledby=waiting] td a",
            "document.querySelector('#f-hits') && document.readyState === 'complete'",
        )
        for field, value in (("hits", "25"), ("window", "1")):
            chromium.fill(f"#f-{field}", value)
        chromium.evaluate("document.querySelector('#f-hits').dispatchEvent(new Event('input', {bubbles: true}))")
        chromium.wait("document.querySelector('.changed')")
        assert chromium.evaluate("document.querySelector('.changed').textContent") == "25"
        chromium.keep_picture("dashboard-domain.png")
        chromium.click("form.request button.primary", "document.querySelector('#f-hits').value === '25'")
        chromium.open(f"{root}/crawl?appid=dashboard&crawlid=spring")
        chromium.wait("Number(document.getElementById('counts').dataset.fetched) > 60")
        chromium.keep_picture("dashboard.png")
        chromium.wait("document.querySelector('#counts .state.finished')")
        # Where are the seven?
        chromium.open(f"{root}/crawls?state=finished")
        chromium.click("table.crawls a", "document.querySelectorAll('.examples li').length === 7")
        chromium.evaluate("document.querySelector('details.record').open = true")
        chromium.keep_picture("dashboard-failed.png")
        chromium.click("form[action$='/crawl/retry'] button", "document.querySelector('p.notice')")
        chromium.wait("document.querySelector('#counts .state.finished') && !document.querySelector('[action$=retry]')")
        total = httpx.get(f"{service.api}/v1/crawls/dashboard/spring").json()["total"]
        assert (total["fetched"], total["failed"]) == (150, {})
        assert chromium.faults() == []
