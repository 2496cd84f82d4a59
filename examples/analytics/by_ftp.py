"""Crawls upload Parquet files by FTP into a folder, and Spark reads each file when it is complete."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

from examples.analytics.chart import Chart
from examples.analytics.parts import (
    CRAWL_SECONDS,
    RULES,
    Failure,
    finish_spark,
    gossamer,
    running,
    running_spark,
    running_web,
)

from gossamer_fakeweb.estate import PER_INDEX
from tests.servers.valkey import free_ports

_BATCH = 100
"""Properties of each crawl."""


def batches(port: int, indexes: int) -> list[list[str]]:
    """Return the URLs of each crawl: properties, and one that does not exist."""
    site = f"http://estate.test:{port}/properties"
    urls = [f"{site}/property_{number:06d}.html" for number in range(indexes * PER_INDEX)]
    return [[*urls[first : first + _BATCH], f"{site}/sold_{first:06d}.html"] for first in range(0, len(urls), _BATCH)]


def crawl(work: Path, indexes: int, chart: Chart) -> str:
    """Run all parts until the crawls are finished and Spark has read all. Returns the Parquet files for the batch.

    The first crawl uploads its records twice, under two names, as a program might after a crash. They count once.
    """
    folder = work / "incoming"
    folder.mkdir()
    (work / "rules.json").write_text(json.dumps(RULES))
    (ftp_port,) = free_ports(1)
    server = [sys.executable, "-m", "pyftpdlib", "-i", "127.0.0.1", "-p", str(ftp_port), "-w", "-d", str(folder)]
    with contextlib.ExitStack() as stack:
        ftp = stack.enter_context(running("ftp", work, [*server, "-u", "crawler", "-P", "secret"]))
        web = stack.enter_context(running_web(work, indexes))
        spark = stack.enter_context(running_spark(work, "--folder", str(folder)))
        web.wait_for("first http")
        ftp.wait_for("starting FTP server")
        chart.state = "waiting for Spark"
        print("Waiting for Spark (half a minute, longer on a busy machine)", flush=True)
        spark.wait_for("Spark is reading.")
        chart.state = "crawling"
        begun = time.monotonic()
        for number, urls in enumerate(batches(int((work / "port").read_text()), indexes)):
            names = [f"batch-{number:03d}", *(["batch-000-again"] if number == 0 else [])]
            outputs = [f"ftp://crawler:secret@127.0.0.1:{ftp_port}/{name}.parquet" for name in names]
            _crawl_batch(work, number, urls, outputs)
            for part in (ftp, web, spark):
                part.check()
            if time.monotonic() - begun > CRAWL_SECONDS:
                raise Failure(f"the crawls are not finished after {CRAWL_SECONDS:.0f} seconds")
        print(f"The crawls are finished after {time.monotonic() - begun:.0f} seconds.", flush=True)
        chart.state = "crawled; Spark reads the rest"
        finish_spark(spark)
    return f"{folder}/*.parquet"


def _crawl_batch(work: Path, number: int, urls: list[str], outputs: list[str]) -> None:
    """Crawl some URLs into all outputs. Raises `Failure`."""
    seeds = work / f"batch-{number:03d}.txt"
    seeds.write_text("".join(f"{url}\n" for url in urls))
    where = [flag for output in outputs for flag in ("-o", output)]
    done = subprocess.run(
        [gossamer(), "crawl", "--seeds", str(seeds), "--depth", "0", "--resolve", "*.test:127.0.0.1", "--rate", "100/1",
         "--extract", "rules.json", "--data-dir", f"data-{number:03d}", "--quiet", *where],
        cwd=work, capture_output=True, text=True, check=False, timeout=CRAWL_SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise Failure(f"the crawl of {seeds} ended with exit code {done.returncode}: {done.stderr[-2000:]}")
