"""Recognises outputs without records, as `write_empty` and the sinks leave them.

Fixed: a file that holds anything of a person's own never counts as
empty, because the next crawl deletes its contents.
"""

from pathlib import Path

from gossamer.errors import BadInput
from gossamer.sinks.open import CSV, SQLITE, ending_of, has_content, is_local, local_path
from gossamer.sinks.read import Source
from gossamer.sinks.tables import has_only_header

NOT_WRITTEN = "was not written"
"""Words for an output that does not exist."""
IS_EMPTY = "is empty"
"""Words for an output without records."""


def lack_of_items(output: str) -> str:
    """Return why an output for items alone holds none; empty: it holds some, or is not on this machine."""
    path = local_path(output)
    if not is_local(output):
        return ""
    if not path.exists():
        return NOT_WRITTEN
    if has_content(path) and ending_of(output) == CSV and has_only_header(path):
        return "has only its header"
    return "" if has_records(path) else IS_EMPTY


def has_records(path: Path) -> bool:
    """Return whether a local output holds records, or anything else that is not this program's form of an empty
    file."""
    if not has_content(path):
        return False
    try:
        source = Source(path)
        if next(source.outputs(), None) is not None or source.lacks:
            return True
        if source.ending == CSV:
            return not has_only_header(path, own=True)
        if source.ending in SQLITE:
            from gossamer.sinks.sqlite import has_other_tables  # imported late: few outputs are SQLite files

            return has_other_tables(path)
    except BadInput:
        return True
    return False
