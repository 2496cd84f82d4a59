"""Parameters of lists that have pages, for clients that do not want all of a list at once."""

from typing import Annotated

from fastapi import Depends, Query

from gossamer_platform.state.row_page import RowPage
from gossamer_platform.v1.jobs import MAX_PAGE, parse_cursor

After = Annotated[str, Query(description="Number (`id`) of the last entry of the page before.")]
LatestFirst = Annotated[bool, Query(description="True: the entry that was made last comes first.")]


async def _row_page(
    after: After = "",
    limit: Annotated[
        int | None, Query(ge=1, le=MAX_PAGE, description="Largest number of entries to return. Absent: all.")
    ] = None,
    latest_first: LatestFirst = False,
) -> RowPage:
    return RowPage(parse_cursor(after), limit, latest_first)


PageOfList = Annotated[RowPage, Depends(_row_page)]
"""Type of the parameter that gets the page which a client wants."""
