"""Archive records, read back by warcio and fastwarc."""

import io
import json

import fastwarc.warc
import msgspec
import pytest
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from gossamer.model.assets import ASSET_SPIDER, Asset
from gossamer.model.record import ItemRecord, Output, WireExchange
from gossamer.sinks.framing import GzipMembers
from gossamer.sinks.warc import WarcEncoder, WarcRecords, read_pages, warc_units, warcinfo_units


def wire(**fields):
    return WireExchange(
        **{
            "request_head": b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "request_body": b"",
            "response_head": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
            "response_body": b"<p>hi</p>",
            "ip": "192.0.2.1",
            "url": "https://a.test/",
            "timestamp": "2026-01-02T03:04:05.678901Z",
            "truncated": False,
            **fields,
        }
    )


def read(outputs, framing=None):
    """(type, header, body) of every record."""
    data = (framing or GzipMembers()).pack([*warcinfo_units(), *warc_units(outputs)])
    return [
        (record.rec_type, record.rec_headers, record.http_headers, record.raw_stream.read())
        for record in ArchiveIterator(io.BytesIO(data), check_digests="raise")
    ]


def test_a_response_by_http2_has_the_form_that_readers_know(page):
    head = b"HTTP/2 200 \r\ncontent-type: text/html\r\n\r\n"
    _, response, *_ = read([page("r7", (wire(response_head=head),))])
    assert response[1]["WARC-Protocol"] == "h2"
    assert (response[2].protocol, response[2].get_statuscode()) == ("HTTP/1.1", "200")
    assert response[3] == b"<p>hi</p>"


@pytest.mark.parametrize("framing", [GzipMembers(), WarcRecords()], ids=["gzip", "plain"])
def test_both_sides_and_what_the_crawl_knows(page, framing):
    records = read([page("r7", (wire(),), depth=2)], framing)
    assert [record[0] for record in records] == ["warcinfo", "response", "request", "metadata"]
    _, response, request, metadata = records
    assert response[1]["WARC-Target-URI"] == "https://a.test/"
    assert response[1]["WARC-Date"] == "2026-01-02T03:04:05.678901Z"
    assert response[1]["WARC-IP-Address"] == "192.0.2.1"
    assert response[1]["WARC-Protocol"] == "http/1.1"
    assert response[1]["WARC-Concurrent-To"] == request[1]["WARC-Record-ID"]
    assert response[2].get_statuscode() == "200"
    assert response[3] == b"<p>hi</p>"
    assert request[1]["WARC-Concurrent-To"] == metadata[1]["WARC-Concurrent-To"] == response[1]["WARC-Record-ID"]
    facts = json.loads(metadata[3])
    assert (facts["request_id"], facts["depth"], facts["spiderid"], facts["crawlid"]) == ("r7", 2, "link", "crawl")
    assert "body" not in facts


def test_every_hop_is_kept(page):
    hops = (wire(url="https://a.test/1"), wire(url="https://a.test/2"))
    records = read([page("r", hops)])
    assert [record[1].get("WARC-Target-URI") for record in records if record[0] == "response"] == [
        "https://a.test/1",
        "https://a.test/2",
    ]
    concurrent = [value for name, value in records[-1][1].headers if name == "WARC-Concurrent-To"]
    assert concurrent == [record[1]["WARC-Record-ID"] for record in records if record[0] == "response"]


def test_a_failure_and_an_item_are_metadata(page):
    failed = page("r", success=False, reason="dns", response_url="", body="")
    item = ItemRecord(
        appid="a",
        crawlid="c",
        spiderid="s",
        request_id="r",
        attempt=1,
        url="https://a.test/item",
        attrs=None,
        timestamp="",
        item={"price": 3},
    )
    records = read([failed, Output(record=item)])
    assert [record[0] for record in records] == ["warcinfo", "metadata", "metadata"]
    assert json.loads(records[1][3])["reason"] == "dns"
    assert json.loads(records[2][3])["item"] == {"price": 3}


def test_a_chunked_answer_is_readable_as_stored(page):
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding : chunked\r\nX-Transfer-Encoding: left\r\n\r\n"
    data = GzipMembers().pack(warc_units([page("r", (wire(response_head=head),))]))
    record = next(ArchiveIterator(io.BytesIO(data)))
    assert record.http_headers.get_header("transfer-encoding") is None
    assert record.http_headers.get_header("X-Crawler-transfer-encoding") == "chunked"
    assert record.http_headers.get_header("X-Transfer-Encoding") == "left"
    assert record.content_stream().read() == b"<p>hi</p>"


def test_a_posted_body_and_a_cut_answer(page):
    sent = wire(request_body=b"a=1", truncated=True, response_body=b"\0\r\n\r\nWARC/1.1\r\n")
    _, response, request, _ = read([page("r", (sent,))])
    assert response[1]["WARC-Truncated"] == "length"
    assert response[3] == sent.response_body
    assert request[3] == b"a=1"


