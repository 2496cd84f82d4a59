"""The lane's settings, as a project writes them: its own in the table below, and those of Gossamer that concern it."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from scrapy import Spider
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from gossamer import settings as gossamer_settings
from gossamer.errors import BadInput
from gossamer.model.crawl import Crawl, CrawlId, Order, Rate
from gossamer.settings import Settings

OWN: dict[str, tuple[Any, str]] = {
    "GOSSAMER_APPID": ("", "The application that owns the crawl. Empty: BOT_NAME"),
    "GOSSAMER_CRAWL_ID": ("", "The crawl's name; processes that name the same share it. Empty: the spider's name"),
    "GOSSAMER_POOL": (
        "",
        "Which workers share the work. Empty: those of this crawl. shared: those of the service",
    ),
    "GOSSAMER_QUEUE_ORDER": (
        "",
        "lifo or fifo: which request of one priority is first. Empty: as SCHEDULER_MEMORY_QUEUE says, so lifo",
    ),
    "GOSSAMER_STAY_OPEN": (False, "Wait for more work when the crawl is finished, instead of closing the spider"),
    "GOSSAMER_RETRY_BASE": (
        10.0,
        "Seconds that a `ClusterSpider`'s first retry waits at most; doubled for each further",
    ),
    "GOSSAMER_MAX_PAGES": (0, "Pages that the whole crawl fetches at most. 0: no limit"),
}
"""Name: (default, meaning)."""

SHARED = {
    "GOSSAMER_FRONTIER", "GOSSAMER_PREFIX", "GOSSAMER_SHARDS", "GOSSAMER_BUS", "GOSSAMER_DATA_DIR",
    "GOSSAMER_RETENTION", "GOSSAMER_STOPPED_RETENTION", "GOSSAMER_EGRESS", "GOSSAMER_ALLOW_NETWORKS",
    "GOSSAMER_WORKER__HEARTBEAT", "GOSSAMER_RECORDS__SECRETS",
}  # fmt: skip
"""Gossamer's settings that a Scrapy project may set; those of `topics` and `kafka` besides."""
_SHARED_GROUPS = ("GOSSAMER_TOPICS__", "GOSSAMER_KAFKA__")

UNSPACED = Rate(hits=1_000_000, window_seconds=0.001, moderated=False)
"""DOWNLOAD_DELAY = 0: the project wishes no spacing. What the operator set holds all the same."""


@dataclass(frozen=True, slots=True)
class LaneOptions:
    """One process's part in a crawl."""

    settings: Settings
    crawl: Crawl
    fresh: bool
    """A finished crawl begins anew with nothing seen."""
    dedupe: bool
    """False: every request is as if it said `dont_filter`."""
    stay_open: bool
    concurrency: int
    """Requests in flight of this process."""


def read(scrapy_settings: BaseSettings, spider: Spider) -> LaneOptions:
    """Its own settings and its spider's attributes of the same meaning (`download_delay`, `max_concurrent_requests`).

    Raises BadInput, with the setting's name, for what is missing, unknown or contradictory."""
    given = {name: scrapy_settings[name] for name in scrapy_settings if str(name).startswith("GOSSAMER_")}
    settings = _load(given)
    own = {name: given.get(name, os.environ.get(name, default)) for name, (default, _) in OWN.items()}
    if not settings.frontier:
        raise BadInput('GOSSAMER_FRONTIER is not set; name the server: GOSSAMER_FRONTIER = "redis://localhost:6379"')
    delay = _wish(spider, "download_delay", scrapy_settings, "DOWNLOAD_DELAY")
    cap = int(_wish(spider, "max_concurrent_requests", scrapy_settings, "CONCURRENT_REQUESTS_PER_DOMAIN"))
    if cap < 1:
        raise BadInput("CONCURRENT_REQUESTS_PER_DOMAIN, or the spider's max_concurrent_requests: 0 fetches nothing")
    identity = CrawlId(
        str(own["GOSSAMER_APPID"] or scrapy_settings["BOT_NAME"]), str(own["GOSSAMER_CRAWL_ID"] or spider.name)
    )
    crawl = Crawl(
        id=identity,
        pool=str(own["GOSSAMER_POOL"] or f"scrapy-{identity.token}"),
        order=_order(str(own["GOSSAMER_QUEUE_ORDER"]), scrapy_settings),
        max_pages=_count(own["GOSSAMER_MAX_PAGES"], "GOSSAMER_MAX_PAGES") or None,
        rate=Rate(hits=1, window_seconds=delay) if delay > 0 else UNSPACED,
        concurrency=cap,
    )
    return LaneOptions(
        settings=settings,
        crawl=crawl,
        fresh=not scrapy_settings.getbool("SCHEDULER_PERSIST"),
        dedupe=_dedupes(scrapy_settings),
        stay_open=_bool(own["GOSSAMER_STAY_OPEN"], "GOSSAMER_STAY_OPEN"),
        concurrency=scrapy_settings.getint("CONCURRENT_REQUESTS") or 64,
    )


