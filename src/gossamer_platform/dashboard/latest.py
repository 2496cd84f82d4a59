"""Pages of lists, the latest entry first, whose next page begins after the number of an entry."""

from typing import Any, Final, TypeVar

from gossamer.dashboard.pages import DashboardPage

_A_PAGE: Final = 50

T = TypeVar("T")


async def latest(page: DashboardPage, path: str, **query: Any) -> tuple[list[Any], str]:
    """Return the entries of a list of the API that the page's address asks for, and the value of `after` for the next
    page; empty: this is the last one. Raises ApiRefused."""
    given = {"after": page.query.get("after"), "limit": _A_PAGE + 1, "latest_first": True}
    found: list[Any] = await page.platform.get(path, **given, **query)
    return cut(found, _A_PAGE, "id")


def cut(found: list[T], size: int, name: str = "") -> tuple[list[T], str]:
    """Return a page of so many entries, and the parameter for the next page; empty: this is the last one. `found`: its
    entries, and one more if there is one. `name`: field of an entry that is this parameter; empty: the entry itself."""
    page = found[:size]
    if len(found) <= size:
        return page, ""
    last: Any = page[-1]
    return page, str(last[name] if name else last)
