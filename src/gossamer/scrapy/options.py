"""Settings of a Scrapy project on the shared frontier: the table of its own settings, and how all of them are read.

The frontier is the queue that all processes of a crawl share. Fixed: the names of settings, their defaults, and how a
crawl's name and pool are derived from them: a project that did not change would otherwise begin another crawl.
"""

import logging
import math
import os
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.misc import load_object
from scrapy.utils.reactor import is_asyncio_reactor_installed

from gossamer.errors import BadInput, GossamerError
from gossamer.model.crawl import Crawl, CrawlId, Order, Rate
from gossamer.settings import Settings
from gossamer.settings import load as load_settings
from gossamer.settings.rows import rows

log = logging.getLogger(__name__)

PROJECT_SETTINGS: dict[str, tuple[Any, str]] = {
    "GOSSAMER_APPID": ("", "Application that owns the crawl. Empty: BOT_NAME"),
    "GOSSAMER_CRAWL_ID": (
        "",
        "Name of the crawl. Processes with the same application and name share one crawl. Empty: the spider's name",
    ),
    "GOSSAMER_POOL": (
        "",
        "Pool of workers that share the crawl's requests. Empty: the processes of this crawl. shared: the service's "
        "workers",
    ),
    "GOSSAMER_QUEUE_ORDER": (
        "",
        "Order of requests with the same priority: lifo (newest first) or fifo (oldest first). Empty: fifo if "
        "SCHEDULER_MEMORY_QUEUE has `Fifo` in its name, else lifo",
    ),
    "GOSSAMER_STAY_OPEN": (False, "Keep the spider open when the crawl is finished, to wait for more requests"),
    "GOSSAMER_RETRY_BASE": (
        10.0,
        "Longest delay of a `ClusterSpider`'s first retry, in seconds. It doubles with each further retry",
    ),
    "GOSSAMER_FAST_LINKS": (
        True,
        "The add-on makes `LinkExtractor`, `response.follow`, `response.urljoin` and the rules of spiders"
        " fast. False: Scrapy's own code",
    ),
    "GOSSAMER_FAST_ENGINE": (
        True,
        "The add-on shortens the way of requests through Scrapy's engine, with the same calls (Scrapy "
        "2.16 to 2.19). False: Scrapy's own way",
    ),
    "GOSSAMER_MAX_PAGES": (0, "Maximum number of pages that all processes of the crawl fetch together. 0: no limit"),
    "GOSSAMER_PROXIES": (
        "",
        "Proxies for all requests: http:// or https:// URLs in a list, or with spaces between, or a file of them. "
        "Empty: none",
    ),
    "GOSSAMER_PROXY_STICKY": (
        False,
        "As `fetch.proxy_sticky`",
    ),
    "GOSSAMER_PROXY_BUDGET": (
        "shared",
        "As `fetch.proxy_budget`. address needs the shared frontier",
    ),
    "GOSSAMER_PROXY_REST": (
        10.0,
        "As `fetch.proxy_rest`",
    ),
    "GOSSAMER_PROXY_LONGEST_REST": (600.0, "As `fetch.proxy_longest_rest`"),
    "GOSSAMER_PROXY_BAN_STATUSES": (
        (403, 429),
        "As `fetch.proxy_ban_statuses`",
    ),
    "GOSSAMER_PROXY_PATIENCE": (300.0, "Seconds for which a request waits while all proxies rest; then it fails"),
    "GOSSAMER_SHARED_COOKIES": (
        False,
        "Share cookies between the processes of the crawl, encrypted by the key in "
        "GOSSAMER_SECRET_KEYS_FILE, so that one of them logs in for all",
    ),
    "GOSSAMER_RENDER": (
        "never",
        "Render pages in a browser, as the option `--render`; `render` in the meta of a request overrides it",
    ),
    "GOSSAMER_RENDER_OPTIONS": (
        {},
        "What `render` in the meta of requests may have, for all rendered requests: `steps`, `wait`, `capture`, "
        "`screenshot`, `seconds`, `quiet`, `other_sites`, `load`. The last four are as in [browser]. On the command "
        "line: JSON",
    ),
    "GOSSAMER_FRESH": (
        False,
        "Incremental runs. True: pages that are as in an earlier run give no items; all: all pages are "
        "handled, for example after a change of the spider. Only responses with the status 200 to GET "
        "requests are remembered",
    ),
    "GOSSAMER_FRESH_INDEX": (
        "",
        "Index of the pages of earlier runs: a SQLite file, or postgresql://USER@HOST/DATABASE for "
        "several machines. Empty: a file in the folder `scrapy` of GOSSAMER_DATA_DIR",
    ),
    "GOSSAMER_FRESH_LEVEL": (
        "bytes",
        "Difference by which a page has changed. bytes: any; text: of its main text (not for items from "
        "attributes or scripts); items: of the items that its callback yields, which runs unless the page"
        " answered 304 (add the time of the fetch in a pipeline)",
    ),
    "GOSSAMER_PERFORMANCE_LOG": (
        5.0,
        "Seconds between two lines of `gossamer.scrapy.PerformanceView` in the log. 0: none",
    ),
}
"""Default and meaning by name. A setting may be added; a new default changes every project that does not set it."""

