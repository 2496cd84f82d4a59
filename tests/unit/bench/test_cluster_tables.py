"""The tables of the page about large clusters are those of the measurements and simulations that are stored."""

import msgspec
import pytest

from bench.cluster import check, costs, figures
from bench.cluster.tables import PAGE, with_figures


def test_the_page_has_the_tables_of_the_stored_figures() -> None:
    page = PAGE.read_text()
    assert with_figures(page, costs.load(), figures.load(), check.load()) == page, "run: python -m bench.cluster plot"


def test_other_figures_make_another_page() -> None:
    page = PAGE.read_text()
    more = msgspec.structs.replace(costs.load(), server_second=77_700.0)
    assert "uses 77.7 ms in a second" in with_figures(page, more, figures.load(), check.load())


def test_a_page_without_a_mark_is_refused() -> None:
    page = PAGE.read_text().replace("<!-- course -->", "")
    with pytest.raises(ValueError, match="no marks named course"):
        with_figures(page, costs.load(), figures.load(), check.load())
