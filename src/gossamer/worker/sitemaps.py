"""A sitemap as an answer: what it lists are links, what it names are more sitemaps."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from gossamer.extract.sitemap import parse_sitemap
from gossamer.model.outcome import Dropped
from gossamer.model.payload import Payload, pack
from gossamer.model.request import Batch
from gossamer.policy.urls import host, registered_domain
from gossamer.worker.context import Context
from gossamer.worker.journey import Journey

_ROOT = re.compile(rb"<(?:\w+:)?(?:urlset|sitemapindex)[\s>]")
_SNIFFED_BYTES = 1024
_SMALL_BYTES = 64 * 1024
"""Sitemaps up to this are read in a few milliseconds; longer ones in a thread."""


@dataclass(slots=True)
class Listed:
    """The sitemap's entries as batches, and what was left out, by reason."""

    batches: list[Batch] = field(default_factory=list)
    drops: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count something that was left out."""
        self.drops[str(reason)] = self.drops.get(str(reason), 0) + count


def is_sitemap(journey: Journey, body: bytes) -> bool:
    """Whether an answer is read as a sitemap: asked for as one, or a submitted URL that turns out to be one."""
    return journey.payload.sitemap or (journey.lease.depth == 0 and _ROOT.search(body, 0, _SNIFFED_BYTES) is not None)


async def listed(journey: Journey, body: bytes) -> Listed:
    """What a sitemap feeds into its crawl. Never raises.

    Its pages have the sitemap's own depth, as it lists them rather than linking to them, and pass the same filters as
    links. Further sitemaps are requests like itself; they may be packed, so the filter of endings is not for them.
    """
    if len(body) <= _SMALL_BYTES:
        found = parse_sitemap(body, journey.url)
    else:
        found = await asyncio.to_thread(parse_sitemap, body, journey.url)
    result = Listed()
    if found.bad:
        result.drop(Dropped.BAD_URL, found.bad)
    context, lease = journey.context, journey.lease
    pages: dict[str, Batch] = {}
    scope = context.scope
    for url in found.urls:
        reason = scope.reason(url)
        if reason is not None:
            result.drop(counted_as(reason))
            continue
        domain = registered_domain(host(url))
        batch = pages.get(domain)
        if batch is None:
            batch = pages[domain] = Batch(lease.spider, domain, lease.priority, lease.depth)
        batch.urls.append(url)
        batch.fingerprints.append(context.fingerprint(url))
    result.batches = [
        *pages.values(),
        *sitemap_batches(context, found.sitemaps, priority=lease.priority, depth=lease.depth),
    ]
    return result


def sitemap_batches(context: Context, urls: Sequence[str], *, priority: int, depth: int) -> list[Batch]:
    """Sitemaps as requests of their own, each under its domain; those out of scope are left out."""
    packed, scope = pack(Payload(sitemap=True)), context.scope
    return [
        Batch(
            context.spider_name,
            registered_domain(host(url)),
            priority,
            depth,
            [url],
            [context.fingerprint(url)],
            [packed],
        )
        for url in urls
        if scope.reason(url) in (None, "extension")
    ]


_COUNTED_AS = {
    "known": Dropped.DUPLICATE,
    "allow_regex": Dropped.FILTERED,
    "deny_regex": Dropped.FILTERED,
    "too_long": Dropped.BAD_URL,
}


def counted_as(reason: str) -> str:
    """The extractor's or the scope's word for a refusal, as the word that requests are counted under."""
    return str(_COUNTED_AS.get(reason, reason))
