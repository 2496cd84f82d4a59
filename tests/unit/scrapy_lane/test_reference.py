"""Every setting of the Scrapy lane has a description."""

from gossamer.scrapy.addon import ADDON_SETTINGS
from gossamer.scrapy.options import PROJECT_SETTINGS


def test_every_setting_has_a_meaning() -> None:
    assert all(meaning for _, meaning in PROJECT_SETTINGS.values())
    assert all(why for _, why in ADDON_SETTINGS.values())
