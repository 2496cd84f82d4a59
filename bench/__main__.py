"""`python -m bench`: measure, print the tables."""

import argparse
import logging
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil
from rich.console import Console

from bench.crawl import measure_site
from bench.crawlers import CRAWLERS
from bench.results import CrawlRow, Report, ratios
from bench.table import markdown, show
from bench.websites import websites

SLOW_SHARE = 0.1
"""Share of a site's pages that slow crawlers get in a full run: with all pages it would take hours."""
FRONTIER = "frontier"
DURABILITY = "durability"
SERVICE = "service"
ONCE_WHEN_QUICK = (
    "crawlee", "scrapling", "scrapy-redis", "scheduler", "addon", "scrapy-titles", "addon-titles", "scrapy-rules",
    "addon-rules", "fields", "gossamer-2",
)  # fmt: skip
"""Crawlers that a quick run measures on its first site only, because other sites tell little more of them."""


def main(words: Sequence[str] | None = None) -> int:
    """0: everything was measured and every crawler fetched exactly the site's pages. 1: not so; the rows say why.
    130: interrupted; what was measured until then is printed all the same."""
    arguments = _parse(words)
    for number in (signal.SIGINT, signal.SIGTERM):  # a signal has to stop the servers that we started, too
        signal.signal(number, signal.default_int_handler)
    logging.basicConfig(level=logging.ERROR)  # that a server has no replica is known here
    repeats = 1 if arguments.quick else 3
    chosen = [crawler for crawler in CRAWLERS if crawler.name in arguments.rows]
    report = Report(_machine(), [], [])
    interrupted = False
    startup: dict[str, float] = {}
    try:
        for website in websites(quick=arguments.quick):
            if website.name in arguments.only:
                measure_site(
                    website.share(arguments.pages),
                    chosen,
                    report.sites,
                    slow_share=1.0 if arguments.quick else SLOW_SHARE,
                    repeats=repeats,
                    startup=startup,
                )
                if arguments.quick:
                    chosen = [crawler for crawler in chosen if crawler.name not in ONCE_WHEN_QUICK]
        if FRONTIER in arguments.only:
            from bench.frontier import measure_frontier

            report.frontier.extend(measure_frontier(quick=arguments.quick))
        if DURABILITY in arguments.only:
            from bench.durability import measure_durability

            report.frontier.append(measure_durability(quick=arguments.quick))
        if SERVICE in arguments.only:
            from bench.service import measure_service

            report.service.extend(measure_service(quick=arguments.quick))
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: this is what there is", file=sys.stderr)
    show(report, Console(width=None if sys.stdout.isatty() else 140))
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(_figures(report))))
    if arguments.markdown:
        arguments.markdown.write_text(markdown(report))
    wrong = any(row.note and not row.left_out for site in report.sites for row in site.rows)
    return 130 if interrupted else int(wrong)


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parts = [website.name for website in websites(quick=True)] + [FRONTIER, DURABILITY, SERVICE]
    quick_parts = [part for part in parts if part != SERVICE]
    rows = [crawler.name for crawler in CRAWLERS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sites: a minute or two, and rough")
    parser.add_argument(
        "--only",
        type=_choice(parts),
        metavar="LIST",
        help=f"of {','.join(parts)}; unset: all of them, of a quick run {','.join(quick_parts)}",
    )
    parser.add_argument("--rows", type=_choice(rows), default=rows, metavar="LIST", help=f"of {','.join(rows)}")
    parser.add_argument(
        "--pages", type=float, default=1.0, metavar="SHARE", help="share of each site's pages, 0.25 say"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as Markdown")
    arguments = parser.parse_args(words)
    arguments.only = arguments.only or (quick_parts if arguments.quick else parts)
    return arguments


class _choice:  # noqa: N801 (a function in all but its name; argparse shows the name)
    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def __call__(self, text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [word for word in chosen if word not in self._known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}; choose from {', '.join(self._known)}")
        return chosen


def _machine() -> str:
    cores, memory = psutil.cpu_count() or 1, psutil.virtual_memory().total / 2**30
    return (
        f"{platform.system()} {platform.machine()}, {cores} cores, {memory:.0f} GiB, Python {platform.python_version()}"
    )


def _figures(report: Report) -> dict[str, object]:
    """The report for another program, derived figures included."""
    return {
        "machine": report.machine,
        "sites": [
            {
                "name": site.name,
                "description": site.description,
                "server": site.server,
                "rows": [_row(row) | {"ratios": ratios(row, site.rows)} for row in site.rows],
            }
            for site in report.sites
        ],
        "frontier": report.frontier,
        "service": report.service,
    }


def _row(row: CrawlRow) -> dict[str, object]:
    derived = ("pages_per_second", "pages_per_cpu_second", "running_pages_per_cpu_second")
    return {**msgspec.to_builtins(row), **{name: getattr(row, name) for name in derived}}


if __name__ == "__main__":
    sys.exit(main())
