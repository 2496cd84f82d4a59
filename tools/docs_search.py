"""Lets the search of the documentation site find how-tos before the reference and the decision records, which name
each word more often. A hook of mkdocs."""

from typing import Any

_LATER = ("reference/", "adr/")


def on_page_markdown(_: str, page: Any, **_others: Any) -> None:
    """Rank a page of the reference or a decision record below the others."""
    if page.file.src_uri.startswith(_LATER):
        page.meta.setdefault("search", {})["boost"] = 0.3
