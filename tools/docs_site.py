"""Hooks of mkdocs for the documentation site: pages from outside of docs/, and the order of search results."""

import re
from pathlib import Path
from typing import Any

_OUTSIDE = ("CONTRIBUTING.md", "SECURITY.md", "bench/README.md")
"""Pages of the repository that the site has, too, beside those of docs/."""
_LATER = ("reference/", "adr/")
"""Pages whose words are in many places: the search finds others before them."""
_TO_OUTSIDE = re.compile(rf"\]\(\.\./((?:\.\./)*(?:{'|'.join(map(re.escape, _OUTSIDE))})[)#])")
_TO_DOCS = re.compile(r"\]\(((?:\.\./)*)docs/")


def on_files(files: Any, *, config: Any) -> None:
    """Add the pages from outside of docs/."""
    from mkdocs.structure.files import File  # imported late: the tests, which read the table, have no mkdocs

    root = Path(config.docs_dir).parent
    for name in _OUTSIDE:
        files.append(File.generated(config, name, abs_src_path=str(root / name)))


def on_page_markdown(text: str, page: Any, **_others: Any) -> str:
    """Turn links of the repository into those of the site, and rank reference and decisions below other pages."""
    name = page.file.src_uri
    if name.startswith(_LATER):
        page.meta.setdefault("search", {})["boost"] = 0.3
    return _TO_DOCS.sub(r"](\1", text) if name in _OUTSIDE else _TO_OUTSIDE.sub(r"](\1", text)
