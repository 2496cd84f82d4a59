"""Share of refusals that are found among pages which were written after the rules, and no innocent page among them."""

from pathlib import Path
from typing import Any

import yaml

from gossamer.policy.refusals import find_refusal, may_be_refused

PAGES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("refusals_apart.yaml").read_text())
SITE = "https://shop.example"


def kind_of(page: dict[str, Any]) -> str | None:
    """Kind of the refusal, decided as a worker does."""
    title = f"<title>{page['title']}</title>" if "title" in page else ""
    body = (page["body"] if not title else f"<!DOCTYPE html><html><head>{title}</head><body>{page['body']}").encode()
    status, url = page.get("status", 200), SITE + page.get("url", "/offers")
    requested = SITE + page.get("requested", page.get("url", "/offers"))
    if 200 <= status < 300 and not may_be_refused(status, body, redirected=url != requested):
        return None
    found = find_refusal(status, tuple(page.get("headers", {}).items()), body, url=url, requested=requested)
    return found.kind if found else None


def test_most_refusals_are_found_by_their_kind_and_no_innocent_page_is_one() -> None:
    missed = [page["name"] for page in PAGES if "kind" in page and kind_of(page) != page["kind"]]
    assert [page["name"] for page in PAGES if "kind" not in page and kind_of(page)] == []
    assert missed == []
