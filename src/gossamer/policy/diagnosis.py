"""Finds out what limits a crawl, from measurements of its stages, and what to change.

A crawl is a chain of queues: scheduler, downloader, scraper, pipelines. In each holds Little's law, N = T x S: the mean
number inside is the throughput times the mean time inside. The busiest stage limits the others. Fixed: the names of the
cases, which the JSON of `gossamer diagnose` has.
"""

import math
from typing import NamedTuple

from gossamer.model.performance import (
    FEW_PAGES,
    SHORT_SECONDS,
    Advice,
    Finding,
    JobTime,
    Recording,
    StageFigures,
    rounded,
)
from gossamer.policy.crawl_figures import BUSY, MOST_GAIN, CrawlFigures, steady_part, stuck_part

_MOSTLY = 0.7
"""Share of the time, or of a limit, that counts as most of it."""
_BLOCKED = 0.25
"""Share of the time that blocking code must take to be the cause."""
_MANY_OTHERS = 0.3
"""Share of the downloader that requests of pipelines and media must take to be the cause."""
_SLOWED = 3.0
"""A pipeline is overloaded if an item takes so many times as long as the fastest one."""
_FAILING = 0.5
"""Share of the requests that must fail, or be redirected, for that to be the case."""


class _Case(NamedTuple):
    """A case that was found, before it is put together."""

    name: str
    bottleneck: str
    summary: str
    figures: tuple[str, ...]
    advice: Advice


def diagnose(recording: Recording) -> Finding | None:
    """Return what limits the crawl. None: nothing left the downloader between start and end."""
    stuck = stuck_part(recording)
    part = stuck or steady_part(recording)
    if not part:
        return None
    figures = CrawlFigures(recording, part)
    whole = figures.whole
    if stuck:
        case = _stuck(figures)
    elif whole.page_responses:
        decide = (
            _failing, _browser, _cpu, _blocking, _other_requests, _items_too_few, _items_too_many, _large_responses,
            _site_limit, _site_delay, _scheduler_empty,
        )  # fmt: skip
        case = next((found for check in decide if (found := check(figures)) is not None), None) or _healthy(figures)
    else:
        case = _failing(figures) or _no_pages(figures)
    stages = [
        StageFigures("scheduler", whole.scheduler, whole.requested / whole.seconds),
        StageFigures("downloader", whole.downloader, figures.attempts / whole.seconds),
        StageFigures("scraper", whole.scraper, figures.pages),
        StageFigures("pipelines", whole.pipelines, figures.items if figures.has_scheduler else figures.pages),
    ]
    if not figures.has_scheduler:
        stages = stages[1::2]  # a worker has no scheduler and no scraper of its own
    if figures.limits.tabs:
        stages.insert(1, StageFigures("browser", whole.browser, whole.rendered / whole.seconds))
    stages = [StageFigures(one.name, rounded(one.number), rounded(one.rate)) for one in stages]
    has_items = any(each.items for each in recording.measurements)
    unit, rate = ("items", whole.items / whole.seconds) if has_items else ("pages", figures.pages)
    return Finding(
        *case[:4], case.advice._replace(factor=round(case.advice.factor, 2)), unit, rounded(rate), tuple(stages),
        _job(recording, figures), figures.cpu, whole.seconds, whole.page_responses, tuple(_notes(recording, figures)),
    )  # fmt: skip


def _notes(recording: Recording, figures: CrawlFigures) -> list[str]:
    """Return sentences that say how far the figures can be relied on."""
    whole, notes = figures.whole, []
    if whole.seconds < SHORT_SECONDS or whole.page_responses < FEW_PAGES:
        notes.append(
            f"only {whole.seconds:.1f} s with {whole.page_responses:,} pages were measured: the figures are rough"
        )
    stopped = sum(each.stopped for each in recording.measurements)
    if stopped:
        notes.append(
            f"the process did not run for {stopped:.0f} s (it was stopped, or the machine slept); this is left out"
        )
    if not figures.limits.requests:
        notes.append(
            "the limits of the process are not in this part of the log: a full downloader cannot be recognised"
        )
    return notes


