"""Metrics: what is documented is what is shown."""

import os
import socket
import urllib.request
from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer.model.performance import MeasuredProcess, Measurement
from gossamer.telemetry.metrics import (
    ALL_METRICS,
    BROWSER_WORKERS,
    LAG,
    LEASED,
    QUEUED_TO_RENDER,
    WORKERS,
    Metrics,
    ServiceMetrics,
)
from gossamer.telemetry.recordings import RecordingFile
from gossamer.telemetry.tally import Tally


@pytest.fixture
def metrics(tmp_path: Path) -> ServiceMetrics:
    """All that a process can show; one crawling process keeps its recording in the folder."""
    process = MeasuredProcess(name="shop", kind="scrapy", host=os.uname().nodename, pid=os.getpid(), started=1.0)
    file = RecordingFile(tmp_path, process)
    file.append(Measurement(at=2.0, seconds=2.0, downloader=4, pipelines=3, responses=8, items=6, items_in_all=90))
    metrics = ServiceMetrics()
    metrics.add_performance(tmp_path)
    metrics.add_tally(
        lambda: Tally(pages=3, failed={"dns": 2}, dropped={"robots": 1}, retried={"http_503": 4}, bytes=10)
    )
    metrics.add_tally(lambda: Tally(pages=1, reclaimed=6, trimmed={"demo.crawled_firehose": 7}, troubles=["frontier"]))
    metrics.add_lost_shards(lambda: 5)
    return metrics


def test_every_documented_metric_is_there_and_no_other(metrics: ServiceMetrics) -> None:
    shown = {
        line.split()[2].removesuffix("_total")
        for line in metrics.render().decode().splitlines()
        if line.startswith("# TYPE") and not line.split()[2].endswith("_created")
    }
    assert shown == {name.name.removesuffix("_total") for name in ALL_METRICS}


def test_what_others_hold_is_asked_for_when_somebody_looks(metrics: ServiceMetrics) -> None:
    text = metrics.render().decode()
    for line in (
        "gossamer_pages_total 4.0",
        'gossamer_failed_total{reason="dns"} 2.0',
        'gossamer_retries_total{reason="http_503"} 4.0',
        "gossamer_reclaimed_total 6.0",
        'gossamer_trouble{name="frontier"} 1.0',
        "gossamer_lost_shards_total 5.0",
        'gossamer_trimmed_total{topic="demo.crawled_firehose"} 7.0',
        'gossamer_crawl_stage{name="shop",stage="downloader"} 4.0',
        'gossamer_crawl_items_total{name="shop"} 90.0',
        'gossamer_crawl_latency_seconds{name="shop"} 1.0',
        'gossamer_crawl_pipeline_seconds{name="shop"} 1.0',
    ):
        assert line in text


def test_a_worker_shows_its_own_where_it_is_told(metrics: ServiceMetrics) -> None:
    with (
        metrics.serve("127.0.0.1:0", option="--metrics") as address,
        urllib.request.urlopen(f"http://{address}/metrics") as answer,
    ):
        assert b"gossamer_pages_total 4.0" in answer.read()


def test_a_worker_shows_nothing_that_only_services_set() -> None:
    """`gossamer_workers 0` would be an alert, and be true of each worker."""
    metrics = Metrics()
    metrics.add_tally(Tally)
    shown = metrics.render().decode()
    assert "gossamer_pages_total 0.0" in shown
    assert not [info.name for info in (WORKERS, LEASED, QUEUED_TO_RENDER, BROWSER_WORKERS, LAG) if info.name in shown]


@pytest.mark.parametrize("address", ["9090", "127.0.0.1:x", "127.0.0.1:70000", "256.0.0.1:0"])
def test_a_place_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(BadInput), Metrics().serve(address, option="--metrics"):
        pass


def test_a_place_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadInput), Metrics().serve(f"127.0.0.1:{taken.getsockname()[1]}", option="--metrics"):
            pass
