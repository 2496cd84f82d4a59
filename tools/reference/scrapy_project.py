"""Generates the reference page of a Scrapy project's settings from the tables of `gossamer.scrapy`."""

from gossamer.scrapy.addon import ADDON_SETTINGS, EVENT_LOOP, HANDLER
from gossamer.scrapy.batches import DISTRIBUTED_SETTINGS
from gossamer.scrapy.options import PROJECT_SETTINGS, SHARED_SETTINGS
from gossamer.scrapy.pipelines.lookup import LOOKUP_SETTINGS
from gossamer.scrapy.pipelines.programs import PROGRAM_SETTINGS
from gossamer.scrapy.pipelines.workers import WORKER_SETTINGS
from gossamer.scrapy.redis.settings import OPTIONS
from gossamer.settings.rows import rows


def scrapy_page() -> str:
    """Return docs/reference/scrapy.md."""
    lines = [
        *("# Settings of a Scrapy project", ""),
        "Settings for a project on the shared frontier. Set them in `settings.py`, with `-s`, or in a spider's",
        "`custom_settings`. An unknown name that starts with `GOSSAMER_` is refused at the start. How to use them:",
        "[Put a Scrapy project on the shared frontier](../howto/scrapy.md).",
        *("", "## For Scrapy projects only", ""),
        "These may also be environment variables. Unknown environment variables are ignored.",
        *("", "| setting | default | meaning |", "|---|---|---|"),
    ]
    lines += [
        f"| `{name}` | {f'`{default}`' if default != '' else ''} | {text} |"
        for name, (default, text) in PROJECT_SETTINGS.items()
    ]
    shared = {variable: default for _, variable, default, _ in rows() if variable in SHARED_SETTINGS}
    lines += [
        *("", "## Gossamer's settings", ""),
        "These mean [what they mean everywhere](settings.md), `GOSSAMER_A__B` for `a.b`: "
        + ", ".join(f"`{variable}`" for variable in shared if variable not in NARROWER) + ".",
        "Projects that publish to the bus may also set those of `[topics]` and `[kafka]`, and projects that render",
        "pages those of `[browser]`. These mean less:",
        *("", "| setting | default | meaning |", "|---|---|---|"),
    ]  # fmt: skip
    for variable, text in NARROWER.items():
        default = shared[variable]
        lines.append(f"| `{variable}` | {f'`{default}`' if default else ''} | {text} |")
    lines += [*("", "## Scrapy's settings on the shared frontier", "", "| setting | meaning |", "|---|---|")]
    lines += [f"| {names} | {meaning} |" for names, meaning in SCRAPYS.items()]
    lines += ["", "## What the add-on sets", ""]
    lines += [
        "The project's own values override these. So do those of add-ons with a smaller number, except `SCHEDULER`."
    ]
    lines += [""]
    lines += ["| setting | value | reason |", "|---|---|---|"]
    lines += [f"| `{name}` | `{value!r}` | {why} |" for name, (value, why) in ADDON_SETTINGS.items()]
    lines += [
        f"| `{EVENT_LOOP[0]}` | `{EVENT_LOOP[1]!r}` | {EVENT_LOOP[2]} |",
        f"| `SPIDER_MIDDLEWARES` | `KnownLinks` at 1000 | {KNOWN_LINKS} |",
        f"| `DOWNLOAD_HANDLERS` | `{HANDLER!r}` for http and https | {DOWNLOADS} |",
    ]
    lines += ["", "## Pipelines", "", "For `gossamer.scrapy.pipelines`, with and without the shared frontier"]
    lines[-1] += " ([how to](../howto/pipelines.md))."
    lines += ["", "| setting | default | meaning |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {'' if default == '' else f'`{default!r}`'} | {meaning} |"
        for name, (default, meaning) in {**LOOKUP_SETTINGS, **WORKER_SETTINGS, **PROGRAM_SETTINGS}.items()
    ]
    lines += ["", "## Links handed over", "", "For `gossamer.scrapy.DistributedLinks`"]
    lines[-1] += " ([how to](../howto/distribute.md#hand-links-over))."
    lines += ["", "| setting | default | meaning |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {f'`{default!r}`' if default else ''} | {meaning} |"
        for name, (default, meaning) in DISTRIBUTED_SETTINGS.items()
    ]
    lines += ["", "## scrapy-redis's settings", "", "For a project that moved to `gossamer.scrapy.redis`"]
    lines[-1] += " ([how to](../howto/from-scrapy-redis.md))."
    lines += ["", "| setting | default | meaning |", "|---|---|---|"]
    alike: dict[tuple[str, str], list[str]] = {}
    for name, row in OPTIONS.items():
        default = "" if row.default in ("", None) else f"`{row.default!r}`"
        alike.setdefault((default, row.meaning), []).append(f"`{name}`")
    lines += [f"| {', '.join(names)} | {default} | {meaning} |" for (default, meaning), names in alike.items()]
    return "\n".join(lines) + "\n"


