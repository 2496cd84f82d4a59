"""Pages of lists: their parameters, and the cursor of the next page.

A cursor is the number of the last entry of a page; clients send back what they got. Fixed, because clients use them:
the names and ranges of the parameters.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Protocol, TypeVar

from fastapi import Depends, Query

from gossamer.errors import BadInput
from gossamer_platform.state.row_page import RowPage

MAX_PAGE: Final = 1000
"""Largest page of a list. A page of jobs is built in memory."""
PageLimit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Largest number of entries to return.")]
PageStart = Annotated[str, Query(description="Value of `next` of the page before.")]
AfterId = Annotated[str, Query(description="Number (`id`) of the last entry of the page before.")]
AfterName = Annotated[str, Query(max_length=1000, description="Name of the last entry of the page before.")]
EntryLimit = Annotated[
    int | None, Query(ge=1, le=MAX_PAGE, description="Largest number of entries to return. Absent: all.")
]
LatestFirst = Annotated[bool, Query(description="True: the entry that was made last comes first.")]


class _Numbered(Protocol):
    @property
    def id(self) -> int: ...


N = TypeVar("N", bound=_Numbered)


def parse_cursor(text: str) -> int | None:
    """Return the number in a cursor. None: there is none. Raises BadInput."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadInput(f"after: {text} is no cursor; send the value of next of the page before")
    return int(text)


def cut_page(found: Sequence[N], limit: int) -> tuple[Sequence[N], str | None]:
    """Return a page of so many entries, and the cursor behind it; None: it is the last one. `found`: its entries, and
    one more if there is one."""
    page = found[:limit]
    return page, str(page[-1].id) if len(found) > limit else None


async def _row_page(
    after: AfterId = "",
    limit: EntryLimit = None,
    latest_first: LatestFirst = False,
) -> RowPage:
    return RowPage(parse_cursor(after), limit, latest_first)


PageOfList = Annotated[RowPage, Depends(_row_page)]
"""Type of the parameter that gets a page of a list of which clients may also want all."""
