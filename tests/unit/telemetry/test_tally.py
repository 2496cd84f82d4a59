"""Counters of a process: bounded, whatever a crawl meets, and added up."""

from gossamer.telemetry.tally import HostCount, Tally, WorkerCounts


def test_the_worst_hosts_of_very_many_are_kept() -> None:
    counts = WorkerCounts(Tally())
    for number in range(20_000):
        name = f"h{number}.test"
        counts.count_response(name, 200, 0.01)
        if number % 50 == 0:
            counts.fail("broken.test", "dns", "http://broken.test/")
            counts.count_response("slow.test", 200, 5.0)
    counts.show()
    assert len(counts._hosts) <= 512
    assert len(counts.tally.hosts) <= 20
    assert counts.tally.hosts["broken.test"].failed == 400
    assert counts.tally.hosts["slow.test"].mean_seconds == 5.0
    assert counts.tally.responses == {200: 20_400}


def test_two_processes_are_added_up() -> None:
    one, other = Tally(pages=1), Tally(pages=2)
    one.responses, other.responses = {200: 1, 404: 1}, {200: 2}
    one.hosts, other.hosts = {"a.test": HostCount(2, 1.0, 1)}, {"a.test": HostCount(2, 3.0, 0), "b.test": HostCount(1)}
    one.fail("http_404", "http://a.test/1")
    other.fail("http_404", "http://a.test/2")
    one.fetching = {"http://a.test/3": 1.0}
    both = one.plus(other)
    assert both.responses == {200: 3, 404: 1}
    assert both.hosts["a.test"] == HostCount(4, 4.0, 1)
    assert both.hosts["a.test"].mean_seconds == 1.0
    assert both.examples == {"http_404": "http://a.test/1"}
    assert both.fetching == {"http://a.test/3": 1.0}
    assert both.without_current().fetching == {}
