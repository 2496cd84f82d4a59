"""The guarantees page's table of runs is made of the verdicts in docs/proofs, each of a commit of this project."""

import subprocess

import pytest

from tests import proof

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
