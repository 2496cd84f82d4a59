"""Every setting of the Scrapy lane has a description."""

from gossamer.scrapy.addon import DEFAULTS
from gossamer.scrapy.options import OWN


def test_every_setting_has_a_meaning() -> None:
    assert all(meaning for _, meaning in OWN.values())
    assert all(why for _, why in DEFAULTS.values())
