"""A seed is a run: the same everywhere, and each one hard enough."""

from collections.abc import Sequence

import pytest

from tests.chaos.schedule import (
    BROWSERS,
    LINKS,
    MAX_SKEW_SECONDS,
    PROXY,
    WORKERS,
    Fault,
    Kind,
    Lane,
    make_browser_plan,
    make_plan,
)

STORE = frozenset({Kind.KILL_STORE, Kind.FREEZE_STORE, Kind.SET_STORE_CLOCK})
HEARTBEAT = 2.0
PLANS = [make_plan(seed, store_kinds=STORE, dead_after_seconds=HEARTBEAT) for seed in range(1, 201)]


def kinds_of(faults: Sequence[Fault]) -> set[Kind]:
    return {fault.kind for fault in faults}


def test_the_same_seed_is_the_same_plan() -> None:
    assert [make_plan(seed, store_kinds=sorted(STORE), dead_after_seconds=HEARTBEAT) for seed in range(1, 201)] == PLANS
    assert len(set(PLANS)) == len(PLANS)


@pytest.mark.parametrize("plan", PLANS[:50], ids=lambda plan: str(plan.seed))
def test_a_plan_has_enough(plan) -> None:  # type: ignore[no-untyped-def]
    assert len(plan.faults) >= 6
    assert len(kinds_of(plan.faults)) >= 3
    assert Kind.KILL_WORKER in kinds_of(plan.faults)
    assert STORE & kinds_of(plan.faults)
    assert set(LINKS) & kinds_of(plan.faults)
    assert (Kind.KILL_SERVICE in kinds_of(plan.faults)) == (plan.lane is Lane.SERVICE)
    times = [fault.at for fault in plan.faults]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < 0.9


def test_every_kind_comes_up() -> None:
    assert set().union(*(kinds_of(plan.faults) for plan in PLANS)) == {*WORKERS, *LINKS, *STORE, Kind.KILL_SERVICE}
    assert {plan.form for plan in PLANS} == {".jsonl", ".jsonl.gz", ".jsonl.zst"}
    assert {(plan.one_file, plan.moderated, plan.fsync) for plan in PLANS} == {
        (one_file, moderated, fsync)
        for one_file in (True, False)
        for moderated in (True, False)
        for fsync in ("always", "everysec")
    }


def test_what_is_to_outlast_the_heartbeat_does() -> None:
    faults = [fault for plan in PLANS for fault in plan.faults]
    for fault in faults:
        if fault.kind in (Kind.FREEZE_WORKER, Kind.PART_LINK):
            assert fault.seconds > HEARTBEAT
        if fault.kind is Kind.SKEW_CLOCK:
            assert -MAX_SKEW_SECONDS <= fault.seconds <= MAX_SKEW_SECONDS
    assert any(fault.seconds > HEARTBEAT for fault in faults if fault.kind is Kind.KILL_STORE)


def test_a_cluster_has_its_own_faults_and_the_links() -> None:
    cluster = frozenset({Kind.KILL_PRIMARY, Kind.FREEZE_PRIMARY, Kind.MOVE_SLOT, Kind.RESTART_NODE})
    plans = [make_plan(seed, store_kinds=cluster, dead_after_seconds=HEARTBEAT) for seed in range(1, 201)]
    for plan in plans:
        assert set(LINKS) & kinds_of(plan.faults)
        assert cluster & kinds_of(plan.faults)
        assert not STORE & kinds_of(plan.faults)
        assert len(kinds_of(plan.faults)) >= 3
        assert len(plan.faults) >= 6
    assert cluster <= set().union(*(kinds_of(plan.faults) for plan in plans))


def test_browsers_workers_the_store_and_the_proxy_where_there_is_one_are_hit() -> None:
    plans = [make_browser_plan(seed, store_kinds=STORE, dead_after_seconds=HEARTBEAT) for seed in range(1, 101)]
    for plan in plans:
        found = kinds_of(plan.faults)
        assert len(set(BROWSERS) & found) >= 4
        assert Kind.KILL_WORKER in found
        assert STORE & found
        assert bool(set(PROXY) & found) is plan.proxy
    assert {*BROWSERS, *PROXY} <= set().union(*(kinds_of(plan.faults) for plan in plans))
    assert {plan.proxy for plan in plans} == {True, False}
