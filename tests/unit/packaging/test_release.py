"""`make release`, in a repository of its own whose programs only log that they ran."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gossamer import __version__
from tools import image
from tools.release import VERSION_PLACES, main

ROOT = Path(__file__).parents[3]
_LOG = "ran"
_FILES = {
    **{
        path: "\n".join(["# one", *forms, ""]).format(*["0.1.0"] * len(forms)) for path, forms in VERSION_PLACES.items()
    },
    "pyproject.toml": 'version = "0.1.0"\npython_version = "0.1.0"\nrepository = "https://code.example/gossamer"\n',
    "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Crawls.\n",
    "Makefile": f".PHONY: test docs versions\ntest docs versions:\n\t@echo $@ $(ARGS) >> {_LOG}\n",
    "tests/servers/wheel": f"echo $WHEEL-wheel >> {_LOG}\n",
    "tools/__init__.py": "",
    "tools/reference.py": f"print('reference', file=open('{_LOG}', 'a'))\n",
    "README.md": "pip install /path/to/the/checkout/fakeweb\n",
    "docs/page.md": "agent gossamer/0.1.0\n",
    "docs/adr/0001.md": "It was gossamer 0.1.0.\n",
    "deploy/Dockerfile": "FROM python\nCOPY requirements-image.lock ./\n",
    "deploy/Dockerfile.dockerignore": "*\n",
    "requirements-image.lock": "one==1\n",
    ".gitignore": f"{_LOG}\n__pycache__/\n",
}


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def _change(folder: Path, path: str, text: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)
    _git(folder, "add", ".")
    _git(folder, "commit", "--message", f"Change {path}")


def _prove(folder: Path, commit: str) -> None:
    proof = {"commit": commit, "command": "make chaos", "figures": {"steps": image.steps(folder)}}
    for name in ("chaos", *(f"image-{target}" for target in image.TRIED)):
        path = folder / "docs/proofs" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(proof))
    _git(folder, "add", ".")
    _git(folder, "commit", "--message", "Prove")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Repository that can be released."""
    _git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    for key, value in (("user.name", "Ada"), ("user.email", "ada@site.example"), ("commit.gpgSign", "false")):
        _git(tmp_path, "config", key, value)
    for path, text in _FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "--message", "Begin")
    _prove(tmp_path, _git(tmp_path, "rev-parse", "HEAD"))
    return tmp_path


def test_a_release_sets_the_version_in_all_places_and_tags_what_it_tested(repository: Path) -> None:
    assert main(["0.2.0"], repository) == 0
    assert (repository / _LOG).read_text().split() == ["test", "docs", "reference"]
    for path, forms in VERSION_PLACES.items():
        lines = (repository / path).read_text().splitlines()
        assert [line for line in lines if "0.2.0" in line] == [form.format("0.2.0") for form in forms], path
    assert 'python_version = "0.1.0"' in (repository / "pyproject.toml").read_text()
    assert (repository / "docs/page.md").read_text() == "agent gossamer/0.2.0\n"
    assert (repository / "docs/adr/0001.md").read_text() == "It was gossamer 0.1.0.\n"
    changes = (repository / "CHANGELOG.md").read_text()
    assert re.search(r"## \[Unreleased\]\n\n## \[0\.2\.0\] - \d{4}-\d\d-\d\d\n\n### Added\n\n- Crawls\.\n", changes)
    assert _git(repository, "status", "--porcelain") == ""
    assert _git(repository, "rev-parse", "v0.2.0^{commit}") == _git(repository, "rev-parse", "HEAD")


def test_the_first_release_may_have_the_version_that_is_there(repository: Path) -> None:
    assert main(["0.1.0", "--skip-tests"], repository) == 0
    assert (repository / _LOG).read_text().split() == ["released-wheel", "docs", "reference"]
    assert _git(repository, "tag") == "v0.1.0"


def test_a_later_release_is_tried_beside_the_last_one(repository: Path) -> None:
    assert main(["0.1.0", "--skip-tests"], repository) == 0
    (repository / _LOG).unlink()
    _change(repository, "CHANGELOG.md", "## [Unreleased]\n\n- More.\n")
    assert main(["0.1.1", "--skip-tests"], repository) == 0
    assert (repository / _LOG).read_text().split() == ["released-wheel", "docs", "versions", "reference"]


