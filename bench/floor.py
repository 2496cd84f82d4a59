"""The bare floor: Gossamer's client and link extractor in a plain loop, and nothing else. `python -m bench.floor`.

No frontier, no politeness, no retries, no durability: what is fetched, parsed, deduplicated in memory and written as
the same record is the least that a page can cost with these parts.
"""

import argparse
import asyncio
import base64
import io
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from gossamer.cli.running import run as run_loop
from gossamer.extract.encoding import decode
from gossamer.extract.links import LinkExtractor
from gossamer.fetch.client import HttpClient, PoolLimits
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.model.json_codec import encode_lines
from gossamer.model.record import PageRecord
from gossamer.net.resolve import Resolver
from gossamer.policy.scope import compile_scope
from gossamer.policy.urls import fingerprint, host, registered_domain

_HEADERS = (
    ("User-Agent", "bench-floor"),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
)
_SHOWN_HEADERS = {name: [value] for name, value in _HEADERS}
_LINES_AT_ONCE = 64
_SEED = 1


class Floor:
    """One crawl of the seeds' domains."""

    def __init__(self, seeds: list[str], output: io.BufferedWriter, client: HttpClient) -> None:
        domains = {registered_domain(host(url)) for url in seeds}
        self._extractor = LinkExtractor(compile_scope(allowed_domains=domains), seed=_SEED)
        self._seen = {fingerprint(url, seed=_SEED) for url in seeds}
        self._queue = deque((url, 0) for url in seeds)
        self._output = output
        self._client = client
        self._records: list[PageRecord] = []
        self._found = asyncio.Event()
        self._in_flight = 0

    async def run(self, concurrency: int) -> None:
        """Until nothing is queued and nothing in flight. Raises the first FetchError: the site has no bad pages."""
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(self._work())
        self._write()

    async def _work(self) -> None:
        while self._queue or self._in_flight:
            if not self._queue:
                self._found.clear()
                await self._found.wait()
                continue
            url, depth = self._queue.popleft()
            self._in_flight += 1
            self._take(await self._client.fetch(FetchRequest(url, headers=_HEADERS, insecure=True)), depth)
            self._in_flight -= 1
            if self._queue or not self._in_flight:
                self._found.set()

    def _take(self, fetched: FetchResponse, depth: int) -> None:
        content_type = next((value for name, value in fetched.headers if name.lower() == "content-type"), "")
        text, encoding, strict = decode(fetched.body, content_type)
        links = self._extractor.extract(fetched.body, fetched.url, encoding=encoding)
        for url, mark in zip(links.urls, links.fingerprints, strict=True):
            if mark not in self._seen:
                self._seen.add(mark)
                self._queue.append((url, depth + 1))
        self._extractor.remember(links)
        body = text if strict else base64.b64encode(fetched.body).decode()
        self._records.append(_record(fetched, depth, body, strict, encoding, content_type))
        if len(self._records) >= _LINES_AT_ONCE:
            self._write()

    def _write(self) -> None:
        self._output.write(encode_lines(self._records))
        self._records.clear()


def _record(
    fetched: FetchResponse, depth: int, body: str, strict: bool, encoding: str, content_type: str
) -> PageRecord:
    headers: dict[str, list[str]] = {}
    for name, value in fetched.headers:
        headers.setdefault(name, []).append(value)
    timings = fetched.timings
    return PageRecord(
        appid="bench",
        crawlid="floor",
        spiderid="link",
        request_id=f"{fingerprint(fetched.url, seed=_SEED) & 0xFFFFFFFFFFFFFFFF:032x}",
        attempt=0,
        depth=depth,
        url=fetched.url,
        response_url=fetched.url,
        status_code=fetched.status,
        status_msg=fetched.reason,
        response_headers=headers,
        request_headers=_SHOWN_HEADERS,
        body=body,
        body_encoding="text" if strict else "base64",
        encoding=encoding,
        content_type=content_type,
        links=[],
        attrs=None,
        timestamp=datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="microseconds"),
        success=True,
        reason="",
        exception="",
        redirects=[],
        timings={
            "dns": timings.dns,
            "connect": timings.connect,
            "tls": timings.tls,
            "first_byte": timings.first_byte,
            "total": timings.total,
        },
        ip=fetched.ip,
        truncated=fetched.truncated,
    )


async def _crawl(seeds: list[str], output: Path, address: str, concurrency: int) -> None:
    resolver = Resolver(overrides={"*": address.rpartition(":")[0]})
    client = HttpClient(resolver, connections=PoolLimits(per_address=concurrency))
    try:
        with output.open("wb") as file:
            await Floor(seeds, file, client).run(concurrency)
    finally:
        await client.close()
        resolver.close()


def main() -> None:
    """Crawl what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor")
    parser.add_argument("--seeds", required=True, type=Path, help="file with a URL a line")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--address", required=True, help="host:port that all hosts are at")
    parser.add_argument("--concurrency", type=int, default=64)
    arguments = parser.parse_args()
    seeds = arguments.seeds.read_text().split()
    run_loop(_crawl(seeds, arguments.output, arguments.address, arguments.concurrency))


if __name__ == "__main__":
    main()