def _wish(spider: Spider, attribute: str, scrapy_settings: BaseSettings, name: str) -> float:
    """What the spider says, else its project."""
    said = getattr(spider, attribute, None)
    value, place = (scrapy_settings.get(name), name) if said is None else (said, f"the spider's {attribute}")
    try:
        number = float(value or 0)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise BadInput(f"{place}: {value!r} is no number from 0 up")
    return number


def _load(given: Mapping[str, Any]) -> Settings:
    flags: dict[str, Any] = {}
    known = {variable: name for name, variable, _, _ in gossamer_settings.rows()}
    for name, value in given.items():
        if name in OWN:
            continue
        if name not in known:
            near = get_close_matches(name, [*OWN, *SHARED], 1)
            raise BadInput(f"{name}: there is no such setting" + (f"; did you mean {near[0]}?" if near else ""))
        if name not in SHARED and not name.startswith(_SHARED_GROUPS):
            raise BadInput(f"{name} has no effect in a Scrapy project; use Scrapy's own setting")
        flags[known[name]] = _listed(value) if name == "GOSSAMER_ALLOW_NETWORKS" else value
    try:
        return gossamer_settings.load(flags)
    except BadInput as fault:
        name, _, why = fault.detail.partition(": ")
        raise BadInput(f"GOSSAMER_{name.upper().replace('.', '__')}: {why}") from None


def _listed(value: Any) -> Any:
    """A list may be written with commas, as in the environment."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _order(asked: str, scrapy_settings: BaseSettings) -> Order:
    if asked:
        try:
            return Order(asked.lower())
        except ValueError:
            raise BadInput(f"GOSSAMER_QUEUE_ORDER: {asked!r} is neither lifo nor fifo") from None
    return Order.FIFO if "fifo" in str(scrapy_settings.get("SCHEDULER_MEMORY_QUEUE", "")).lower() else Order.LIFO


def _dedupes(scrapy_settings: BaseSettings) -> bool:
    given = load_object(scrapy_settings["DUPEFILTER_CLASS"])
    if given is BaseDupeFilter:
        return False
    if given is not RFPDupeFilter and not given.__module__.startswith("gossamer."):
        raise BadInput(
            f"DUPEFILTER_CLASS: {given.__module__}.{given.__qualname__} would never be asked; the frontier tells "
            "requests apart, by REQUEST_FINGERPRINTER_CLASS where the project has one of its own"
        )
    return True


def _bool(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).strip().lower() in ("1", "true", "yes"):
        return True
    if str(value).strip().lower() in ("", "0", "false", "no"):
        return False
    raise BadInput(f"{name}: {value!r} is neither True nor False")


def _count(value: Any, name: str) -> int:
    try:
        count = int(value or 0)
    except (TypeError, ValueError):
        count = -1
    if count < 0:
        raise BadInput(f"{name}: {value!r} is no number of pages")
    return count
