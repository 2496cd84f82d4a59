"""What a person names as an output is refused before anything starts, in words that help."""

import os
import re

import pytest

from gossamer.errors import BadInput
from gossamer.sinks.base import Fanout
from gossamer.sinks.jsonl import read_records
from gossamer.sinks.open import check_outputs, open_sinks


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".warc", ".warc.gz", ".parquet", ".JSONL.GZ"])
def test_known_endings_in_folders_yet_to_be_made(tmp_path, ending):
    path = tmp_path / "new" / "folder" / f"pages{ending}"
    check_outputs([str(path)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["pages", "pages.xls", "pages.tsv", "pages.gz", "", "s3://bucket/pages.txt"])
def test_an_unknown_ending_names_the_known(name):
    with pytest.raises(BadInput, match=r"\.jsonl \.jsonl\.gz \.jsonl\.zst \.warc \.warc\.gz \.parquet"):
        check_outputs([name])
    with pytest.raises(BadInput):
        open_sinks([name], spool_dir="spool")


def test_no_output_at_all():
    with pytest.raises(BadInput, match=r"pages\.jsonl"):
        check_outputs([])


def test_a_directory_in_its_place(tmp_path):
    (tmp_path / "pages.jsonl").mkdir()
    with pytest.raises(BadInput, match="directory"):
        check_outputs([str(tmp_path / "pages.jsonl")])


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="is no folder"):
        check_outputs([str(tmp_path / "file" / "deeper" / "pages.jsonl")])


def test_no_permission():
    with pytest.raises(BadInput, match="may not be written"):
        check_outputs(["/proc/pages.jsonl"])  # refused to root too


def test_a_pipe_in_its_place(tmp_path):
    os.mkfifo(tmp_path / "pages.jsonl")
    with pytest.raises(BadInput, match="regular file"):
        check_outputs([str(tmp_path / "pages.jsonl")])


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".warc", ".warc.gz", ".parquet"])
def test_a_file_of_another_kind_is_left_alone(tmp_path, ending):
    path = tmp_path / f"notes{ending}"
    path.write_bytes(b"my dear diary\n")
    with pytest.raises(BadInput, match="exists"):
        check_outputs([str(path)])
    assert path.read_bytes() == b"my dear diary\n"


def test_one_output_in_two_spellings(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for other in (f"{tmp_path}/link/a.jsonl", f"file://{tmp_path}/a.jsonl", f"{tmp_path}/./a.jsonl"):
        with pytest.raises(BadInput, match="twice"):
            check_outputs([f"{tmp_path}/a.jsonl", other])


def test_an_unknown_protocol():
    with pytest.raises(BadInput, match="unknown protocol"):
        check_outputs(["gopher://host/pages.jsonl"])


def test_a_password_is_not_shown():
    with pytest.raises(BadInput) as caught:
        check_outputs(["gopher://user:secret@host/pages.jsonl"])
    assert "secret" not in str(caught.value)


async def test_only_an_archive_wants_the_wire(tmp_path):
    lines, archive = open_sinks([str(tmp_path / "a.jsonl"), str(tmp_path / "a.warc.gz")], spool_dir=tmp_path)
    assert not lines.wants_wire
    assert archive.wants_wire
    both = Fanout(open_sinks([str(tmp_path / "a.jsonl"), str(tmp_path / "a.warc.gz")], spool_dir=tmp_path))
    assert both.wants_wire
    for sink in (lines, archive, both):
        await sink.close()
        await sink.close()
    assert list(tmp_path.iterdir()) == []


def test_reading_what_is_torn_says_so(tmp_path):
    for name, data in [("a", b'{"type":'), ("b", b"\x1f\x8b\x08\0"), ("c", b"\x28\xb5\x2f\xfd\x04"), ("d", b"{}\n")]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadInput):
            list(read_records(tmp_path / name))
    with pytest.raises(BadInput, match="No such file"):
        list(read_records(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("sqlite:///shop.db", r"For SQLite, write the path of a file, such as shop\.db"),
        ("sqlite:////tmp/shop", r"For SQLite, write the path of a file, such as shop\.sqlite"),
        ("sqlite:///shop.db?table=offers", r"For SQLite, write the path of a file, such as shop\.db$"),
        ("postgresql+psycopg://me@host/shop", "Write postgresql:// at its beginning"),
        ("postgressql://me@host/shop", "Write postgresql:// at its beginning"),
        ("opensearhc://host/shop.json", "Write opensearch:// at its beginning"),
        ("mongodb://host/shop.json", "MongoDB is not supported"),
    ],
)
def test_the_address_of_a_database_with_another_beginning_gets_advice(address: str, advice: str) -> None:
    with pytest.raises(BadInput, match=f"{re.escape(address)} cannot be used.*{advice}"):
        check_outputs([address])
