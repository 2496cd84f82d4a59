"""Refusals that are found among pages of each kind, and innocent pages that look like them.

Those of `refusals_written.yaml` were used to write the rules. The others were written after the rules, and measure
them: the first result of each is in its own comment, before the rules learnt from it.
"""

from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import yaml

from gossamer.extract.refusals import find_refusal
from gossamer.policy.refusals import may_be_refused

SITE = "https://shop.example"
FILES = ("refusals_apart.yaml", "refusals_written.yaml", "refusals_apart_3.yaml", "refusals_apart_4.yaml",
         "refusals_apart_5.yaml", "refusals_apart_6.yaml")  # fmt: skip


def pages(name: str) -> list[dict[str, Any]]:
    """The pages of a file."""
    read: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name(name).read_text())
    return read


def kind_of(page: dict[str, Any]) -> str | None:
    """Kind of the refusal, decided as a worker does."""
    title = f"<title>{page['title']}</title>{page.get('head', '')}" if "title" in page else ""
    body = (page["body"] if not title else f"<!DOCTYPE html><html><head>{title}</head><body>{page['body']}").encode()
    status, url = page.get("status", 200), urljoin(SITE, page.get("url", "/offers"))
    requested = urljoin(SITE, page.get("requested", page.get("url", "/offers")))
    if 200 <= status < 300 and not may_be_refused(status, body, redirected=url != requested):
        return None
    found = find_refusal(status, tuple(page.get("headers", {}).items()), body, url=url, requested=requested)
    return found.kind if found else None


@pytest.mark.parametrize("name", FILES)
def test_refusals_are_found_by_their_kind_and_no_innocent_page_is_one(name: str) -> None:
    missed = [page["name"] for page in pages(name) if "kind" in page and kind_of(page) != page["kind"]]
    assert [page["name"] for page in pages(name) if "kind" not in page and kind_of(page)] == []
    assert missed == []
