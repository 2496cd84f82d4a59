"""Gossamer's download handler sends what Scrapy's own sends, and returns or raises the same."""

import asyncio
import gzip
import json
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scrapy

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.bad_http import Drip, Reset, Stall, Step, run_bad_server
from tests.servers.certificates import Authority
from tests.servers.scraping import Scraped, Scraper

SPIDERS = Path(__file__).parent / "download_spiders.py"
OURS = "gossamer.scrapy.download_handler.DownloadHandler"
SCRAPYS = "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler"

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
LENGTH = OK + b"Content-Length: 5\r\n\r\nhello"
SCRIPTS: dict[str, list[Step]] = {
    "/length": [LENGTH],
    "/closing": [OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello"],
    "/drip": [Drip(LENGTH)],
    "/chunked": [OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"1;x=y\r\n!\r\n0\r\nTrailer: x\r\n\r\n"],
    "/to-the-end": [OK + b"\r\nhello"],
    "/old": [b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi"],
    "/gzip": [OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"hello")],
    "/empty": [OK + b"Content-Length: 0\r\n\r\n"],
    "/204": [b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nX-A: b\r\n\r\n"],
    "/304": [b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"],
    "/head": [OK + b"Content-Length: 5\r\n\r\n"],
    "/moved": [b"HTTP/1.1 302 Found\r\nLocation: /length\r\nContent-Length: 0\r\n\r\n"],
    "/interim": [b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + LENGTH],
    "/many": [
        OK + b"Set-Cookie: a=1\r\nX-Odd: \xe4\r\nSET-COOKIE: b=2\r\nKeep-Alive: x\r\nConnection: close\r\n"
        b"x-folded: a\r\n b\r\nno colon\r\nContent-Length: 0\r\n\r\n"
    ],
    "/bare-lines": [LENGTH.replace(b"\r\n", b"\n")],
    "/no-phrase": [b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"],
    "/404": [b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno"],
    "/short": [OK + b"Content-Length: 50\r\n\r\nhello"],
    "/short-chunks": [OK + b"Transfer-Encoding: chunked\r\n\r\n50\r\nhello"],
    "/reset-body": [OK + b"Content-Length: 50\r\n\r\nhello", Stall()],
    "/no-http": [b"hello, hello, hello\r\n\r\n"],
    "/nothing": [],
    "/half-head": [OK],
    "/reset": [Reset()],
    "/silent": [Stall()],
    "/long": [OK + b"Content-Length: 5000\r\n\r\n" + b"x" * 5000],
    "/long-chunks": [OK + b"Transfer-Encoding: chunked\r\n\r\n1388\r\n" + b"x" * 5000 + b"\r\n0\r\n\r\n"],
    "/binary": [b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 3\r\n\r\n\x89PN"],
}
LOOSE: dict[str, Any] = {"meta": {"download_fail_on_dataloss": False}}
REQUESTS: Sequence[tuple[str, dict[str, Any]]] = (
    *((path, {}) for path in SCRIPTS if path not in ("/head", "/silent", "/reset-body")),
    ("/head", {"method": "HEAD"}),
    ("/length", {"method": "HEAD"}),
    ("/short", LOOSE),
    ("/short-chunks", LOOSE),
    ("/silent", {"meta": {"download_timeout": 1}}),
    ("/reset-body", {"meta": {"download_timeout": 1}}),
    ("/long", {"meta": {"download_maxsize": 1000}}),
    ("/long-chunks", {"meta": {"download_maxsize": 1000}}),
    ("/long", {"meta": {"download_warnsize": 1000}}),
    # No request that must not be repeated gets a kept connection that the server has just closed.
    ("/closing", {}),
    ("/closing", {"method": "POST", "body": "a=b"}),
    ("/closing", {"method": "PUT"}),
    ("/closing", {"method": "PROPFIND", "headers": {"X-Own": ["one", "two"], "Host": "own.test", "Accept": None}}),
    ("/length", {"headers": {"X-Lines": "a\r\nb"}}),
    ("/length", {"headers": {"Connection": "close"}, "cookies": {"a": "b"}}),
    ("/length?a=b&c#fragment", {"meta": {"verbatim_url": True}}),
    ("/length", {"meta": {"bindaddress": ("127.0.0.1", 0)}}),
)


def download(folder: Path, handler: str, requests: Sequence[dict[str, Any]], **arguments: str) -> Scraped:
    settings = {
        "DOWNLOAD_HANDLERS": json.dumps({"http": handler, "https": handler}),
        "LOG_LEVEL": "WARNING",
        "EXTENSIONS": "{}",
    }
    given = {"requests": json.dumps(requests), **arguments}
    with Scraper(folder, "downloads", frontier=None, settings=settings, arguments=given, file=SPIDERS) as running:
        return running.finish()


async def test_all_kinds_of_answers_are_those_of_scrapys_handler(tmp_path: Path) -> None:
    scripts = {**SCRIPTS, "/length?a=b&c": SCRIPTS["/length"]}
    if scrapy.version_info < (2, 18):  # whose handler fails
        scripts["/many"] = [step.replace(b"no colon\r\n", b"") for step in SCRIPTS["/many"] if isinstance(step, bytes)]
    knows_address = scrapy.version_info >= (2, 19)  # of the server, if the response has no body
    found = {}
    for handler in (OURS, SCRAPYS):
        async with run_bad_server(scripts) as bad:
            site = f"http://127.0.0.1:{bad.port}"
            requests = [{"url": site + path, **more} for path, more in REQUESTS]
            done = await asyncio.to_thread(download, tmp_path / handler, handler, requests)
            for item in done.items:
                if not item.get("body") and not knows_address:
                    item.pop("ip", None)
            items = {item.pop("number"): str(item).replace(str(bad.port), "PORT") for item in done.items}
            heads = [head.replace(str(bad.port).encode(), b"PORT") for head in bad.requests]
        found[handler] = items, heads, sum(" warn size " in line for line in done.log.splitlines())
    ours, theirs = found.values()
    assert len(theirs[0]) == len(REQUESTS)
    different = [
        (case, ours[0].get(at), theirs[0][at]) for at, case in enumerate(REQUESTS) if ours[0].get(at) != theirs[0][at]
    ]
    assert not different, "\n".join(map(str, different))
    assert ours[1] == theirs[1]
    assert ours[2] == theirs[2] // (2 if scrapy.version_info < (2, 18) else 1)  # which repeats it


FAULTS: dict[str, tuple[int, list[Step]]] = {
    "/header-names": (200, [OK + b"X Header: v\r\nX[a]: v\r\nX\xe9: v\r\nContent-Length: 0\r\n\r\n"]),
    "/header-values": (200, [OK + b"X: a\x01b\r\nY: c\rd\r\nContent-Length: 0\r\n\r\n"]),
    "/status-line": (404, [b"http/2 404\r\nContent-Length: 0\r\n\r\n"]),
    "/no-length": (200, [OK + b"Content-Length: none\r\n\r\nhello"]),
    "/sloppy-chunks": (200, [OK + b"Transfer-Encoding: chunked\r\n\r\n5  \nhello\n0 \n\n"]),
    "/length-of-decoded": (
        200,
        [OK + b"Content-Encoding: gzip\r\nContent-Length: 99\r\n\r\n" + gzip.compress(b"x" * 99)],
    ),
    "/404-short": (404, [b"HTTP/1.1 404 Not Found\r\nContent-Length: 50\r\n\r\nhello"]),
    "/404-reset": (404, [b"HTTP/1.1 404 Not Found\r\nContent-Length: 50\r\n\r\nhello", Reset()]),
    "/404-no-chunks": (404, [b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n"]),
    **{
        f"/404-{name}": (404, [b"HTTP/1.1 404 Not Found\r\nContent-Encoding: %b\r\n\r\nhello" % name.encode()])
        for name in ("gzip", "deflate", "br", "zstd")
    },
    "/302-short": (200, [b"HTTP/1.1 302 Found\r\nLocation: /target\r\nContent-Length: 50\r\n\r\nhello"]),
    "/302-gzip": (200, [b"HTTP/1.1 302 Found\r\nLocation: /target\r\nContent-Encoding: gzip\r\n\r\nhello"]),
    "/302-nowhere": (302, [b"HTTP/1.1 302 Found\r\nLocation:\r\nContent-Length: 5\r\n\r\nhello"]),
}
"""By path: the status that a spider gets, and what the server sends."""


async def test_faults_that_browsers_overlook_lose_no_response(tmp_path: Path) -> None:
    async with run_bad_server({path: steps for path, (_, steps) in FAULTS.items()} | {"/target": [LENGTH]}) as bad:
        requests = [{"url": f"http://127.0.0.1:{bad.port}{path}"} for path in FAULTS]
        done = await asyncio.to_thread(download, tmp_path, OURS, requests)
    found = {item["number"]: item for item in done.items}
    assert {path: found[at].get("status", found[at]) for at, path in enumerate(FAULTS)} == {
        path: status for path, (status, _) in FAULTS.items()
    }
    assert done.stats["gossamer/faulty_responses/header_line"] == 2


def test_connections_that_cannot_be_opened_fail_as_with_scrapys_handler(tmp_path: Path) -> None:
    with socket.socket() as bound, FakeWeb.start(WebSpec(hosts=1, pages=2)) as web:
        bound.bind(("127.0.0.1", 0))  # not listening
        requests = [
            {"url": f"http://127.0.0.1:{bound.getsockname()[1]}/"},
            {"url": f"https://127.0.0.1:{web.port}/", "meta": {"download_timeout": 30}},  # without TLS
            {"url": "http://nobody.invalid/"},
        ]
        ours, theirs = (download(tmp_path / handler, handler, requests).items for handler in (OURS, SCRAPYS))
    errors = ["DownloadConnectionRefusedError", "DownloadFailedError", "CannotResolveHostError"]
    for items in (ours, theirs):
        assert [item["error"] for item in sorted(items, key=lambda item: item["number"])] == errors
    assert sorted(item["text"] for item in ours) == sorted(item["text"] for item in theirs)


def test_https_pages_have_a_certificate_and_no_check_of_it(tmp_path: Path) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=2), tls=True) as web:
        requests = [{"url": f"https://127.0.0.1:{web.port}/", "headers": {"Host": web.site.host(0)}}] * 2
        found = [download(tmp_path / handler, handler, requests).items for handler in (OURS, SCRAPYS)]
    assert sorted(map(str, found[0])) == sorted(map(str, found[1]))
    assert found[0][0]["certificate"]


async def test_a_certificate_for_another_host_is_logged_as_scrapys_handler_logs_it(tmp_path: Path) -> None:
    chain = Authority(tmp_path).issue("localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain.certificate, chain.key)
    lines = []
    for handler in (OURS, SCRAPYS):
        async with run_bad_server({"/": [LENGTH]}, tls=tls) as bad:
            requests = [{"url": f"https://{host}:{bad.port}/"} for host in ("127.0.0.1", "localhost")]
            log = (await asyncio.to_thread(download, tmp_path / handler, handler, requests)).log.splitlines()
        lines.append([line.partition(" [")[2] for line in log if "certificate" in line])
    # Scrapy repeats the line for each fault of the certificate, such as its unknown authority.
    assert lines[0] == sorted(set(lines[1]))
    assert ["127.0.0.1" in line for line in lines[0]] == [True]


def test_a_download_that_a_signals_handler_stops_ends_after_its_headers(tmp_path: Path) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=2)) as web:
        requests = [{"url": f"http://127.0.0.1:{web.port}/", "headers": {"Host": web.site.host(0)}}]
        (item,) = download(tmp_path, OURS, requests, stop="yes").items
    assert item["flags"] == ["download_stopped"]
    assert not item["body"]
