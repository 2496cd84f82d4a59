"""The package's metadata: what it depends on, and the addresses that it names."""

import ast
import importlib.util
import itertools
import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from gossamer import __version__

ROOT = Path(__file__).parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPTIONAL = {"redis", "cryptography", "gossamer_fakeweb", "gossamer_native"}
"""Imported on request: by a project of the user's, by the practice web for HTTPS and for its extra sites;
and the compiled extension, which is built from this repository."""


OWN = {"gossamer", "gossamer_platform"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _declared() -> set[str]:
    lists = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    return {_normal(re.match(r"[\w.-]+", one)[0]) for one in itertools.chain(*lists)}  # type: ignore[index]


def _imported() -> dict[str, str]:
    """Top-level names that the package imports, each with a file that does."""
    found = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                continue
            found |= {name.partition(".")[0]: str(path.relative_to(ROOT)) for name in names}
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names and name not in OWN}


def test_every_direct_import_is_a_declared_dependency() -> None:
    distributions = metadata.packages_distributions()
    declared = _declared()
    missing = {
        name: path
        for name, path in _imported().items()
        if name not in OPTIONAL and not {_normal(one) for one in distributions.get(name, [name])} & declared
    }
    assert not missing


def test_every_dependency_is_imported() -> None:
    """But for those that another one loads: they are listed here with their reason."""
    loaded_by_others = {
        "fastapi-swagger": "the page under /docs",
        "gossamer-crawl": "the extra `all` names the others",
        "s3fs": "fsspec loads it for s3://",
        "lxml-html-clean": "jusText, which trafilatura loads, needs it; some versions of pip do not see that",
        "psycopg": "SQLAlchemy loads it for PostgreSQL",
        "tzdata": "zoneinfo loads it where the system has no time zones",
        "pyarrow": "loaded by its name in sinks/spool.py",
    }
    distributions = metadata.packages_distributions()
    used = {_normal(one) for name in _imported() for one in distributions.get(name, [])}
    assert not _declared() - used - loaded_by_others.keys()


def _build_module() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _built(repository: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    _build_module().RepositoryMetadata(str(ROOT), {"repository": repository}).update(made)
    return made


def test_addresses_are_named_once_the_repository_has_one() -> None:
    assert _built("")["urls"] == {}
    urls = _built("https://example.org/gossamer/")["urls"]
    assert urls["Repository"] == "https://example.org/gossamer"
    assert all(url.startswith("https://example.org/gossamer") for url in urls.values())


def test_no_link_of_the_readme_is_relative_on_the_package_index() -> None:
    for repository in ("", "https://example.org/gossamer"):
        targets = re.findall(r"\]\(([^)]+)\)", _built(repository)["readme"]["text"])
        assert not [target for target in targets if not target.startswith(("https://", "http://", "#"))]
    assert any(target.startswith("https://example.org/gossamer/blob/main/docs/") for target in targets)


def test_the_extra_all_has_all_others() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    [collected] = extras["all"]
    named = re.fullmatch(r"gossamer-crawl\[([\w,]+)\]", collected)
    assert named is not None
    assert set(named[1].split(",")) == extras.keys() - {"all"}


def test_the_page_about_installing_names_every_extra() -> None:
    page = (ROOT / "docs" / "howto" / "install.md").read_text()
    assert [extra for extra in PROJECT["project"]["optional-dependencies"] if f"`{extra}`" not in page] == []


@pytest.mark.parametrize(
    ("system", "machine", "implementation", "required"),
    [
        ("linux", "x86_64", "CPython", True),
        ("linux", "aarch64", "CPython", True),
        ("darwin", "arm64", "CPython", True),
        ("darwin", "x86_64", "CPython", True),
        ("linux", "ppc64le", "CPython", False),
        ("linux", "x86_64", "PyPy", False),
        ("win32", "AMD64", "CPython", False),
    ],
)
def test_a_release_requires_its_extension_where_there_is_a_wheel(
    system: str, machine: str, implementation: str, required: bool
) -> None:
    [written] = _build_module().extension_requirements(ROOT, "1.2.3", released=True)
    requirement = Requirement(written)
    here = {
        "sys_platform": system,
        "platform_machine": machine,
        "platform_python_implementation": implementation,
    }
    assert (requirement.name, str(requirement.specifier)) == ("gossamer-native", "==1.2.3")
    assert requirement.marker
    assert requirement.marker.evaluate(here) is required


def test_what_is_built_without_the_folder_of_the_extension_is_a_release(tmp_path: Path) -> None:
    build = _build_module()
    assert build.extension_requirements(tmp_path, "1.2.3", released=False) == build.extension_requirements(
        ROOT, "1.2.3", released=True
    )


@pytest.mark.parametrize(
    ("version", "compiler", "switch", "required"),
    [
        ("cargo 1.88.0 (873a06493 2025-05-10)", "c++", "1", True),
        ("cargo 1.85.1 (d73d2caf9 2024-12-31)", "c++", "1", False),
        ("cargo 2.0.0", "clang++", "1", True),
        ("cargo 1.63.0", "c++", "1", False),
        ("no version", "c++", "1", False),
        ("cargo 1.95.0", "cc", "1", False),
        ("", "c++", "1", False),
        ("cargo 1.95.0", "c++", "0", False),
    ],
)
def test_a_checkout_builds_its_extension_where_it_can_be_compiled(
    version: str, compiler: str, switch: str, required: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {compiler: ":", **({"cargo": f"echo '{version}'"} if version else {})}
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GOSSAMER_NATIVE", switch)
    monkeypatch.delenv("CXX", raising=False)
    wanted = [f"gossamer-native @ {(ROOT / 'native').as_uri()}"] if required else []
    assert _build_module().extension_requirements(ROOT, "1.2.3", released=False) == wanted


def test_the_crawler_and_its_extension_have_one_version() -> None:
    found = {
        tomllib.loads((ROOT / path).read_text())["project"]["version"]
        for path in ("pyproject.toml", "native/pyproject.toml")
    }
    found.add(tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())["package"]["version"])
    assert found == {__version__}


def test_a_wheel_can_be_built_without_the_packages_that_it_needs(tmp_path: Path) -> None:
    """`pip install .` builds in an environment that has only Hatchling."""
    environment, hatchling = tmp_path / "environment", tmp_path / "hatchling"
    venv.create(environment, with_pip=False)
    hatchling.mkdir()
    for name in ("hatchling", "packaging", "pathspec", "pluggy", "trove_classifiers"):
        (hatchling / name).symlink_to(Path(str(importlib.util.find_spec(name).submodule_search_locations[0])))  # type: ignore[union-attr,index]
    done = subprocess.run(
        [environment / "bin" / "python", "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        env={**os.environ, "PYTHONPATH": str(hatchling)}, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    assert "gossamer/__init__.py" in ZipFile(wheel).namelist()
