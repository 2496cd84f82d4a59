"""Verdicts of the proving programs (chaos, politeness, hostile and others) as JSON files.

Each program writes its verdict to `.cache/proofs`. A program whose runs may be done in parts, in several processes or
after an interruption, writes each part as NAME.part-SEED.json, where SEED is its first one.

`python -m tests.proof adopt` merges parts of one commit, copies the verdicts that passed to `docs/proofs`, and rewrites
the table of the guarantees page from there; without `adopt` it only rewrites the table.
"""

import platform
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / ".cache" / "proofs"
ADOPTED = ROOT / "docs" / "proofs"
PAGE = ROOT / "docs" / "explanation" / "guarantees.md"
BEGIN, END = "<!-- proofs: made by `python -m tests.proof` -->", "<!-- /proofs -->"

Figure = int | float | str


class Proof(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The verdict of one run of one program."""

    name: str
    """Of the file; a later run of the same name replaces it."""
    title: str
    """What was run, for the table."""
    showed: str
    """The result in one sentence, for the table."""
    command: str
    commit: str
    """Of the code that ran; empty where there is no history."""
    clean: bool
    """Whether the work tree was as committed."""
    date: str
    """Of the end, as YYYY-MM-DD."""
    seconds: float
    machine: str
    passed: bool
    failures: list[str]
    """What was broken; empty when it passed."""
    figures: dict[str, Figure]
    seeds: list[int] = []
    faults: dict[str, int] = {}
    """Faults that were made on purpose, by kind."""
    forgiven: dict[str, Figure] = {}
    """What was observed outside the promise and excused, with its bound."""


def write(
    name: str,
    *,
    title: str,
    showed: str,
    seconds: float,
    failures: Sequence[str],
    figures: Mapping[str, Figure],
    seeds: Sequence[int] = (),
    faults: Mapping[str, int] | None = None,
    forgiven: Mapping[str, Figure] | None = None,
    is_part: bool = False,
) -> Path:
    """Write the verdict of a run that ended now; returns the file.

    `is_part`: there may be more runs, with other seeds. Then `title` and `showed` are templates for the merged
    verdict, as `merged` fills them in.
    """
    proof = Proof(
        name=name,
        title=title,
        showed=showed,
        command=_command(),
        commit=_COMMIT,
        clean=_CLEAN,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        seconds=round(seconds, 1),
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        passed=not failures,
        failures=list(failures),
        figures=dict(figures),
        seeds=list(seeds),
        faults=dict(sorted((faults or {}).items())),
        forgiven=dict(forgiven or {}),
    )
    WRITTEN.mkdir(parents=True, exist_ok=True)
    return _save(proof, f"{name}.part-{min(seeds, default=0)}.json" if is_part else f"{name}.json")


def _save(proof: Proof, name: str) -> Path:
    file = WRITTEN / name
    file.write_bytes(msgspec.json.format(msgspec.json.encode(proof), indent=2) + b"\n")
    return file


def merged(parts: Sequence[Proof]) -> Proof:
    """Return the verdict of all parts of a program on one commit. Raises ValueError if two of them ran one seed.

    Figures are added up, but for those whose names begin with `longest`, of which the largest counts. All of them, and
    `faults` and `fault_kinds`, may be named in the templates.
    """
    seeds = sorted(seed for part in parts for seed in part.seeds)
    if twice := [seed for seed, count in Counter(seeds).items() if count > 1]:
        raise ValueError(f"seed {twice[0]} is in two parts; remove one of {WRITTEN}/{parts[0].name}.part-*.json")
    faults: Counter[str] = Counter()
    for part in parts:
        faults.update(part.faults)
    figures, forgiven = _sums([part.figures for part in parts]), _sums([part.forgiven for part in parts])
    words = {**figures, **forgiven, "faults": faults.total(), "fault_kinds": len(faults)}
    last = max(parts, key=lambda part: (part.date, max(part.seeds, default=0)))
    return msgspec.structs.replace(
        last,
        title=last.title.format(**words),
        showed=last.showed.format(**words),
        clean=all(part.clean for part in parts),
        seconds=round(sum(part.seconds for part in parts), 1),
        passed=all(part.passed for part in parts),
        failures=[failure for part in parts for failure in part.failures],
        figures=figures,
        seeds=seeds,
        faults=dict(sorted(faults.items())),
        forgiven=forgiven,
    )


def _sums(of_parts: Sequence[Mapping[str, Figure]]) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for name, value in (each for figures in of_parts for each in figures.items()):
        if isinstance(value, str):
            raise ValueError(f"{name}: words cannot be added up")
        before = found.get(name, 0)
        assert not isinstance(before, str)
        found[name] = max(before, value) if name.startswith("longest") else before + value
    return found


def merge_parts() -> list[str]:
    """Merge the parts of each program that are of the commit of the latest one; returns a line for each program."""
    parts: dict[str, list[tuple[float, Proof]]] = {}
    for file in sorted(WRITTEN.glob("*.part-*.json")):
        proof = msgspec.json.decode(file.read_bytes(), type=Proof)
        parts.setdefault(proof.name, []).append((file.stat().st_mtime, proof))
    said = []
    for name, found in parts.items():
        commit = max(found, key=lambda each: each[0])[1].commit
        same = [proof for _, proof in found if proof.commit == commit]
        try:
            whole = merged(same)
        except ValueError as error:
            said.append(f"{name}: not merged: {error}")
            continue
        _save(whole, f"{name}.json")
        others = f"; {len(found) - len(same)} parts of other commits left out" if len(same) < len(found) else ""
        said.append(f"{name}: {len(same)} parts with {len(whole.seeds)} seeds merged{others}")
    return said


def adopted() -> list[Proof]:
    """Return the verdicts that the documentation shows, by name."""
    return [msgspec.json.decode(file.read_bytes(), type=Proof) for file in sorted(ADOPTED.glob("*.json"))]


def table(proofs: Sequence[Proof]) -> str:
    """Return the table as Markdown."""
    rows = ["| run | showed | commit | date |", "|---|---|---|---|"]
    rows += [f"| {proof.title} | {proof.showed} | `{proof.commit[:10]}` | {proof.date} |" for proof in proofs]
    return "\n".join(rows)


def with_table(page: str, proofs: Sequence[Proof]) -> str:
    """Return the page with its table replaced. Raises ValueError for a page without the marks of one."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no place for the table, {BEGIN} … {END}")
    return f"{head}{begin}\n{table(proofs)}\n{end}{tail}"


