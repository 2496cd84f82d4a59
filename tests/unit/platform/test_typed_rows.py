"""The classes of rows: they say what the columns hold, and no query returns less than its class has."""

import re
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest
from sqlalchemy import JSON, Table, create_engine, select

from gossamer.storage.sql.rows import fetch_first
from gossamer_platform.state import tables
from gossamer_platform.state.jobs import Job


@pytest.mark.parametrize("table", tables.METADATA.tables.values(), ids=lambda table: table.name)
def test_an_annotation_is_the_type_of_the_columns_values(table: Table) -> None:
    hints = get_type_hints(table.info["row"])
    if table.name == "spider_policy":
        hints |= {name: hint | None for name, hint in get_type_hints(tables.LimitColumns).items()}
    assert set(hints) == set(table.columns.keys())
    for column in table.columns:
        possible = get_args(hints[column.name]) if type(None) in get_args(hints[column.name]) else (hints[column.name],)
        (kind,) = [each for each in possible if each is not type(None)]
        stored = getattr(column.type, "impl_instance", column.type)
        assert (get_origin(kind) or kind) in ((list, dict) if isinstance(stored, JSON) else (stored.python_type,)), (
            column
        )
        assert column.nullable is (type(None) in possible), column


def test_a_query_that_lacks_a_column_of_its_rows_is_refused() -> None:
    engine = create_engine("sqlite://")
    tables.METADATA.create_all(engine)
    with engine.begin() as connection, pytest.raises(AssertionError, match=r"query of Job lacks.*project"):
        fetch_first(connection, Job, select(tables.jobs))
    engine.dispose()


def test_an_unknown_column_is_an_error_of_types() -> None:
    """A class with `__getattr__`, as SQLAlchemy's own rows have it, would let every misspelt name pass."""
    assert not hasattr(Job, "__getattr__")


def test_statements_stand_in_the_state_alone() -> None:
    source = Path(tables.__file__).parents[1]
    above = [path for path in source.rglob("*.py") if path.parent.name != "state" and "migrations" not in path.parts]
    written = re.compile(r"^from sqlalchemy import .*\b(select|insert|update|delete|text)\b", re.MULTILINE)
    assert not [path for path in above if written.search(path.read_text())]
