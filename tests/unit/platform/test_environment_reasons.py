"""The reason of a failed build, in the output of real pip and uv."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer_platform.node.environments import conclusion
from tests.servers.pip_programs import program
from tests.servers.scrapyd import wheel

_PIP = ("-m", "pip", "install", "--no-color", "--disable-pip-version-check", "--progress-bar=off", "--dry-run")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in place of an index: `a` 1.0 needs `b` 1.0, and there is `b` 2.0; and a source package that breaks."""
    folder = tmp_path_factory.mktemp("packages")
    for name, version, needs in (("a", "1.0", "Requires-Dist: b==1.0\n"), ("b", "1.0", ""), ("b", "2.0", "")):
        content = wheel(name, {f"{name}.py": ""}, version=version, metadata=needs)
        (folder / f"{name}-{version}-py3-none-any.whl").write_bytes(content)
    (folder / "broken").mkdir()
    backend = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (folder / "broken/pyproject.toml").write_text(f'{backend}[project]\nname = "broken"\ndynamic = ["version"]\n')
    hooks = ("build_wheel", "prepare_metadata_for_build_wheel")
    code = "".join(f"def {hook}(*_):\n    raise RuntimeError('broken on purpose')\n" for hook in hooks)
    (folder / "broken/backend.py").write_text(code)
    return folder


@pytest.mark.parametrize("builder", ["pip", "uv"])
@pytest.mark.parametrize(
    ("requirements", "reason"),
    [
        (["nosuch-package"], "nosuch-package"),
        (["a==1.0", "b==2.0"], "b==2.0"),
        (["a==3.0"], "a==3.0"),
        (["./broken"], "RuntimeError: broken on purpose"),
    ],
)
def test_the_reason_names_what_could_not_be_installed(
    packages: Path, builder: str, requirements: list[str], reason: str
) -> None:
    found = ("--no-index", "--find-links", str(packages), "--no-build-isolation")
    if builder == "pip":
        command = [sys.executable, *_PIP, *found, *requirements]
    else:
        options = ("pip", "install", "--dry-run", "--offline", "--python", sys.executable)
        command = [str(program("uv", "uv")), *options, *found, *requirements]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    done = subprocess.run(command, cwd=packages, capture_output=True, text=True, env={**environment, "NO_COLOR": "1"})
    assert done.returncode
    assert reason in conclusion(done.stdout + done.stderr)


def test_without_output_there_is_no_reason() -> None:
    assert conclusion("") == ""
