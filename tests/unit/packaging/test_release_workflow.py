"""The workflow that releases: it builds with the programs of this repository, and installs on all that is promised."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml

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
    commands = [step["run"] for step in JOBS["build"]["steps"] if "run" in step]
    assert [command.split()[0] for command in commands] == ["tools/setup", "tools/dist"]
    for part in (one["parts"] for one in JOBS["build"]["strategy"]["matrix"]["include"]):
        assert re.search(rf"^  {part}\) ", (ROOT / "tools" / "dist").read_text(), re.MULTILINE), part
    for program in ("setup", "dist"):
        assert subprocess.run([ROOT / "tools" / program, "unknown"], capture_output=True, text=True).returncode == 2


def test_nothing_is_uploaded_without_a_tag_and_before_it_was_installed() -> None:
    upload = JOBS["upload"]
    assert upload["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert (upload["needs"], JOBS["install"]["needs"]) == (["install", "test"], "build")
    tested = JOBS["test"]["steps"][-1]["run"].split()
    assert {"tests/unit", "tests/servers/wheel"} <= set(tested)
    assert (ROOT / "tests" / "servers" / "wheel").stat().st_mode & 0o111
