"""`--processes auto`: one process for each CPU where a crawl can use them, else a single one."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.errors import BadInput
from gossamer.settings import Settings, load
from gossamer.wiring import processes
from gossamer.wiring.plan import make_plan
from gossamer.wiring.processes import usable_cpus, with_process_count
from gossamer.wiring.worker import content_limits


def _settings(count: Any = "auto", **values: Any) -> Settings:
    return load({"worker.processes": count, **{name.replace("__", "."): value for name, value in values.items()}})


def _count(*seeds: str, **values: Any) -> int:
    """Return the number of processes of a crawl on a machine with 8 CPUs."""
    settings = _settings(**values)
    plan = make_plan(settings, seeds or ("https://a.test/",), crawl_id="one", now=1e9)
    return with_process_count(settings, plan).worker.processes


@pytest.fixture(autouse=True)
def _eight_cpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # no settings file
    if "cpus" not in request.node.name:
        monkeypatch.setattr(processes, "usable_cpus", lambda: 8)


def test_a_number_stays() -> None:
    settings = _settings(3)
    assert with_process_count(settings) is settings


def test_a_service_gets_one_for_each_cpu() -> None:
    assert with_process_count(_settings()).worker.processes == 8


def test_a_fast_crawl_gets_one_for_each_cpu() -> None:
    assert _count(crawl__rate="101/1") == 8
    assert _count(crawl__rate="10000/1", crawl__max_pages=2_001) == 8


def test_a_slow_crawl_gets_a_single_one() -> None:
    """At its rate, the domains give at most 100 pages a second."""
    assert _count() == 1
    assert _count(crawl__rate="100/1") == 1
    assert _count("https://a.test/", "https://b.test/", crawl__rate="100/2") == 1


def test_several_domains_make_a_crawl_fast() -> None:
    assert _count("https://a.test/", "https://b.test/", crawl__rate="60/1") == 8
    assert _count(crawl__rate="60/1", crawl__allow_domain=("b.test",)) == 8
    assert _count("https://www.a.test/", "https://a.test/", crawl__rate="60/1") == 1, "one domain"


def test_a_crawl_of_any_domain_gets_one_for_each_cpu() -> None:
    assert _count(crawl__scope="any") == 8


def test_a_short_crawl_gets_a_single_one() -> None:
    assert _count(crawl__rate="10000/1", crawl__max_pages=2_000) == 1


@pytest.mark.parametrize("count", ["many", "257", "-1", "0", 0])
def test_other_words_are_refused(count: Any) -> None:
    with pytest.raises(BadInput, match="Write auto or an integer from 1 to 256"):
        _settings(count)


def test_cpus_are_those_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not more than the container's share of time, and at least one."""
    monkeypatch.setattr(processes, "_CGROUPS", tmp_path)
    limit = tmp_path / "cpu.max"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert usable_cpus() == 6
    for text, cpus in (("max 100000\n", 6), ("250000 100000\n", 2), ("50000 100000\n", 1), ("900000 100000\n", 6)):
        limit.write_text(text)
        assert usable_cpus() == cpus


CHART = yaml.safe_load((Path(__file__).parents[3] / "deploy/helm/values.yaml").read_text())


@pytest.mark.parametrize("part", ["worker", "browser"])
@pytest.mark.parametrize("place", ["memory.max", "memory/memory.limit_in_bytes", "system.slice/a.service/memory.max"])
def test_processes_of_text_fit_into_the_memory_of_their_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str, place: str
) -> None:
    """The numbers are those of the documentation: a worker takes 250 MiB, a process 70 MB, and a browser 1 GiB."""
    limit = int(CHART[part]["resources"]["limits"]["memory"].removesuffix("Gi")) * 2**30
    monkeypatch.setattr(processes, "_CGROUPS", tmp_path)
    monkeypatch.setattr(processes, "_OWN_CGROUP", own := tmp_path / "own")
    own.write_text("1:name=systemd:/other\n0::/system.slice/a.service\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    for text, count in (("max", 16), (str(2**63 - 4096), 16), (str(limit), limit // 2**29), (str(2**28), 1)):
        (tmp_path / place).write_text(f"{text}\n")
        assert content_limits(_settings()).processes == count
    browser = 2**30 if part == "browser" else 0
    assert 250 * 2**20 + browser + (limit // 2**29) * 70 * 10**6 <= limit
