"""Pages of lists whose rows have numbers, which grow with each new row."""

from typing import Any, Final, NamedTuple

from sqlalchemy import Column, Select


class RowPage(NamedTuple):
    """Part of a list of rows: from one on, up to a limit. Its cost does not depend on the rows before it."""

    after: int | None = None
    """Number of the last row of the page before. None: this is the first page."""
    limit: int | None = None
    """Largest number of rows. None: all."""
    is_latest_first: bool = False

    def of(self, rows: Select[Any], number: Column[Any]) -> Select[Any]:
        """Return the query of this page. `number`: column with the numbers."""
        if self.after is not None:
            rows = rows.where(number < self.after if self.is_latest_first else number > self.after)
        return rows.order_by(number.desc() if self.is_latest_first else number).limit(self.limit)


ALL_ROWS: Final = RowPage()
"""All rows, the first one first."""
