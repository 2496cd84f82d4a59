"""The columns of records for Spark, DuckDB and pandas, made from the columns of Parquet outputs."""

import json
from typing import Any

import pyarrow as pa

from gossamer.sinks.spool import parquet_schema

BEGIN = "<!-- columns: made by `python -m tools.reference` -->"
END = "<!-- /columns -->"
_SPARK = {"string": "STRING", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN"}
_DUCKDB = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN"}
_PANDAS = {"string": "string", "int64": "Int64", "double": "Float64", "bool": "boolean"}


def spark_type(kind: Any) -> str:
    """Return Spark's name of an Arrow type."""
    if pa.types.is_map(kind):
        return f"MAP<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name}: {spark_type(field.type)}' for field in kind)}>"
    return _SPARK[str(kind)]


def duckdb_type(kind: Any) -> str:
    """Return DuckDB's name of an Arrow type."""
    if pa.types.is_map(kind):
        return f"MAP({duckdb_type(kind.key_type)}, {duckdb_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{duckdb_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{field.name} {duckdb_type(field.type)}' for field in kind)})"
    return _DUCKDB[str(kind)]


def pandas_type(kind: Any) -> str:
    """Return the type of a column of a pandas data frame. Lists, maps and objects are Python objects."""
    return _PANDAS.get(str(kind), "object")


def spark_columns() -> str:
    """Return all columns as Spark's `schema` takes them."""
    return ",\n".join(f"{field.name} {spark_type(field.type)}" for field in parquet_schema()) + "\n"


def duckdb_table() -> str:
    """Return the statement that makes an empty table with all columns in DuckDB."""
    columns = ",\n".join(f'  "{field.name}" {duckdb_type(field.type)}' for field in parquet_schema())
    return f"CREATE TABLE records (\n{columns}\n);\n"


def pandas_columns() -> str:
    """Return the types of all columns as JSON, for `astype` of a data frame."""
    return json.dumps({field.name: pandas_type(field.type) for field in parquet_schema()}, indent=1) + "\n"


def columns_table() -> str:
    """Return the table of all columns in Markdown, those of the same types in one row."""
    columns: dict[str, list[str]] = {}
    for field in parquet_schema():
        types = (spark_type(field.type), duckdb_type(field.type), pandas_type(field.type))
        columns.setdefault(" | ".join(f"`{one}`" for one in types), []).append(f"`{field.name}`")
    lines = [BEGIN, "", "| columns | Spark | DuckDB | pandas |", "|---|---|---|---|"]
    lines += [f"| {', '.join(names)} | {types} |" for types, names in columns.items()]
    return "\n".join([*lines, "", END])


def with_table(page: str) -> str:
    """Return the text of docs/reference/records.md with the current table."""
    before, rest = page.split(BEGIN)
    return before + columns_table() + rest.split(END)[1]
