"""The add-on leaves alone what the project sets."""

from collections.abc import Iterator
from typing import Any

import pytest
from scrapy.settings import Settings

from gossamer.scrapy import links
from gossamer.scrapy.addon import HANDLER, Addon


@pytest.fixture(autouse=True)
def _scrapys_links() -> Iterator[None]:
    yield
    links.install(wanted=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"http": HANDLER, "https": HANDLER}),
        ({"DOWNLOAD_HANDLERS": {"https": "own.Handler", "ftp": None}}, {"http": HANDLER, "https": "own.Handler"}),
        ({"DOWNLOAD_HANDLERS": {"http": None}}, {"http": None, "https": HANDLER}),
        ({"DOWNLOAD_HANDLERS_BASE": {"http": "own.Handler"}}, {"http": "own.Handler"}),
        ({"TWISTED_REACTOR_ENABLED": False}, Settings()["DOWNLOAD_HANDLERS_BASE"]),
    ],
)
def test_a_projects_own_download_handlers_stay(given: dict[str, Any], expected: dict[str, Any]) -> None:
    settings = Settings(given)
    Addon().update_settings(settings)
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    assert {scheme: handlers.get(scheme) for scheme in ("http", "https") if scheme in expected} == {
        scheme: expected[scheme] for scheme in ("http", "https") if scheme in expected
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 2), ({"ITEM_PIPELINES": {"own.Pipeline": 300}}, 8), ({"CONCURRENT_ITEMS": 50}, 50)],
)
def test_items_of_a_page_get_more_tasks_where_pipelines_may_wait(given: dict[str, Any], expected: int) -> None:
    settings = Settings(given)
    Addon().update_settings(settings)
    assert settings.getint("CONCURRENT_ITEMS") == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REQUEST_FINGERPRINTER_CLASS", "other.Fingerprinter"),
        ("CONCURRENT_ITEMS", 7),
        ("TELNETCONSOLE_ENABLED", True),
        ("ASYNCIO_EVENT_LOOP", "other.Loop"),
    ],
)
def test_what_another_addon_has_set_stays(name: str, value: object) -> None:
    settings = Settings()
    settings.set(name, value, priority="addon")
    Addon.update_pre_crawler_settings(settings)
    Addon().update_settings(settings)
    assert settings[name] == value
