"""Spark Structured Streaming over the records of a crawl: counts and sums by word, domain and time, in an SQLite file.

Runs in the environment of Spark, which has neither Gossamer nor its libraries. `__main__.py` starts it.

Standard input controls it. The line `finish`: process everything that is there now, then end with exit code 0. The end
of the input without that line: the parent process is gone, so end at once.
"""

import argparse
import json
import os
import shutil
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

LATENESS = "1 hour"
"""A repeated record is recognised if it comes within this time. It bounds the ids that Spark keeps."""
BUCKET_SECONDS = 5
"""Length of one step of the chart over time."""


def session(jars: Path, temporary: Path) -> SparkSession:
    """Start Spark in this process, on two cores. `temporary`: folder for its temporary files."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("gossamer-analytics")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary}",
        "spark.local.dir": str(temporary),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def records_of_kafka(spark: SparkSession, servers: str, topic: str, schema: str) -> DataFrame:
    """Return the records of a topic, from its beginning."""
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20_000)
        .load()
    )
    return messages.select(f.from_json(f.col("value").cast("string"), schema).alias("record")).select("record.*")


def records_of_folder(spark: SparkSession, folder: str, schema: str) -> DataFrame:
    """Return the records of the Parquet files that appear in a folder. A file must appear whole, by a rename."""
    return (
        spark.readStream.schema(schema)
        .option("pathGlobFilter", "*.parquet")
        .option("maxFilesPerTrigger", 100)
        .parquet(folder)
    )


def facts(records: DataFrame) -> DataFrame:
    """Return the table `kind, key, detail, n, pence` of all records: number of records, and sum of prices.

    | kind | key | detail |
    |---|---|---|
    | word | word of an item's title; empty: all items | |
    | domain | host of a page | reason of the failure; empty: none |
    | time | start of five seconds, in epoch seconds | `page`, `error` or `item` |
    """
    # A record is published at least once. The same request, type and item is the same record.
    once = (
        records.withColumn("at", f.to_timestamp("timestamp"))
        .withColumn("identity", f.concat_ws("\n", "type", "request_id", f.coalesce("item", f.lit(""))))
        .withWatermark("at", LATENESS)
        .dropDuplicatesWithinWatermark(["identity"])
    )
    is_item = f.col("type") == "item"
    pence = f.round(f.get_json_object("item", "$.price").cast("double") * 100).cast("long")
    title = f.lower(f.get_json_object("item", "$.title"))
    words = f.array_distinct(f.filter(f.split(title, "[^a-z]+"), lambda word: f.length(word).between(3, 40)))
    bucket = (f.floor(f.col("at").cast("double") / BUCKET_SECONDS) * BUCKET_SECONDS).cast("long").cast("string")
    state = f.when(is_item, "item").when(f.col("success"), "page").otherwise("error")
    nothing = f.lit(0).cast("long")

    def fact(kind: str, key: Column, detail: Column, amount: Column) -> Column:
        return f.struct(f.lit(kind).alias("kind"), key.alias("key"), detail.alias("detail"), amount.alias("pence"))

    priced = is_item & pence.isNotNull() & title.isNotNull()
    of_words = f.transform(f.array_union(f.array(f.lit("")), words), lambda word: fact("word", word, f.lit(""), pence))
    of_page = f.array(fact("domain", f.parse_url(f.col("url"), f.lit("HOST")), f.col("reason"), nothing))
    of_time = f.array(fact("time", bucket, state, f.when(priced, pence).otherwise(nothing)))
    none = f.slice(of_time, 1, 0)
    rows = f.concat(of_time, f.when(priced, of_words).otherwise(none), f.when(is_item, none).otherwise(of_page))
    return (
        once.select(f.explode(rows).alias("fact"))
        .select("fact.*")
        .groupBy("kind", "key", "detail")
        .agg(f.count("*").alias("n"), f.sum("pence").alias("pence"))
    )


class ResultTable:
    """Table `facts` of an SQLite file, which the chart reads. A batch that is written again changes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS facts (kind TEXT, key TEXT, detail TEXT, n INTEGER, pence INTEGER,"
                " PRIMARY KEY (kind, key, detail)) WITHOUT ROWID"
            )
            database.execute("CREATE TABLE IF NOT EXISTS batches (batch INTEGER PRIMARY KEY, at REAL, changed INTEGER)")

    def write(self, changed: DataFrame, batch: int) -> None:
        """Store the rows that a batch changed, in one transaction."""
        rows = [tuple(row) for row in changed.select("kind", "key", "detail", "n", "pence").collect()]
        with sqlite3.connect(self._path, timeout=30) as database:
            database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?)", rows)
            database.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?)", (batch, time.time(), len(rows)))


def warm_up(spark: SparkSession, schema: str, folder: Path) -> None:
    """Compute the table of one record that is not of the crawl.

    Java compiles a computation when it runs for the first time, which takes half a minute on a busy machine. After
    this, the first batch of the crawl takes no longer than the others. `folder`: place for files, does not exist yet.
    """
    record = {"type": "item", "request_id": "warm-up", "timestamp": "2000-01-01T00:00:00+00:00"}
    text = json.dumps({**record, "item": json.dumps({"title": "one two", "price": 1})})
    one = spark.range(1).select(f.from_json(f.lit(text), schema).alias("record")).select("record.*")
    one.write.parquet(str(folder / "records"))
    query = (
        facts(records_of_folder(spark, str(folder / "records"), schema))
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(ResultTable(folder / "results.sqlite").write)
        .start()
    )
    query.awaitTermination()


def control(query: StreamingQuery, outcome: dict[str, Any]) -> None:
    """Follow standard input as the module says, and stop the query."""
    outcome["complete"] = sys.stdin.readline().strip() == "finish"
    try:
        if outcome["complete"]:
            query.processAllAvailable()
    finally:
        query.stop()


def main() -> int:
    """Run until standard input says that it is enough. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", help="HOST:PORT of a broker")
    parser.add_argument("--topic", default="demo.crawled_firehose")
    parser.add_argument("--folder", help="folder of Parquet files, instead of Kafka")
    parser.add_argument("--schema", type=Path, required=True, help="file with the columns of records, for Spark")
    parser.add_argument("--jars", type=Path, required=True, help="folder with the connector to Kafka")
    parser.add_argument("--work", type=Path, required=True, help="folder for results.sqlite and the checkpoint")
    options = parser.parse_args()
    temporary = options.work / "tmp"
    temporary.mkdir(exist_ok=True)
    spark = session(options.jars, temporary)
    schema = options.schema.read_text()
    shutil.rmtree(options.work / "warm-up", ignore_errors=True)  # of a run that was killed
    warm_up(spark, schema, options.work / "warm-up")
    if options.folder:
        records = records_of_folder(spark, options.folder, schema)
    else:
        records = records_of_kafka(spark, options.kafka, options.topic, schema)
    table = ResultTable(options.work / "results.sqlite")
    query = (
        facts(records)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(options.work / "checkpoint"))
        .trigger(processingTime="1 second")
        .foreachBatch(table.write)
        .start()
    )
    print("Spark is reading.", flush=True)
    outcome: dict[str, Any] = {"complete": False}
    controller = threading.Thread(target=control, args=(query, outcome), daemon=True)
    controller.start()
    query.awaitTermination()  # raises if the query failed; else the controller has stopped it
    controller.join()
    spark.stop()
    return 0 if outcome["complete"] else 1


if __name__ == "__main__":
    sys.exit(main())
