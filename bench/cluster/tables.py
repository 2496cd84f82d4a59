"""Tables and sentences of docs/explanation/scale.md, from measurements and simulations: between marks of the page."""

import re
import textwrap
from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from bench.cluster.check import Checked
from bench.cluster.costs import Costs
from bench.cluster.figures import DOMAINS, LARGEST, URLS, Prices, cost, days_until, frontier_bytes
from bench.cluster.model import Outcome
from bench.places import ROOT

PAGE = ROOT / "docs" / "explanation" / "scale.md"
_APART = "64 shards, links do not wait"
COURSE_PAGES_PER_SECOND = 50_000
_SHARES = (0.5, 0.9, 0.99, 1.0)
_LINE = 135
_TAIL_WORKERS = 10
_SHOWN_EXACTLY_BELOW = 10
"""Costs and days below this have one decimal."""


def with_figures(page: str, costs: Costs, figures: dict[str, list[Outcome]], checked: Checked) -> str:
    """Return the page with these figures between its marks. Raises ValueError if a mark is missing."""
    parts = {
        "summary": summary(figures, costs),
        "costs": costs_text(costs),
        "clusters": clusters_table(figures, costs, Prices()),
        "calls": calls_text(figures),
        "course": course_table(),
        "price": price_text(figures, costs),
        "check": check_table(checked),
    }
    for name, text in parts.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not marks.search(page):
            raise ValueError(f"{PAGE.name} has no marks named {name}")
        page = marks.sub(partial(_between, text), page)
    return page


def _between(text: str, marks: re.Match[str]) -> str:
    return f"{marks[1]}{text}\n{marks[2]}"


# --- sentences --------------------------------------------------------------------------------------------------------


def summary(figures: dict[str, list[Outcome]], costs: Costs) -> str:
    """Return the most important results as a list."""
    full, more, most = (figures[name][-1] for name in ("64 shards", "80 shards", "256 requests a worker"))
    prices = [cost(one, costs, Prices()) for outcomes in figures.values() for one in outcomes]
    core_hours, dollars = [price.core_hours for price in prices], [price.dollars for price in prices]
    everything = _gigabytes(costs, URLS)
    half_days, _, most_days, all_days = _days(np.inf, 1.0)
    return "\n".join(
        _wrapped(text, "- ")
        for text in (
            f"**{full.scenario.shards} shards saturate with about {full.scenario.workers:,} workers**, at "
            f"{full.pages_per_second:,.0f} pages per second. The number of calls is the limit: {_calls(full):.1f} a "
            f"page.",
            f"**100,000 pages per second take {more.scenario.shards} shards** with {more.scenario.workers:,} workers, "
            f"or {most.scenario.shards} shards with {most.scenario.workers} workers that have 256 requests in flight "
            f"(`worker.concurrency`) instead of 64: a worker's core is mostly idle.",
            f"**A frontier with a billion queued URLs takes {everything:.0f} GB**, {everything / 64:.1f} GB on each "
            f"of 64 shards.",
            f"**The last tenth takes longest.** Half of the URLs are fetched after {_duration(half_days)}, 99 % after "
            f"{_duration(most_days)}, all after {_duration(all_days)}, however large the cluster is.",
            f"**A billion pages cost {_rounded(min(core_hours))} to {_rounded(max(core_hours))} core-hours** of "
            f"rented machines, {min(dollars):.0f} to {max(dollars):.0f} dollars, without network, storage and the "
            f"tail.",
        )
    )


def costs_text(costs: Costs) -> str:
    """Return what a page costs besides its calls, and what the frontier takes for it."""
    page = costs.pages["web"]
    return _wrapped(
        f"A page of {page.page_bytes / 1000:.0f} KB with {page.links} links costs a busy worker "
        f"{page.microseconds:,.0f} us of CPU without its calls to the frontier, and a rested one {page.rested:,.0f} "
        f"us. A server without calls uses {costs.server_second / 1000:.1f} ms in a second. A seen URL takes "
        f"{costs.seen_bytes:.1f} bytes in the frontier, a queued one of about 81 bytes {costs.queued_bytes:.0f} more, "
        f"a domain with queued URLs {costs.domain_bytes:.0f}. Measured on {costs.date} ({costs.machine})."
    )


def calls_text(figures: dict[str, list[Outcome]]) -> str:
    """Return how a page's calls make the shards' load."""
    few, apart = figures["64 shards"][0], figures[_APART][-1]
    return _wrapped(
        f"A worker with 64 slots fetches {few.pages_per_second / few.scenario.workers:.0f} pages a second with "
        f"{_percent(few.worker_cpu)} of its core. Most of the shards' time goes into calls, so "
        f"[links wait for others where shards are busy](../adr/0019-links-wait-where-shards-are-busy.md); if they did "
        f"not, {apart.scenario.workers:,} workers would fetch {apart.pages_per_second:,.0f} pages per second."
    )