def _job(recording: Recording, figures: CrawlFigures) -> JobTime:
    """Return the time that a job of so many pages takes at this speed."""
    measurements = recording.measurements
    busy = [each for each in measurements if each.page_responses]
    if not (busy and figures.pages):
        return JobTime(0, 0.0, 0.0, 1.0, 0.0)
    first, last = busy[0], busy[-1]
    started = recording.process.started or first.at - first.seconds
    start_stop = max(0.0, first.at - first.seconds - started) + max(0.0, (recording.ended or last.at) - last.at)
    inside = figures.whole.pages or figures.whole.downloader or 1.0
    in_downloader = inside / figures.pages
    response = min(figures.response, in_downloader)
    pages = sum(each.page_responses for each in measurements)
    return JobTime(
        pages, rounded(response), rounded(in_downloader - response), rounded(inside) or 0.0001, round(start_stop, 1)
    )


# --- the cases --------------------------------------------------------------------------------------------------------


def _failing(figures: CrawlFigures) -> _Case | None:
    whole, attempts = figures.whole, figures.attempts
    if not attempts or max(whole.failed, whole.redirected) < _FAILING * attempts:
        return None
    shown = (
        f"{attempts} requests left the downloader: {whole.failed} failed, {whole.redirected} were redirected",
        f"{whole.page_responses} responses came to requests of the crawl itself, {figures.pages:.1f} a second",
    )
    if whole.failed >= whole.redirected:
        summary = "most requests fail: they get an error status or no response"
        text = (
            "Look for the cause first: the log has the errors, and the statistics count them by status. More requests "
            "at once would only fail faster, and a site that refuses requests wants fewer."
        )
    else:
        summary = "most requests are redirected"
        text = "Request the addresses to which the site redirects (https, www, a final slash), or follow its links."
    return _Case("failing", "site", summary, shown, Advice(text))


def _no_pages(figures: CrawlFigures) -> _Case:
    """Return the case of a crawl that got responses, but no page of its own."""
    shown = (f"{figures.attempts} requests left the downloader, none of them with a page",)
    text = "Look into the log: responses were retried, or went to pipelines and media only."
    return _Case("failing", "site", "no pages came", shown, Advice(text))


def _stuck(figures: CrawlFigures) -> _Case:
    """Return the case of a process that runs, and whose pipelines hold everything up."""
    whole, thing = figures.whole, "items" if figures.has_scheduler else "pages"
    shown = (
        f"pipelines {whole.pipelines:.0f} {thing}: for {whole.seconds:.0f} s, none has left them, and no response came",
    )
    text = (
        "Look into the log: a database or another output is away or full, or a look-up or a program does not answer. "
        "The crawl goes on when it is back."
    )
    return _Case("pipelines_stuck", "pipelines", "nothing leaves the pipelines", shown, Advice(text))


def _browser(figures: CrawlFigures) -> _Case | None:
    """Return the case of pages that wait for a free tab."""
    whole, tabs = figures.whole, figures.limits.tabs
    if not tabs or whole.browser_full < _MOSTLY or not whole.rendered:
        return None
    idle = whole.idle_cpus
    in_tab = min(whole.browser, float(tabs)) * whole.seconds / whole.rendered
    shown = (
        f"{whole.browser:.1f} pages in the browser, which builds {tabs} at once; pages waited for a free tab "
        f"{whole.browser_full:.0%} of the time",
        f"a page takes {in_tab:.2f} s in a tab; {whole.rendered / whole.seconds:.1f} pages a second leave it",
        f"{idle:.1f} CPUs of the machine idle",
    )
    summary = "all tabs of the browser are in use: rendering sets the pace"
    factor = min(figures.cpus / max(figures.cpus - idle, 0.1), MOST_GAIN, _MOST_TABS / tabs)
    after = int(tabs * factor)
    if idle >= _IDLE_FOR_TABS and factor >= _WORTH_RAISING and after > tabs:
        text = (
            f"Raise browser.tabs so that {after} pages instead of {tabs} are built at once (about 20 to 100 MiB each), "
            "with more browsers (browser.processes) from 8 tabs on. Render fewer pages: --render auto, --render-match."
        )
        return _Case("browser", "browser", summary, shown, Advice(text, "tabs", tabs, after, after / tabs))
    text = (
        "This machine has no CPU left for more tabs: render fewer pages (--render auto, --render-match), or start "
        "gossamer worker --render-only on a second machine."
    )
    return _Case("browser", "browser", summary, shown, Advice(text, "machines", 1, 2, 2.0))


