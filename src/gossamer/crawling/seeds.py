"""Gathers the URLs that a crawl starts from: given ones, and lists in files, at URLs or on standard input.

Safe to change: messages and the limit below. Fixed: the order of the URLs, which is that of the sources.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import BadInput, FetchError
from gossamer.fetch.exchange import REDIRECT_STATUSES, FetchRequest, first_header
from gossamer.fetch.resolve import Resolver
from gossamer.policy.urls import canonical, host, redirect_target
from gossamer.settings import Settings
from gossamer.wiring.worker import make_clients
from gossamer.worker.attempt import MAX_HOPS

_MAX_SEED_BYTES = 256 * 1024 * 1024
"""Largest list of seeds. May be changed freely: the list is held in memory, and takes several times its size there."""


async def gather_seeds(
    settings: Settings, resolver: Resolver, urls: Sequence[str], sources: Sequence[str]
) -> list[str]:
    """Return `urls` and the URLs of all `sources` (files, URLs, or `-` for standard input), in order and as written.

    Raises BadInput for a source that cannot be read or holds no URL.
    """
    found = list(urls)
    for source in sources:
        if source.startswith(("http://", "https://")):
            found += _lines(await _fetch_seeds(settings, resolver, source), source)
        elif source == "-":
            found += _lines(sys.stdin.buffer.read(_MAX_SEED_BYTES + 1), "standard input")
        else:
            found += _lines(_read_seeds(source), source)
    return found


def _read_seeds(source: str) -> bytes:
    """Return the content of a file, up to one byte more than the limit, by which `_lines` sees that it is too long."""
    try:
        with Path(source).open("rb") as file:
            return file.read(_MAX_SEED_BYTES + 1)
    except OSError as error:
        raise BadInput(f"--seeds: {source} cannot be read: {error.strerror}. Name a file with URLs.") from None


def _lines(content: bytes, source: str) -> list[str]:
    """Return the URLs of a list, one per line; empty lines and those that begin with # are skipped."""
    if len(content) > _MAX_SEED_BYTES:
        raise BadInput(
            f"--seeds: {source} is longer than {_MAX_SEED_BYTES // 2**20} MiB. Split it into several crawls."
        )
    lines = content.decode("utf-8-sig", "replace").splitlines()
    urls = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not urls:
        raise BadInput(f"--seeds: {source} holds no URL. Write one URL per line.")
    return urls


async def _fetch_seeds(settings: Settings, resolver: Resolver, source: str) -> bytes:
    """Return the body of a URL, after its redirects."""
    clients = make_clients(settings, resolver, body_bytes=_MAX_SEED_BYTES)
    url = canonical(source)
    private_host = host(url) if settings.crawl.allow_private else ""
    headers = (("User-Agent", settings.fetch.user_agent), ("Accept", "text/plain,*/*;q=0.5"))
    try:
        for _ in range(MAX_HOPS + 1):
            fetched = await clients.fetch(
                FetchRequest(
                    url,
                    headers=headers,
                    proxy=settings.fetch.proxy or None,
                    insecure=settings.crawl.insecure,
                    allow_private=host(url) == private_host,  # as for a seed: its own host, not where it redirects
                )
            )
            target = first_header(fetched.headers, "location")
            if fetched.status not in REDIRECT_STATUSES or target is None:
                break
            next_url = redirect_target(url, target)
            if next_url is None:
                raise BadInput(f"--seeds: {source} cannot be fetched: it redirects to {target[:200]!r}, no web page")
            url = next_url
    except FetchError as error:
        raise BadInput(f"--seeds: {source} cannot be fetched: {error}") from None
    finally:
        await clients.close()
    if fetched.status != 200 or fetched.truncated:
        reason = (
            f"it is longer than {_MAX_SEED_BYTES // 2**20} MiB"
            if fetched.truncated
            else f"the response was {fetched.status} {fetched.reason}"
        )
        raise BadInput(f"--seeds: {source} cannot be fetched: {reason}")
    return fetched.body
