"""Adds to the package's metadata what depends on the repository's address: its addresses, and the README's links."""

import re
from pathlib import Path
from typing import Any

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