_IDLE_FOR_TABS = 0.5
"""Idle CPUs from which more tabs are advised."""
_MOST_TABS = 64
"""Largest number of tabs that is advised."""


def _cpu(figures: CrawlFigures) -> _Case | None:
    whole = figures.whole
    if figures.wanted_cpu < BUSY:
        return None
    idle = whole.idle_cpus
    processes = 1 + int(idle / max(figures.process_cpu, 0.5) + _IDLE_ROUNDING)
    place = _most(whole.busy_in)
    where = f" It is mostly used in {place}." if place else ""
    starved = whole.starved / whole.seconds
    if starved > 0.05:
        shown = [
            f"other processes kept the event loop's thread waiting for a CPU {starved:.0%} of the time",
            f"it used {min(1.0, figures.wanted_cpu):.0%} of the CPU that they left it, above {BUSY:.0%}",
        ]
    else:
        shown = [f"CPU of the event loop's thread {figures.cpu:.0%}, above {BUSY:.0%}"]
    shown += [f"{idle:.1f} CPUs of the machine idle", f"downloader {whole.downloader:.0f} of {figures.concurrency:.0f}"]
    if processes > 1:
        text = f"Run {processes} processes {figures.names.processes}, each on a CPU of its own.{where}"
        advice = Advice(text, "processes", 1, processes, float(processes))
    else:
        text = f"No CPU of this machine is idle: share the crawl with a second machine (a shared frontier).{where}"
        advice = Advice(text, "machines", 1, 2, 2.0)
    return _Case("cpu", "CPU", "the CPU is saturated; more concurrency gives nothing", tuple(shown), advice)


_IDLE_ROUNDING = 0.3
"""Part of an idle CPU that may be missing for one more process."""


def _blocking(figures: CrawlFigures) -> _Case | None:
    whole = figures.whole
    if whole.blocked < _BLOCKED:
        return None
    place = _most(whole.blocked_in) or "a callback, middleware or pipeline"
    response = figures.response
    room = figures.concurrency / response / figures.pages if response else MOST_GAIN
    factor = figures.gain(room, blocking_stays=False)
    if factor < _WORTH_RAISING and whole.blocked + figures.cpu < BUSY:
        return None  # the loop keeps up
    work = whole.blocked * whole.seconds / (whole.items + whole.lost_items or whole.page_responses)
    rate = (figures.items or figures.pages) * factor
    threads = max(4, math.ceil(rate * work * _SPARE_THREADS))
    shown = (
        f"the event loop stood still inside callbacks {whole.blocked:.0%} of the time, with CPU at {figures.cpu:.0%}",
        f"it was found waiting in {place}; something new waits {whole.lag:.2f} s for it",
        f"{work * 1000:.0f} ms of waiting for each {'item' if figures.items else 'page'}",
    )
    how = (
        f"(asyncio.to_thread or deferToThread), with {threads} threads (REACTOR_THREADPOOL_MAXSIZE = {threads})"
        if figures.has_scheduler
        else f"(asyncio.to_thread), with {threads} threads"
    )
    text = f"Move the call in {place} to a thread {how}, or use a library that does not block."
    advice = Advice(text, "threads", 0, threads, factor)
    return _Case("blocking", "event loop", "blocking code stops the event loop", shown, advice)


