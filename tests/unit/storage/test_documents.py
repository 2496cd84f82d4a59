"""Files that people write: a fault is an error with the file, never a traceback, a lost key or an enormous object."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer.session.session_file import read_session_file
from gossamer.settings.crawl import CrawlSettings
from gossamer.storage.documents import decode_document, read_text
from gossamer.wiring.extraction import load_extraction

FAULTS = {
    "deep.yaml": "[" * 3000,
    "deep.json": "[" * 200_000,
    "twice.yaml": "site: a.test\nsite: b.test\n",
    "twice.json": '{"site": "a.test", "site": "b.test"}',
    "alias.yaml": "a: &x [1]\nb: *x\n",
    "cut.json": '{"site": ',
    "cut.toml": "site = ",
    "latin.yaml": "site: \xe4.test\n",
}


def _extract(path: Path) -> object:
    return load_extraction(CrawlSettings(extract=str(path)))


def _log_in(path: Path) -> object:
    return read_session_file(path, {}, now=0.0)


@pytest.mark.parametrize("read", [_extract, _log_in])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_file(read: Callable[[Path], object], name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(FAULTS[name], encoding="latin-1")
    with pytest.raises(BadInput, match=name):
        read(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("#" * 2048)
    with pytest.raises(BadInput, match=r"large\.yaml is larger than 1 KiB\. Name another\.$"):
        read_text(path, most_bytes=1024, advice="Name another.")


def test_dates_stay_texts(tmp_path: Path) -> None:
    assert decode_document(tmp_path / "a.yaml", "day: 2027-01-02\n") == {"day": "2027-01-02"}
