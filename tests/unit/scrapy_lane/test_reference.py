"""The reference page says what the code says."""

from pathlib import Path

from gossamer.scrapy.addon import DEFAULTS
from gossamer.scrapy.options import OWN
from gossamer.scrapy.reference import page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "scrapy.md"


def test_the_page_is_as_the_tables_make_it() -> None:
    """Else: python -m gossamer.scrapy.reference docs/reference/scrapy.md."""
    assert PAGE.read_text() == page()


def test_every_setting_has_a_meaning() -> None:
    assert all(meaning for _, meaning in OWN.values())
    assert all(why for _, why in DEFAULTS.values())
