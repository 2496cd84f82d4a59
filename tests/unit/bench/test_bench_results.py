"""What follows from the figures of a comparison."""

import dataclasses

import pytest

from bench.results import CrawlRow, middle, ratios
from bench.statistics import quantile


def _row(crawler: str, *, pages: int = 1000, cpu: float = 2.0, startup: float = 0.0, rival: str = "") -> CrawlRow:
    return CrawlRow(
        crawler=crawler,
        title=crawler,
        rival=rival,
        pages=pages,
        crawls=1,
        wall_seconds=4.0,
        cpu_seconds=cpu,
        startup_cpu_seconds=startup,
    )


def test_a_row_is_compared_with_each_peer_that_was_measured() -> None:
    """And with itself, where it is one; Gossamer's own rows are nobody's measure."""
    rows = [_row("scrapy", cpu=20.0), _row("floor", cpu=1.0), _row("gossamer", cpu=2.0), _row("gossamer-2", cpu=3.0)]
    assert ratios(rows[2], rows) == {"scrapy": 10.0, "floor": 0.5}
    assert ratios(rows[0], rows) == {"scrapy": 1.0, "floor": pytest.approx(0.05)}


def test_a_row_with_a_rival_is_compared_with_that_only() -> None:
    rows = [_row("scrapy", cpu=20.0), _row("scrapy-rules", cpu=30.0, rival="scrapy-rules")]
    rows += [_row("addon-rules", cpu=5.0, rival="scrapy-rules"), _row("floor", cpu=1.0)]
    assert [ratios(row, rows) for row in rows[1:3]] == [{"scrapy": 1.0}, {"scrapy": 6.0}]
    assert ratios(rows[0], rows) == {"scrapy": 1.0, "floor": pytest.approx(0.05)}


def test_start_and_end_are_left_out_on_both_sides() -> None:
    rows = [_row("scrapy", cpu=21.0, startup=1.0), _row("gossamer", cpu=3.0, startup=1.0)]
    assert ratios(rows[1], rows) == {"scrapy": pytest.approx(7.0)}
    assert ratios(rows[1], rows, running=True) == {"scrapy": pytest.approx(10.0)}


def test_the_valkey_beside_a_crawler_counts() -> None:
    row = dataclasses.replace(_row("gossamer", cpu=2.0, startup=1.0), store_cpu_seconds=0.5)
    assert row.pages_per_cpu_second == pytest.approx(400.0)
    assert row.running_pages_per_cpu_second == pytest.approx(1000 / 1.5)


def test_a_peer_without_figures_is_no_measure() -> None:
    rows = [CrawlRow(crawler="colly", title="colly", note="not installed"), _row("gossamer")]
    assert not rows[0].measured
    assert ratios(rows[1], rows) == {}
    assert ratios(rows[0], rows) == {}


def test_what_starting_has_swallowed_gives_no_figure() -> None:
    """A crawl so short that nearly all of it was its start says nothing about longer ones."""
    row = _row("gossamer", cpu=1.0, startup=0.95)
    assert row.running_pages_per_cpu_second == 0.0
    assert ratios(row, [_row("scrapy")], running=True) == {}


def test_the_row_in_the_middle() -> None:
    rows = [_row("a", cpu=cpu) for cpu in (1.0, 5.0, 2.0)]
    assert middle(rows).cpu_seconds == 2.0
    assert middle(rows[:2]).cpu_seconds == 5.0
    assert middle(rows[:1]) is rows[0]


@pytest.mark.parametrize(
    ("share", "value"),
    [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)],
)
def test_quantile(share: float, value: int) -> None:
    assert quantile(range(100, 0, -1), share) == value


def test_quantile_of_one_value() -> None:
    assert quantile([7.0], 0.5) == quantile([7.0], 0.99) == 7.0
