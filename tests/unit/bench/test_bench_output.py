"""Whether a crawler wrote every page once."""

import json
from pathlib import Path

import pytest

from bench.output import complaint

PAGES = {"http://a.test/", "http://a.test/1", "http://a.test/2"}
WHOLE = "x" * 100


def _written(folder: Path, *records: dict[str, object]) -> str:
    path = folder / "pages.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return complaint(path, PAGES, least_body=100)


def _page(path: str, **more: object) -> dict[str, object]:
    return {"url": f"http://a.test/{path}", "body": WHOLE, **more}


def test_every_page_once_is_as_it_should_be(tmp_path: Path) -> None:
    """Other fields do not matter, and a fragment is no other page."""
    assert _written(tmp_path, _page(""), _page("1#top", status_code=200), _page("2", success=True)) == ""


@pytest.mark.parametrize(
    ("records", "wrong"),
    [
        ([_page(""), _page("1")], "1 missing"),
        ([_page(""), _page("1"), _page("2"), _page("2")], "1 repeated"),
        ([_page(""), _page("1"), _page("2"), _page("3")], "1 not of the site"),
        ([_page(""), _page("1"), _page("2", success=False)], "1 missing, 1 failed"),
        ([_page(""), _page("1"), _page("2", body="x")], "1 without their whole body"),
        ([], "3 missing"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, records: list[dict[str, object]], wrong: str) -> None:
    assert _written(tmp_path, *records) == wrong


def test_no_file_at_all(tmp_path: Path) -> None:
    assert complaint(tmp_path / "none", PAGES, least_body=1) == "no output"
