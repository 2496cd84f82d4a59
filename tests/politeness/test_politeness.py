"""A short run of it: three workers, one killed and one frozen, and policies that change every second."""

from tests.politeness.plan import Kind, make_plan
from tests.politeness.run import HEARTBEAT_SECONDS, run
from tests.politeness.verdict import faults, judge, table

REQUESTS = 1200
FORGIVEN_AT_MOST = 0.02
"""Of so few requests, on a machine that may have much else to do."""


async def test_a_short_run() -> None:
    plan = make_plan(
        7,
        requests=REQUESTS,
        workers=3,
        domains=40,
        pages_a_second=120.0,
        dead_after_seconds=HEARTBEAT_SECONDS,
        turn_seconds=1.0,
        blow_seconds=4.0,
        longest_window=2.0,
    )
    assert {blow.kind for blow in plan.blows} == set(Kind)
    said: list[str] = []
    evidence = await run(plan, requests=REQUESTS, say=said.append, every_seconds=5.0)
    # A test's machine may have much else to do.
    judged = judge(evidence, forgive_stalls=True)
    # How much was used is a matter of the machine; `python -m tests.politeness` asks for it.
    found = faults(evidence, judged, used_at_least=0.0, forgiven_at_most=FORGIVEN_AT_MOST)
    assert found == [], "\n".join([*said, table(judged)])
    assert sum(one.requests for one in judged) > REQUESTS / 2
    assert any(change.asked > 0 for line in evidence.timelines.values() for change in line)