_SPARE_THREADS = 1.5
"""Threads for each one that works on average. Fewer make items wait for threads."""


def _other_requests(figures: CrawlFigures) -> _Case | None:
    whole = figures.whole
    if figures.others < _MANY_OTHERS or whole.downloader < _MOSTLY * figures.concurrency or figures.is_capped:
        return None
    factor = figures.gain(whole.downloader / whole.pages)
    after = _whole(figures.concurrency * factor)
    per_page = (whole.responses - whole.page_responses) / whole.page_responses
    shown = (
        f"downloader {whole.downloader:.1f} of {figures.concurrency:.0f}, but only {whole.pages:.1f} are pages",
        f"{figures.others:.0%} of its requests come from pipelines, media or middlewares: {per_page:.1f} for each page",
    )
    text = (
        f"Raise CONCURRENT_REQUESTS from {figures.concurrency:.0f} to {after} (and CONCURRENT_REQUESTS_PER_DOMAIN, if "
        "pages and these requests go to one site), or make these requests with a client outside of Scrapy's downloader."
    )
    advice = Advice(text, "CONCURRENT_REQUESTS", figures.concurrency, after, factor)
    return _Case("other_requests", "downloader", "requests that are not pages fill the downloader", shown, advice)


def _piles_up(figures: CrawlFigures) -> bool:
    """Return whether responses wait behind the downloader."""
    whole = figures.whole
    return whole.bytes_full > _MANY_OTHERS or whole.scraper > max(whole.downloader, _LEAST_PILE)


_LEAST_PILE = 4.0
"""Responses that must be in the scraper, at least, before they count as piled up."""


def _items_too_few(figures: CrawlFigures) -> _Case | None:
    whole, limit = figures.whole, figures.limits.items
    if not limit or figures.items_per_page <= limit or not _piles_up(figures):
        return None
    if whole.pipelines < _MOSTLY * limit * whole.scraper or _is_overloaded(figures):
        return None
    # A page's items go through the pipelines in rounds, each of `limit` items.
    per_page = round(figures.items_per_page)
    rounds = math.ceil(per_page / limit)
    fewer = math.ceil(rounds / figures.gain(figures.downloader_gain))
    factor, after = rounds / fewer, math.ceil(per_page / fewer)
    if whole.bytes_full > _MANY_OTHERS and whole.response_bytes and figures.in_pipelines:
        # Pages that fit the limit of bytes. More are held now, because requests in flight are not counted.
        fitting = figures.limits.bytes * whole.responses / whole.response_bytes
        factor = max(1.0, min(factor, fitting / (fewer * figures.in_pipelines) / figures.pages))
    shown = (
        f"{figures.items_per_page:.0f} items a page, but at most {limit} of them in the pipelines at once",
        f"pipelines {whole.pipelines:.0f} of {limit * whole.scraper:.0f}: CONCURRENT_ITEMS x {whole.scraper:.1f} pages",
        f"an item takes {figures.in_pipelines:.3f} s in the pipelines; downloader {whole.downloader:.1f} of "
        f"{figures.concurrency:.0f}",
    )
    text = f"Raise CONCURRENT_ITEMS from {limit} to {after}."
    return _Case(
        "items_too_few", "pipelines", "the pipelines are at their limit of items",
        shown, Advice(text, "CONCURRENT_ITEMS", limit, after, factor),
    )  # fmt: skip


def _is_overloaded(figures: CrawlFigures) -> bool:
    """Return whether items take much longer in the pipelines than the fastest one did."""
    fastest = figures.whole.fastest_item
    return bool(fastest) and figures.in_pipelines > _SLOWED * fastest


