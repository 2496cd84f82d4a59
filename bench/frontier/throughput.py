"""URLs per CPU second of the server: adding, adding again, leasing and settling."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from bench.errors import BenchFailed
from bench.frontier.load import Load, calls, lease_and_settle
from bench.frontier.stage import Stage, stage
from bench.progress import say
from bench.results import Figure
from gossamer.frontier.base import AddResult
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Rate, Run, Terms
from gossamer.model.request import Batch

_PAGE_LINKS = 10
"""Links of one page, all to one domain."""
_TERMS = Terms(domain_max_pages=1_000_000, domain_max_pending=1_000_000)
"""Both caps are on and neither is reached: they have to be kept, and drop nothing."""
_MANY_DOMAINS = 100_000
"""With so many, one hit a second from each is more than the server can hand out: that case is measured, too."""


async def measure_throughput(*, domains: int, urls: int) -> list[Figure]:
    """With so many domains, all of which get the same number of URLs; budgets and caps are on."""
    say(f"frontier: {urls:,} URLs on {domains:,} domains")
    async with stage() as it:
        load = Load(it.frontier.secret)
        each = urls // domains
        run = await it.frontier.open_crawl(_crawl())
        new, add_seconds = await _add(it, run, _new(load, domains, each))
        _check(new, AddResult(added=urls))
        pages = urls // 2 // _PAGE_LINKS
        again, again_seconds = await _add(it, run, _mostly_known(load, domains, each, pages))
        _check(again, AddResult(added=pages, duplicates=pages * (_PAGE_LINKS - 1)))
        several, several_seconds = await _lease_and_settle(it, urls // 8)
        single, single_seconds = 0, 0.0
        if domains >= _MANY_DOMAINS:
            await it.frontier.set_domain_policy(None, DomainPolicy(hits=1, window_seconds=1.0))
            single, single_seconds = await _lease_and_settle(it, urls // 8)
    where = f"{domains:,} domains"
    figures = [
        Figure(f"add, all new; {where}", urls / add_seconds, "URLs/CPU-s"),
        Figure(f"add, 90 % known; {where}", pages * _PAGE_LINKS / again_seconds, "URLs/CPU-s"),
        Figure(f"lease and settle, several a domain; {where}", several / several_seconds, "URLs/CPU-s"),
    ]
    if single:
        figures.append(Figure(f"lease and settle, one a domain; {where}", single / single_seconds, "URLs/CPU-s"))
        promised = ("30,000", "75,000", "30,000", "30,000")
        figures = [replace(figure, wanted=wanted) for figure, wanted in zip(figures, promised, strict=True)]
    return figures


def _crawl() -> Crawl:
    rate = Rate(hits=100, window_seconds=1.0, moderated=False)
    return Crawl(id=CrawlId("bench", "throughput"), max_pages=1_000_000_000, rate=rate, concurrency=16)


def _new(load: Load, domains: int, each: int) -> Iterator[Batch]:
    for first in range(0, each, _PAGE_LINKS):
        for domain in range(domains):
            yield load.batch(domain, range(first, min(each, first + _PAGE_LINKS)))


def _mostly_known(load: Load, domains: int, each: int, pages: int) -> Iterator[Batch]:
    """Pages of which nine links are known and one is not."""
    for page in range(pages):
        known = [(page // domains + step) % each for step in range(_PAGE_LINKS - 1)]
        yield load.batch(page % domains, [*known, each + page])


async def _add(it: Stage, run: Run, batches: Iterable[Batch]) -> tuple[AddResult, float]:
    """Add the batches. Return the result, and the CPU seconds of the server."""
    total = AddResult()
    before = it.cpu_seconds()
    for call in calls(batches):
        added = await it.frontier.add(run, _TERMS, call)
        total.added += added.added
        total.duplicates += added.duplicates
    return total, it.cpu_seconds() - before


def _check(found: AddResult, wanted: AddResult) -> None:
    if (found.added, found.duplicates) != (wanted.added, wanted.duplicates):
        raise BenchFailed(f"the frontier says {found}, which should be {wanted}")


async def _lease_and_settle(it: Stage, urls: int) -> tuple[int, float]:
    """Lease and settle so many requests. Return their number, and the CPU seconds of the server."""
    before = it.cpu_seconds()
    done = await lease_and_settle(it.frontier, urls)
    return done, it.cpu_seconds() - before
