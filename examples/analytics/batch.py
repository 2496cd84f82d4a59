"""Computation of the table of spark_job.py at once, by DuckDB from Parquet outputs."""

import sqlite3
from pathlib import Path

import duckdb

Facts = dict[tuple[str, str, str], tuple[int, int]]
"""Number of records and sum of prices in pence, by kind, key and detail (see `facts` of spark_job.py)."""

_QUERY = """
WITH once AS (
  SELECT DISTINCT ON (type, request_id, coalesce(item, '')) *,
    (floor(epoch(timestamp::TIMESTAMPTZ) / 5) * 5)::BIGINT::VARCHAR AS bucket,
    round((item->>'$.price')::DOUBLE * 100)::BIGINT AS pence,
    item->>'$.title' AS title
  FROM read_parquet(?)
),
priced AS (SELECT * FROM once WHERE type = 'item' AND pence IS NOT NULL AND title IS NOT NULL),
words AS (
  SELECT pence, unnest(list_concat([''], list_distinct(regexp_extract_all(lower(title), '[a-z]+')))) AS word FROM priced
)
SELECT 'word', word, '', count(*), sum(pence) FROM words
  WHERE word = '' OR length(word) BETWEEN 3 AND 40 GROUP BY ALL
UNION ALL
SELECT 'domain', regexp_extract(url, '^[a-z]+://([^/:?#]+)', 1), reason, count(*), 0 FROM once
  WHERE type = 'page' GROUP BY ALL
UNION ALL
SELECT 'time', bucket, CASE WHEN type = 'item' THEN 'item' WHEN success THEN 'page' ELSE 'error' END, count(*),
  sum(CASE WHEN type = 'item' AND title IS NOT NULL THEN coalesce(pence, 0) ELSE 0 END) FROM once GROUP BY ALL
"""


def batch_facts(files: str) -> Facts:
    """Return the table of all records in Parquet files. `files`: a path, in which `*` stands for any text."""
    with duckdb.connect() as database:
        rows = database.execute(_QUERY, [files]).fetchall()
    return {(kind, key, detail): (n, int(pence)) for kind, key, detail, n, pence in rows}


def live_facts(path: Path) -> Facts:
    """Return the table that Spark has written into an SQLite file."""
    with sqlite3.connect(path, timeout=30) as database:
        rows = database.execute("SELECT kind, key, detail, n, pence FROM facts").fetchall()
    return {(kind, key, detail): (n, pence) for kind, key, detail, n, pence in rows}


def differences(live: Facts, batch: Facts) -> list[str]:
    """Return one sentence for each row in which two tables differ; empty: they are equal."""
    return [
        f"{' '.join(filter(None, row))}: Spark has {live.get(row, 'nothing')}, the batch {batch.get(row, 'nothing')}"
        for row in sorted(live.keys() | batch.keys())
        if live.get(row) != batch.get(row)
    ]


def summary(facts: Facts) -> dict[str, list[dict[str, object]]]:
    """Return what the chart shows: words with their prices, domains with their failures, and steps of time.

    Prices are in pounds. `percent`: by how much the mean price of titles with the word is above (below: negative) that
    of titles without it; words of fewer than 20 titles, and of all titles, are left out.
    """
    total, total_pence = facts.get(("word", "", ""), (0, 0))
    words: list[dict[str, object]] = []
    domains: dict[str, dict[str, int]] = {}
    times: dict[str, dict[str, tuple[int, int]]] = {}
    for (kind, key, detail), (n, pence) in facts.items():
        if kind == "word" and key and 20 <= n < total:
            mean, without = pence / n / 100, (total_pence - pence) / (total - n) / 100
            percent = round((mean / without - 1) * 100, 1)
            words.append(
                {"word": key, "n": n, "mean": round(mean, 2), "without": round(without, 2), "percent": percent}
            )
        elif kind == "domain":
            domains.setdefault(key, {})[detail] = n
        elif kind == "time":
            times.setdefault(key, {})[detail] = (n, pence)
    words.sort(key=lambda row: row["percent"], reverse=True)  # type: ignore[arg-type,return-value]
    return {
        "words": words,
        "domains": [
            {"domain": name, "pages": found.get("", 0), "errors": {r: n for r, n in sorted(found.items()) if r}}
            for name, found in sorted(domains.items())
        ],
        "times": [_step(int(at), found) for at, found in sorted(times.items(), key=lambda pair: int(pair[0]))],
    }


def _step(at: int, found: dict[str, tuple[int, int]]) -> dict[str, object]:
    """Return one step of the chart over time. `mean`: mean price; None: the step has no items."""
    items, pence = found.get("item", (0, 0))
    counts = {name: found.get(name, (0, 0))[0] for name in ("page", "error")}
    return {"at": at, **counts, "item": items, "mean": round(pence / items / 100, 2) if items else None}
