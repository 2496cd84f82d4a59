"""What is read from a web's log: who asked, and when the log itself was kept waiting."""

from gossamer.fakeweb import How, Record
from tests.politeness.verdict import hits_by_domain, silences


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
