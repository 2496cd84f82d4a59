"""A crawl service publishes its records to Kafka, and Spark reads the topic."""

import contextlib
import json
import subprocess
import time
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from examples.analytics.chart import Chart
from examples.analytics.parts import (
    CRAWL_SECONDS,
    RULES,
    Failure,
    Part,
    finish_spark,
    gossamer,
    running,
    running_spark,
    running_web,
)

from tests.servers import kafka

TOPIC = "demo.crawled_firehose"
_RATE = 40
"""Pages a second of each domain: slow enough to watch."""


def make_topic(servers: str) -> None:
    """Create the topic of pages and items. Spark cannot subscribe to a topic that does not exist."""
    topic = NewTopic(TOPIC, 2, 1, config={"max.message.bytes": str(8 * 1024 * 1024)})
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})  # has to live until the result is there
    admin.create_topics([topic])[TOPIC].result(30)


def crawls(port: int, indexes: int) -> list[dict[str, object]]:
    """Return the requests: the estate agent's properties as items, and three sites on which some pages fail."""
    estate = {
        "crawlid": "estate",
        "url": f"http://estate.test:{port}/properties/index_00000.html",
        "maxdepth": indexes + 1,
        "extract": RULES,
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
    last = time.monotonic() + CRAWL_SECONDS
    try:
        while wanted:
            if time.monotonic() > last:
                raise Failure(f"the crawls {wanted} are not finished after {CRAWL_SECONDS:.0f} seconds")
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


def crawl(work: Path, indexes: int, chart: Chart) -> str:
    """Run all parts until the crawls are finished and Spark has read all. Returns the Parquet files for the batch."""
    kafka.install()
    (work / "policies.yaml").write_text(f"default: {{hits: {_RATE}, window: 1, moderated: false}}\n")
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(kafka.broker())
        bus = f"kafka://{broker.servers}"
        make_topic(broker.servers)
        spark = stack.enter_context(running_spark(work, "--kafka", broker.servers, "--topic", TOPIC))
        web = stack.enter_context(running_web(work, indexes))
        up = [gossamer(), "up", "--port", "0", "--bus", bus, "--resolve", "*.test:127.0.0.1", "-o", "records.parquet"]
        settings = {"GOSSAMER_SERVICE__POLICY_FILE": "policies.yaml", "GOSSAMER_FETCH__RETRY_BASE": "0.2"}
        service = stack.enter_context(running("gossamer", work, up, **settings))
        web.wait_for("first http")
        service.wait_for("Ctrl-C stops it safely.")
        chart.state = "waiting for Spark"
        print("Waiting for Spark (half a minute, longer on a busy machine)", flush=True)
        spark.wait_for("Spark is reading.")
        requests = crawls(int((work / "port").read_text()), indexes)
        (work / "requests.jsonl").write_text("".join(json.dumps(one) + "\n" for one in requests))
        subprocess.run([gossamer(), "feed", "requests.jsonl", "--bus", bus], cwd=work, check=True)
        chart.state = "crawling"
        begun = time.monotonic()
        wait_for_crawls(broker.servers, {one["crawlid"] for one in requests}, [spark, web, service])
        print(f"The crawls are finished after {time.monotonic() - begun:.0f} seconds.", flush=True)
        chart.state = "crawled; Spark reads the rest"
        if code := service.end():  # writes the rest of the Parquet file
            raise Failure(f"gossamer ended with exit code {code}; see {service.log}")
        finish_spark(spark)
    return str(work / "records.parquet")
