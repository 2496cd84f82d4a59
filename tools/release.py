"""Make a release: `make release VERSION=1.2.3`, with ARGS=--dry-run to see what is missing.

All conditions are checked first, and each that does not hold is printed. Then the tests run, and last the version is
set, the change log gets its heading, and both are committed and tagged. Nothing is pushed: the workflow that uploads
begins when the tag is.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from tools import image

VERSION_PLACES = {
    "src/gossamer/__init__.py": ['__version__ = "{}"'],
    "pyproject.toml": ['version = "{}"'],
    "native/pyproject.toml": ['version = "{}"'],
    "native/Cargo.toml": ['version = "{}"'],
    "deploy/helm/Chart.yaml": ["version: {}", 'appVersion: "{}"'],
    # Of the service and of the workers.
    "deploy/kubernetes/gossamer.yaml": ["          image: gossamer:{}", "          image: gossamer:{}"],
}
"""Files that have the version, each in as many lines, of these forms. The tests hold them equal."""

UNRELEASED = "## [Unreleased]\n"
FIRST_LINES = 100
"""Maximum number of lines in the change log of the first release: one page that says what Gossamer does."""

_NOT_ON_INDEX = re.compile(r"not\s+on\s+the\s+package\s+index\s+yet")
"""Words that README.md has until the commit that is to be the first release."""

_NOT_RELEASED = re.compile(rf"{_NOT_ON_INDEX.pattern}|/path/to/the/checkout(?!/)")
"""Words of pages until then. A folder of the checkout, such as fakeweb, is not released."""

_STEPS = ("set the version, write the heading of CHANGELOG.md", "commit, tag")


def is_on_index(root: Path) -> bool:
    """Return whether Gossamer is on the package index, or will be by the next release: README.md says when it is not.

    Before, no text may name it there, for a stranger could register the name. From then on all pages must.
    """
    return not _NOT_ON_INDEX.search((root / "README.md").read_text())


def places_before_release(root: Path) -> list[str]:
    """Return the lines, as README.md:11, with words of pages that only hold until Gossamer is on the package index."""
    places = []
    for page in _pages(root):
        text = page.read_text()
        lines = {text.count("\n", 0, found.start()) + 1 for found in _NOT_RELEASED.finditer(text)}
        places += [f"{page.relative_to(root)}:{line}" for line in sorted(lines)]
    return places


def _pages(root: Path) -> list[Path]:
    """Return the pages that people write: others are made from the code, or are history."""
    docs = root / "docs"
    found = [page for page in docs.rglob("*.md") if page.relative_to(docs).parts[0] not in ("adr", "reference")]
    return [root / "README.md", *sorted(found)]


class Release:
    """A release of the repository in `root`. `proof_commits`: commits to the code until a proof is too old."""

    def __init__(self, root: Path, version: str, *, proof_commits: int) -> None:
        self.root, self.version, self.proof_commits = root, version, proof_commits
        found = re.search(r'^__version__ = "(.+)"$', self._read("src/gossamer/__init__.py"), re.MULTILINE)
        self.current = found[1] if found else ""
        self.released = [_numbers(tag[1:]) for tag in self._git("tag", "--list", "v*.*.*").split()]

    def missing(self) -> list[str]:
        """Return every condition of a release that does not hold, and what to do about it."""
        found = (
            self._wrong_tree(),
            self._wrong_version(),
            self._wrong_changes(),
            self._wrong_pages(),
            self._stale_proofs(),
            self._changed_images(),
        )
        return [line for lines in found for line in lines]

    def write(self) -> None:
        """Set the version and the heading of the change log; commit and tag them. A failure leaves all as it was."""
        before = self._git("rev-parse", "HEAD").strip()
        try:
            self._set_version()
            self._git("commit", "--quiet", "--all", "--allow-empty", "--message", f"Release {self.version}")
            self._git("tag", "--annotate", f"v{self.version}", "--message", f"Gossamer {self.version}")
        except BaseException:
            self._git("reset", "--quiet", "--hard", before)  # the tree was clean
            raise

    def _set_version(self) -> None:
        for path, forms in VERSION_PLACES.items():
            for form in forms:
                self._replace_line(path, form.format(self.current), form.format(self.version))
        heading = f"{UNRELEASED}\n## [{self.version}] - {time.strftime('%Y-%m-%d', time.gmtime())}\n"
        self._replace_line("CHANGELOG.md", UNRELEASED, heading)
        for page in _pages(self.root):
            pattern = rf"\bgossamer([ /]){re.escape(self.current)}\b"
            page.write_text(re.sub(pattern, rf"gossamer\g<1>{self.version}", page.read_text()))
        subprocess.run([sys.executable, "-m", "tools.reference"], cwd=self.root, check=True)

    def _wrong_tree(self) -> list[str]:
        wrong = []
        if changed := self._git("status", "--porcelain").splitlines():
            wrong.append(f"The work tree has {len(changed)} changes, first {changed[0][3:]}. Commit or remove them.")
        if (branch := self._git("branch", "--show-current").strip()) != "main":
            wrong.append(f"The branch is {branch or 'none'}. Releases are made on main.")
        if re.search(r'^repository = ""$', self._read("pyproject.toml"), re.MULTILINE):
            wrong.append(
                "The repository has no address. Its owner writes it into pyproject.toml, its one place: "
                '[tool.hatch.metadata.hooks.custom], repository = "https://…". The package index shows it.'
            )
        return wrong

    def _wrong_version(self) -> list[str]:
        if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", self.version):
            return [f"{self.version!r} is no version. Write MAJOR.MINOR.PATCH, for example 1.2.3."]
        wrong, least = [], max([*self.released, (0, 0, 0)])
        if _numbers(self.version) <= least or _numbers(self.version) < _numbers(self.current):
            last = ".".join(map(str, least)) if self.released else "none"
            wrong.append(f"{self.version} must be greater than the last release ({last}), and at least {self.current}.")
        headings = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", self._read("CHANGELOG.md"), re.MULTILINE)
        if unknown := [one for one in headings if _numbers(one) not in self.released]:
            tags = ", ".join(f"v{one}" for one in unknown)
            wrong.append(f"CHANGELOG.md has releases without their tags here: {tags}. Run git fetch --tags.")
        for path, forms in VERSION_PLACES.items():
            for form, count in Counter(forms).items():
                line = form.format(self.current)
                if self._read(path).splitlines().count(line) != count:
                    times = "exactly one line" if count == 1 else f"exactly {count} lines"
                    wrong.append(f"{path} must have {times} {line.strip()}.")
        return wrong

    def _wrong_changes(self) -> list[str]:
        _, found, rest = self._read("CHANGELOG.md").partition(UNRELEASED)
        lines = rest.partition("\n## [")[0].strip().splitlines()
        if not found or not lines:
            return ["CHANGELOG.md has nothing under Unreleased. Write what users notice."]
        if not self.released and len(lines) > FIRST_LINES:
            page = f"one page that says what Gossamer does: write it anew, in at most {FIRST_LINES} lines"
            return [f"CHANGELOG.md has {len(lines)} lines under Unreleased. That of the first release is {page}."]
        return []

    def _wrong_pages(self) -> list[str]:
        places = places_before_release(self.root)
        advice = "Write how it is installed from there: pip install gossamer-crawl, or 'gossamer-crawl[EXTRA]'."
        return [f"Pages say that Gossamer is not on the package index: {', '.join(places)}. {advice}"] if places else []

    def _stale_proofs(self) -> list[str]:
        files = sorted((self.root / "docs" / "proofs").glob("*.json"))
        stale: list[str] = []
        by_program: dict[tuple[str, str], list[str]] = {}
        for file in files:
            proof = msgspec.json.decode(file.read_bytes())
            since = f"{proof['commit']}..HEAD"
            age = self._git("rev-list", "--count", since, "--", "src", "native", check=False).strip()
            if not age or int(age) > self.proof_commits:
                old = f"is {age} commits of the code old (at most {self.proof_commits})"
                why = old if age else "is of a commit that is not in the history"
                by_program.setdefault((proof["command"], why), []).append(file.stem)
        for (command, why), names in by_program.items():
            proofs = f"The proof {names[0]}" if len(names) == 1 else f"Each of the proofs {', '.join(names)}"
            stale.append(f"{proofs} {why}. Run {command}, then make proofs.")
        return stale

    def _changed_images(self) -> list[str]:
        steps = image.steps(self.root)
        wrong = []
        for target in image.TRIED:
            file = self.root / "docs" / "proofs" / f"image-{target}.json"
            if not file.exists() or msgspec.json.decode(file.read_bytes())["figures"]["steps"] != steps:
                wrong.append(target)
        todo = "Run make images TARGET=… for each, then make proofs."
        return [f"The Dockerfile, as it is, was not built for {', '.join(wrong)}. {todo}"] if wrong else []

    def _replace_line(self, path: str, old: str, new: str) -> None:
        text = re.sub(rf"^{re.escape(old)}", lambda _: new, self._read(path), count=1, flags=re.MULTILINE)
        (self.root / path).write_text(text)

    def _read(self, path: str) -> str:
        return (self.root / path).read_text()

    def _git(self, *arguments: str, check: bool = True) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=self.root, stdout=subprocess.PIPE, text=True, check=check).stdout


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, which compare as versions do; () for one that has others."""
    return tuple(map(int, version.split("."))) if re.fullmatch(r"\d+(\.\d+)*", version) else ()