def _items_too_many(figures: CrawlFigures) -> _Case | None:
    whole, limit = figures.whole, figures.limits.items
    if not limit or not _is_overloaded(figures) or not _piles_up(figures):
        return None
    enough = max(1, math.ceil(figures.items * whole.fastest_item))
    at_once = min(limit, max(1, round(figures.items_per_page)))  # the limit holds for the items of one page
    after = max(1, math.ceil(at_once * enough / max(whole.pipelines, 1.0)))
    if after >= at_once > 1:
        return None
    pile = (
        f"pipelines {whole.pipelines:.0f} items; an item takes {figures.in_pipelines:.3f} s, the fastest took "
        f"{whole.fastest_item:.3f} s"
    )
    if at_once == 1:
        return _Case(
            "items_too_many", "pipelines", "items pile up in the pipelines", (pile, _ONE_ITEM_A_PAGE),
            Advice(_SLOW_PIPELINES),
        )  # fmt: skip
    shown = (
        pile,
        f"the store behind the pipelines finishes {figures.items:.1f} items/s, for which {enough} at once would do",
    )
    text = (
        f"Lower CONCURRENT_ITEMS from {limit} to {after}: the store is spared and the throughput stays. To gain more, "
        "write in batches, or make the store faster."
    )
    return _Case(
        "items_too_many", "pipelines", "a pipeline's store is overloaded with items",
        shown, Advice(text, "CONCURRENT_ITEMS", limit, after, 1.0),
    )  # fmt: skip


_ONE_ITEM_A_PAGE = "pages have one item at most, so CONCURRENT_ITEMS, which holds for each page, changes nothing"
_SLOW_PIPELINES = (
    "Find what the items wait for: a store, a service with a rate, or a program. Make it faster, ask it less often (a "
    "cache), or write in batches. A lower SCRAPER_SLOT_MAX_ACTIVE_SIZE keeps fewer items waiting."
)


def _large_responses(figures: CrawlFigures) -> _Case | None:
    whole, limit = figures.whole, figures.limits.bytes
    if whole.bytes_full < _MOSTLY / 2 or not limit:
        return None
    factor = figures.gain(figures.downloader_gain)
    after = _round_up(limit * factor * _SPARE_BYTES)
    size = whole.response_bytes / whole.responses if whole.responses else 0.0
    in_scraper = whole.scraper / figures.pages
    shown = (
        f"responses of {whole.held_bytes / 1e6:.1f} MB are held, the limit is {limit / 1e6:.1f} MB; it stopped new "
        f"requests {whole.bytes_full:.0%} of the time",
        f"a response has {size / 1000:.0f} kB and stays {in_scraper:.2f} s in callbacks and pipelines",
        f"downloader {whole.downloader:.1f} of {figures.concurrency:.0f}",
    )
    text = (
        f"Raise {figures.names.bytes} from {limit} to {after} (memory of the process grows by as much), or make pages "
        "leave callbacks and pipelines sooner."
    )
    return _Case(
        "large_responses", "scraper", "the responses held reach their limit of bytes",
        shown, Advice(text, figures.names.bytes, limit, after, factor),
    )  # fmt: skip


_SPARE_BYTES = 1.5
"""Bytes for each one that is needed on average: a limit that is reached now and then stops requests."""


def _scheduler_empty(figures: CrawlFigures) -> _Case | None:
    whole = figures.whole
    if (
        not figures.has_scheduler
        or whole.scheduler_empty < _MOSTLY
        or whole.downloader >= _MOSTLY * figures.concurrency
    ):
        return None
    factor = max(1.0, min(figures.concurrency / max(whole.downloader, 0.1), figures.cpu_gain, MOST_GAIN))
    places = _whole(factor)
    shown = (
        f"the scheduler was empty {whole.scheduler_empty:.0%} of the time",
        f"downloader {whole.downloader:.1f} of {figures.concurrency:.0f}; CPU {figures.cpu:.0%}",
        f"{whole.requested / whole.page_responses:.1f} new requests for each page",
    )
    summary = "the scheduler is empty: links are found too slowly"
    if places == 1:
        text = (
            "Other work leaves this process no more CPU, so more links at once would give nothing. Stop that work, or "
            "run the crawl on another machine."
        )
        return _Case("scheduler_empty", "scheduler", summary, shown, Advice(text))
    text = (
        f"Pages have too few links: start from {places} times as many places (for example evenly spaced index pages), "
        "or give index pages a higher priority than details."
    )
    return _Case(
        "scheduler_empty", "scheduler", summary, shown, Advice(text, "start requests (times)", 1, places, factor)
    )  # fmt: skip