NARROWER = {
    "GOSSAMER_FRONTIER": ("Required. Set it in the environment if the `gossamer` commands are to find it, too"),
    "GOSSAMER_BUS": (
        "Where a `ClusterSpider` publishes pages and items: kafka://host:port,host:port. Empty: streams in the "
        "frontier's server"
    ),
    "GOSSAMER_DATA_DIR": (
        "Folder for large bodies on streams (`blobs`, without GOSSAMER_TOPICS__BLOBS), and for the "
        "recordings of `gossamer.scrapy.PerformanceView` (`performance`)"
    ),
}
"""Meanings of settings that do less in a Scrapy project than elsewhere."""

SCRAPYS = {
    "`DOWNLOAD_DELAY`, a spider's `download_delay`": (
        "Requested delay between two requests to one domain, in seconds, for all processes together. "
        "0: as fast as the operator's policy allows"
    ),
    "`CONCURRENT_REQUESTS_PER_DOMAIN`, a spider's `max_concurrent_requests`": (
        "Maximum number of requests in flight to one domain, for all processes together"
    ),
    "`CONCURRENT_REQUESTS`": "Maximum number of requests in flight in one process",
    "`DOWNLOAD_SLOTS`": "Additional delay and concurrency of a host, kept by each process for itself",
    "`SCHEDULER_PERSIST`": ("True: the next run of a finished crawl skips what earlier runs have seen"),
    "`SCHEDULER_MEMORY_QUEUE`": "A class with `Fifo` in its name: oldest request first. Any other: newest first",
    "`REQUEST_FINGERPRINTER_CLASS`": (
        "Decides which requests are the same. Requests that others add have the fingerprint of Scrapy's default class"
    ),
    "`ROBOTSTXT_OBEY`": (
        "As in Scrapy, but all requests that wait for a robots.txt obey it, and its `Crawl-delay` applies to the whole "
        "cluster"
    ),
    "`DUPEFILTER_CLASS`": (
        "`scrapy.dupefilters.BaseDupeFilter`: only start requests are dropped as duplicates. A class of "
        "your own is refused"
    ),
    "`JOBDIR`, `SCHEDULER_DISK_QUEUE`, `SCHEDULER_PRIORITY_QUEUE`": "No effect: the frontier keeps the requests",
    "`DUPEFILTER_DEBUG`": "No effect: duplicates are counted (`dupefilter/filtered`), not logged",
    "`TWISTED_REACTOR`": "Must be Scrapy's asyncio reactor, which is the default. Any event loop may be set",
}

KNOWN_LINKS = (
    "Drops links that are known as seen before other middlewares, unless the project has receivers of"
    " `request_scheduled` or `request_dropped`. Set `gossamer.scrapy.addon.KnownLinks` to `None` if a"
    " middleware rewrites or counts requests"
)

DOWNLOADS = (
    "Downloads with Gossamer's connections, which take less CPU. What they do not support uses "
    "Scrapy's own handler: proxies, bind addresses, TLS settings of the project, another resolver or "
    "reactor, `headers_received` and `bytes_received`. To use only that, name it: "
    "`scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler`. Needs Scrapy 2.15"
)