def _calls(outcome: Outcome) -> float:
    """Return the calls for pages that a page causes."""
    return sum(outcome.calls_a_page[name] for name in ("lease", "add", "settle"))


def price_text(figures: dict[str, list[Outcome]], costs: Costs) -> str:
    """Return the price of a crawl with some workers, and how much of it is used."""
    one = figures["64 shards"][1]
    workers, shards, price = one.scenario.workers, one.scenario.shards, cost(one, costs, Prices())
    used_us = one.page_worker_us + one.page_shard_us
    used_hours = 1e-6 * used_us * URLS / 3600
    tail_hours = (_TAIL_WORKERS + shards) * 24 * _days(np.inf, 1.0)[2]
    return _wrapped(
        f"{workers} workers and {shards} shards take {price.core_hours / (workers + shards):.0f} hours, "
        f"{_rounded(price.core_hours)} core-hours and {price.dollars:.0f} dollars. They really use "
        f"{_percent(used_hours / price.core_hours)} of that, so several workers can share a core. {_TAIL_WORKERS} "
        f"workers and {shards} shards until 99 % of the URLs are fetched are {_rounded(tail_hours)} core-hours more: "
        f"finish the tail on fewer machines, where shards share one."
    )


def _wrapped(text: str, mark: str = "") -> str:
    indent = " " * len(mark)
    return textwrap.fill(mark + text, _LINE, subsequent_indent=indent, break_on_hyphens=False)


def _percent(share: float, *, sign: str = "") -> str:
    return f"{round(100 * share):{sign}} %"


def _gigabytes(costs: Costs, queued: float) -> float:
    return frontier_bytes(costs, seen=URLS, queued=queued, domains=min(DOMAINS, queued)) / 1e9


def _rounded(hours: float) -> str:
    """Return a number of hours with two significant digits."""
    return f"{float(f'{hours:.2g}'):,.0f}"


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """Return a Markdown table. `words`: columns that hold words; the others hold numbers."""
    ruler = ["---" if column < words else "---:" for column in range(len(head))]
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "|".join(ruler) + "|", *lines[1:]])


def _short(value: float) -> str:
    return f"{value:.1f}" if value < _SHOWN_EXACTLY_BELOW else f"{value:,.0f}"


def clusters_table(found: dict[str, list[Outcome]], costs: Costs, prices: Prices) -> str:
    """Return the simulations, but for those of links that do not wait."""
    head = ("cluster", "workers", "pages/s", "workers CPU", "shards CPU (busiest)", "lease p50, p99")
    rows = []
    for name, outcomes in found.items():
        for one in outcomes if name != _APART else ():
            price = cost(one, costs, prices)
            rows.append(
                (
                    name,
                    f"{one.scenario.workers:,}",
                    f"{one.pages_per_second:,.0f}",
                    f"{one.worker_cpu:.0%}",
                    f"{one.shard_cpu:.0%} ({one.busiest_shard_cpu:.0%})",
                    f"{one.lease_ms['p50']:.1f}, {one.lease_ms['p99']:.1f} ms",
                    f"{price.core_hours:,.0f}",
                    f"{price.dollars:,.0f}",
                )
            )
    return _table((*head, "core-hours", "dollars"), rows)


def course_table() -> str:
    """Return after what time shares of a billion URLs are fetched."""
    head = (f"at {COURSE_PAGES_PER_SECOND:,} pages per second", *map(_percent, _SHARES[:-1]), "all")
    rows = []
    for title, largest, rate in (
        ("one request a second to each domain", np.inf, 1.0),
        ("ten requests a second", np.inf, 10.0),
        (f"one a second, at most {LARGEST:,} pages of a domain", LARGEST, 1.0),
    ):
        rows.append((title, *map(_duration, _days(largest, rate))))
    return _table(head, rows)


@cache
def _days(largest: float, rate: float) -> list[float]:
    """Return the days after which the shares of the URLs are fetched."""
    return days_until(list(_SHARES), pages_per_second=COURSE_PAGES_PER_SECOND, largest=largest, rate=rate)


def _duration(days: float) -> str:
    return f"{_short(24 * days)} h" if days < 2 else f"{_short(days)} days"


def check_table(checked: Checked) -> str:
    """Return the comparison of the model with a real cluster, but for the numbers of calls."""
    rows = []
    for name, modelled in checked.modelled.items():
        if name.startswith("calls of"):
            continue
        measured = checked.measured[name]
        decimals = 0 if modelled >= 100 else 2
        rows.append(
            (
                name,
                f"{modelled:,.{decimals}f}",
                f"{measured:,.{decimals}f}",
                f"{_percent(modelled / measured - 1, sign='+')}",
            )
        )
    return _table(("", "model", "measured", "deviation"), rows) + f"\n\nMeasured on {checked.date}."
