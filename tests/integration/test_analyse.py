"""Records in DuckDB and pandas: the published columns, the programs of the how-to, and the batch of the example."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import duckdb
import pandas
import pyarrow.parquet
import pytest
from examples.analytics.__main__ import show
from examples.analytics.batch import batch_facts, differences, live_facts, summary
from examples.analytics.chart import Chart
from examples.analytics.setup import check_jars, java_version, only_run

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.model.record import ItemRecord, PageRecord, RecordLink, RedirectHop
from tests.servers.crawling import gossamer
from tests.servers.program import require
from tools.reference.schemas import duckdb_type, pandas_type, parquet_schema

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "analyse.md").read_text()
SCHEMAS = ROOT / "docs" / "reference" / "schemas"
INDEXES = 20
"""Index pages, as in the how-to."""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Parquet file of the how-to's crawl, with one page that does not exist."""
    folder = tmp_path_factory.mktemp("estate")
    with FakeWeb.start(WebSpec(hosts=1, pages=1, estate=INDEXES)) as web:
        site = f"http://localhost:{web.port}/properties"
        flags = ["--allow-private", "--rate", "5000/1", "--field", "title=h1"]
        flags += ["--field", "price=[itemprop=price] @number", "-o", "estate.parquet"]
        done = gossamer("crawl", f"{site}/index_00000.html", f"{site}/none.html", *flags, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder / "estate.parquet"


def rows_of(path: Path) -> list[dict[str, Any]]:
    return list(pyarrow.parquet.read_table(path).to_pylist())


def means(path: Path, *, at_least: int = 20) -> dict[str, tuple[int, float]]:
    """Number of titles and mean price of each word, split at spaces, by plain Python."""
    prices = defaultdict(list)
    for row in rows_of(path):
        item = json.loads(row["item"] or "{}")
        if item.get("price") is not None and item.get("title") is not None:
            for word in set(item["title"].split()):
                prices[word].append(item["price"])
    return {word: (len(found), sum(found) / len(found)) for word, found in prices.items() if len(found) >= at_least}


def block(language: str, containing: str) -> str:
    """A program of the how-to."""
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(next(text for text in found if containing in text))


def printed_by(program: str, names: dict[str, Any] | None = None) -> list[str]:
    """Run a program, and return the lines that it prints, without spaces at their ends."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program, {} if names is None else names)
    return [line.rstrip() for line in printed.getvalue().splitlines()]


def sample(program: str) -> set[str]:
    """Return the lines that the how-to shows behind a program."""
    shown = set(PAGE.partition(program)[2].partition("```text\n")[2].partition("```")[0].splitlines()) - {"…"}
    assert len(shown) >= 6
    return shown


def column_type(hint: Any) -> str:
    """Return Spark's type for the type of a record's field. Data of any form is JSON text."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return column_type(type(arguments[0]))
    if origin is list:
        return f"ARRAY<{column_type(arguments[0])}>"
    if origin is dict and arguments[1] is not Any:
        return f"MAP<{column_type(arguments[0])}, {column_type(arguments[1])}>"
    if hint in (RecordLink, RedirectHop):
        return f"STRUCT<{', '.join(f'{name}: {column_type(part)}' for name, part in get_type_hints(hint).items())}>"
    return {str: "STRING", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}.get(hint, "STRING")


def test_the_published_columns_are_the_fields_of_pages_and_items_with_their_types() -> None:
    wanted = {**get_type_hints(PageRecord), **get_type_hints(ItemRecord)}
    published = dict(line.split(" ", 1) for line in (SCHEMAS / "records.spark.ddl").read_text().split(",\n"))
    assert {name: kind.strip() for name, kind in published.items()} == {
        name: column_type(hint) for name, hint in wanted.items()
    }


def test_duckdb_reads_the_published_columns(records: Path) -> None:
    described = duckdb.sql(f"DESCRIBE SELECT * FROM '{records}'").fetchall()
    assert {name: kind.replace('"', "") for name, kind, *_ in described} == {
        field.name: duckdb_type(field.type) for field in parquet_schema()
    }


def test_pandas_reads_the_published_columns(records: Path) -> None:
    frame = pandas.read_parquet(records, dtype_backend="numpy_nullable")
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        field.name: pandas_type(field.type) for field in parquet_schema()
    }