def test_nothing_a_server_says_ends_a_header_line(page):
    evil = wire(url="https://a.test/\r\nWARC-Type: x\ud800ü", response_head=b"HTTP/1.1 200 OK")
    _, response, *_ = read([page("r", (evil,), response_url="https://a.test/\n\n")])
    assert response[1]["WARC-Target-URI"] == "https://a.test/%0D%0AWARC-Type:%20x%3F%C3%BC"
    assert response[2].get_statuscode() == "200"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("2026-01-02T03:04:05", "2026-01-02T03:04:05.000000Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05.000000Z"),
    ],
)
def test_every_form_of_a_time(page, given, written):
    _, response, *_ = read([page("r", (wire(timestamp=given),))])
    assert response[1]["WARC-Date"] == written


@pytest.mark.parametrize("framing", [GzipMembers(), WarcRecords()], ids=["gzip", "plain"])
def test_other_tools_agree(page, tmp_path, capsys, framing):
    path = tmp_path / ("a.warc.gz" if isinstance(framing, GzipMembers) else "a.warc")
    path.write_bytes(framing.pack([*warcinfo_units(), *warc_units([page("r", (wire(), wire()))])]))
    checker = type("Arguments", (), {"inputs": [str(path)], "verbose": True})
    assert Checker(checker).process_all() in (0, None)
    assert "digest failed" not in capsys.readouterr().out
    with path.open("rb") as stream:
        kinds = [record.headers["WARC-Type"] for record in fastwarc.warc.ArchiveIterator(stream)]
    assert kinds == ["warcinfo", "response", "request", "response", "request", "metadata"]
    with path.open("rb") as stream:
        assert all(record.verify_block_digest() for record in fastwarc.warc.ArchiveIterator(stream, parse_http=False))


ASSET = Asset(kind="images", referrer="https://a.test/")


def asset(page, request_id, url, body=b"PNG"):
    made = page(request_id, (wire(url=url, response_body=body),), url=url, spiderid=ASSET_SPIDER)
    return msgspec.structs.replace(made, asset=ASSET)


def archived(batches):
    """(type, header, body) of every record of batches that one process writes."""
    encoder = WarcEncoder()
    data = b"".join(GzipMembers().pack(encoder.units(batch)) for batch in batches)
    return [
        (record.rec_type, record.rec_headers, record.raw_stream.read())
        for record in ArchiveIterator(io.BytesIO(data), check_digests="raise")
    ]


def test_an_asset_with_known_contents_refers_to_them(page):
    first, second, other = "https://a.test/1.png", "https://cdn.test/2.png", "https://a.test/3.png"
    batches = [[asset(page, "a", first), asset(page, "b", second)], [asset(page, "c", other, b"X")]]
    records = archived([*batches, [asset(page, "d", second)]])
    answers = [record for record in records if record[0] in ("response", "revisit")]
    assert [record[0] for record in answers] == ["response", "revisit", "response", "revisit"]
    original, revisit = answers[0][1], answers[1][1]
    assert revisit["WARC-Profile"] == "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
    assert revisit["WARC-Target-URI"] == second
    assert revisit["WARC-Refers-To-Target-URI"] == first
    assert revisit["WARC-Refers-To"] == original["WARC-Record-ID"]
    assert revisit["WARC-Refers-To-Date"] == original["WARC-Date"]
    assert revisit["WARC-Payload-Digest"] == original["WARC-Payload-Digest"]
    assert answers[1][2] == b""
    facts = [json.loads(record[2]) for record in records if record[0] == "metadata"]
    assert facts[1]["asset"] == {"kind": "images", "referrer": "https://a.test/"}


def test_a_batch_that_is_written_again_has_its_contents(page):
    batch = [asset(page, "a", "https://a.test/1.png")]
    assert [record[0] for record in archived([batch, batch]) if record[0] in ("response", "revisit")] == [
        "response"
    ] * 2


def test_pages_never_become_revisits(page):
    pages = [page("a", (wire(),)), page("b", (wire(),))]
    assert [record[0] for record in archived([pages])].count("response") == 2


def test_an_answer_that_confirms_a_page_refers_to_it(page):
    condition = b'GET / HTTP/1.1\r\nHost: a.test\r\nIf-None-Match: "x"\r\n\r\n'
    confirmed = wire(
        request_head=condition, response_head=b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", response_body=b""
    )
    made = page("a", (confirmed,))
    made.record.status_code = 304
    made.captured = 1_790_000_000.0
    unasked = page("b", (msgspec.structs.replace(confirmed, request_head=b"GET / HTTP/1.1\r\n\r\n"),))
    records = archived([[made, unasked]])
    answers = [record for record in records if record[0] in ("response", "revisit")]
    assert [record[0] for record in answers] == ["revisit", "response"], "nobody asked for the second one"
    headers = answers[0][1]
    assert headers["WARC-Profile"] == "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
    assert headers["WARC-Refers-To-Target-URI"] == headers["WARC-Target-URI"]
    assert headers["WARC-Refers-To-Date"] == "2026-09-21T14:13:20.000000Z"
    assert headers["WARC-Payload-Digest"] is None
    data = WarcRecords().pack(warc_units([made]))
    [read] = read_pages(io.BytesIO(data))
    assert read.record.response_headers == {"ETag": ["x"]}
    assert read.wires == made.wires


def test_assets_are_no_pages_when_an_archive_is_read(page):
    data = WarcRecords().pack(warc_units([asset(page, "a", "https://a.test/1.png"), page("p", (wire(),))]))
    assert [output.record.request_id for output in read_pages(io.BytesIO(data))] == ["p"]
