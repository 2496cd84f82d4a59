"""Splits a file of URLs or rows into parts, one for each job of a group. The memory needed does not depend on its size.

Rows stay in their order, and a part has neighbouring rows: URLs of one site mostly stand together, so few jobs fetch
from the same site at a time. Parts differ by one row at most.

Formats, by the file's ending: `.csv` and `.tsv` with a line of names; `.jsonl` and `.jl`, one object a line; any other:
one URL a line. Fixed: the meaning of these endings.
"""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from gossamer.errors import BadInput

_TABLES: Final = {".csv": "excel", ".tsv": "excel-tab"}
_OBJECTS: Final = (".jsonl", ".jl")
_URL_COLUMNS: Final = ("url", "start_url", "link", "address")
"""Names of a column that is taken for the URL, in this order."""


class FilePart(NamedTuple):
    """Part of a file."""

    content: bytes
    rows: int


class SplitSource:
    """A file that is to be split. Raises BadInput if it cannot be read."""

    def __init__(self, path: Path, *, column: str | None = None) -> None:
        """`column`: the one with the URLs. None: it is found by its name."""
        self.path = path
        self._column = column
        self._kind = path.suffix.lower()
        self._names: list[str] = []
        self.rows = sum(1 for _ in self._rows())
        if not self.rows:
            raise BadInput(f"--split-file: {path} has no rows")

    def parts(self, count: int, *, only_urls: bool) -> Iterator[FilePart]:
        """Yield up to `count` parts, none of them empty: in the format of the file, or (`only_urls`) one URL a line."""
        count = min(count, self.rows)
        part, taken, number = self._begin(only_urls), 0, 0
        for index, row in enumerate(self._rows()):
            if index == self.rows * (number + 1) // count:
                yield FilePart(part.getvalue().encode(), taken)
                part, taken, number = self._begin(only_urls), 0, number + 1
            self._write(part, row, only_urls)
            taken += 1
        yield FilePart(part.getvalue().encode(), taken)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                yield file
        except OSError as error:
            raise BadInput(f"--split-file: {self.path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise BadInput(f"--split-file: {self.path} is no text in UTF-8") from None
        except csv.Error as error:
            raise BadInput(f"--split-file: {self.path}: {error}") from None

    def _rows(self) -> Iterator[Any]:
        """Yield each row: cells of a table without its first line, or a line."""
        with self._opened() as file:
            if self._kind in _TABLES:
                rows = csv.reader(file, _TABLES[self._kind])
                self._names = next(rows, [])
                yield from (row for row in rows if any(row))
            else:
                yield from (line.strip() for line in file if line.strip())

    def _begin(self, only_urls: bool) -> io.StringIO:
        part = io.StringIO()
        if self._kind in _TABLES and not only_urls:
            csv.writer(part, _TABLES[self._kind], lineterminator="\n").writerow(self._names)
        return part

    def _write(self, part: io.StringIO, row: Any, only_urls: bool) -> None:
        if only_urls:
            part.write(self._url(row) + "\n")
        elif self._kind in _TABLES:
            csv.writer(part, _TABLES[self._kind], lineterminator="\n").writerow(row)
        else:
            part.write(row + "\n")

    def _url(self, row: Any) -> str:
        """Return the URL of a row. Raises BadInput."""
        if self._kind in _TABLES:
            place = self._place(self._names)
            url = row[place] if place < len(row) else ""
        elif self._kind in _OBJECTS:
            url = self._of_object(row)
        else:
            url = row
        url = url.strip()
        if "://" not in url or any(character.isspace() for character in url):
            raise BadInput(
                f"--split-file: {self.path} has a row without a URL: {str(row)[:80]}. --column NAME names the column; "
                "--split-as ARGUMENT hands the part over as a file."
            )
        return url

    def _place(self, names: list[str]) -> int:
        lower = [name.strip().lower() for name in names]
        if self._column is not None:
            if self._column.lower() not in lower:
                raise BadInput(f"--column: {self.path} has no column {self._column!r}; it has {', '.join(names)}")
            return lower.index(self._column.lower())
        found = next((lower.index(name) for name in _URL_COLUMNS if name in lower), None)
        if found is None:
            raise BadInput(
                f"--split-file: no column of {self.path} is called url ({', '.join(names)[:200]}). Name the one with "
                "the URLs by --column NAME, or hand the part over as a file by --split-as ARGUMENT."
            )
        return found

    def _of_object(self, line: str) -> str:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadInput(f"--split-file: {self.path} has a line that is no JSON: {error}: {line[:80]}") from None
        names = list(row) if isinstance(row, dict) else []
        return str(row[names[self._place(names)]])
