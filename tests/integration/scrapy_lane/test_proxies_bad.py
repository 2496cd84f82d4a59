"""Scrapy processes behind proxies that answer badly: waits are bounded, and no address or password is written."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.integration.scrapy_lane.test_proxies import crawler
from tests.servers.bad_http import Drip, Endless, Reset, Stall, Step, run_bad_server

TARGET = "site0.test:443"
CONNECTS: dict[str, tuple[list[Step], str]] = {
    "wants a password": ([b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"], "it wants user and password"),
    "refuses": ([b"HTTP/1.1 403 Forbidden by 407 rules\r\n\r\n"], "it did not connect to the site"),
    "is busy": ([b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nno\n"], "it did not connect to the site"),
    "no http": ([b"SSH-2.0-x\r\n\r\n"], "it did not connect to the site"),
    "hangs": ([Stall()], "took longer than"),
    "drips": ([Drip(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100 + b"\r\n", seconds=0.1)], "took longer than"),
    "endless": ([b"HTTP/1.1 200 OK\r\n", Endless(b"X-A: b\r\n" * 1000)], ""),
    "resets": ([Reset()], ""),
    "closes": ([b""], ""),
    "no tls": ([b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"], ""),
}


@pytest.mark.parametrize(("case", "count"), [*((case, 1) for case in CONNECTS), ("wants a password", 2), ("hangs", 2)])
async def test_a_bad_tunnel(tmp_path: Path, case: str, count: int) -> None:
    steps, expected = CONNECTS[case]
    async with run_bad_server({TARGET: steps}) as one, run_bad_server({TARGET: steps}) as two:
        proxies = [f"http://keyuser:hidden@127.0.0.1:{one.port}", f"http://keyuser:hidden@127.0.0.1:{two.port}"]
        settings = {
            "GOSSAMER_PROXIES": " ".join(proxies[:count]), "DOWNLOAD_TIMEOUT": "2", "RETRY_ENABLED": "False",
            "GOSSAMER_PROXY_PATIENCE": "0.1",
        }  # fmt: skip
        with crawler(tmp_path, ["https://site0.test/"], **settings) as scraper:
            await asyncio.to_thread(scraper.finish, 30)
    (item,) = scraper.items
    assert expected in item["error"] or "proxies rest" in item["error"]
    if expected and count == 1:
        assert expected in item["error"]
    written = json.dumps(scraper.items) + scraper.log
    for secret in ("hidden", "keyuser", "a2V5dXNlcjpoaWRkZW4", f":{one.port}", f":{two.port}"):
        assert secret not in written
