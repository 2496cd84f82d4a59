"""One line that puts a Scrapy project on the frontier and makes it fast: `ADDONS = {"gossamer.scrapy.Addon": 0}`.

Every setting has the priority of an add-on: what the project sets itself, it keeps.
"""

from importlib.util import find_spec
from typing import Any

from scrapy.settings import BaseSettings
from scrapy.utils.reactor import is_reactor_installed

from gossamer.scrapy.known import KnownLinks

DEFAULTS: dict[str, tuple[Any, str]] = {
    "SCHEDULER": ("gossamer.scrapy.Scheduler", "The shared frontier"),
    "REQUEST_FINGERPRINTER_CLASS": (
        "gossamer.scrapy.RequestFingerprinter",
        "The same fingerprints as Scrapy's own, in a fraction of the time",
    ),
    "CONCURRENT_ITEMS": (
        8,
        "Scrapy starts as many tasks for each page as this says, 100, however little there is to do. Set it back where "
        "one page has many items and a slow pipeline",
    ),
    "TELNETCONSOLE_ENABLED": (False, "A console that runs code"),
    "REMOTE_CONTROL_ENABLED": (False, "An HTTP server that runs code"),
}
"""Name: (value, why)."""

LOOP = ("ASYNCIO_EVENT_LOOP", "uvloop.Loop", "A faster event loop, where it is installed and no other is running yet")

_NEAREST_TO_THE_SPIDER = 1000


class Addon:
    """Scrapy's add-on interface. It changes nothing but settings."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """What has to be known before the first crawler is made."""
        name, value, _ = LOOP
        if find_spec("uvloop") is not None and not is_reactor_installed():
            settings.set(name, value, priority="addon")

    def update_settings(self, settings: BaseSettings) -> None:
        """The rest."""
        for name, (value, _) in DEFAULTS.items():
            settings.set(name, value, priority="addon")
        settings.setdefault_in_component_priority_dict("SPIDER_MIDDLEWARES", KnownLinks, _NEAREST_TO_THE_SPIDER)
