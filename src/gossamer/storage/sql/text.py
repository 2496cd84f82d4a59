"""Columns of text without characters that no database can store, in what is written and in what is searched for."""

from typing import Any

import sqlalchemy

from gossamer.storage.sql.storable import storable_text


class Text(sqlalchemy.TypeDecorator[str]):
    """Text of any length."""

    impl: Any = sqlalchemy.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        """Return the text as it is stored."""
        return None if value is None else storable_text(value)


class String(Text):
    """Text of limited length."""

    impl = sqlalchemy.String
    cache_ok = True
