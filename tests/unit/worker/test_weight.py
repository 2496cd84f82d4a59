"""What a finished page is thought to weigh: no less than what is large in it, each part once."""

from msgspec import structs

from gossamer.model.crawl import Crawl, CrawlId, Run, Terms
from gossamer.model.record import Output, PageRecord, RecordLink, WireExchange
from gossamer.model.request import Batch, Lease
from gossamer.worker.page import PAGE_OVERHEAD_BYTES, batches_size, output_size, urls_size
from gossamer.worker.records import bare_record

SIZE = 100_000
BODY = b"x" * SIZE


def record(**changed: object) -> PageRecord:
    lease = Lease(
        id=1,
        shard=0,
        worker="w-1",
        run=Run(Crawl(id=CrawlId("a", "c")), 1, 1),
        spider="link",
        domain="a.test",
        priority=1,
        depth=0,
        attempt=0,
        deaths=0,
        url="http://a.test/",
        payload=None,
        terms=Terms(),
        request_id="1",
        identity=b"",
        charged=0.0,
    )
    return structs.replace(bare_record(lease, now=0.0, reason="", exception=""), **changed)


def wire(body: bytes) -> WireExchange:
    return WireExchange(
        request_head=b"",
        request_body=b"",
        response_head=b"",
        response_body=body,
        ip="",
        url="",
        timestamp="",
        truncated=False,
    )


def test_a_small_page_weighs_little() -> None:
    assert PAGE_OVERHEAD_BYTES <= output_size(Output(record=record())) < PAGE_OVERHEAD_BYTES + 1000


def test_body_text_and_archive_count_each() -> None:
    text = "x" * SIZE
    assert SIZE <= output_size(Output(record=record(), body=BODY)) < 1.2 * SIZE
    assert 2 * SIZE <= output_size(Output(record=record(body=text), body=BODY)) < 2.2 * SIZE
    assert 5 * SIZE <= output_size(Output(record=record(body=text[1:] + "\U0001f577"), body=BODY)) < 5.2 * SIZE
    same, other = wire(BODY), wire(BODY[1:])
    assert SIZE <= output_size(Output(record=record(), body=BODY, wires=(same,))) < 1.2 * SIZE
    assert 2 * SIZE <= output_size(Output(record=record(), body=BODY, wires=(other, same))) < 2.2 * SIZE


def test_many_links_count() -> None:
    """On the page, on their way to the frontier, and where a spider of one's own sends each by itself."""
    urls = [f"http://a.test/{number}" for number in range(1000)]
    least = sum(map(len, urls))
    assert (
        output_size(Output(record=record(links=[RecordLink(url, "text") for url in urls])))
        > PAGE_OVERHEAD_BYTES + least + 4000
    )
    assert urls_size(urls) > least
    assert urls_size(urls[:9]) == 0
    assert batches_size([Batch("link", "a.test", 1, 1, [url], [1]) for url in urls]) == urls_size(urls)
