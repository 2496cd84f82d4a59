"""Crawls of servers whose faults browsers overlook: no page is lost, and the faults are counted."""

import gzip
import json
import zlib
from pathlib import Path

import pytest

from gossamer.cli.summary import response_lines
from gossamer.model.record import PageRecord
from tests.servers.bad_http import Reset, Step, run_bad_server
from tests.servers.crawling import Crawled, crawl

NONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
PACKER = zlib.compressobj(wbits=31)


def page(body: bytes, *lines: bytes, status: bytes = b"200 OK") -> list[Step]:
    """An HTML page, with these lines in its head."""
    head = [b"HTTP/1.1 " + status, b"Content-Type: text/html", *lines, b"Content-Length: %d" % len(body)]
    return [b"\r\n".join([*head, b"", body])]


def linking(*paths: str) -> bytes:
    return "".join(f'<a href="{path}">x</a>' for path in paths).encode()


async def crawled(folder: Path, scripts: dict[str, list[Step]], **settings: object) -> Crawled:
    """What came of a crawl from `/`. Records have paths for URLs."""
    async with run_bad_server({"/robots.txt": [NONE]} | scripts) as server:
        root = f"http://bad.test:{server.port}"
        found = await crawl(folder, [f"{root}/"], ["*:127.0.0.1"], **{"fetch__retries": 0, **settings})
    for record in found.pages:
        record.url = record.url.removeprefix(root)
        record.response_url = record.response_url.removeprefix(root)
    return found


def outcome(record: PageRecord) -> tuple[int, str, bool]:
    return record.status_code, record.reason, record.truncated


async def test_pages_with_faults_are_kept_and_their_links_followed(tmp_path: Path) -> None:
    broken = PACKER.compress(linking("/from-broken")) + PACKER.flush(zlib.Z_SYNC_FLUSH) + b"\xff" * 99
    checksum = gzip.compress(linking("/from-checksum"))[:-8] + bytes(8)
    paths = ("name", "value", "length", "status", "chunks", "checksum", "broken")
    followed = tuple(f"/from-{name}" for name in paths)
    found = await crawled(
        tmp_path,
        {
            "/": page(linking(*(f"/{name}" for name in paths))),
            "/name": page(linking("/from-name"), b"X Header: v", b"X[a]: v"),
            "/value": page(linking("/from-value"), b"X: a\x01b", b"Y: c\rd"),
            "/length": [b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + linking("/from-length")],
            "/status": [b"http/2 200 OK\r\nContent-Type: text/html\r\n\r\n" + linking("/from-status")],
            "/chunks": [
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"%x  \n%s\n0  \r\n\n" % (len(linking("/from-chunks")), linking("/from-chunks")),
            ],
            "/checksum": page(checksum, b"Content-Encoding: gzip"),
            "/broken": page(broken, b"Content-Encoding: gzip"),
            **{path: page(b"<p>end") for path in followed},
        },
    )
    records = found.by_url()
    assert set(records) == {"/", *(f"/{name}" for name in paths), *followed}
    cut = {path for path, record in records.items() if outcome(record) == (200, "", True)}
    assert cut == {"/checksum", "/broken"}
    assert all(record.success for record in records.values())
    assert records["/value"].response_headers["X"] == ["a b"]
    tally = found.summary.tally
    assert tally.faulty_responses == {"header_line": 2, "content_length": 1, "status_line": 1, "body": 2}
    assert "header_line 2" in "\n".join(response_lines(tally))
    assert json.loads(found.summary.as_json())["faulty_responses"] == tally.faulty_responses


BODIES: dict[str, list[Step]] = {
    "plain text said to be gzip": [b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain"],
    "plain text said to be brotli": [b"Content-Encoding: br\r\nContent-Length: 5\r\n\r\nplain"],
    "a bomb": [b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(bytes(20_000_000))],
    "shorter than said": [b"Content-Length: 99\r\n\r\nhi"],
    "a reset": [b"Content-Length: 99\r\n\r\nhi", Reset()],
    "no chunks": [b"Transfer-Encoding: chunked\r\n\r\nhi\r\n"],
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_status_and_a_redirect_count_whatever_the_body_is(tmp_path: Path, body: list[Step]) -> None:
    def answer(head: bytes) -> list[Step]:
        return [b"HTTP/1.1 " + head + b"\r\nServer: old\r\n", *body]

    found = await crawled(
        tmp_path,
        {
            "/robots.txt": answer(b"403 Forbidden"),
            "/": page(linking("/moved", "/gone")),
            "/moved": answer(b"302 Found\r\nLocation: /target"),
            "/gone": answer(b"404 Not Found"),
            "/target": page(b"<p>here"),
        },
    )
    records = found.by_url()
    assert set(records) == {"/", "/moved", "/gone"}
    assert (records["/moved"].response_url, records["/moved"].status_code) == ("/target", 200)
    assert (records["/gone"].status_code, records["/gone"].reason) == (404, "http_404")
    assert records["/gone"].response_headers["Server"] == ["old"]


async def test_a_page_that_cannot_be_decoded_fails_with_its_status_and_headers(tmp_path: Path) -> None:
    found = await crawled(tmp_path, {"/": page(b"<p>plain", b"Content-Encoding: gzip")})
    record = found.by_url()["/"]
    assert outcome(record) == (200, "decode", False)
    assert record.response_headers["Content-Encoding"] == ["gzip"]
    assert record.body == "<p>plain"
    assert "not encoded at all" in record.exception


@pytest.mark.parametrize("line", [b"Location:", b"Location:   ", b"Location: \t"])
async def test_an_empty_location_is_no_redirect(tmp_path: Path, line: bytes) -> None:
    """As in browsers, the response is the page."""
    found = await crawled(
        tmp_path, {"/": page(linking("/linked"), line, status=b"302 Found"), "/linked": page(b"<p>here")}
    )
    assert {path: outcome(record) for path, record in found.by_url().items()} == {
        "/": (302, "", False), "/linked": (200, "", False),
    }  # fmt: skip


async def test_a_file_that_arrives_damaged_is_not_called_too_large(tmp_path: Path) -> None:
    picture = gzip.compress(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9)[:-8] + bytes(8)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Encoding: gzip\r\n"
    found = await crawled(
        tmp_path,
        {
            "/": page(b'<img src="/a.png">'),
            "/a.png": [head + b"Content-Length: %d\r\n\r\n" % len(picture) + picture],
        },
        crawl__assets=("images",),
        crawl__assets_to=str(tmp_path / "assets"),
    )
    assert found.summary.tally.assets_failed == {"incomplete": 1}
