"""What a diagnosis says of recorded figures: seven spiders of `gossamer bench spider`, and what they log."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from gossamer.model.performance import MeasuredProcess, Measurement, Recording, StageLimits
from gossamer.policy.diagnosis import Finding, diagnose, steady_part
from gossamer.policy.performance_log import COLUMNS, log_limits, log_row, read_log

# A healthy crawl: 16 requests at once, each of 0.25 s, so about 60 pages and items a second.
HEALTHY: dict[str, Any] = {
    "scheduler": 200.0, "downloader": 16.0, "pages": 16.0, "transferring": 16.0, "scraper": 1.0, "held_bytes": 2000.0,
    "downloader_full": 1.0, "requested": 60, "responses": 60, "page_responses": 60, "response_seconds": 15.0,
    "response_bytes": 120_000, "items": 60, "cpu": 0.2, "loop_cpu": 0.2, "idle_cpus": 1.0, "fastest_response": 0.25,
    "fastest_item": 0.01,
}  # fmt: skip


@dataclass
class Spider:
    """Figures of a spider in a second, and what follows from them."""

    case: str
    figures: dict[str, Any]
    setting: str = ""
    after: float = 0
    factor: float = 1.0
    limits: dict[str, Any] = field(default_factory=dict)


SPIDERS = [
    Spider("healthy", {}, "CONCURRENT_REQUESTS", 64, 4.0),
    Spider("cpu", {"loop_cpu": 0.97, "cpu": 1.0, "idle_cpus": 0.95}, "processes", 2, 2.0),
    Spider("cpu", {"loop_cpu": 0.3, "cpu": 0.3, "starved": 0.68, "idle_cpus": 0.0}, "machines", 2, 2.0),
    Spider(
        "blocking",
        {"blocked": 0.95, "loop_cpu": 0.05, "requested": 10, "responses": 10, "page_responses": 10, "items": 10,
         "response_seconds": 15.0, "blocked_in": {"shop/pipelines.py:12 process_item": 19}},
        "threads", 10, 6.4,
    ),
    Spider(
        "other_requests",
        {"pages": 4.0, "responses": 30, "page_responses": 15, "requested": 15, "items": 15, "response_seconds": 16.0},
        "CONCURRENT_REQUESTS", 64, 4.0,
    ),
    Spider(
        "large_responses",
        {"held_bytes": 5.1e6, "bytes_full": 0.95, "downloader": 4.0, "pages": 4.0, "scraper": 25.0, "pipelines": 25.0,
         "responses": 16, "page_responses": 16, "requested": 16, "items": 16, "response_seconds": 4.0,
         "response_bytes": 3_200_000, "fastest_item": 1.5},
        "SCRAPER_SLOT_MAX_ACTIVE_SIZE", 30_000_000, 4.0,
    ),
    Spider(
        "items_too_few",
        {"held_bytes": 5.0e6, "bytes_full": 0.9, "downloader": 2.0, "pages": 2.0, "scraper": 50.0, "pipelines": 395.0,
         "responses": 8, "page_responses": 8, "requested": 8, "items": 400, "response_seconds": 2.0,
         "response_bytes": 800_000, "fastest_item": 1.0, "loop_cpu": 0.05},
        "CONCURRENT_ITEMS", 50, 6.3, {"items": 8},
    ),
    Spider(
        "items_too_many",
        {"held_bytes": 5.0e6, "bytes_full": 0.9, "downloader": 2.0, "pages": 2.0, "scraper": 50.0, "pipelines": 1000.0,
         "responses": 2, "page_responses": 2, "requested": 2, "items": 80, "response_seconds": 0.5,
         "fastest_item": 0.05},
        "CONCURRENT_ITEMS", 1, 1.0,
    ),
    Spider(
        "scheduler_empty",
        {"scheduler": 0.0, "scheduler_empty": 1.0, "downloader": 2.0, "pages": 2.0, "downloader_full": 0.0,
         "responses": 8, "page_responses": 8, "requested": 8, "items": 8, "response_seconds": 2.0, "loop_cpu": 0.05},
        "start requests (times)", 8, 8.0,
    ),
    Spider("rate_limit", {"transferring": 2.0}),
    Spider("rate_limit", {"downloader": 3.0, "pages": 3.0, "transferring": 3.0}),
]  # fmt: skip


def recording(figures: dict[str, Any], limits: dict[str, Any] | None = None, *, seconds: int = 10) -> Recording:
    """A crawl with these figures in each second."""
    own = StageLimits(**{"requests": 16, "site_requests": 8, "items": 100, "bytes": 5_000_000, **(limits or {})})
    process = MeasuredProcess(name="shop", kind="scrapy", started=100.0, limits=own, cpus=2)
    each = {**HEALTHY, **figures}
    done = [
        Measurement(at=101.0 + second, items_in_all=(second + 1) * each["items"], **each) for second in range(seconds)
    ]
    return Recording(process=process, measurements=done, ended=100.0 + seconds)


def found(one: Recording) -> Finding:
    finding = diagnose(one)
    assert finding is not None
    return finding


@pytest.mark.parametrize("spider", SPIDERS, ids=lambda spider: spider.case)
def test_each_case_is_named_with_what_to_change_and_what_that_gives(spider: Spider) -> None:
    finding = found(recording(spider.figures, spider.limits))
    assert finding.case == spider.case
    assert (finding.advice.setting, finding.advice.after) == (spider.setting, spider.after)
    assert finding.advice.factor == pytest.approx(spider.factor, rel=0.07)
    assert finding.predicted == pytest.approx(finding.rate * finding.advice.factor)


def test_a_thread_that_waits_for_other_processes_is_not_said_to_use_more_than_it_does() -> None:
    figures = found(recording({"loop_cpu": 0.3, "cpu": 0.3, "starved": 0.68, "idle_cpus": 0.0})).figures
    assert "waiting for a CPU 68% of the time" in figures[0]
    assert "94% of the CPU that they left it, above 80%" in figures[1]


@pytest.mark.parametrize("spider", SPIDERS, ids=lambda spider: spider.case)
def test_the_log_of_a_spider_leads_to_the_same_diagnosis(spider: Spider) -> None:
    one = recording(spider.figures, spider.limits)
    rows = [log_limits(one.process), COLUMNS, *(log_row(each) for each in one.measurements)]
    lines = [f"2030-01-01 00:00:00 [gossamer.scrapy.performance] INFO: Performance: {row}\n" for row in rows]
    again = read_log(["another line\n", *lines, "Performance: torn 1 2\n"], seconds=1.0, name="shop")
    assert again is not None
    if spider.case != "rate_limit":  # a log does not say which requests wait for their site
        assert found(again).case == spider.case
        assert found(again).advice.setting == spider.setting
    assert found(again).rate == pytest.approx(found(one).rate, rel=0.02)


def test_more_concurrency_is_not_advised_where_links_are_found_as_slowly_as_they_are_used() -> None:
    assert found(recording({"scheduler": 20.0})).advice.setting == ""
    assert found(recording({"scheduler": 500.0})).advice.setting == "CONCURRENT_REQUESTS"
    one = recording({})
    shrinking = [msgspec.structs.replace(each, scheduler=540.0 - 60 * at) for at, each in enumerate(one.measurements)]
    finding = found(Recording(process=one.process, measurements=shrinking[5:], ended=110.0))
    assert finding.advice.setting == "CONCURRENT_REQUESTS"
    growing = [msgspec.structs.replace(each, scheduler=120.0 * at) for at, each in enumerate(one.measurements)][:2]
    finding = found(Recording(process=one.process, measurements=growing, ended=110.0))
    assert finding.advice.factor == pytest.approx(3.0, rel=0.05)


def test_littles_law_holds_in_each_stage() -> None:
    stages = {stage.name: stage for stage in found(recording({"pipelines": 6.0})).stages}
    assert stages["downloader"].seconds == pytest.approx(16 / 60)
    assert stages["pipelines"].seconds == pytest.approx(0.1)


def test_the_time_of_a_job_is_that_of_the_formula() -> None:
    job = found(recording({})).job
    assert (job.pages, job.response, job.concurrency) == (600, 0.25, 16)
    assert job.overhead == pytest.approx(16 / 60 - 0.25)
    assert job.seconds == pytest.approx(10.0)
    assert job._replace(pages=6000, start_stop=5.0).seconds == pytest.approx(105.0)


def test_start_and_end_of_a_crawl_are_left_out() -> None:
    idle = {"page_responses": 0, "responses": 0, "items": 0}
    one = recording({})
    quiet = recording(idle, seconds=5).measurements
    whole = Recording(process=one.process, measurements=[*quiet, *one.measurements, *quiet], ended=200.0)
    assert len(steady_part(whole)) == 8
    slow = recording({"page_responses": 20}, seconds=6).measurements
    whole = Recording(process=one.process, measurements=[*slow[:3], *one.measurements, *slow[3:]], ended=200.0)
    assert found(whole).rate == pytest.approx(60)


def test_of_a_crawl_that_runs_the_latest_minute_counts() -> None:
    one = recording({}, seconds=200)
    running = Recording(process=one.process, measurements=one.measurements)
    assert len(steady_part(running)) == 60


def test_without_responses_there_is_no_diagnosis() -> None:
    assert diagnose(recording({"page_responses": 0})) is None
    assert diagnose(recording({}, seconds=0)) is None
    assert read_log(["nothing\n"], seconds=1.0, name="x") is None


def test_two_intervals_make_one() -> None:
    one = Measurement(at=1.0, seconds=1.0, downloader=2.0, items=3, fastest_item=0.2, busy_in={"a": 1, "b": 1})
    other = Measurement(at=4.0, seconds=3.0, downloader=6.0, items=5, fastest_item=0.0, busy_in={"a": 2})
    both = one.plus(other)
    assert (both.at, both.seconds, both.downloader, both.items, both.fastest_item) == (4.0, 4.0, 5.0, 8, 0.2)
    assert both.busy_in == {"a": 3, "b": 1}


def test_a_worker_has_no_scheduler_that_could_be_empty() -> None:
    process = MeasuredProcess(name="crawl", kind="worker", limits=StageLimits(requests=64))
    figures = {**HEALTHY, "scheduler": 0.0, "scheduler_empty": 1.0, "downloader": 4.0, "items": 0}
    finding = found(Recording(process=process, measurements=[Measurement(**figures)] * 3))
    assert (finding.case, finding.unit) == ("rate_limit", "pages")
    assert [stage.name for stage in finding.stages] == ["downloader", "pipelines"]
