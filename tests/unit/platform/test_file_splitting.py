"""A file is split into parts that together are the file."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import BadInput
from gossamer.platform_client.splitting import SplitSource

_CELLS = st.lists(st.text("ab,\n\"' ;ä", max_size=5), min_size=2, max_size=2).filter(any)


@given(rows=st.lists(_CELLS, min_size=1, max_size=30), count=st.integers(1, 40))
def test_parts_of_a_table_have_all_rows_in_order_and_are_even(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], count: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "rows.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *rows])
    parts = list(SplitSource(path).parts(count, only_urls=False))
    read = [list(csv.reader(io.StringIO(part.content.decode(), newline=""))) for part in parts]
    assert [part[0] for part in read] == [["id", "text"]] * len(parts)
    assert [row for part in read for row in part[1:]] == rows
    assert len(parts) == min(count, len(rows))
    assert max(part.rows for part in parts) - min(part.rows for part in parts) <= 1


def test_urls_are_taken_from_each_format(tmp_path: Path) -> None:
    contents = {
        "urls.txt": "\ufeffhttp://a.test/1\r\n\r\nhttp://a.test/2\r\n",
        "urls.csv": "Title,URL\nx,http://a.test/1\ny,http://a.test/2\n",
        "urls.tsv": "link\tx\nhttp://a.test/1\ty\nhttp://a.test/2\ty\n",
        "urls.jl": '{"url": "http://a.test/1"}\n{"x": 1, "url": "http://a.test/2"}\n',
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content, newline="")
        [part] = SplitSource(tmp_path / name).parts(1, only_urls=True)
        assert part.content == b"http://a.test/1\nhttp://a.test/2\n", name


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "has no rows"),
        ("a.csv", b"id,url\n", "has no rows"),
        ("a.txt", b"\xff\xfe", "no text in UTF-8"),
        ("a.txt", b"example.com\n", "has a row without a URL"),
        ("a.csv", b"id,page\n1,http://a.test/\n", "no column of"),
        ("a.jl", b"{nonsense\n", "no JSON"),
        ("a.csv", b"url\n\0\n", "a.csv"),
    ],
)
def test_what_cannot_be_split_is_refused_with_the_reason(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=said):
        list(SplitSource(tmp_path / name).parts(2, only_urls=True))
