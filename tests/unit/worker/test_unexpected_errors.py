"""An error in this program fails one page, not the worker."""

from types import SimpleNamespace
from typing import Any, cast

from gossamer.model.crawl import ContentOptions, Crawl, CrawlId, Run, Terms
from gossamer.model.record import PageRecord
from gossamer.model.request import Lease, Outcome
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import Tally, WorkerCounts
from gossamer.worker.context import Context, ContextOptions, Contexts, SharedMemory
from gossamer.worker.fetcher import Fetcher, FetchPolicy
from gossamer.worker.proxies import ProxyOptions, WorkerProxies
from gossamer.worker.seen import SeenCache
from gossamer.worker.spider import LinkSpider


class BrokenContents:
    """Main contents of pages whose pool cannot be asked."""

    @property
    def delay_seconds(self) -> float:
        raise RuntimeError("no pool")


def make_context(run: Run, spider: str, terms: Terms) -> Context:
    options = ContextOptions(user_agent="test", proxy="", include_links=False, redact=True)
    memory = SharedMemory(SeenCache())
    return Context(
        run, spider, terms, spider=LinkSpider(), available_spiders=None, secret=1, memory=memory, options=options
    )


async def test_an_error_before_the_fetch_of_a_page_with_content_becomes_its_record() -> None:
    tally, unused = Tally(), cast(Any, None)
    proxies = WorkerProxies(ProxyOptions(), tally.fail_proxy, Troubles())
    policy = FetchPolicy(
        keep_wire=False,
        retries=0,
        retry_base_seconds=0.0,
        asset_bytes=0,
        body_bytes=0,
        proxies=proxies,
        open_browser=unused,
        sessions_of=unused,
    )
    access = cast(Any, SimpleNamespace(frontier=None, holder=None, retrier=None))
    reader = cast(Any, SimpleNamespace(contents=BrokenContents()))
    fetcher = Fetcher(
        access, unused, unused, Contexts(make_context), reader, WorkerCounts(tally), policy=policy, budget=unused
    )
    lease = Lease(
        id=1, worker="worker-1", shard=0, run=Run(Crawl(id=CrawlId("test", "1")), 1, 1), spider="link", domain="a.test",
        priority=1, depth=0, attempt=0, deaths=0, url="http://a.test/", payload=None,
        terms=Terms(content=ContentOptions()), request_id="", identity=b"", charged=0.0,
    )  # fmt: skip
    finished = await fetcher.process(lease)
    assert finished.settlement.outcome is Outcome.FAILED
    [output] = finished.outputs
    assert isinstance(output.record, PageRecord)
    assert (output.record.reason, output.record.exception) == ("internal_error", "RuntimeError: no pool")
    assert tally.failed == {"internal_error": 1}
