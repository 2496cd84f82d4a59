"""Cost of a second round over pages that have not changed, as a share of the first: bytes of the responses, and CPU.

python -m bench.second_round                     # 1,000 pages of 12 KB and of 138 KB, a minute
python -m bench.second_round --pages 10000

nginx serves the pages with validators. CPU is that of the crawling command with the Valkey that holds its queue, so
other load on the machine matters little. Each command starts and ends once; a third one, for which no page is due,
shows what that takes, and is subtracted.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.errors import BenchFailed
from bench.nginx import serve_with_nginx
from bench.places import program
from bench.websites import Website
from gossamer.fakeweb import WebSpec
from gossamer.fakeweb.site import Site

SIZES = {"12": (12_000, 20), "138": (138_000, 226)}
"""Bytes and links of a page, by the kilobytes that a person names."""
FLAGS = ("--rate", "100000/1", "--domain-concurrency", "16", "--ignore-robots", "--allow-private", "--json", "--quiet")


class Cost(NamedTuple):
    """Cost of a round."""

    requests: int
    sent: int
    """Bytes of all responses with their headers."""
    cpu: float
    """CPU seconds of the command and its processes."""


def measure(website: Website) -> tuple[Cost, Cost]:
    """Return the cost of the first round of a site, and of the second. Raises BenchFailed."""
    nginx = program("nginx")
    if nginx is None:
        raise BenchFailed("nginx is not installed")
    with tempfile.TemporaryDirectory() as name, serve_with_nginx(nginx, website, counts_bytes=True) as served:
        site = Site(website.spec, port=served.port)
        command = [
            sys.executable, "-m", "gossamer", "crawl", site.base(0) + "/", "--resolve=*:127.0.0.1", "--recrawl-once",
            *FLAGS, "-o", "pages.jsonl",
        ]  # fmt: skip
        first, second, empty = (
            _cost(served.bytes_log, command + more, Path(name)) for more in ([], ["--recrawl-all"], [])
        )
    if (first.requests, second.requests, empty.requests) != (website.pages, website.pages, 0):
        raise BenchFailed(
            f"{first.requests}, {second.requests} and {empty.requests} requests for {website.pages} pages"
        )
    return first._replace(cpu=first.cpu - empty.cpu), second._replace(cpu=second.cpu - empty.cpu)


def _cost(log: Path, command: list[str], folder: Path) -> Cost:
    """Run a command. Raises BenchFailed."""
    log.write_bytes(b"")  # nginx appends
    before = _children_cpu()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(done.stderr.strip())
    cpu = _children_cpu() - before
    lines = log.read_text().split()
    return Cost(len(lines), sum(map(int, lines)), cpu)


def _children_cpu() -> float:
    """Return the CPU seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(website: Website, first: Cost, second: Cost) -> str:
    """Return the result as a line."""
    return (
        f"{website.pages:,} pages of {website.spec.page_bytes // 1000} KB: the second round takes "
        f"{second.sent / first.sent:.1%} of the bytes ({second.sent / second.requests:,.0f} a page) and "
        f"{second.cpu / first.cpu:.0%} of the CPU ({1e6 * second.cpu / second.requests:,.0f} µs a page, in the first "
        f"{1e6 * first.cpu / first.requests:,.0f})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--size", choices=sorted(SIZES), action="append", help="kilobytes of a page; both by default")
    arguments = parser.parse_args()
    try:
        for size in arguments.size or SIZES:
            page_bytes, links = SIZES[size]
            spec = WebSpec(hosts=1, pages=arguments.pages, page_bytes=page_bytes, out_degree=links)
            website = Website(size, spec)
            print(row(website, *measure(website)), flush=True)
    except BenchFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
