"""Steps of the build: the metadata that depends on the repository's address, and the completion scripts of a wheel."""

import json
import os
import re
import shutil
import subprocess
import sys
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
import json
from gossamer.cli.commands.completion import completion_scripts
print(json.dumps(completion_scripts()))
"""


class CompletionScripts(BuildHookInterface):
    """Puts the scripts of `gossamer completion` into a wheel. They need the package's dependencies, which
    `require-runtime-dependencies` in pyproject.toml installs for the build. An editable installation needs none: there
    the command makes its script from the current code."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the scripts and add them to the files of the wheel. Called by Hatchling before each build."""
        if version != "standard":
            return
        root = Path(self.root)
        made = subprocess.run(
            [sys.executable, "-c", _MAKE_SCRIPTS], env={**os.environ, "PYTHONPATH": str(root / "src")}, cwd=root,
            stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        folder = Path(self.directory) / "completion"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in json.loads(made.stdout).items():
            (folder / name).write_text(text, encoding="utf-8")
            build_data["force_include"][str(folder / name)] = f"gossamer/cli/completion/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the scripts outside the wheel. Called by Hatchling after each build."""
        shutil.rmtree(Path(self.directory) / "completion", ignore_errors=True)
