"""Scopes of the requests by which a crawl of a service was begun or extended, in its page index. Blocking.

Each request has a scope of its own. If a URL is submitted again with another scope or depth, the pages that only the
former one allowed are forgotten, and the others are read again for links that were out of scope before.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from gossamer.fresh.database import IndexDatabase
from gossamer.fresh.page import IndexedPage, digest
from gossamer.model.crawl import Terms
from gossamer.policy.scope import scope_of
from gossamer.policy.words import counted

SCOPE_FIELDS: Final = (
    "maxdepth",
    "allowed_domains",
    "allowed_hosts",
    "allowed_prefixes",
    "allow_regex",
    "deny_regex",
    "deny_extensions",
    "follow_nofollow",
)
"""Fields of terms that decide which links are followed."""
TAKEN_FIELDS: Final = ("extract", "content", "links", "assets")
"""Fields of terms that decide what a record of a page has. A page that is as it was has a record without a body."""

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS scopes (id TEXT PRIMARY KEY, terms TEXT NOT NULL)",
    # `former`: the scope before, until the pages are sorted by the new one.
    "CREATE TABLE IF NOT EXISTS seeds (page BIGINT PRIMARY KEY, scope TEXT NOT NULL, former TEXT)",
    "CREATE INDEX IF NOT EXISTS seeds_changed ON seeds (page) WHERE former IS NOT NULL",
)


class ScopeChange(NamedTuple):
    """Result of another scope of a crawl."""

    forgotten: int
    """Pages out of the new scope, which the index has forgotten."""
    kept: int
    """Pages that are fetched as if for the first time, for their links."""

    @property
    def sentence(self) -> str:
        """Sentence about it, for a person."""
        gone, kept = counted(self.forgotten, "page"), counted(self.kept, "page")
        verb = "is" if self.forgotten == 1 else "are"
        return f"{gone} out of it {verb} forgotten; {kept} will be fetched without conditions, for their links."


class ChangedScope(NamedTuple):
    """Scopes of submitted URLs, before and now."""

    former: str
    latest: str


class Scopes:
    """Scopes in the database of an index. Each has an id, which is equal for equal scopes."""

    def __init__(self, database: IndexDatabase) -> None:
        self._database = database

    def note(self, seeds: Mapping[int, Terms]) -> None:
        """Note the scopes of submitted URLs, by the keys of their pages. May be repeated."""
        scopes = {key: _text(terms) for key, terms in seeds.items()}
        with self._database.transaction():
            self._database.run_many(
                "INSERT INTO scopes (id, terms) VALUES (?, ?) ON CONFLICT (id) DO NOTHING",
                [(digest(text), text) for text in sorted(set(scopes.values()))],
            )
            self._database.run_many(
                "INSERT INTO seeds (page, scope) VALUES (?, ?) ON CONFLICT (page) DO UPDATE "
                "SET former = coalesce(seeds.former, seeds.scope), scope = excluded.scope "
                "WHERE seeds.scope <> excluded.scope",
                [(key, digest(text)) for key, text in sorted(scopes.items())],
            )

    def changed(self) -> list[ChangedScope]:
        """Return the scopes that have changed, each once."""
        rows = self._database.rows("SELECT DISTINCT former, scope FROM seeds WHERE former IS NOT NULL ORDER BY 1, 2")
        return [ChangedScope(former, latest) for former, latest in rows]

    def sorter(self, changed: ChangedScope) -> Callable[[IndexedPage], bool | None]:
        """Return a function that returns True for a page that is to be read again, False for one that is to be
        forgotten, and None for others."""
        terms: dict[str, Terms] = {
            name: msgspec.json.decode(text, type=Terms)
            for name, text in self._database.rows("SELECT id, terms FROM scopes")
        }
        current = {name for (name,) in self._database.rows("SELECT DISTINCT scope FROM seeds")} - {changed.latest}
        was_inside, is_inside = page_test(terms[changed.former]), page_test(terms[changed.latest])
        others = [page_test(terms[name]) for name in sorted(current)]

        def sort(page: IndexedPage) -> bool | None:
            if is_inside(page):
                return True
            if not was_inside(page) or any(other(page) for other in others):
                return None
            return self._is_seed(page)

        return sort

    def _is_seed(self, page: IndexedPage) -> bool:
        return bool(self._database.rows("SELECT 1 FROM seeds WHERE page = ?", [page.key]))

    def settle(self, changed: ChangedScope) -> None:
        """Note that the pages are sorted by a changed scope, and delete scopes that no URL has."""
        self._database.run("UPDATE seeds SET former = NULL WHERE former = ? AND scope = ?", list(changed))
        self._database.run(
            "DELETE FROM scopes WHERE id NOT IN (SELECT scope FROM seeds) AND "
            "id NOT IN (SELECT former FROM seeds WHERE former IS NOT NULL)"
        )


def page_test(terms: Terms) -> Callable[[IndexedPage], bool]:
    """Return a function that returns whether a page is in the scope of these terms, and not too deep."""
    scope, deepest = scope_of(terms), terms.maxdepth
    return lambda page: scope.reason(page.url) is None and (deepest is None or page.depth <= deepest)


def _text(terms: Terms) -> str:
    """Return a text that is equal for terms that choose equal pages and take the same from them."""
    chosen = Terms(**{name: getattr(terms, name) for name in (*SCOPE_FIELDS, *TAKEN_FIELDS)})
    return msgspec.json.encode(chosen).decode()
