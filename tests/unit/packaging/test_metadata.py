"""The package's metadata: what it depends on, and the addresses that it names."""

import ast
import importlib.util
import itertools
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

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


def _built(repository: str) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: dict[str, Any] = {}
    module.RepositoryMetadata(str(ROOT), {"repository": repository}).update(made)
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
