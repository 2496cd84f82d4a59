"""Search for a text in a column, in SQLite and in PostgreSQL."""

from typing import Any

from sqlalchemy import Integer
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class PositionOf(FunctionElement[int]):
    """Position of a text, the second argument, in the first one, from 1; 0: it is not there. No character of it is a
    wildcard."""

    type = Integer()
    inherit_cache = True


@compiles(PositionOf, "sqlite")
def _in_sqlite(element: PositionOf, compiler: Any, **given: Any) -> str:
    return f"instr({compiler.process(element.clauses, **given)})"


@compiles(PositionOf, "postgresql")
def _in_postgresql(element: PositionOf, compiler: Any, **given: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **given)})"
