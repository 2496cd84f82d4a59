"""Pages of lists, the latest entry first, whose next page begins after the number of an entry."""

from typing import Any, Final

from gossamer.dashboard.pages import DashboardPage

_A_PAGE: Final = 50


async def latest(page: DashboardPage, path: str, **query: Any) -> tuple[list[Any], str]:
    """Return the entries of a list of the API that the page's address asks for, and the value of `after` for the next
    page; empty: this is the last one. Raises ApiRefused."""
    given = {"after": page.query.get("after"), "limit": _A_PAGE, "latest_first": True}
    found: list[Any] = await page.platform.get(path, **given, **query)
    return found, str(found[-1]["id"]) if len(found) == _A_PAGE else ""
