"""The reference page of what a Scrapy project may set, made from the tables of the Scrapy lane."""

from gossamer.scrapy.addon import DEFAULTS, LOOP
from gossamer.scrapy.options import OWN, SHARED
from gossamer.scrapy.redis.settings import TABLE
from gossamer.settings import rows


def scrapy_page() -> str:
    """docs/reference/scrapy.md."""
    lines = [
        *("# Settings of a Scrapy project", ""),
        "What a project on the shared frontier may set, in its `settings.py`, with `-s`, or in a spider's",
        "`custom_settings`. An unknown `GOSSAMER_` name is refused at the start. How to: [Scrapy](../howto/scrapy.md).",
        *("", "## The lane's own", "", "Also read from the environment, where an unknown name is passed over.", ""),
        *("| setting | default | meaning |", "|---|---|---|"),
    ]
    lines += [
        f"| `{name}` | {f'`{default}`' if default != '' else ''} | {text} |" for name, (default, text) in OWN.items()
    ]
    lines += [
        *("", "## Gossamer's", "", "As everywhere ([all settings](settings.md)); those of `[topics]` and `[kafka]`"),
        "too, where items go to the bus.",
        *("", "| setting | default | meaning |", "|---|---|---|"),
    ]
    for _, variable, default, meaning in rows():
        if variable in SHARED:
            text = HERE.get(variable) or " ".join(meaning.split())
            lines.append(f"| `{variable}` | {f'`{default}`' if default else ''} | {text} |")
    lines += [*("", "## Scrapy's, and what they mean here", "", "| setting | meaning |", "|---|---|")]
    lines += [f"| {names} | {meaning} |" for names, meaning in SCRAPYS.items()]
    lines += ["", "## What the add-on sets", "", "What the project sets itself, it keeps.", ""]
    lines += ["| setting | value | why |", "|---|---|---|"]
    lines += [f"| `{name}` | `{value!r}` | {why} |" for name, (value, why) in DEFAULTS.items()]
    lines += [
        f"| `{LOOP[0]}` | `{LOOP[1]!r}` | {LOOP[2]} |",
        f"| `SPIDER_MIDDLEWARES` | `KnownLinks` at 1000 | {KNOWN} |",
    ]
    lines += ["", "## scrapy-redis's", "", "Of a project that moved to `gossamer.scrapy.redis`"]
    lines[-1] += " ([how to](../howto/from-scrapy-redis.md))."
    lines += ["", "| setting | default | here |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {'' if row.default in ('', None) else f'`{row.default!r}`'} | {row.meaning} |"
        for name, row in TABLE.items()
    ]
    return "\n".join(lines) + "\n"


HERE = {
    "GOSSAMER_FRONTIER": (
        "The shared frontier: unix://, redis://, rediss:// or redis+cluster://. Has to be named, here or in the "
        "environment, where the commands find it too"
    ),
    "GOSSAMER_BUS": (
        "Where a `ClusterSpider`'s pages and items go: kafka://host:port,host:port. Empty: streams, in the frontier's "
        "server"
    ),
    "GOSSAMER_DATA_DIR": (
        "Of a `ClusterSpider` on streams: bodies are in its folder blobs, unless GOSSAMER_TOPICS__BLOBS says where"
    ),
}
"""Settings that mean less here than elsewhere."""

SCRAPYS = {
    "`DOWNLOAD_DELAY`, a spider's `download_delay`": (
        "The crawl's wish for every domain: one request in so many seconds, of all processes together. "
        "0: as fast as the operator's policy allows"
    ),
    "`CONCURRENT_REQUESTS_PER_DOMAIN`": "Requests in flight of one domain, of all processes together",
    "`CONCURRENT_REQUESTS`": "Of this process",
    "`DOWNLOAD_SLOTS`": "A host's own delay and concurrency, kept in each process besides",
    "`SCHEDULER_PERSIST`": "True: a finished crawl's next run has seen what the last one saw. False: it begins anew",
    "`SCHEDULER_MEMORY_QUEUE`": "A queue with `Fifo` in its name: first in first out; else last in first out",
    "`REQUEST_FINGERPRINTER_CLASS`": (
        "Decides what is the same request, as in Scrapy. Requests that the service or another spider adds have the "
        "fingerprint of Scrapy's default class"
    ),
    "`ROBOTSTXT_OBEY`": "As in Scrapy, but all requests that wait for a robots.txt obey it; `Crawl-delay` holds for "
    "the whole cluster then",
    "`DUPEFILTER_CLASS`": (
        "`scrapy.dupefilters.BaseDupeFilter`: nothing is dropped as a duplicate but start requests. A class of the "
        "project's own is refused: it would never be asked"
    ),
    "`JOBDIR`, `SCHEDULER_DISK_QUEUE`, `SCHEDULER_PRIORITY_QUEUE`": ("Not read: the frontier does it"),
}

KNOWN = (
    "Links that are known to be seen are dropped before the other middlewares handle them; set "
    "`gossamer.scrapy.addon.KnownLinks` to `None` where one of those rewrites requests"
)
