"""Live analytics of a crawl on one machine: `make analytics`.

Starts a Kafka broker, a practice web, a crawl service, Spark and a chart; crawls; then compares the results of Spark
with a batch computation. Exit code 0: they are equal. 1: they differ, or a part failed.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from examples.analytics import setup
from examples.analytics.batch import batch_facts, differences, live_facts, summary
from examples.analytics.chart import Chart

from tests.servers import kafka

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "reference" / "schemas" / "records.spark.ddl"
TOPIC = "demo.crawled_firehose"
_WAIT_SECONDS = 120.0
"""Time that a part has to start or to end. More only for a slow machine."""
_RATE = 40
"""Pages a second of each domain: slow enough to watch."""


class Failure(Exception):
    """A part of the example did not do what it should; the text says which and why."""


class Part:
    """A process of the example with a log file. It is ended when the block of `running` is left."""

    def __init__(self, name: str, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def wait_for(self, text: str) -> None:
        """Return when the log has the text. Raises `Failure`."""
        last = time.monotonic() + _WAIT_SECONDS
        while text not in self.log.read_text(errors="replace"):
            self.check()
            if time.monotonic() > last:
                raise Failure(f"{self.name} did not start in {_WAIT_SECONDS:.0f} seconds; see {self.log}")
            time.sleep(0.05)

    def check(self) -> None:
        """Raise `Failure` if the process has ended."""
        if (code := self.process.poll()) is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise Failure(f"{self.name} ended with exit code {code}:\n{tail}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit code. May be repeated."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(_WAIT_SECONDS)


@contextlib.contextmanager
def running(name: str, folder: Path, command: list[str], **environment: str) -> Iterator[Part]:
    """Run a part. At the end of the block it gets SIGTERM, and SIGKILL with its children if that is not enough."""
    part = Part(name, folder, command, environment)
    try:
        yield part
    finally:
        try:
            part.end()
        except subprocess.TimeoutExpired:
            os.killpg(part.process.pid, signal.SIGKILL)
            part.process.wait()


def make_topic(servers: str) -> None:
    """Create the topic of pages and items. Spark cannot subscribe to a topic that does not exist."""
    topic = NewTopic(TOPIC, 2, 1, config={"max.message.bytes": str(8 * 1024 * 1024)})
    admin = AdminClient({"bootstrap.servers": servers})  # has to live until the result is there
    admin.create_topics([topic])[TOPIC].result(30)


def crawls(port: int, indexes: int) -> list[dict[str, object]]:
    """Return the requests: the estate agent's properties as items, and three sites on which some pages fail."""
    rules = {"urls": ["/properties/property_"], "fields": {"title": "h1", "price": "[itemprop=price] @number"}}
    estate = {
        "crawlid": "estate",
        "url": f"http://estate.test:{port}/properties/index_00000.html",
        "maxdepth": indexes + 1,
        "extract": rules,
    }
    sites = [
        {"crawlid": f"site{n}", "url": f"http://site{n}.test:{port}/", "maxdepth": 20, "priority": 50} for n in range(3)
    ]
    return [{"appid": "analytics", "spiderid": "link", **one} for one in (estate, *sites)]