SHARED_SETTINGS = {
    "GOSSAMER_FRONTIER", "GOSSAMER_PREFIX", "GOSSAMER_SHARDS", "GOSSAMER_BUS", "GOSSAMER_DATA_DIR",
    "GOSSAMER_RETENTION", "GOSSAMER_STOPPED_RETENTION", "GOSSAMER_EGRESS", "GOSSAMER_ALLOW_NETWORKS",
    "GOSSAMER_WORKER__HEARTBEAT", "GOSSAMER_RECORDS__SECRETS", "GOSSAMER_FETCH__REFUSAL_RULES",
    "GOSSAMER_FETCH__ACCEPT_REFUSED",
}  # fmt: skip
"""Gossamer's settings that a Scrapy project may set, besides those of `_SHARED_GROUPS`; all others are refused, because
nothing in a Scrapy process reads them. Add a name together with the code that reads it."""
_SHARED_GROUPS = ("GOSSAMER_TOPICS__", "GOSSAMER_KAFKA__", "GOSSAMER_BROWSER__")
"""Beginnings of the names of further such settings."""

UNSPACED = Rate(hits=1_000_000, window_seconds=0.001, moderated=False)
"""Rate for DOWNLOAD_DELAY = 0: the project requests no spacing. The operator's policies still apply. May be any rate
that no process can reach; `join` gives a new value to crawls that run already."""
_DEFAULT_CONCURRENCY = 64
"""Requests in flight where CONCURRENT_REQUESTS is 0 or None. More need memory."""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """A project's settings for its crawl and for this process."""

    settings: Settings
    crawl: Crawl
    fresh: bool
    """True: after a finished run (one life of the crawl), the next one has seen nothing."""
    dedupe: bool
    """False: every request is treated as if it had `dont_filter`."""
    stay_open: bool
    """True: the spider stays open when the crawl is finished."""
    concurrency: int
    """Maximum number of requests in flight in this process."""


def read_options(scrapy_settings: BaseSettings, spider: Spider) -> SchedulerOptions:
    """Read the project's settings; the spider's `download_delay` and `max_concurrent_requests` override them.

    Raises BadInput, with the setting's name, for a missing, unknown or invalid one.
    """
    given, settings = _given(scrapy_settings), own_settings(scrapy_settings)
    # The project's value comes before the environment's. Gossamer's own settings are read in the same order.
    own = {name: given.get(name, os.environ.get(name, default)) for name, (default, _) in PROJECT_SETTINGS.items()}
    if not settings.frontier:
        raise BadInput('GOSSAMER_FRONTIER is not set; name the server: GOSSAMER_FRONTIER = "redis://localhost:6379"')
    if own["GOSSAMER_PROXIES"] and "ProxyPoolMiddleware" not in str(scrapy_settings.getdict("DOWNLOADER_MIDDLEWARES")):
        raise BadInput(
            "GOSSAMER_PROXIES is set, but requests would go out directly; add "
            '"gossamer.scrapy.ProxyPoolMiddleware": 740 to DOWNLOADER_MIDDLEWARES, or use the add-on'
        )
    delay = _number(spider, "download_delay", scrapy_settings, "DOWNLOAD_DELAY")
    concurrency = int(_number(spider, "max_concurrent_requests", scrapy_settings, "CONCURRENT_REQUESTS_PER_DOMAIN"))
    if concurrency < 1:
        raise BadInput("CONCURRENT_REQUESTS_PER_DOMAIN, or the spider's max_concurrent_requests: must be 1 or more")
    identity = CrawlId(
        str(own["GOSSAMER_APPID"] or scrapy_settings["BOT_NAME"]), str(own["GOSSAMER_CRAWL_ID"] or spider.name)
    )
    crawl = Crawl(
        id=identity,
        pool=str(own["GOSSAMER_POOL"] or f"scrapy-{identity.token}"),
        order=_order(str(own["GOSSAMER_QUEUE_ORDER"]), scrapy_settings),
        max_pages=_count(own["GOSSAMER_MAX_PAGES"], "GOSSAMER_MAX_PAGES") or None,
        rate=Rate(hits=1, window_seconds=delay) if delay > 0 else UNSPACED,
        concurrency=concurrency,
    )
    return SchedulerOptions(
        settings=settings,
        crawl=crawl,
        fresh=not scrapy_settings.getbool("SCHEDULER_PERSIST"),
        dedupe=_dedupes(scrapy_settings),
        stay_open=_bool(own["GOSSAMER_STAY_OPEN"], "GOSSAMER_STAY_OPEN"),
        concurrency=scrapy_settings.getint("CONCURRENT_REQUESTS") or _DEFAULT_CONCURRENCY,
    )