def test_the_arguments_of_make_are_those_of_the_release_alone(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = tmp_path_factory.mktemp("program") / "release.py"
    lines = [
        "import sys",
        f"sys.path.insert(0, {str(ROOT)!r})",
        "from pathlib import Path",
        "from tools.release import main",
    ]
    program.write_text("\n".join([*lines, "sys.exit(main(sys.argv[1:], Path.cwd()))", ""]))
    _change(repository, "Makefile", f"{_FILES['Makefile']}release:\n\t@{sys.executable} {program} $(VERSION) $(ARGS)\n")
    subprocess.run(["make", "--silent", "release", "VERSION=0.1.0", "ARGS=--skip-tests"], cwd=repository, check=True)
    assert (repository / _LOG).read_text().splitlines() == ["released-wheel", "docs", "reference"]


@pytest.mark.parametrize("failing", ["tools.reference", "commit", "tag"])
def test_a_release_that_fails_half_way_leaves_the_repository_as_it_was(failing: str, repository: Path) -> None:
    if failing == "tools.reference":
        _change(repository, "tools/reference.py", "raise SystemExit(1)\n")
    else:
        _git(repository, "config", f"{failing}.gpgSign", "true")
        _git(repository, "config", "gpg.program", "false")
    commit = _git(repository, "rev-parse", "HEAD")
    assert main(["0.2.0", "--skip-tests"], repository) == 1
    assert _git(repository, "rev-parse", "HEAD") == commit
    assert (_git(repository, "status", "--porcelain"), _git(repository, "tag")) == ("", "")


def _old_proofs(folder: Path) -> None:
    for number in range(2):
        _change(folder, "src/code.py", f"{number}")


_SPOILT: dict[str, Callable[[Path], object]] = {
    "The work tree has 1 changes, first new": lambda folder: (folder / "new").write_text(""),
    "The branch is other": lambda folder: _git(folder, "checkout", "--quiet", "-b", "other"),
    "The repository has no address": lambda folder: _change(
        folder, "pyproject.toml", 'version = "0.1.0"\nrepository = ""\n'
    ),
    "greater than the last release (0.3.0)": lambda folder: _git(folder, "tag", "v0.3.0"),
    "native/Cargo.toml must have": lambda folder: _change(folder, "native/Cargo.toml", 'version = "0.0.9"\n'),
    "releases without their tags here: v0.1.0. Run": lambda folder: _change(
        folder, "CHANGELOG.md", "## [Unreleased]\n- B\n\n## [0.1.0] - 2026-01-01\n- A\n"
    ),
    "nothing under Unreleased": lambda folder: (
        _git(folder, "tag", "v0.1.0"),
        _change(folder, "CHANGELOG.md", "## [Unreleased]\n\n## [0.1.0]\n- A\n"),
    ),
    "on the package index: README.md:2, docs/page.md:1, docs/page.md:4. Write how it is": lambda folder: (
        _change(folder, "README.md", "# A\nIt is not on the\npackage index yet.\n"),
        _change(
            folder,
            "docs/page.md",
            "pip install '/path/to/the/checkout[text]'  # not on the package index yet\n\n\n"
            "pip install /path/to/the/checkout\n",
        ),
    ),
    "first release is one page": lambda folder: _change(folder, "CHANGELOG.md", "## [Unreleased]\n" + "- A\n" * 101),
    "as it is, was not built for gossamer, platform, browser. Run": lambda folder: _change(
        folder, "requirements-image.lock", "one==2\n"
    ),
    "as it is, was not built for browser. Run": lambda folder: (
        _git(folder, "rm", "--quiet", "docs/proofs/image-browser.json") + _git(folder, "commit", "--message", "None")
    ),
    "image-platform is 2 commits of the code old (at most 1). Run make chaos": _old_proofs,
    "image-platform is of a commit that is not in the history": lambda folder: _prove(folder, "0" * 40),
}


def test_old_proofs_of_one_program_are_one_line(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proof = repository / "docs/proofs/chaos.json"
    (repository / "docs/proofs/scale.json").write_bytes(proof.read_bytes())
    _git(repository, "add", "--all")
    _git(repository, "commit", "--message", "Another proof")
    _old_proofs(repository)
    assert main(["0.2.0", "--proof-commits", "1", "--dry-run"], repository) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if "commits of the code old" in line]
    assert line.startswith(
        "missing: Each of the proofs chaos, image-browser, image-gossamer, image-platform, scale is 2"
    )


@pytest.mark.parametrize("reason", _SPOILT)
def test_a_release_is_refused_before_anything_runs(
    reason: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _SPOILT[reason](repository)
    commit, tags = _git(repository, "rev-parse", "HEAD"), _git(repository, "tag")
    assert main(["0.2.0", "--proof-commits", "1"], repository) == 1
    said = capsys.readouterr().out
    assert reason in said
    assert said.count("missing:") == 1
    assert not (repository / _LOG).exists()
    assert (_git(repository, "rev-parse", "HEAD"), _git(repository, "tag")) == (commit, tags)


def test_a_failed_test_leaves_the_repository_as_it_was(repository: Path) -> None:
    _change(repository, "Makefile", "test:\n\t@false\n")
    assert main(["0.2.0"], repository) == 1
    assert (_git(repository, "status", "--porcelain"), _git(repository, "tag")) == ("", "")


def test_a_dry_run_names_all_steps_and_all_that_is_missing(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _old_proofs(repository)
    (repository / "new").write_text("")
    assert main(["next", "--dry-run", "--proof-commits", "1"], repository) == 1
    said = capsys.readouterr().out
    assert said.count("missing:") == 3
    assert [step in said for step in ("make test", "make docs", "set the version", "CHANGELOG.md", "tag")] == [True] * 5
    assert not (repository / _LOG).exists()


def test_this_repository_has_the_places_of_the_version() -> None:
    for path, forms in VERSION_PLACES.items():
        lines = (ROOT / path).read_text().splitlines()
        for form in forms:
            assert lines.count(form.format(__version__)) == forms.count(form), path


def test_no_other_file_of_the_package_has_the_version() -> None:
    """But for the name of the first version in ids of crawls, which must not change."""
    named = re.compile(rf'(?:gossamer[ /]|"versions?": \[?"){re.escape(__version__)}\b')
    paths = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".json", ".toml", ".html", ".js")]
    found = {path.relative_to(ROOT).as_posix() for path in paths if named.search(path.read_text())}
    assert found <= {"src/gossamer/wiring/plan.py"}