def wait_for_crawls(servers: str, wanted: set[object], parts: list[Part]) -> None:
    """Return when each crawl has published its event `finished`. Raises `Failure`."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "analytics", "auto.offset.reset": "earliest", "log_level": 2,
         "topic.metadata.refresh.interval.ms": 1000, "allow.auto.create.topics": False}
    )  # fmt: skip
    consumer.subscribe(["demo.outbound_firehose"])
    try:
        while wanted:
            for part in parts:
                part.check()
            message = consumer.poll(0.5)
            if message is None or message.error():
                continue
            event = json.loads(message.value())
            if event.get("action") == "rejected":
                raise Failure(f"a request was rejected: {event}")
            if event.get("action") == "finished":
                wanted.discard(event["crawlid"])
    finally:
        consumer.close()


def show(results: Path, pages: str) -> bool:
    """Print the answer, and whether Spark and the batch computation agree. Returns that."""
    live, batch = live_facts(results), batch_facts(pages)
    found = summary(batch)
    words = found["words"]
    print("\nWords in a title, and the mean price with and without them:")
    for row in [*words[:4], *words[-4:]]:
        print(f"  {row['word']:<12} {row['percent']:+6.1f} %   {row['n']:5} titles, £{row['mean']:,.2f} a week")
    print("Pages and errors by domain:")
    for row in found["domains"]:
        errors = ", ".join(f"{reason} {n}" for reason, n in row["errors"].items()) or "no errors"  # type: ignore[attr-defined]
        print(f"  {row['domain']:<12} {row['pages']:6} pages, {errors}")
    wrong = differences(live, batch)
    for sentence in wrong[:20]:
        print(f"  {sentence}")
    if wrong or not words:
        print(f"Spark and the batch computation differ in {len(wrong)} of {len(batch)} rows.")
        return False
    print(f"Spark and the batch computation of DuckDB agree in all {len(batch)} rows.")
    return True


def run(options: argparse.Namespace, work: Path, chart: Chart) -> bool:
    """Run all parts until the crawls are finished. Returns whether Spark and the batch computation agree."""
    python = sys.executable
    gossamer = str(Path(python).with_name("gossamer"))
    web = [python, "-m", "gossamer.fakeweb", "--port-file", str(work / "port"), "--estate", str(options.indexes),
           "--hosts", "3", "--pages", "150", "--page-bytes", "3000", "--not-found", "0.08",
           "--server-error", "0.05", "--no-errors-once"]  # fmt: skip
    (work / "policies.yaml").write_text(f"default: {{hits: {_RATE}, window: 1, moderated: false}}\n")
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(kafka.broker())
        make_topic(broker.servers)
        spark = stack.enter_context(
            running(
                "spark",
                work,
                [str(setup.PYTHON), str(Path(__file__).with_name("spark_job.py")), "--kafka", broker.servers,
                 "--topic", TOPIC, "--schema", str(SCHEMA), "--jars", str(setup.JARS), "--work", str(work)],
            )
        )  # fmt: skip
        web_part = stack.enter_context(running("web", work, web))
        service = stack.enter_context(
            running(
                "gossamer",
                work,
                [gossamer, "up", "--port", "0", "--bus", f"kafka://{broker.servers}", "--resolve", "*.test:127.0.0.1",
                 "-o", "records.parquet"],
                GOSSAMER_SERVICE__POLICY_FILE="policies.yaml",
                GOSSAMER_FETCH__RETRY_BASE="0.2",
            )
        )  # fmt: skip
        web_part.wait_for("first http")
        service.wait_for("Ctrl-C stops it safely.")
        print("Waiting for Spark", flush=True)
        spark.wait_for("Spark is reading.")
        requests = crawls(int((work / "port").read_text()), options.indexes)
        (work / "requests.jsonl").write_text("".join(json.dumps(one) + "\n" for one in requests))
        feed = [gossamer, "feed", "requests.jsonl", "--bus", f"kafka://{broker.servers}"]
        subprocess.run(feed, cwd=work, check=True)
        chart.state = "crawling"
        begun = time.monotonic()
        wait_for_crawls(broker.servers, {one["crawlid"] for one in requests}, [spark, web_part, service])
        print(f"The crawls are finished after {time.monotonic() - begun:.0f} seconds.", flush=True)
        chart.state = "crawled; Spark reads the rest"
        if code := service.end():
            raise Failure(f"gossamer ended with exit code {code}; see {service.log}")
        assert spark.process.stdin is not None
        spark.process.stdin.write(b"finish\n")
        spark.process.stdin.flush()
        if code := spark.process.wait(_WAIT_SECONDS):
            raise Failure(f"Spark ended with exit code {code}; see {spark.log}")
    return show(work / "results.sqlite", str(work / "records.parquet"))


def main() -> int:
    """Run the example. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="make analytics", description=__doc__.splitlines()[0])
    parser.add_argument("--indexes", type=int, default=40, help="index pages of 30 properties each (default: 40)")
    parser.add_argument("--port", type=int, default=8088, help="port of the chart; 0: a free one (default: 8088)")
    parser.add_argument("--once", action="store_true", help="end after the comparison; do not keep the chart")
    options = parser.parse_args()
    if missing := setup.missing_programs():
        print("\n".join(missing), file=sys.stderr)
        return 1
    setup.install()
    kafka.install()
    work = setup.CACHE / "run"
    shutil.rmtree(work, ignore_errors=True)  # a checkpoint of an earlier run would count its offsets as read
    work.mkdir(parents=True)
    chart = Chart(work / "results.sqlite", options.port)
    print(f"The live chart: {chart.url}", flush=True)
    try:
        agree = run(options, work, chart)
        chart.state = "finished; equal to the batch" if agree else "finished; differs from the batch"
        if sys.stdin.isatty() and not options.once:
            print(f"The chart stays at {chart.url} until Ctrl-C.", flush=True)
            signal.pause()
    except Failure as failure:
        print(f"analytics: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0 if chart.state == "finished; equal to the batch" else 130
    finally:
        chart.close()
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
