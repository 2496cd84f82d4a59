"""Whose fault a failed build is, and which environments are deleted."""

import json
import os
import time
from pathlib import Path

import pytest

from gossamer_platform.link import EnvironmentReport
from gossamer_platform.node import build
from gossamer_platform.node.environments import EnvironmentStore, is_fault_of_node

_OF_NODE = [
    # uv 0.13.9
    "error: Request failed after 3 retries in 11.7s\n  cause: error sending request for url (http://127.0.0.1:9/simple/)",
    "  cause: client error (Connect)\n  cause: dns error\n  cause: error resolving DNS",
    "  cause: HTTP status server error (503 Service Unavailable) for url (http://127.0.0.1:47503/simple/coloured/)",
    "  cause: failed to write to file `CACHEDIR.TAG`: No space left on device (os error 28)",
    # pip 23.2.1
    "Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('Failed to establish a new connection: "
    "[Errno 111] Connection refused')': /simple/coloured/",
    "Could not fetch URL http://127.0.0.1:47503/: HTTPConnectionPool(host='127.0.0.1'): Max retries exceeded with url",
    "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
]
_OF_VERSION = [
    # uv 0.13.9
    "error: No solution found when resolving dependencies\n  cause: Because coloured was not found in the package "
    "registry and you require coloured, we can conclude that your requirements are unsatisfiable.",
    # pip 23.2.1
    "ERROR: Could not find a version that satisfies the requirement coloured (from versions: none)\n"
    "ERROR: No matching distribution found for coloured",
    "ERROR: Cannot install coloured<2 and coloured>=2 because these package versions have conflicting dependencies.",
    "error: subprocess-exited-with-error\n  × Preparing metadata (pyproject.toml) did not run successfully.",
]


@pytest.mark.parametrize("text", _OF_NODE)
def test_a_fault_of_the_node_is_known_by_its_words(text: str) -> None:
    assert is_fault_of_node(text)


@pytest.mark.parametrize("text", _OF_VERSION)
def test_requirements_that_cannot_be_met_are_the_versions_fault(text: str) -> None:
    assert not is_fault_of_node(text)


async def _nothing(report: EnvironmentReport) -> None:
    pass


def _environment(folder: Path, name: str, age_days: float) -> None:
    (folder / name / "bin").mkdir(parents=True)
    (folder / name / "bin/python").touch()
    (folder / name / build.MARK).write_text("{}")
    (folder / name / "bin").chmod(0o555)
    (folder / name).chmod(0o555)
    (folder / f"{name}.lock").touch()
    at = time.time() - age_days * 86400
    os.utime(folder / f"{name}.lock", (at, at))


async def test_old_environments_that_nothing_uses_are_deleted(tmp_path: Path) -> None:
    folder, attempts = tmp_path / "environments", tmp_path / "attempts"
    for name, age in (("new", 1.0), ("old", 40.0), ("used", 40.0)):
        _environment(folder, name, age)
    for number in range(25):
        _environment(folder, f"recent{number:02}", 2.0 + number / 100)
    (folder / ".new-killed").mkdir()
    os.utime(folder / ".new-killed", (1, 1))
    (attempts / "7-1").mkdir(parents=True)
    command = {"command": [str(folder / "used/bin/python"), "runner.py"]}
    (attempts / "7-1/attempt.json").write_text(json.dumps(command))
    store = EnvironmentStore(folder, attempts, _nothing, build_seconds=1.0)
    await store.clean_up()
    await store.forget()
    left = {path.name for path in folder.iterdir() if path.is_dir()}
    assert left == {"new", "used", *(f"recent{number:02}" for number in range(19))}  # 20 of those that nothing uses
