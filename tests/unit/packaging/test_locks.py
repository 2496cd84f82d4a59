"""The lock files: every package has a version and hashes, none has an address, and all agree on the versions."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
SEPARATE = {f"requirements-{name}.lock" for name in ("dist", "docs", "pipx", "uv")}
"""Installed into folders of their own, so their versions need not be those of the others."""


def _pins(lock: Path) -> dict[tuple[str, str], str]:
    """Return the version of each package of a lock file, by its name and the environments that the line is for."""
    found = {}
    for block in re.split(r"\n(?=\S)", lock.read_text()):
        line, *hashes = [one.strip() for one in block.strip().split("\\\n")]
        assert hashes, f"{lock.name}: {line} has no hash"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), f"{lock.name}: {line}"
        requirement = Requirement(line)
        [version] = requirement.specifier
        assert version.operator == "=="
        found[canonicalize_name(requirement.name), str(requirement.marker)] = version.version
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_file_has_hashes_and_no_addresses(lock: Path) -> None:
    assert _pins(lock)
    assert "://" not in lock.read_text()


def test_what_is_installed_in_parts_has_the_versions_of_the_whole() -> None:
    """`make demo` installs a part, and `make setup` the whole into the same environment."""
    whole = {name: version for (name, _), version in _pins(ROOT / "requirements.lock").items()}
    for lock in LOCKS:
        if lock.name not in SEPARATE:
            assert {name: version for (name, _), version in _pins(lock).items()}.items() <= whole.items(), lock.name


def test_what_the_demo_installs_is_what_the_package_and_its_build_need() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [*pyproject["project"]["dependencies"], *pyproject["dependency-groups"]["build"]]
    installed = {name for name, _ in _pins(ROOT / "requirements-demo.lock")}
    assert {canonicalize_name(Requirement(one).name) for one in needed} <= installed
    assert not installed & {"scrapy", "pyarrow", "pytest", "fastapi", "pydantic"}


def test_the_image_has_every_extra_that_commands_of_crawls_and_services_use() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = {name for name, _ in _pins(ROOT / "requirements-image.lock")}
    for extra in extras.keys() - {"shell", "scrapy", "platform", "all"}:
        assert {canonicalize_name(Requirement(one).name) for one in extras[extra]} <= installed, extra