def test_the_duckdb_statement_of_the_page_gives_the_means(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(records.parent)
    program = block("python", "import duckdb")
    found = duckdb.sql(program.split('"""')[1]).fetchall()
    wanted = means(records)
    assert wanted
    assert {word: (n, mean) for word, n, mean in found} == {
        word: (n, round(mean)) for word, (n, mean) in wanted.items()
    }
    assert sample(block("python", "import duckdb")) <= set(printed_by(program))


def test_the_pandas_program_of_the_page_gives_the_means(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(records.parent)
    names: dict[str, Any] = {}
    printed = printed_by(block("python", "import pandas"), names)
    grouped = names["words"].groupby("word")["price"].agg(["count", "mean"])
    wanted = means(records)
    for word, (n, mean) in wanted.items():
        assert grouped.loc[word, "count"] == n
        assert grouped.loc[word, "mean"] == pytest.approx(mean)
    assert {line.split()[0] for line in printed[2:]} == wanted.keys()
    assert sample(block("python", "import pandas")) <= set(printed)


def test_the_table_of_duckdb_takes_parquet_and_json_lines(records: Path, tmp_path: Path) -> None:
    done = gossamer("export", str(records), "estate.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with duckdb.connect() as database:
        database.execute((SCHEMAS / "records.duckdb.sql").read_text())
        database.execute(f"INSERT INTO records BY NAME FROM '{records}'")
        wanted = len(rows_of(records))
        assert database.execute("SELECT count(*) FROM records").fetchone() == (wanted,)
        columns = {name: kind for name, kind, *_ in database.execute("DESCRIBE records").fetchall()}
        database.read_json(str(tmp_path / "estate.jsonl"), columns=columns).create_view("lines")  # type: ignore[arg-type]
        compared = "request_id, type, url, success, response_headers, timings, item->>'$.price' AS price"
        assert database.execute(f"SELECT {compared} FROM records EXCEPT SELECT {compared} FROM lines").fetchall() == []
        assert database.execute("SELECT count(*) FROM lines").fetchone() == (wanted,)


def test_pandas_takes_the_published_types(records: Path) -> None:
    types = json.loads((SCHEMAS / "records.pandas.json").read_text())
    frame = pandas.read_parquet(records).astype(types)
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == types


def by_hand(path: Path) -> dict[tuple[str, str, str], tuple[int, int]]:
    """The table of the batch, by plain Python."""
    facts: dict[tuple[str, str, str], tuple[int, int]] = {}

    def count(kind: str, key: str, detail: str, pence: int = 0) -> None:
        n, total = facts.get((kind, key, detail), (0, 0))
        facts[kind, key, detail] = n + 1, total + pence

    for row in rows_of(path):
        pence = 0
        if row["type"] == "page":
            state = "page" if row["success"] else "error"
            count("domain", "localhost", row["reason"])
        else:
            state, item = "item", json.loads(row["item"])
            if item["price"] is not None and item["title"] is not None:
                pence = round(item["price"] * 100)
                for word in {"", *(w for w in re.findall("[a-z]+", item["title"].lower()) if len(w) > 2)}:
                    count("word", word, "", pence)
        at = int(datetime.fromisoformat(row["timestamp"]).timestamp()) // 5 * 5
        count("time", str(at), state, pence)
    return facts


def test_the_batch_counts_words_domains_and_time(records: Path) -> None:
    facts = batch_facts(str(records))
    assert facts == by_hand(records)
    assert facts["word", "", ""][0] == INDEXES * 30
    assert facts["domain", "localhost", "http_404"] == (1, 0)


def test_a_repeated_record_is_counted_once(records: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copy(records, tmp_path / f"{name}.parquet")
    assert batch_facts(f"{tmp_path}/*.parquet") == batch_facts(str(records))


def test_a_difference_is_named() -> None:
    live = {("word", "loft", ""): (3, 500), ("word", "house", ""): (1, 100)}
    batch = {("word", "loft", ""): (4, 700), ("word", "house", ""): (1, 100), ("domain", "a.test", ""): (1, 0)}
    assert differences(live, batch) == [
        "domain a.test: Spark has nothing, the batch (1, 0)",
        "word loft: Spark has (3, 500), the batch (4, 700)",
    ]
    assert not differences(batch, dict(batch))


def test_the_example_fails_if_spark_has_other_numbers(records: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.sqlite"
    with contextlib.closing(sqlite3.connect(results)) as database:
        database.execute("CREATE TABLE facts (kind, key, detail, n, pence)")
        rows = [(*row, n, pence) for row, (n, pence) in batch_facts(str(records)).items()]
        database.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
        assert show(results, str(records))
        database.execute("UPDATE facts SET n = n + 1 WHERE kind = 'domain' AND detail = ''")
        database.commit()
    assert not show(results, str(records))


def test_the_example_prints_a_word_once_if_there_are_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    titles = ["house angel", "loft angel", "loft park", "flat park", "flat"]
    items = [{"title": titles[n % 5], "price": 100.0 + n % 5} for n in range(100)]
    rows = [
        {"type": "item", "request_id": str(n), "item": json.dumps(item), "url": "http://a.test/", "reason": "",
         "success": True, "timestamp": "2026-01-01T00:00:00+00:00"}
        for n, item in enumerate(items)
    ]  # fmt: skip
    pandas.DataFrame(rows).to_parquet(tmp_path / "few.parquet")
    with contextlib.closing(sqlite3.connect(tmp_path / "results.sqlite")) as database:
        database.execute("CREATE TABLE facts (kind, key, detail, n, pence)")
        facts = [(*row, n, pence) for row, (n, pence) in batch_facts(str(tmp_path / "few.parquet")).items()]
        database.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", facts)
        database.commit()
    assert show(tmp_path / "results.sqlite", str(tmp_path / "few.parquet"))
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " titles, " in line]
    assert sorted(shown) == ["angel", "flat", "house", "loft", "park"]


def test_the_words_that_raise_prices_are_found(records: Path) -> None:
    percent = {row["word"]: row["percent"] for row in summary(batch_facts(str(records)))["words"]}
    assert percent["house"] > 0 > percent["double"]  # type: ignore[operator]


def test_the_chart_serves_what_spark_has_stored(tmp_path: Path) -> None:
    chart = Chart(tmp_path / "results.sqlite", 0)
    try:
        assert b"results.json" in urllib.request.urlopen(chart.url).read()
        empty = json.load(urllib.request.urlopen(f"{chart.url}results.json"))
        assert empty == {"state": "starting", "batches": 0, "words": [], "domains": [], "times": []}
        with contextlib.closing(sqlite3.connect(tmp_path / "results.sqlite")) as database:
            database.execute("CREATE TABLE facts (kind, key, detail, n, pence)")
            database.execute("CREATE TABLE batches (batch, at, changed)")
            rows = [
                ("domain", "a.test", "", 5, 0),
                ("domain", "a.test", "http_404", 2, 0),
                ("time", "10", "item", 2, 300),
            ]
            database.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", rows)
            database.execute("INSERT INTO batches VALUES (0, 0, 3)")
            database.commit()
        assert live_facts(tmp_path / "results.sqlite")["time", "10", "item"] == (2, 300)
        found = json.load(urllib.request.urlopen(f"{chart.url}results.json"))
        assert found["domains"] == [{"domain": "a.test", "pages": 5, "errors": {"http_404": 2}}]
        assert found["times"] == [{"at": 10, "page": 0, "error": 0, "item": 2, "mean": 1.5}]
        assert found["batches"] == 1
    finally:
        chart.close()


def test_a_changed_jar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"good")
    sums = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c  a.jar\n"
    check_jars(tmp_path, sums)
    (tmp_path / "a.jar").write_bytes(b"bad")
    with pytest.raises(ValueError, match=r"a\.jar"):
        check_jars(tmp_path, sums)
    (tmp_path / "a.jar").unlink()
    with pytest.raises(ValueError, match=r"a\.jar"):
        check_jars(tmp_path, sums)


def test_missing_programs_are_named_one_a_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.analytics.setup"],
        cwd=ROOT, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert [line.split(" was not found")[0] for line in done.stderr.splitlines()] == ["java", "mvn"]


def test_a_second_run_in_the_checkout_is_refused(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from examples.analytics.setup import only_run\n"
        "with only_run(pathlib.Path(sys.argv[1])):\n"
        "    print('runs')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "lock")]
    with only_run(tmp_path / "lock"):
        second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "RuntimeError: another run goes on" in second.stderr
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "runs\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_parts(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import pathlib, signal, sys\n"
        "from examples.analytics.__main__ import treat_as_interrupts\n"
        "from examples.analytics.parts import running\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have switched it off
        "treat_as_interrupts(signal.SIGTERM, signal.SIGHUP)\n"
        "with running('part', pathlib.Path(sys.argv[1]), ['sleep', '600']) as part:\n"
        "    print(part.process.pid, flush=True)\n"
        "    signal.pause()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as example:
        assert example.stdout is not None
        part = int(example.stdout.readline())
        os.kill(part, 0)  # raises if the part is not there
        example.send_signal(number)
        example.wait(30)
    with pytest.raises(ProcessLookupError):
        os.kill(part, 0)


def test_too_few_index_pages_are_refused_at_once() -> None:
    command = [sys.executable, "-m", "examples.analytics", "--indexes", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("make analytics: error: --indexes: at least 4, because")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    for program in ("java", "mvn"):
        require(program)
    chart = Chart(tmp_path / "results.sqlite", 0)
    try:
        port = chart.url.rstrip("/").rpartition(":")[2]
        command = [sys.executable, "-m", "examples.analytics", "--port", port]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        chart.close()
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(
        f"analytics: --port {port}: cannot listen there: Address already in use. Name another"
    )


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "25"', 25),
        ("", 0),
    ],
)
def test_the_version_of_java_is_read(printed: str, version: int) -> None:
    assert java_version(printed) == version
