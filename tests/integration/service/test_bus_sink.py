"""Pages on the bus: on which topics, in which form, and where a body goes that is too large."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.bus.base import Message, Topics
from gossamer.bus.streams import StreamsBus
from gossamer.errors import BadInput, SinkError, SinkFull
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.sinks.bus import BusSink
from gossamer.sinks.remote import BlobStore, read_blob
from gossamer.valkey.shards import Shards
from tests.servers.valkey import standalone


def a_page(request_id: str = "r1", body: bytes = b"<p>Hello</p>", **fields: Any) -> Output:
    record = PageRecord(
        appid="app", crawlid="crawl", spiderid="link", request_id=request_id, attempt=0, depth=0, url="https://a.test/",
        response_url="https://a.test/", status_code=200, status_msg="OK", response_headers={"Server": ["x"]},
        request_headers={}, body=body.decode("utf-8", "replace"), body_encoding="text", encoding="utf-8",
        content_type="text/html", links=[], attrs=None, timestamp="2026-01-02T03:04:05Z", success=True, reason="",
        exception="", redirects=[], timings={}, ip="192.0.2.1", truncated=False,
    )  # fmt: skip
    return Output(record=msgspec.structs.replace(record, **fields), body=body)


async def sent(bus: StreamsBus, topic: str) -> list[dict[str, Any]]:
    reader = await bus.read([topic], from_beginning=True)
    messages: list[Message] = await reader.take(at_most=1000, wait_seconds=0.1)
    await reader.close()
    return [msgspec.json.decode(message.value) for message in messages]


async def test_a_page_goes_to_everybody_and_to_its_application(bus: StreamsBus, blobs: BlobStore) -> None:
    sink = BusSink(bus, Topics(), blobs)
    await sink.write([a_page("1"), a_page("2", appid="other one")])
    await sink.close()
    assert [page["request_id"] for page in await sent(bus, "demo.crawled_firehose")] == ["1", "2"]
    assert [page["request_id"] for page in await sent(bus, "demo.crawled_app")] == ["1"]
    [theirs] = [topic.name for topic in await bus.topics() if "other" in topic.name]
    assert [page["appid"] for page in await sent(bus, theirs)] == ["other one"]


@pytest.mark.parametrize("wire", ["1.2", "1.0"])
@pytest.mark.parametrize("body", [b"short", b"x" * 200], ids=["in-the-message", "in-the-blob-store"])
async def test_times_have_no_zone_as_scrapy_clusters(bus: StreamsBus, blobs: BlobStore, wire: str, body: bytes) -> None:
    page = a_page(body=body, timestamp="2015-04-27T21:26:24.095468+00:00")
    item = ItemRecord(
        appid="app", crawlid="crawl", spiderid="shop", request_id="r", attempt=0, url="https://a.test/", attrs=None,
        timestamp="2015-04-27T21:26:24.095468+00:00", item={"timestamp": "2015-04-27T21:26:24+00:00"},
    )  # fmt: skip
    sink = BusSink(bus, Topics(), blobs, wire=wire, max_inline_bytes=100)
    await sink.write([page, Output(record=item)])
    for topic in ("demo.crawled_firehose", "demo.crawled_app"):
        there = await sent(bus, topic)
        assert [record["timestamp"] for record in there] == ["2015-04-27T21:26:24.095468"] * 2
        assert there[1]["item"] == item.item
    assert page.record.timestamp.endswith("+00:00")  # other sinks have the same object


@pytest.mark.parametrize(("firehose", "per_app"), [(True, False), (False, True)])
async def test_each_topic_can_be_switched_off(bus: StreamsBus, blobs: BlobStore, firehose: bool, per_app: bool) -> None:
    sink = BusSink(bus, Topics(), blobs, firehose=firehose, per_app=per_app)
    await sink.write([a_page()])
    await sink.close()
    assert bool(await sent(bus, "demo.crawled_firehose")) == firehose
    assert bool(await sent(bus, "demo.crawled_app")) == per_app


async def test_a_long_body_goes_to_the_blob_store_and_nothing_is_cut(bus: StreamsBus, blobs: BlobStore) -> None:
    body = bytes(range(256)) * 100
    sink = BusSink(bus, Topics(), blobs, max_inline_bytes=4096)
    await sink.write([a_page("small"), a_page("large", body=body)])
    await sink.close()
    small, large = await sent(bus, "demo.crawled_app")
    assert small["body"] == "<p>Hello</p>"
    assert "body_address" not in small
    assert (large["body"], large["body_bytes"]) == ("", len(body))
    assert await read_blob(large["body_address"]) == body


async def test_a_record_that_is_too_large_without_its_body_is_kept_whole(bus: StreamsBus, blobs: BlobStore) -> None:
    sink = BusSink(bus, Topics(), blobs)
    item = ItemRecord(
        appid="app", crawlid="crawl", spiderid="link", request_id="i", attempt=0, url="https://a.test/", attrs=None,
        timestamp="2026-01-02T03:04:05Z", item={"text": "y" * 200_000},
    )  # fmt: skip
    await sink.write(
        [a_page("p", response_headers={"X": ["x" * 150_000]}, attrs={"a": "y" * 150_000}), Output(record=item)]
    )
    await sink.close()
    page, thing = await sent(bus, "demo.crawled_app")
    assert page["response_headers"] == {}
    assert msgspec.json.decode(await read_blob(page["record_address"]))["response_headers"]["X"] == ["x" * 150_000]
    assert msgspec.json.decode(await read_blob(thing["record_address"]))["item"] == {"text": "y" * 200_000}


async def test_bodies_in_base64_and_the_form_of_1_0(bus: StreamsBus, blobs: BlobStore) -> None:
    sink = BusSink(bus, Topics(), blobs, base64_bodies=True, wire="1.0")
    await sink.write([a_page(body=b"\xff\x00")])
    await sink.close()
    [page] = await sent(bus, "demo.crawled_app")
    assert base64.b64decode(page["body"]) == b"\xff\x00"
    assert (page["headers"], page["attrs"]) == ({"Server": ["x"]}, {})
    assert "response_headers" not in page


async def test_a_bus_that_is_away_is_an_output_that_cannot_be_written_now(blobs: BlobStore) -> None:
    with standalone() as server:
        shards = await Shards.connect(server.address, call_seconds=2)
        sink = BusSink(StreamsBus(shards), Topics(), blobs)
        server.kill()
        with pytest.raises(SinkError) as caught:
            await sink.write([a_page()])
        assert not isinstance(caught.value, SinkFull)
        server.start()
        await sink.write([a_page()])
        await sink.close()
        await shards.close()


async def test_a_blob_is_written_once_and_found_by_its_content(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path / "blobs"))
    first = await store.put([b"one", b"two"])
    assert await store.put([b"two", b"one"]) == first[::-1]
    assert len(list((tmp_path / "blobs").rglob("*.zst"))) == 2
    assert await read_blob(first[0]) == b"one"
    with pytest.raises(BadInput):
        await read_blob(first[0] + "x")


async def test_old_days_of_blobs_are_removed(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path / "blobs"))
    [address] = await store.put([b"new"])
    old = tmp_path / "blobs" / "2020-01-01"
    old.mkdir()
    (old / "x.zst").write_bytes(b"")
    (tmp_path / "blobs" / "not a day").mkdir()
    assert await store.purge(retention_seconds=86400) == 1
    assert not old.exists()
    assert await read_blob(address) == b"new"


async def test_blobs_go_to_an_fsspec_address_too() -> None:
    store = BlobStore("memory://blobs")
    [address] = await store.put([b"far away"])
    assert address.startswith("memory://blobs/")
    assert await read_blob(address) == b"far away"


def test_no_two_applications_share_a_topic() -> None:
    names = ["app", "a p", "a_p", "firehose", "ü" * 40, "a:p", "A" * 40]
    topics = {Topics().crawled_by(name) for name in names}
    assert len(topics) == len(names)
    assert Topics().crawled not in topics
    assert Topics().crawled_by("my-app.1") == "demo.crawled_my-app.1"
