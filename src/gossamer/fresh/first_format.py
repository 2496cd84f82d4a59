"""Page indexes of the first format, which are converted when they are opened. Blocking.

Their rows had whole URLs, times of eight bytes, and the round that visits the page.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from gossamer.fresh.database import IndexDatabase
from gossamer.fresh.page import IndexedFacts, IndexedPage, PageState, short_hash

_AT_ONCE: Final = 5000
"""Pages that are converted together."""


class _FirstFacts(msgspec.Struct, array_like=True):
    """Facts of a page in their first order."""

    visit: bytes = b""
    body: int = 0
    text: int = 0
    history: bytes = b""
    rate_step: int = 0
    changed: int = 0
    etag: str = ""
    modified: int | str = 0
    misses: int = 0
    links: int = 0
    kind: int = 0
    announced: int = 0
    signalled: bool = False
    items: int = 0
    link_set: int = 0
    sketch: bytes = b""

    def converted(self) -> IndexedFacts:
        """Return the facts as they are now: of hashes that are only compared, the last 32 bits."""
        facts = {name: getattr(self, name) for name in self.__struct_fields__}
        facts["visit"] = int.from_bytes(self.visit[:4], "big")
        for name in ("text", "items", "link_set"):
            facts[name] = short_hash(facts[name]) if facts[name] else 0
        return IndexedFacts(**facts)


_facts = msgspec.msgpack.Decoder(_FirstFacts).decode


class FirstFormat:
    """The tables of an index of the first format. All is done in one transaction."""

    def __init__(self, database: IndexDatabase) -> None:
        self._database = database

    def set_aside(self) -> None:
        """Rename the table of pages and take its indexes away, for the tables of now."""
        database = self._database
        for index in ("due", "round", "missing"):
            database.run(f"DROP INDEX IF EXISTS pages_{index}")
        database.run("ALTER TABLE pages RENAME TO first_pages")
        database.run("ALTER TABLE rounds DROP COLUMN is_plain")

    def batches(self) -> Iterator[tuple[list[IndexedPage], list[tuple[int, int]]]]:
        """Yield the pages in batches, and with them the keys of those that a round was to visit, with its number."""
        after = -(1 << 63)
        while rows := self._database.rows(
            "SELECT key, url, domain, state, fetched, due, depth, facts, round FROM first_pages "
            "WHERE key > ? ORDER BY key LIMIT ?",
            [after, _AT_ONCE],
        ):
            after = rows[-1][0]
            pages = [
                IndexedPage(key, url, domain, PageState(state), fetched, due, depth, _facts(facts).converted())
                for key, url, domain, state, fetched, due, depth, facts, _ in rows
            ]
            yield pages, [(row[0], row[-1]) for row in rows if row[-1]]

    def delete(self) -> None:
        """Delete the former table, all of whose pages are converted."""
        self._database.run("DROP TABLE first_pages")
