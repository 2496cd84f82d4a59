"""Facts of a worker that has nothing to do."""

from gossamer.control.process_facts import OwnFacts
from gossamer.model.performance import MeasuredProcess, Measurement, Recording


def test_a_worker_without_a_request_says_that_none_waits_and_not_what_limited_it_before() -> None:
    process = MeasuredProcess(name="shared", kind="worker")
    slow = [Measurement(seconds=2, resting=1.0, attempts=2, page_responses=2, response_seconds=0.1)] * 20
    facts = OwnFacts(name="w")
    before = facts.of_worker(Recording(process=process, measurements=slow))["finding"]
    assert before == "the rate limits of the sites set the pace"
    idle = [*slow, Measurement(seconds=2, cpu=0.1)]
    assert facts.of_worker(Recording(process=process, measurements=idle))["finding"] == "no request waits"
    again = facts.of_worker(Recording(process=process, measurements=[*idle, slow[0]]))
    assert again["finding"] == before
