"""The guarantees page's table of runs is made of the verdicts in docs/proofs, each of a commit of this project."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests import proof
from tests.command import run_seeds

PROOFS = proof.adopted()
NAMES = {
    "chaos-cluster",
    "chaos-single",
    "hostile",
    "politeness",
    "politeness-stalls",
    "scale-away",
    "scale-endless",
    "scale-frozen",
    "scale-full-disk",
    "scale-killed",
    "scale-latency",
    "scale-one-shard-frozen",
    "scale-one-shard-killed",
    "scale-submissions",
    "soak",
}
"""The runs that the guarantees rest on. A run may be added; one that is left out leaves a guarantee unproven."""


def test_every_run_has_a_verdict() -> None:
    assert {verdict.name for verdict in PROOFS} >= NAMES


def test_the_table_is_made_of_the_verdicts() -> None:
    page = proof.PAGE.read_text()
    assert proof.with_table(page, PROOFS) == page, "run `python -m tests.proof`"


@pytest.mark.parametrize("verdict", PROOFS, ids=lambda verdict: verdict.name)
def test_a_verdict_passed_on_committed_code(verdict: proof.Proof) -> None:
    assert (verdict.passed, verdict.failures, verdict.clean) == (True, [], True)
    assert len(verdict.commit) == 40
    assert all(digit in "0123456789abcdef" for digit in verdict.commit)


@pytest.mark.parametrize("verdict", PROOFS, ids=lambda verdict: verdict.name)
def test_a_verdict_is_of_an_ancestor(verdict: proof.Proof) -> None:
    """Where the history is there: neither in an unpacked archive nor in a shallow clone."""
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("this checkout has no whole history")
    ancestor = git("merge-base", "--is-ancestor", verdict.commit, "HEAD")
    assert ancestor.returncode == 0, f"{verdict.name} ran on {verdict.commit}, which is no ancestor: {ancestor.stderr}"


def git(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["git", *arguments], cwd=proof.ROOT, capture_output=True, text=True, check=False)


def test_a_run_that_failed_or_was_not_committed_is_not_adopted(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    written, adopted = tmp_path_factory.mktemp("written"), tmp_path_factory.mktemp("adopted")
    monkeypatch.setattr(proof, "WRITTEN", written)
    monkeypatch.setattr(proof, "ADOPTED", adopted)
    monkeypatch.setattr(proof, "_COMMIT", "0" * 40)
    for name, clean, failures in (("good", True, []), ("dirty", False, []), ("bad", True, ["a page was lost"])):
        monkeypatch.setattr(proof, "_CLEAN", clean)
        proof.write(name, title=name, showed="it", seconds=1.0, failures=failures, figures={"pages": 3})
    assert proof.adopt() == [
        "bad: failed, not adopted: a page was lost",
        "dirty: not adopted, the code it ran was not committed",
        "good: adopted, 0000000000",
    ]
    (verdict,) = proof.adopted()
    assert (verdict.name, verdict.passed, verdict.figures) == ("good", True, {"pages": 3})
    assert "| good | it | `0000000000` | 20" in proof.table([verdict])


def _write_part(seeds: list[int], *, jobs: int, longest: float, failures: list[str] | None = None) -> None:
    proof.write(
        "jobs",
        title="{runs} runs",
        showed="{jobs:,} jobs, {faults} faults of {fault_kinds} kinds, at most {longest_overlap:.1f} s",
        seconds=10.0,
        failures=failures or [],
        figures={"runs": len(seeds), "jobs": jobs},
        seeds=seeds,
        faults={"kill": 2, f"freeze {jobs}": 1},
        forgiven={"longest_overlap": longest},
        is_part=True,
    )


def test_parts_of_one_commit_are_merged(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(proof, "WRITTEN", tmp_path_factory.mktemp("written"))
    monkeypatch.setattr(proof, "ADOPTED", tmp_path_factory.mktemp("adopted"))
    monkeypatch.setattr(proof, "_CLEAN", True)
    monkeypatch.setattr(proof, "_COMMIT", "1" * 40)
    _write_part([50], jobs=7, longest=9.0)
    monkeypatch.setattr(proof, "_COMMIT", "0" * 40)
    _write_part([1, 2], jobs=1000, longest=0.25)
    _write_part([3], jobs=500, longest=0.125)
    os.utime(proof.WRITTEN / "jobs.part-50.json", (1, 1))
    assert proof.adopt() == [
        "jobs: 2 parts with 3 seeds merged; 1 parts of other commits left out",
        "jobs: adopted, 0000000000",
    ]
    (verdict,) = proof.adopted()
    assert (verdict.title, verdict.showed) == ("3 runs", "1,500 jobs, 6 faults of 3 kinds, at most 0.2 s")
    assert (verdict.seeds, verdict.seconds, verdict.figures) == ([1, 2, 3], 20.0, {"runs": 3, "jobs": 1500})
    _write_part([4], jobs=1, longest=0.0, failures=["seed 4: a job is lost"])
    assert proof.adopt()[-1] == "jobs: failed, not adopted: seed 4: a job is lost"
    _write_part([0, 3], jobs=1, longest=0.0)
    assert proof.adopt()[0].startswith("jobs: not merged: seed 3 is in two parts")


def test_ctrl_c_keeps_the_runs_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(seed: int, folder: Path) -> int:
        folder.mkdir()
        if seed == 3:
            raise ValueError("the run itself")
        if seed == 5:
            raise KeyboardInterrupt
        return seed

    runs = run_seeds([1, 2, 3, 4, 5, 6], run, lambda seed: ["broken"] if seed == 2 else [], keep=False)
    assert (runs.outcomes, runs.bad, runs.broken, runs.was_interrupted) == ([1, 2, 4], 1, [3], True)
    assert runs.exit_code() == 1
    assert {path.name for path in tmp_path.glob("*/*")} == {"seed-2", "seed-3", "seed-5"}
    assert run_seeds([5], run, lambda _: [], keep=False).exit_code() == 130
