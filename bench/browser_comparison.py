"""CPU time of a rendered page: Gossamer, scrapy-playwright and Crawlee (Python), on the same pages and browser.

    python -m bench.browser_comparison [--pages 100] [--runs 3]

Each of them gets the same list of URLs, builds four pages at once without images, and writes a JSON line with the
document of each. All processes count: browser, driver, Python, and Gossamer's queue. They take turns, and the medians
count. Fails if one of them misses a page, or Gossamer takes more than half of another's time.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchFailed
from bench.places import BUILT, ROOT
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.fakeweb.answer import Answer, html
from gossamer.render.program import find_program

_CONCURRENCY = 4
_MOST = 0.5
"""Largest part of another's CPU time that Gossamer may take."""
_SECONDS = 300.0
_PYTHON = BUILT / "browsers" / "bin" / "python"
_PEERS = ROOT / "bench" / "peers"


@dataclass(frozen=True, slots=True)
class Site:
    """Pages that are built."""

    title: str
    path: str
    """Path of a page, with `{}` for its number."""
    host: str
    ready: str
    """Selector of what a page has when it is complete."""
    mark: str
    """Part of the document of a complete page."""


SITES = (
    Site("small: 3 requests, 1 item", "/item/{}", "scripted.test", ".price", 'class="price"'),
    Site("larger: 4 requests, 100 KB, 20 items", "/p/{}", "shop.test", "#app[data-done]", "data-done"),
)
_SHOP = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Shop</title>
<link rel="stylesheet" href="/style.css"></head><body><div id="app">Loading</div>
<script src="/app.js"></script></body></html>"""
_SCRIPT = """
const app = document.getElementById('app');
(async () => {
  const {title, items} = await (await fetch('/api' + location.pathname)).json();
  document.title = title;
  app.innerHTML = '<h1>' + title + '</h1><main></main>';
  for (const item of items) {
    const card = document.createElement('article');
    card.className = 'item';
    card.innerHTML = `<h2><a href="/p/${item.id}">${item.name}</a></h2><img src="/image/${item.id}.png">
      <p class="price">${item.price}</p><p>${item.text}</p>`;
    app.querySelector('main').append(card);
  }
  app.dataset.done = '1';
})();
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    site: Site
    port: int
    folder: Path
    program: str

    @property
    def seeds(self) -> Path:
        """A URL a line."""
        return self.folder / "seeds"

    @property
    def output(self) -> Path:
        """A page a line."""
        return self.folder / "pages.jsonl"


def _gossamer(job: Job) -> list[str]:
    return [
        *(sys.executable, "-m", "gossamer", "crawl", "--seeds", str(job.seeds), "-o", str(job.output)),
        *("--data-dir", str(job.folder / "data"), "--resolve", "*:127.0.0.1", "--rate", "100000/1", "--depth", "0"),
        *("--domain-concurrency", str(_CONCURRENCY), "--concurrency", str(_CONCURRENCY)),
        *("--render", "always", "--ignore-robots", "--quiet"),
    ]


def _peer(program: str) -> Callable[[Job], list[str]]:
    def command(job: Job) -> list[str]:
        return [
            *(str(_PYTHON), str(_PEERS / program), f"--seeds={job.seeds}", f"--output={job.output}"),
            *(f"--program={job.program}", f"--ready={job.site.ready}", "--address=127.0.0.1"),
            f"--concurrency={_CONCURRENCY}",
        ]

    return command


CRAWLERS = {
    "Gossamer": _gossamer,
    "scrapy-playwright": _peer("playwright_crawl.py"),
    "Crawlee (Python)": _peer("crawlee_browser_crawl.py"),
}


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    subprocess.run([ROOT / "bench" / "install", "browsers"], check=True)
    if not _PYTHON.exists():
        print((BUILT / "browsers.skipped").read_text().strip(), file=sys.stderr)
        return 1
    times: dict[str, dict[Site, list[float]]] = {name: {site: [] for site in SITES} for name in CRAWLERS}
    with FakeWeb.start(
        WebSpec(hosts=1, pages=1, scripted=2 * given.pages + 14), mounts=dict(_shop(given.pages))
    ) as web:
        for _ in range(given.runs):
            for site in SITES:
                for name, command in CRAWLERS.items():
                    spent = _measure(command, site, web.port, given.pages)
                    times[name][site].append(spent)
                    print(f"{name}, {site.title}: {1000 * spent:.0f} ms a page", file=sys.stderr)
    return _report({name: {site: statistics.median(found) for site, found in of.items()} for name, of in times.items()})


def _measure(command: Callable[[Job], list[str]], site: Site, port: int, pages: int) -> float:
    """Run a crawler, and return its CPU seconds for each page. Raises BenchFailed."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(site, port, Path(folder), find_program())
        urls = [f"http://{site.host}:{port}{site.path.format(number)}" for number in range(1, pages + 1)]
        job.seeds.write_text("".join(f"{url}\n" for url in urls))
        run = subprocess.run(
            [sys.executable, "-m", "bench.all_cpu", *command(job)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if run.returncode:
            raise BenchFailed(f"exit {run.returncode}: {run.stderr[-1000:]}")
        found = [json.loads(line) for line in job.output.read_text().splitlines()]
        complete = {page["url"] for page in found if site.mark in page["body"]}
        if complete != set(urls):
            raise BenchFailed(f"{len(complete)} of {pages} pages are complete")
        return float(run.stdout.splitlines()[-1]) / pages


def _shop(pages: int) -> Iterator[tuple[tuple[str, str], Answer]]:
    """Yield the answers of the second site by host and path."""
    fresh = ("Cache-Control", "max-age=3600")
    script = _SCRIPT + "".join(f"function unused{n}(a) {{ return a.map(x => x + {n}).sort(); }}\n" for n in range(900))
    style = "".join(f".c{n} {{ margin: {n % 30}px; padding: 1px 2px 3px; color: #123456 }}\n" for n in range(400))
    yield ("shop.test", "/app.js"), Answer(headers=(("Content-Type", "text/javascript"), fresh), body=script.encode())
    yield ("shop.test", "/style.css"), Answer(headers=(("Content-Type", "text/css"), fresh), body=style.encode())
    text = "Sturdy and light, made to last, and sold in many colours. " * 4
    for page in range(1, pages + 1):
        yield ("shop.test", f"/p/{page}"), html(_SHOP)
        items = [
            {"id": n, "name": f"Thing {n}", "price": 100 + n, "text": text} for n in range(20 * page, 20 * page + 20)
        ]
        data = json.dumps({"title": f"Page {page}", "items": items}).encode()
        yield ("shop.test", f"/api/p/{page}"), Answer(headers=(("Content-Type", "application/json"),), body=data)


def _report(medians: dict[str, dict[Site, float]]) -> int:
    """Print the table, and return the exit code."""
    own = medians["Gossamer"]
    print("| CPU time of a page | " + " | ".join(site.title for site in SITES) + " |\n|---|" + "---:|" * len(SITES))
    for name, of in medians.items():
        cells = (f"{1000 * spent:.0f} ms ({spent / own[site]:.1f} x)" for site, spent in of.items())
        print(f"| {name} | " + " | ".join(cells) + " |")
    others = [of for name, of in medians.items() if of is not own]
    return int(any(own[site] > _MOST * of[site] for of in others for site in SITES))


if __name__ == "__main__":
    sys.exit(main())
