"""Steps of the build: the metadata that depends on the repository's address, the requirement of the compiled extension,
and the completion scripts of a wheel."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_IMAGE = re.compile(r"!\[([^\]]+)\]\((?!https?:)([^)]+)\)")
_RELATIVE_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


class RepositoryMetadata(MetadataHookInterface):
    """Derives `urls` and `readme` from `repository` in `[tool.hatch.metadata.hooks.custom]` of pyproject.toml.

    On a package index the README's relative links lead nowhere, so they become links into the repository. While
    `repository` is empty, the package names no address and the links become plain text.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `urls` and `readme`. Called by Hatchling at each build."""
        repository = str(self.config.get("repository", "")).rstrip("/")
        blob = f"{repository}/blob/main"
        target = rf"[\1]({blob}/\2)" if repository else r"\1"
        image = rf"![\1]({repository}/raw/main/\2)" if repository else r"(\1)"
        text = _RELATIVE_IMAGE.sub(image, (Path(self.root) / "README.md").read_text(encoding="utf-8"))
        text = _RELATIVE_LINK.sub(target, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = (
            {
                "Repository": repository,
                "Documentation": f"{blob}/docs/index.md",
                "Changelog": f"{blob}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
            if repository
            else {}
        )


_MAKE_SCRIPTS = """
import json, sys
sys.path[:0] = sys.argv[1:]
try:
    from gossamer.cli.commands.completion import completion_scripts
    scripts = completion_scripts()
except ModuleNotFoundError as error:
    if error.name.partition(".")[0] == "gossamer":
        raise
    print("{}")  # a dependency is missing
else:
    print(json.dumps(scripts))
"""


_PLATFORMS_WITH_WHEELS = (
    "platform_python_implementation == 'CPython' and ("
    "(sys_platform == 'linux' and (platform_machine == 'x86_64' or platform_machine == 'aarch64'))"
    " or (sys_platform == 'darwin' and (platform_machine == 'x86_64' or platform_machine == 'arm64')))"
)
"""Platforms for which a release has a wheel of the extension. Must be those of tools/dist and of the workflow that
releases. On others pip would have to build it, and an installation must not need a compiler."""


def extension_requirements(root: Path, version: str, *, released: bool) -> list[str]:
    """Return the requirement of the compiled extension, in a list; an empty list where it is left out.

    A release requires the wheel of its own version. A checkout, which has the folder `native`, requires this folder,
    which is built where that is possible. GOSSAMER_NATIVE=0 leaves it out.
    """
    folder = root / "native"
    if released or not (folder / "Cargo.toml").is_file():
        return [f"gossamer-native=={version}; {_PLATFORMS_WITH_WHEELS}"]
    if os.environ.get("GOSSAMER_NATIVE") == "0" or not _can_compile(folder):
        return []
    return [f"gossamer-native @ {folder.as_uri()}"]


def _can_compile(folder: Path) -> bool:
    """Return whether there are a C++ compiler and a cargo that is new enough."""
    needed = tomllib.loads((folder / "Cargo.toml").read_text(encoding="utf-8"))["package"]["rust-version"]
    if not any(map(shutil.which, (os.environ.get("CXX", "c++"), "c++", "g++", "clang++"))):
        return False
    try:
        said = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    found = re.match(r"cargo (\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= tuple(map(int, needed.split(".")))


class BuildSteps(BuildHookInterface):
    """Requires the compiled extension, and puts the scripts of `gossamer completion` into a wheel.

    The scripts are made where the package's dependencies are: `make dist` builds the wheels of a release in .venv. An
    installation from a checkout, whose build would have to install them a second time, goes without: there the command
    makes its script, which takes a second. An editable installation does so too, from the current code.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add to the requirements and to the files of the wheel. Called by Hatchling before each build."""
        root = Path(self.root)
        build_data["dependencies"] += extension_requirements(
            root, self.metadata.version, released=self.target_name == "sdist"
        )
        if self.target_name == "wheel" and version == "standard":
            self._add_completion_scripts(root, build_data)

    def _add_completion_scripts(self, root: Path, build_data: dict[str, Any]) -> None:
        # Not by PYTHONPATH: pip's environments of builds have one of their own, and refuse another.
        places = [str(root / "src"), *filter(None, sys.path)]
        made = subprocess.run(
            [sys.executable, "-c", _MAKE_SCRIPTS, *places], cwd=root, stdout=subprocess.PIPE, check=True
        )
        folder = Path(self.directory) / "completion"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in json.loads(made.stdout).items():
            (folder / name).write_text(text, encoding="utf-8")
            build_data["force_include"][str(folder / name)] = f"gossamer/cli/completion/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the scripts outside the wheel. Called by Hatchling after each build."""
        shutil.rmtree(Path(self.directory) / "completion", ignore_errors=True)
