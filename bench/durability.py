"""Measures what durability costs a crawl: the embedded server as it is by default against one that writes nothing."""

from bench.crawl import crawl
from bench.crawlers import CRAWLERS, Store
from bench.progress import say
from bench.results import Figure
from bench.statistics import quantile
from bench.webserver import serve
from bench.websites import durability_website


def measure_durability(*, quick: bool) -> Figure:
    """Pages a second with it, as a share of those without; crawls alternate, and those in the middle are compared."""
    website = durability_website(quick=quick)
    say(f"durability: {website.describe()}")
    gossamer = next(crawler for crawler in CRAWLERS if crawler.name == "gossamer")
    speeds: dict[Store, list[float]] = {Store.VOLATILE: [], Store.DURABLE: []}
    with serve(website) as served:
        for _ in range(1 if quick else 5):
            for store, measured in speeds.items():
                measured.append(crawl(website, served, gossamer, store=store).pages_per_second)
                say(f"  {store.value}: {measured[-1]:,.0f} pages/s")
    share = quantile(speeds[Store.DURABLE], 0.5) / quantile(speeds[Store.VOLATILE], 0.5)
    return Figure("whole crawl: fsync always against no persistence", share, "of the speed", "0.9")
