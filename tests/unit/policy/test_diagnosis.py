"""What a diagnosis says of recorded figures: seven spiders of `gossamer bench`, and what they log."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from gossamer.model.performance import Finding, MeasuredProcess, Measurement, Recording, StageLimits
from gossamer.policy.crawl_figures import steady_part
from gossamer.policy.diagnosis import diagnose
from gossamer.telemetry.recordings import COLUMNS, log_limits, log_row, read_log

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
         "response_seconds": 15.0, "lag": 0.65, "blocked_in": {"shop/pipelines.py:12 process_item": 19}},
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
    Spider(
        "site_limit", {"transferring": 4.0, "sites": 1.0, "site_places": 4.0, "response_seconds": 4.0},
        "CONCURRENT_REQUESTS_PER_DOMAIN", 16, 4.0, {"site_requests": 4},
    ),
    Spider(  # of a downloader that is full of requests, most of which are sent
        "site_limit", {"downloader": 10.0, "pages": 10.0, "transferring": 8.0, "sites": 1.0, "site_places": 8.0},
        "CONCURRENT_REQUESTS_PER_DOMAIN", 10, 1.25, {"requests": 10},
    ),
    Spider(  # of a downloader that is not full, because the scheduler has no more
        "site_limit",
        {"scheduler": 0.0, "scheduler_empty": 1.0, "downloader": 8.0, "pages": 8.0, "downloader_full": 0.0,
         "transferring": 2.0, "sites": 1.0, "site_places": 2.0, "response_seconds": 2.0},
        limits={"site_requests": 2},
    ),
    Spider(  # on the shared frontier
        "site_limit",
        {"downloader": 4.0, "pages": 4.0, "transferring": 4.0, "sites": 1.0, "site_places": 4.0, "capped": 0.9},
        "CONCURRENT_REQUESTS_PER_DOMAIN", 16, 4.0, {"site_requests": 4, "shared": True},
    ),
    Spider(  # by the domain's policy
        "site_limit",
        {"downloader": 2.0, "pages": 2.0, "transferring": 2.0, "sites": 1.0, "site_places": 8.0, "capped": 0.9},
        limits={"shared": True},
    ),
    Spider("rate_limit", {"transferring": 2.0, "sites": 1.0, "site_places": 8.0}, limits={"delay": 0.5}),
    Spider("rate_limit", {"transferring": 2.0, "sites": 1.0, "site_places": 8.0}, limits={"throttled": True}),
    Spider(
        "rate_limit",
        {"downloader": 1.0, "pages": 1.0, "transferring": 1.0, "sites": 1.0, "site_places": 8.0, "resting": 0.9},
        limits={"delay": 0.5, "shared": True},
    ),
    Spider(  # pages wait for a tab, and the machine has CPUs left
        "browser", {"browser": 9.0, "browser_full": 0.95, "rendered": 8, "page_responses": 8}, "tabs", 8, 2.0,
        {"tabs": 4, "shared": True},
    ),
    Spider(  # pages wait for a tab, and browsers use all CPUs
        "browser", {"browser": 9.0, "browser_full": 0.95, "rendered": 8, "page_responses": 8, "idle_cpus": 0.1},
        "machines", 2, 2.0, {"tabs": 4, "shared": True},
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


def test_a_limit_of_items_for_each_page_is_not_advised_where_pages_have_one_item() -> None:
    figures = {"downloader": 10.0, "pages": 10.0, "scraper": 170.0, "pipelines": 160.0, "responses": 96,
               "page_responses": 96, "requested": 96, "items": 100, "response_seconds": 0.5,
               "fastest_item": 0.031}  # fmt: skip
    finding = found(recording(figures))
    assert finding.case == "items_too_many"
    assert not finding.advice.setting
    assert "Lower CONCURRENT_ITEMS" not in finding.advice.text
    assert "pages have one item at most" in finding.figures[1]
    with_many = found(recording({**figures, "responses": 2, "page_responses": 2, "requested": 2}))
    assert with_many.advice.setting == "CONCURRENT_ITEMS"


def test_a_thread_that_waits_for_other_processes_is_not_said_to_use_more_than_it_does() -> None:
    figures = found(recording({"loop_cpu": 0.3, "cpu": 0.3, "starved": 0.68, "idle_cpus": 0.0})).figures
    assert "waiting for a CPU 68% of the time" in figures[0]
    assert "94% of the CPU that they left it, above 80%" in figures[1]


@pytest.mark.parametrize("spider", SPIDERS, ids=lambda spider: spider.case)
def test_the_log_of_a_spider_leads_to_the_same_diagnosis(spider: Spider) -> None:
    one = recording(spider.figures, spider.limits)
    rows = [log_limits(one.process), COLUMNS, *(log_row(each) for each in one.measurements)]
    lines = [f"2030-01-01 00:00:00 [gossamer.scrapy.performance] INFO: Performance: {row}\n" for row in rows]
    (again,), unreadable = read_log(["another line\n", *lines, "Performance: 1 2 torn\n"], seconds=1.0, name="shop")
    assert unreadable == 1
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
    assert job.overhead == pytest.approx(16 / 60 - 0.25, rel=1e-3)
    assert job.seconds == pytest.approx(10.0, rel=1e-3)
    assert job._replace(pages=6000, start_stop=5.0).seconds == pytest.approx(105.0, rel=1e-3)


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
    assert diagnose(recording({"page_responses": 0, "responses": 0})) is None
    assert diagnose(recording({}, seconds=0)) is None
    assert read_log(["nothing\n"], seconds=1.0, name="x") == ([], 0)


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


def test_the_time_for_which_the_loop_comes_late_is_not_the_sites() -> None:
    late = {
        "blocked": 0.5, "lag": 0.4, "requested": 12, "responses": 12, "page_responses": 12, "items": 12,
        "response_seconds": 12 * 1.33, "fastest_response": 0.1, "loop_cpu": 0.05,
    }  # fmt: skip
    finding = found(recording(late))
    assert finding.job.response == pytest.approx(0.13)
    assert finding.job.response + finding.job.overhead == pytest.approx(16 / 12, rel=1e-3)
    assert finding.case == "blocking"
    assert found(recording({**late, "fastest_response": 0.5})).job.response == 0.5


def test_blocking_code_that_costs_nothing_yet_is_named_and_limits_what_is_promised() -> None:
    figures = {"blocked": 0.3, "lag": 0.005, "blocked_in": {"shop/pipelines.py:12 process_item": 3}}
    finding = found(recording(figures))
    assert finding.case == "healthy"
    assert any("30% of the time in shop/pipelines.py:12 process_item" in text for text in finding.figures)
    assert finding.advice.factor == pytest.approx(0.8 / 0.5, rel=0.05)  # 20 % of the CPU, and 30 % blocked


@pytest.mark.parametrize(
    ("figures", "summary"),
    [
        ({"attempts": 60, "failed": 40}, "most requests fail"),
        ({"attempts": 90, "redirected": 60, "page_responses": 0, "responses": 0, "items": 0}, "are redirected"),
        ({"attempts": 60, "failed": 60, "page_responses": 0, "responses": 0, "items": 0}, "most requests fail"),
        ({"attempts": 60, "page_responses": 0, "items": 0}, "no pages came"),
    ],
)
def test_a_crawl_of_errors_and_redirects_is_told_so(figures: dict[str, Any], summary: str) -> None:
    finding = found(recording(figures))
    assert finding.case == "failing"
    assert summary in finding.summary
    assert (finding.advice.setting, finding.advice.factor) == ("", 1)


def test_what_was_measured_while_the_process_was_stopped_is_left_out() -> None:
    one = recording({}, seconds=20)
    late = {"seconds": 31.0, "stopped": 30.0, "page_responses": 60, "responses": 60}
    after = msgspec.structs.replace(one.measurements[10], response_seconds=60 * 30.0)
    measurements = [
        *one.measurements[:9], msgspec.structs.replace(one.measurements[9], **late), after, *one.measurements[11:]
    ]  # fmt: skip
    finding = found(Recording(process=one.process, measurements=measurements, ended=150.0))
    assert finding.rate == 60
    assert finding.job.response == 0.25
    assert any("did not run for 30 s" in note for note in finding.notes)
    assert not found(one).notes


def test_figures_of_a_moment_are_called_rough() -> None:
    finding = found(recording({}, seconds=1))
    assert finding.is_rough
    assert any("only 1.0 s with 60 pages" in note for note in finding.notes)
    assert not found(recording({})).is_rough
    short = found(recording({"seconds": 0.4}, seconds=1))
    assert any("only 0.4 s with 60 pages" in note for note in short.notes)


def test_more_start_requests_are_not_advised_where_no_cpu_is_left_for_them() -> None:
    few_links = {"scheduler": 0.0, "scheduler_empty": 1.0, "downloader": 6.0, "pages": 6.0, "downloader_full": 0.0}
    finding = found(recording({**few_links, "loop_cpu": 0.41, "cpu": 0.41, "idle_cpus": 0.0, "fair_cpu": 0.5}))
    assert finding.case == "scheduler_empty"
    assert "times as many" not in finding.advice.text
    assert "leaves this process no more CPU" in finding.advice.text
    assert (finding.advice.setting, finding.advice.factor) == ("", 1)


@pytest.mark.parametrize(
    ("figures", "limits", "named"),
    [
        ({"transferring": 2.0, "site_places": 8.0}, {"delay": 0.5}, "sets the pace: DOWNLOAD_DELAY = 0.5. Make"),
        ({"transferring": 2.0, "site_places": 8.0}, {"throttled": True}, "sets the pace: AutoThrottle. Make"),
        (
            {"downloader": 1.0, "transferring": 1.0, "site_places": 8.0, "resting": 0.9},
            {"delay": 0.5, "shared": True},
            "Raise it (DOWNLOAD_DELAY = 0.5, the domain's policy)",
        ),
        (
            {"downloader": 2.0, "transferring": 2.0, "site_places": 8.0, "capped": 0.9},
            {"shared": True},
            "About 2 requests of a site are in flight at once, by the domain's policy",
        ),
        ({"sites": 1.0, "site_places": 16.0}, {}, "to 64 and CONCURRENT_REQUESTS_PER_DOMAIN to 64 as well, until"),
        ({"sites": 16.0, "site_places": 128.0}, {}, "raise CONCURRENT_REQUESTS from 16 to 64, until"),
    ],
)
def test_the_limit_of_a_site_is_named_and_no_other(figures: dict[str, Any], limits: dict[str, Any], named: str) -> None:
    text = found(recording({"sites": 1.0, **figures}, limits)).advice.text
    assert named in text
    assert ("CONCURRENT_REQUESTS_PER_DOMAIN" in text) == ("CONCURRENT_REQUESTS_PER_DOMAIN" in named)


WORKER = {**HEALTHY, "scheduler": 0.0, "sites": 1.0}


@pytest.mark.parametrize(
    ("figures", "limits", "case", "named", "factor"),
    [
        ({}, {"requests": 16}, "healthy", "raise --concurrency from 16 to 64, until", 4.0),
        (
            {"site_places": 16.0}, {"requests": 16, "site_requests": 16}, "healthy",
            "raise --concurrency from 16 to 64 and --domain-concurrency to 64 as well", 4.0,
        ),
        (
            {"site_places": 16.0, "capped": 0.9}, {"requests": 64, "site_requests": 16}, "site_limit",
            "raise --domain-concurrency from 16 to 64", 4.0,
        ),
        (  # above 70 % of the downloader
            {"site_places": 16.0, "capped": 0.9}, {"requests": 20, "site_requests": 16}, "site_limit",
            "raise --domain-concurrency from 16 to 20", 1.25,
        ),
        (  # a rate of 80 requests a second
            {"site_places": 16.0, "capped": 0.9}, {"requests": 64, "site_requests": 16, "delay": 1 / 80},
            "site_limit", "raise --domain-concurrency from 16 to 21", 1.31,
        ),
        ({"capped": 0.9}, {"requests": 64}, "site_limit", "by the domain's policy (concurrency)", 1.0),
        (
            {"site_places": 64.0, "capped": 0.9}, {"requests": 64, "site_requests": 64}, "site_limit",
            "About 16 requests of a site are in flight at once, by the domain's policy", 1.0,
        ),
        ({"resting": 0.9}, {"requests": 64, "delay": 0.01}, "rate_limit", "--rate, the site's Crawl-delay", 1.0),
        ({"resting": 0.9}, {"requests": 20, "delay": 0.01}, "rate_limit", "--rate, the site's Crawl-delay", 1.0),
        (
            {"held_bytes": 5.1e6, "bytes_full": 0.95}, {"requests": 64, "bytes": 5_000_000}, "large_responses",
            "Raise fetch.bodies_in_flight from 5000000", 4.0,
        ),
    ],
)  # fmt: skip
def test_each_limit_of_a_worker_is_named(
    figures: dict[str, Any], limits: dict[str, Any], case: str, named: str, factor: float
) -> None:
    process = MeasuredProcess(name="crawl", kind="worker", limits=StageLimits(shared=True, **limits))
    finding = found(Recording(process=process, measurements=[Measurement(**{**WORKER, **figures})] * 9))
    assert finding.case == case
    assert named in finding.advice.text
    assert finding.advice.factor == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize("kind", ["worker", "scrapy"])
def test_a_crawl_that_waits_for_its_sites_is_told_so(kind: str) -> None:
    process = MeasuredProcess(name="crawl", kind=kind, limits=StageLimits(requests=64))
    waits = {**HEALTHY, "downloader": 4.0, "pages": 4.0, "transferring": 4.0, "resting": 0.9}
    finding = found(Recording(process=process, measurements=[Measurement(**waits)] * 9))
    assert (finding.case, finding.summary) == ("rate_limit", "the rate limits of the sites set the pace")
    starved = {**waits, "resting": 0.0, "scheduler": 0.0}
    finding = found(Recording(process=process, measurements=[Measurement(**starved)] * 9))
    assert finding.summary == "the supply of URLs sets the pace"


@pytest.mark.parametrize("kind", ["worker", "scrapy"])
def test_a_process_whose_output_is_away_is_told_so_and_not_as_it_was_before(kind: str) -> None:
    process = MeasuredProcess(name="crawl", kind=kind, limits=StageLimits(requests=64))
    before = [Measurement(**HEALTHY)] * 9
    held = [Measurement(pipelines=18.0, resting=1.0)] * 12
    finding = found(Recording(process=process, measurements=[*before, *held]))
    assert (finding.case, finding.bottleneck, finding.rate) == ("pipelines_stuck", "pipelines", 0)
    assert "for 12 s, none has left them" in finding.figures[0]
    for others in (held[:8], [Measurement(pipelines=18.0, blocked=0.95)] * 12, [Measurement()] * 12):
        assert found(Recording(process=process, measurements=[*before, *others])).case != "pipelines_stuck"
    assert found(Recording(process=process, measurements=[*before, *held], ended=150.0)).case != "pipelines_stuck"
    assert found(Recording(process=process, measurements=[*before, *held, *before])).case != "pipelines_stuck"


# --- logs -------------------------------------------------------------------------------------------------------------


def log_lines(name: str, pid: int, rates: range, *, started: float = 0.0) -> list[str]:
    """Lines of a run, with the limits again before each third row, and a rate for each row."""
    process = MeasuredProcess(
        name=name, kind="scrapy", pid=pid, started=started, limits=StageLimits(requests=pid, items=100)
    )
    lines = []
    for at, rate in enumerate(rates):
        if at % 3 == 0:
            lines += [log_limits(process), COLUMNS]
        given = {**HEALTHY, "page_responses": rate * 5, "responses": rate * 5, "items": rate * 5}
        lines.append(log_row(Measurement(at=1e9 + 5 * at, seconds=5.0, **given), pid))
    return [f"INFO: Performance: {line}\n" for line in lines]


def rates_of(one: Recording) -> list[int]:
    return [round(each.items / each.seconds) for each in one.measurements]


def test_runs_of_a_log_are_told_apart_even_where_their_lines_mix() -> None:
    first, second = log_lines("one", 11, range(1, 8)), log_lines("two", 12, range(21, 28))
    one, two = read_log([*first, *second], seconds=1.0, name="x").runs
    assert (one.process.name, rates_of(one)) == ("one", list(range(1, 8)))
    assert (two.process.name, two.process.limits.requests, rates_of(two)) == ("two", 12, list(range(21, 28)))
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    assert [rates_of(each) for each in read_log(mixed, seconds=1.0, name="x").runs] == [rates_of(one), rates_of(two)]
    again = log_lines("one", 11, range(31, 33), started=50.0)  # the system gave the id again
    assert [rates_of(each) for each in read_log([*first, *again], seconds=1.0, name="x").runs] == [
        list(range(1, 8)), [31, 32]
    ]  # fmt: skip


def test_a_log_that_was_cut_keeps_its_rows_its_times_and_later_its_limits() -> None:
    lines = log_lines("shop", 16, range(1, 8))
    (rows,) = read_log(lines[2:5], seconds=1.0, name="x").runs  # without headings and limits
    assert rates_of(rows) == [1, 2, 3]
    assert [each.seconds for each in rows.measurements] == [5.0] * 3
    assert rows.process.limits.requests == 0
    assert any("limits of the process are not in this part" in note for note in found(rows).notes)
    torn = [lines[2][:90], *lines[3:9], lines[9][: len(lines[9]) // 2]]
    (cut,), unreadable = read_log(torn, seconds=1.0, name="x")
    assert (cut.process.name, cut.process.limits.requests) == ("shop", 16)
    assert rates_of(cut) == [2, 3, 4, 5]
    assert unreadable == 2


def test_a_log_without_times_has_the_interval_that_is_given() -> None:
    headings = "scheduler downloader scraper pipelines done bytes | items/s pages/s latency in_pipe cpu blocked lag"
    row = "300 16.0 1.0 1.0 40 2000 | 8.0 8.0 0.3 0.1 10% 0% 0.01"
    lines = ["limits requests=16 site_requests=8 items=100 bytes=5000000 delay=0 cpus=2", headings, *[row] * 6]
    one, other = read_log([f"Performance: {line}" for line in [*lines, *lines[:4]]], seconds=2.0, name="old").runs
    assert (len(one.measurements), other.process.name) == (6, "old")
    assert [each.at for each in other.measurements] == [2.0, 4.0]