def _number(spider: Spider, attribute: str, scrapy_settings: BaseSettings, name: str) -> float:
    """Return the spider's attribute, or the project's setting where the spider has none."""
    own = getattr(spider, attribute, None)
    value, source = (scrapy_settings.get(name), name) if own is None else (own, f"the spider's {attribute}")
    try:
        number = float(value or 0)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise BadInput(f"{source}: {value!r} is not a number from 0 up")
    return number


def _given(scrapy_settings: BaseSettings) -> dict[str, Any]:
    """Return the project's GOSSAMER_ settings."""
    return {name: scrapy_settings[name] for name in scrapy_settings if str(name).startswith("GOSSAMER_")}


def own_settings(scrapy_settings: BaseSettings) -> Settings:
    """Return Gossamer's settings, with the project's GOSSAMER_ settings in place of those of files and environment.

    Raises BadInput, with the setting's name, for an unknown or invalid one."""
    overrides: dict[str, Any] = {}
    names_by_variable = {variable: name for name, variable, _, _ in rows()}
    for variable, value in _given(scrapy_settings).items():
        if variable in PROJECT_SETTINGS:
            continue
        if variable not in names_by_variable:
            near = get_close_matches(variable, [*PROJECT_SETTINGS, *SHARED_SETTINGS], 1)
            raise BadInput(f"{variable}: there is no such setting" + (f"; did you mean {near[0]}?" if near else ""))
        if variable not in SHARED_SETTINGS and not variable.startswith(_SHARED_GROUPS):
            raise BadInput(f"{variable} has no effect in a Scrapy project; use Scrapy's own setting")
        overrides[names_by_variable[variable]] = _as_list(value) if variable == "GOSSAMER_ALLOW_NETWORKS" else value
    # A project knows the setting by its variable.
    return load_settings(overrides, names={name: variable for variable, name in names_by_variable.items()})


def _as_list(value: Any) -> Any:
    """Split text at commas, as in the environment. Other values stay as they are."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _order(name: str, scrapy_settings: BaseSettings) -> Order:
    """Return the order of this name. Without one, that of Scrapy's own queue in the project's settings. Raises
    BadInput."""
    if name:
        try:
            return Order(name.lower())
        except ValueError:
            raise BadInput(f"GOSSAMER_QUEUE_ORDER: {name!r} is neither lifo nor fifo") from None
    return Order.FIFO if "fifo" in str(scrapy_settings.get("SCHEDULER_MEMORY_QUEUE", "")).lower() else Order.LIFO


def _dedupes(scrapy_settings: BaseSettings) -> bool:
    """Return whether duplicates are dropped. Raises BadInput for a dupefilter of the project, which could not work."""
    given = load_object(scrapy_settings["DUPEFILTER_CLASS"])
    if given is BaseDupeFilter:
        return False
    if given is not RFPDupeFilter and not given.__module__.startswith("gossamer."):
        raise BadInput(
            f"DUPEFILTER_CLASS: {given.__module__}.{given.__qualname__} would never be called, because the frontier "
            "drops duplicates; set a REQUEST_FINGERPRINTER_CLASS to decide which requests are the same"
        )
    return True


def _bool(value: Any, name: str) -> bool:
    """Return the value of a setting that is true or false. Raises BadInput, with the setting's name."""
    if isinstance(value, bool):
        return value
    if str(value).strip().lower() in ("1", "true", "yes"):
        return True
    if str(value).strip().lower() in ("", "0", "false", "no"):
        return False
    raise BadInput(f"{name}: {value!r} is neither True nor False")


def _count(value: Any, name: str) -> int:
    """Return the value of a setting that is a number of pages, 0 for none. Raises BadInput, with the setting's name."""
    try:
        count = int(value or 0)
    except (TypeError, ValueError):
        count = -1
    if count < 0:
        raise BadInput(f"{name}: {value!r} is not a number of pages")
    return count


def runs_alone(crawler: Crawler) -> bool:
    """Return whether a command looks at one page and takes no part in a crawl: `scrapy shell`, `fetch`, `parse`,
    `check`.

    `fetch`, `parse` and `check` put a `start` of their own into the spider; `shell` turns the dupefilter off. Scrapy
    has no better sign, so this test changes only with Scrapy.
    """
    start = getattr(crawler.spidercls, "start", None)
    if str(getattr(start, "__module__", "")).startswith("scrapy.commands."):
        return True
    return crawler.settings.getpriority("DUPEFILTER_CLASS") == SETTINGS_PRIORITIES["command"]


def abort(error: GossamerError) -> NoReturn:
    """Log the error in one line and end: the `scrapy` command with the exit code of the `gossamer` commands, which is 2
    for wrong input; other programs with the error."""
    log.critical("%s", error)
    main = getattr(sys.modules["__main__"], "__spec__", None)
    is_scrapy_command = Path(sys.argv[0]).name == "scrapy" or (main is not None and main.name == "scrapy.__main__")
    # Other reactors swallow SystemExit, and the command would end with exit code 0.
    if is_scrapy_command and is_asyncio_reactor_installed():
        raise SystemExit(error.exit_code)
    raise error
