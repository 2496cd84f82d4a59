"""A short run of `make stores`: a crawl writes items to each store, while server and crawl are killed."""

from pathlib import Path

import pytest

from tests.servers.stores import KINDS, store_server
from tests.stores.judge import judge_items
from tests.stores.run import make_plan, run_plan


@pytest.mark.timeout(400)  # on a busy machine, a server may take minutes to start
@pytest.mark.parametrize("kind", KINDS)
def test_every_item_is_there_once_although_server_and_crawl_are_killed(kind: str, tmp_path: Path) -> None:
    plan = make_plan(2, 2000, rounds=1)
    with store_server(kind) as server:
        outcome = run_plan(plan, server, tmp_path / "run")
    assert outcome.verdict.faults == []
    assert outcome.verdict.expected == 2000
    assert [kill.what for kill in plan.kills] == ["server", "process"]


def test_the_judge_finds_items_that_are_lost_repeated_unknown_or_refused() -> None:
    assert judge_items({"a", "b"}, ["b", "a"], 0).faults == []
    verdict = judge_items({"a", "b", "c"}, ["a", "a", "x", "b"], 4)
    assert (verdict.lost, verdict.twice, verdict.unknown) == (1, 1, 1)
    assert verdict.faults == [
        "1 items are lost, for example c",
        "1 items are there more than once, for example a",
        "1 rows are of no item, for example x",
        "4 rows were refused",
    ]
