"""What is read from a web's log: who asked, and when the log itself was kept waiting."""

from gossamer.fakeweb import How, Record
from gossamer.model.crawl import DomainPolicy
from tests.politeness.checker import Change
from tests.politeness.plan import Plan, Site, Style
from tests.politeness.rules import rule_of
from tests.politeness.verdict import Evidence, faults, hits_by_domain, judge, silences


def record(started: float, *, path: str = "/p/2", agent: str = "w0/e1") -> Record:
    return Record(
        url=f"http://site0.test{path}", host="site0.test", path=path, method="GET", status=200, how=How.WHOLE,
        started=started, ended=started + 0.05, wall=started, agent=agent, connection=1,
    )  # fmt: skip


def test_spider_and_egress_are_read_from_page_and_agent() -> None:
    (even, odd) = hits_by_domain([record(1.0), record(1.01, path="/p/3"), record(1.02, path="/robots.txt")])[
        "site0.test"
    ]
    assert (even.spider, even.egress, even.early) == ("link", "e1", 0.0)
    assert odd.spider == "wandering"


def test_what_is_noted_right_after_a_silence_may_have_come_in_it() -> None:
    log = [record(0.0), record(0.05), record(1.05), record(1.1), record(1.19), record(1.25)]
    assert silences(log) == [(0.05, 1.05)]
    assert [round(hit.early, 2) for hit in hits_by_domain(log)["site0.test"]] == [0, 0, 1.0, 1.05, 0, 0]


def test_what_waited_before_it_was_noted_came_when_it_arrived() -> None:
    """A recorded network tells it exactly, for any wait: silences of the log are not asked then."""
    log = [record(0.0), record(0.06, path="/p/4"), record(1.06, path="/p/6"), record(1.08, path="/p/8")]
    arrivals = {("site0.test", "/p/2"): [0.0], ("site0.test", "/p/4"): [0.01, 5.0], ("site0.test", "/p/6"): [1.05]}
    hits = hits_by_domain(log, arrivals)["site0.test"]
    assert [round(hit.early, 2) for hit in hits] == [0.0, 0.05, 0.01, 0.0]


def test_a_worker_that_stood_still_says_by_how_much_its_request_was_late() -> None:
    late = {"http://site0.test/p/4": 0.5}
    hits = hits_by_domain([record(0.0), record(0.5, path="/p/4")], {}, late)["site0.test"]
    assert [hit.early for hit in hits] == [0.0, 0.5]


def test_what_is_forgiven_is_counted_and_bounded() -> None:
    """Ten requests of one domain, noted in one moment after the web was silent: excused, but not without limit."""
    site = Site("site0.test", Style.BURSTS, DomainPolicy(hits=2, window_seconds=1.0, concurrency=64), 2.0)
    rule = rule_of(site.policy, DomainPolicy())
    plan = Plan(1, 1, ("e1",), 20.0, (site,), DomainPolicy(), (), ())
    quiet = [record(float(second), path=f"/p/{2 * second}") for second in range(10)]
    burst = [record(20.0 + n / 100, path=f"/p/{100 + 2 * n}") for n in range(10)]
    evidence = Evidence(plan, [*quiet, *burst], {site.name: [Change(rule)]}, (0.0, 20.0), {}, {}, 0.0, ())
    judged = judge(evidence)
    assert (judged[0].checked.faults, judged[0].forgiven) == ([], 8)
    assert any("8 of 20 requests had to be forgiven" in fault for fault in faults(evidence, judged, used_at_least=0.0))
    assert faults(evidence, judged, used_at_least=0.0, forgiven_at_most=0.5) == []
