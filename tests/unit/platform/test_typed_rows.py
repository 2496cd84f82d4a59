"""The classes of rows: they say what the columns hold, and no query returns less than its class has."""

from collections.abc import Iterator
from typing import get_args, get_origin

import pytest
from sqlalchemy import JSON, create_engine, select

from gossamer_platform.state import tables
from gossamer_platform.state.jobs import Job
from gossamer_platform.state.rows import METADATA, TableRow, fetch_first


def _columns() -> Iterator[tuple[str, type, object]]:
    classes = {kind: kind.__annotations__ for kind in vars(tables).values() if isinstance(kind, type)}
    for kind, names in classes.items():
        if issubclass(kind, TableRow) and kind is not TableRow:
            yield from (
                (f"{kind.__name__}.{name}", annotation, getattr(kind, name)) for name, annotation in names.items()
            )


def test_an_annotation_is_the_type_of_the_columns_values() -> None:
    seen = set()
    for name, annotation, column in _columns():
        may_be_null = type(None) in get_args(annotation)
        (kind,) = [each for each in get_args(annotation) if each is not type(None)] if may_be_null else [annotation]
        stored = getattr(column.type, "impl_instance", column.type)
        assert (get_origin(kind) or kind) in ((list, dict) if isinstance(stored, JSON) else (stored.python_type,)), name
        assert column.nullable is may_be_null, name
        seen.add(column)
    assert seen == {column for table in METADATA.tables.values() for column in table.columns}


def test_a_query_that_lacks_a_column_of_its_rows_is_refused() -> None:
    engine = create_engine("sqlite://")
    METADATA.create_all(engine)
    with engine.begin() as connection, pytest.raises(AssertionError, match=r"query of Job lacks.*project"):
        fetch_first(connection, Job, select(tables.jobs))


def test_an_unknown_column_is_an_error_of_types() -> None:
    """A class with `__getattr__`, as SQLAlchemy's own rows have it, would let every misspelt name pass."""
    assert not hasattr(Job, "__getattr__")