def _site_limit(figures: CrawlFigures) -> _Case | None:
    """Return the case of requests that wait only for others in flight at their site."""
    if not figures.is_capped:
        return None
    whole, limit, per_site = figures.whole, figures.limits.site_requests, figures.site_requests
    name, summary = "site_limit", "the limit of requests in flight at a site sets the pace"
    waits = (
        f"requests waited only for others in flight at their sites {whole.capped:.0%} of the time"
        if figures.limits.shared
        else f"{whole.downloader - whole.transferring:.1f} requests in the downloader wait for a place at their site"
    )
    shown = (_in_use(figures), f"{per_site:.1f} requests in flight at each of {max(1.0, whole.sites):.1f} sites", waits)
    if not limit or per_site < _MOSTLY * limit:
        text = (
            f"About {max(1.0, per_site):.0f} requests of a site are in flight at once, by the domain's policy "
            "(concurrency) or the crawl's own limit. Raise it only if the site permits it; more sites at once do, too."
        )
        return _Case(name, "downloader", summary, shown, Advice(text))
    factor = figures.gain(figures.concurrency / max(whole.transferring, 0.1), figures.delay_gain)
    after = int(limit * factor)
    if factor < _WORTH_RAISING or after == limit:
        text = (
            f"{figures.names.site_requests} = {limit} holds requests back, but more would give little: the CPU, the "
            "links that are found or the delays of the site come next. More sites at once would help."
        )
        return _Case(name, "downloader", summary, shown, Advice(text))
    text = (
        f"If the site permits it, raise {figures.names.site_requests} from {limit} to {after}; more sites at once do, "
        "too."
    )
    advice = Advice(text, figures.names.site_requests, limit, after, after / limit)
    return _Case(name, "downloader", summary, shown, advice)


def _site_delay(figures: CrawlFigures) -> _Case | None:
    """Return the case of requests in the downloader that wait for the delay of their site."""
    whole, limits = figures.whole, figures.limits
    if not (whole.downloader and whole.transferring and whole.transferring < _MOSTLY * whole.downloader):
        return None
    waits = f"{whole.downloader - whole.transferring:.1f} requests in the downloader wait for their site's turn"
    settings = [] if whole.site_places else [f"CONCURRENT_REQUESTS_PER_DOMAIN = {limits.site_requests}"]
    settings += [f"DOWNLOAD_DELAY = {limits.delay:g}"] if limits.delay or not limits.throttled else []
    settings += ["AutoThrottle"] if limits.throttled or not limits.delay else []
    text = (
        f"The delay between two requests to a site sets the pace: {', '.join(settings)}. Make it shorter only if the "
        "site permits it; more sites at once would also help."
    )
    return _Case("rate_limit", "downloader", _SITES_PACE, (_in_use(figures), waits), Advice(text))


def _in_use(figures: CrawlFigures) -> str:
    return f"downloader {figures.whole.downloader:.1f} of {figures.concurrency:.0f}; CPU {figures.cpu:.0%}"