def adopt() -> list[str]:
    """Copy what passed on committed code to the documentation; returns a line for each verdict."""
    said = merge_parts()
    ADOPTED.mkdir(parents=True, exist_ok=True)
    for file in sorted(WRITTEN.glob("*.json")):
        if ".part-" in file.name:
            continue
        proof = msgspec.json.decode(file.read_bytes(), type=Proof)
        if not proof.passed:
            said.append(f"{proof.name}: failed, not adopted: {proof.failures[0]}")
        elif not proof.clean or not proof.commit:
            said.append(f"{proof.name}: not adopted, the code it ran was not committed")
        else:
            (ADOPTED / file.name).write_bytes(file.read_bytes())
            said.append(f"{proof.name}: adopted, {proof.commit[:10]}")
    return said or [f"no verdicts in {WRITTEN}: run a program first, for example make chaos"]


def main() -> int:
    if sys.argv[1:] == ["adopt"]:
        print(*adopt(), sep="\n")
    elif sys.argv[1:]:
        print(__doc__)
        return 2
    PAGE.write_text(with_table(PAGE.read_text(), adopted()))
    return 0


def _command() -> str:
    """The command line that is running, as a person would type it."""
    module = sys.modules["__main__"].__spec__
    return shlex.join(["python", "-m", module.name.removesuffix(".__main__") if module else "?", *sys.argv[1:]])


def _git(*arguments: str) -> str:
    """What git says of this repository; empty without git or history."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# As the program begins, for the tree may be another when it ends.
_COMMIT = _git("rev-parse", "HEAD")
_CLEAN = not _git("status", "--porcelain")

if __name__ == "__main__":
    sys.exit(main())
