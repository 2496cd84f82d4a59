"""A crawl of a fake web ends, for every URL, as a correct crawler's would: the web itself knows how."""

from collections import Counter
from pathlib import Path

import pytest

from gossamer.fakeweb import Robots, WebSpec, serve
from gossamer.fakeweb.site import Fate
from gossamer.model.record import PageRecord
from gossamer_fakeweb import Ends, Expected, expected, fetched, fetches, repeated
from tests.servers.crawling import crawl

REASONS = {
    Fate.REFUSE: {"connection_lost", "connect"},
    Fate.RESET: {"connection_lost"},
    Fate.STALL: {"total_timeout", "idle_timeout"},
    Fate.NOT_FOUND: {"http_404"},
    Fate.RATE_LIMITED: {"http_429"},
    Fate.SERVER_ERROR: {"http_500"},
    Fate.UNAVAILABLE: {"http_503"},
}
SPECS = {
    "plain": WebSpec(hosts=2, pages=60),
    "many_hosts": WebSpec(hosts=40, pages=5, cross_host_share=0.3, subdomains=2),
    "redirects": WebSpec(hosts=3, pages=50, redirect_same=0.15, redirect_cross=0.15, redirect_chain=3),
    "failures": WebSpec(
        hosts=2, pages=60, refuse=0.03, reset=0.03, stall=0.02, not_found=0.03, rate_limited=0.02, server_error=0.03,
        unavailable=0.03, retry_after_seconds=0,
    ),
    "failures_that_pass": WebSpec(
        hosts=2, pages=60, refuse=0.03, reset=0.03, stall=0.02, not_found=0.03, rate_limited=0.02, server_error=0.03,
        unavailable=0.03, retry_after_seconds=0, errors_once=True,
    ),
    "robots": WebSpec(
        hosts=3, pages=40, robots=(Robots.NONE, Robots.ALLOW, Robots.DISALLOW), robots_disallow=("/p/1", "/r/2"),
        redirect_same=0.1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
async def test_every_url_ends_as_it_must(name: str, tmp_path: Path) -> None:
    """One record each, with the right outcome, reason, depth and chain; nothing else was asked of the web."""
    spec = SPECS[name]
    async with serve(spec) as web:
        outcome = expected(web.site)
        crawled = await crawl(
            tmp_path, web.seeds(), web.resolve_overrides(), fetch__retries=3 if spec.errors_once else 0
        )
        asked = fetches(web.log())
    assert crawled.summary.finished
    assert crawled.summary.exit_code() == 0
    records = crawled.by_url()
    assert records.keys() == outcome.keys()
    wrong = {url: (records[url].reason, end) for url, end in outcome.items() if not _agrees(url, records[url], end)}
    assert wrong == {}
    assert set(asked) == fetched(outcome)
    if not spec.errors_once:
        assert repeated(web.log()) == {}
    assert crawled.summary.info is not None
    total = crawled.summary.info.total()
    assert total.fetched == sum(end.ends is Ends.PAGE for end in outcome.values())
    assert total.added == total.done
    assert (total.queued, total.later, total.leased) == (0, 0, 0)


async def test_every_url_ends_as_it_must_with_two_processes_on_a_sharded_frontier(tmp_path: Path) -> None:
    spec = WebSpec(
        hosts=8,
        pages=40,
        cross_host_share=0.2,
        redirect_same=0.05,
        redirect_cross=0.05,
        not_found=0.05,
        server_error=0.05,
    )
    async with serve(spec) as web:
        outcome = expected(web.site)
        crawled = await crawl(
            tmp_path, web.seeds(), web.resolve_overrides(), fetch__retries=0, worker__processes=2, shards=4
        )
        asked = fetches(web.log())
    records = crawled.by_url()
    assert records.keys() == outcome.keys()
    assert {url for url, end in outcome.items() if not _agrees(url, records[url], end)} == set()
    assert set(asked) == fetched(outcome)
    assert Counter(asked.values())[1] == len(asked)


def _agrees(url: str, record: PageRecord, end: Expected) -> bool:
    """Whether a record tells what was expected. A redirect to another host within its depth keeps the depth."""
    chain = [hop.url for hop in record.redirects]
    # The links of a page that is reached late may give its targets a greater depth than the shortest way.
    if record.depth < end.depth:
        return False
    if end.ends is Ends.PAGE:
        route = [url, *end.redirects]
        return record.success and record.status_code == 200 and [*chain, record.response_url] == route
    if end.ends is Ends.DROPPED:
        return (
            not record.success and record.reason == end.reason and chain == ([url, *end.redirects] if end.asked else [])
        )
    return not record.success and record.reason in REASONS[Fate(end.reason)]
