"""Crawls a site with Scrapling's spiders as fast as they can: every page once, one JSON line per page.

Stock settings except: no log, 64 requests in flight, no check of certificates, and one address for every host, because
DNS does not know the names of the benchmark. Pages are written where they are parsed, which costs less than items.
"""

import argparse
import hashlib
import http
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, TextIO
from urllib.parse import urlsplit

from curl_cffi import CurlOpt
from scrapling.fetchers import FetcherSession
from scrapling.spiders import LinkExtractor, Request, Response, SessionManager, Spider


class Pages(Spider):
    """Follows every link."""

    name = "pages"
    logging_level = logging.CRITICAL

    def __init__(self, seeds: list[str], address: str, concurrency: int, output: TextIO) -> None:
        self.start_urls = seeds
        self.concurrent_requests = concurrency
        self._address = address
        self._write = output.write
        self._encode = json.JSONEncoder(ensure_ascii=False).encode
        self._links = LinkExtractor()
        super().__init__()

    def configure_sessions(self, manager: SessionManager) -> None:
        """Use one client for all requests."""
        manager.add("default", FetcherSession(verify=False))

    async def on_start(self, resuming: bool = False) -> None:
        """Give curl the address of every host."""
        ports = [(urlsplit(url).hostname, urlsplit(url).port) for url in self.start_urls]
        resolved = [f"{host}:{port}:{self._address}" for host, port in ports]
        session = self._session_manager.get("default")._client._async_curl_session
        session.curl_options = {CurlOpt.RESOLVE: resolved}

    async def parse(self, response: Response) -> AsyncIterator[dict[str, Any] | Request]:
        """Write the page, and follow what it links to."""
        depth = response.meta.get("depth", 0)
        self._write(self._encode(_record(response, depth)) + "\n")
        for url in self._links.extract(response):
            yield Request(url, sid="default", meta={"depth": depth + 1})


def _record(response: Response, depth: int) -> dict[str, Any]:
    """Return the fields of Gossamer's page record, so that all crawlers write the same. A value that Scrapling does
    not know is written as it would be for every page here."""
    return {
        "type": "page",
        "appid": "bench",
        "crawlid": "scrapling",
        "spiderid": "link",
        "request_id": hashlib.blake2b(response.request.url.encode(), digest_size=16).hexdigest(),
        "attempt": response.request._retry_count,
        "depth": depth,
        "url": response.request.url,
        "response_url": response.url,
        "status_code": response.status,
        "status_msg": http.HTTPStatus(response.status).phrase,
        "response_headers": {name: [value] for name, value in response.headers.items()},
        "request_headers": {name: [value] for name, value in response.request_headers.items()},
        "body": response.body.decode(response.encoding),
        "body_encoding": "text",
        "encoding": response.encoding,
        "content_type": response.headers.get("content-type", ""),
        "links": [],
        "attrs": None,
        "timestamp": datetime.now(UTC).isoformat(timespec="microseconds"),
        "success": True,
        "reason": "",
        "exception": "",
        "redirects": [],
        "timings": {"dns": 0.0, "connect": 0.0, "tls": 0.0, "first_byte": 0.0, "total": 0.0},
        "ip": "127.0.0.1",
        "truncated": False,
    }


def main() -> None:
    """Crawl what the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", required=True, help="file with a URL per line")
    parser.add_argument("--output", required=True)
    parser.add_argument("--address", required=True, help="host:port of all hosts")
    parser.add_argument("--concurrency", type=int, default=64)
    arguments = parser.parse_args()
    with open(arguments.seeds, encoding="utf-8") as file:
        seeds = file.read().split()
    with open(arguments.output, "w", encoding="utf-8") as output:
        Pages(seeds, arguments.address.rpartition(":")[0], arguments.concurrency, output).start()


if __name__ == "__main__":
    main()