def _healthy(figures: CrawlFigures) -> _Case:
    whole, limits, in_use = figures.whole, figures.limits, _in_use(figures)
    if whole.downloader < _MOSTLY * figures.concurrency or whole.resting >= _MOSTLY / 2:
        return _few_requests(figures, in_use)
    room = limits.bytes / whole.held_bytes if limits.bytes and whole.held_bytes else MOST_GAIN
    factor = figures.gain(room, figures.delay_gain)
    scheduler = f"; the scheduler had {whole.scheduler:.0f} requests" if figures.has_scheduler else ""
    shown = [in_use, f"a response takes {figures.response:.3f} s{scheduler}"]
    if whole.blocked >= _BLOCKED:
        place = _most(whole.blocked_in) or "callbacks"
        shown.append(f"the event loop stood still {whole.blocked:.0%} of the time in {place}, but keeps up so far")
    if not limits.requests:
        name = "nothing is seen to hold the crawl back"
        text = "Compare the downloader with the number of requests at once that the settings permit."
        return _Case("healthy", "downloader", name, tuple(shown[1:]), Advice(text))
    name = "healthy: the downloader is full of pages"
    if factor < _WORTH_RAISING:
        text = "Nothing to change: more requests at once would use up the CPU, or the links that are found."
        return _Case("healthy", "downloader", name, tuple(shown), Advice(text))
    after = int(figures.concurrency * factor)
    # Of several sites, others may have places.
    is_alone = whole.sites < _MANY_SITES and 0 < whole.site_places < after
    beside = f" and {figures.names.site_requests} to {after} as well" if is_alone else ""
    text = (
        f"Nothing is wrong. If the site permits it, raise {figures.names.requests} from {figures.concurrency:.0f} to "
        f"{after}{beside}, until the CPU is above 80 % or responses take longer."
    )
    advice = Advice(text, figures.names.requests, figures.concurrency, after, after / figures.concurrency)
    return _Case("healthy", "downloader", name, tuple(shown), advice)


_MANY_SITES = 1.5
"""Mean number of sites in flight from which a crawl counts as one of several."""
_SITES_PACE = "the rate limits of the sites set the pace"
"""Summary of the case in which a crawl is as fast as it may be."""


def _few_requests(figures: CrawlFigures, in_use: str) -> _Case:
    """Return the case of a crawl that has free places for requests, and nothing that keeps them empty here."""
    whole = figures.whole
    if whole.resting >= _MOSTLY / 2 or (figures.has_scheduler and whole.scheduler >= 1):
        waiting = (
            f"requests waited for their site's turn {whole.resting:.0%} of the time"
            if whole.resting
            else f"{whole.scheduler:.0f} requests wait in the frontier"
        )
        given = f" = {figures.limits.delay:g}" if figures.limits.delay else ""
        limit = f"DOWNLOAD_DELAY{given}" if figures.has_scheduler else "--rate, the site's Crawl-delay"
        text = (
            f"Nothing in this process holds the crawl back: its sites' budget does. Raise it ({limit}, the domain's "
            "policy) only if the sites permit it; more processes give nothing, more sites at once do."
        )
        return _Case("rate_limit", "scheduler", _SITES_PACE, (in_use, waiting), Advice(text))
    shown = (in_use, "no request waited while places were free")
    text = (
        "Requests start as soon as their URLs are known; nothing in this process holds the crawl back. More start "
        "URLs, or a sitemap, would bring more at once."
    )
    return _Case("rate_limit", "scheduler", "the supply of URLs sets the pace", shown, Advice(text))


_WORTH_RAISING = 1.2
"""Gain from which more concurrency is advised."""


def _most(places: dict[str, int]) -> str:
    """Return the place with the largest count; empty: there is none."""
    return max(places, key=lambda place: places[place], default="")


def _whole(number: float) -> int:
    """Return the number rounded up, unless it is a whole one but for an error of computation."""
    return math.ceil(number - 0.01)


def _round_up(number: float) -> int:
    """Return the number with two digits, the others 0."""
    unit: int = 10 ** max(0, int(math.log10(max(number, 1))) - 1)
    return math.ceil(number / unit) * unit