def main(arguments: list[str] | None = None, root: Path = Path(__file__).parents[1]) -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("version", metavar="VERSION")
    parser.add_argument("--dry-run", action="store_true", help="print each step and what is missing, and do nothing")
    parser.add_argument("--skip-tests", action="store_true", help="test the wheel, not all: CI has tested this commit")
    parser.add_argument("--proof-commits", type=int, default=100, help="commits after which a proof is old (100)")
    options = parser.parse_args(arguments)
    release = Release(root, options.version, proof_commits=options.proof_commits)
    # `make test` ends by testing the wheel.
    tests = ["bash tests/servers/wheel" if options.skip_tests else "make test", "make docs"]
    if release.released:
        tests.append("make versions")
    missing, steps = release.missing(), [f"step: {step}" for step in (*tests, *_STEPS) if options.dry_run]
    for line in (*(f"missing: {one}" for one in missing), *steps):
        print(line)
    if missing or options.dry_run:
        return 1 if missing else 0
    # `make` gives its variables to every make below it, where ARGS has another meaning.
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "ARGS")}
    environment["WHEEL"] = "released"  # what tests/servers/wheel installs
    for command in tests:
        print(f"step: {command}", flush=True)
        if subprocess.run(command.split(), cwd=root, env=environment, check=False).returncode or release.missing():
            print(f"{command} failed, or changed the work tree. Nothing is released.")
            return 1
    try:
        release.write()
    except subprocess.CalledProcessError as error:
        print(f"{shlex.join(error.cmd)} failed. The repository is as it was, and nothing is released.")
        return 1
    print(f"Tagged v{release.version}. To publish: git push origin main v{release.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
