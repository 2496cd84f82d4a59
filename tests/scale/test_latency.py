"""Processes on slow hosts: every slot of every process is in use."""

from tests.scale.latency import pace


def test_all_slots_of_all_processes_wait_for_slow_hosts() -> None:
    done = pace(2, concurrency=8, latency_ms=300, warm_up_seconds=3.0, seconds=0.5, hosts=16)
    assert done.in_flight == 16
    assert done.rate > 0
