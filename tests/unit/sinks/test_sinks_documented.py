"""The reference names every field of every record, and no other; and every kind of file."""

import re
from pathlib import Path

import pytest

from gossamer.model.record import ItemRecord, PageRecord
from gossamer.sinks.open import ENDINGS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "records.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("heading", "record"), [("A page", PageRecord), ("An item", ItemRecord)])
def test_every_field_is_documented(heading, record):
    section = re.search(rf"^## {heading}.*?(?=^## )", PAGE, re.DOTALL | re.MULTILINE)[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(record.__struct_fields__)


def test_every_kind_of_file_is_documented():
    for suffix in ENDINGS:
        assert f"`{suffix}`" in PAGE
