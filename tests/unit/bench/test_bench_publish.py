"""The README's figures: table and plot are those of `bench/figures.json`."""

from xml.etree import ElementTree

import msgspec
import pytest

from bench.publish import FIGURES, PLOT, README, Figures, plot, reduced, table, with_table

RESULTS = {
    "machine": "a machine",
    "sites": [
        {
            "name": "A",
            "rows": [
                {"crawler": "bare-go", "running_pages_per_cpu_second": 4000.04, "note": ""},
                {"crawler": "colly", "running_pages_per_cpu_second": 0.0, "note": "left out: there is no go"},
                {"crawler": "spider", "running_pages_per_cpu_second": 900.0, "note": "3 missing"},
                {"crawler": "gossamer", "running_pages_per_cpu_second": 2000.0, "note": ""},
                {"crawler": "floor", "running_pages_per_cpu_second": 2500.0, "note": ""},
            ],
        }
    ],
}


def test_only_whole_crawls_are_shown() -> None:
    assert reduced(RESULTS, "today").sites == {"A": {"bare-go": 4000.0, "gossamer": 2000.0}}


def test_the_table_has_ratios() -> None:
    lines = table(reduced(RESULTS, "today")).splitlines()
    assert "| bare Go (net/http, x/net/html) | 4,000 (0.5 x) |" in lines
    assert "| **Gossamer, durable on disk** | **2,000** |" in lines
    assert lines[-1] == "today"


def test_the_plot_has_a_dot_for_each_figure() -> None:
    drawn = ElementTree.fromstring(plot(reduced(RESULTS, "today")))
    assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == 2


def test_a_readme_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marks"):
        with_table("# Gossamer\n", reduced(RESULTS, "today"))


def test_the_readme_shows_the_figures_of_the_file() -> None:
    """`python -m bench.publish` writes both anew."""
    figures = msgspec.json.decode(FIGURES.read_bytes(), type=Figures)
    assert PLOT.read_text() == plot(figures)
    assert with_table(README.read_text(), figures) == README.read_text()
