"""Clock of a database. All processes that share a database have the same."""

from typing import Any

from sqlalchemy import Double
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class DatabaseNow(FunctionElement[float]):
    """Time of the database in seconds since 1970. In PostgreSQL it goes on within a transaction."""

    type = Double()
    inherit_cache = True


@compiles(DatabaseNow, "sqlite")
def _now_in_sqlite(element: DatabaseNow, compiler: Any, **_: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"  # 2440587.5: the Julian day of 1970-01-01


@compiles(DatabaseNow, "postgresql")
def _now_in_postgresql(element: DatabaseNow, compiler: Any, **_: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"
