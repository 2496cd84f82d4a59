"""Items by cursor, number and condition; exports; the index of lines. On local files, without a server."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import BadInput
from gossamer.storage.line_index import INTERVAL_BYTES, entry_before, index_lines, join_indexes
from gossamer.storage.local_file import LocalFile
from gossamer_platform.v1 import items as items_module
from gossamer_platform.v1.exports import EXPORTS, ItemSelection, export
from gossamer_platform.v1.item_filter import parse_filter, parse_filters
from gossamer_platform.v1.items import ItemReader
from gossamer_platform.v1.models import ItemPage
from gossamer_platform.v1.reading import file_pieces, matching_lines


class OneFile:
    """Files of jobs that are all the same file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, *_: object) -> LocalFile | None:
        return LocalFile(self._path) if self._path.exists() else None


def _reader(path: Path) -> Any:
    return ItemReader(OneFile(path), None, 0)  # type: ignore[arg-type]


def _write(path: Path, count: int, *, pad: int = 0) -> Path:
    lines = (json.dumps({"n": n, "pad": "x" * (pad + n % 7)}) for n in range(count))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize(("count", "pad"), [(0, 0), (1, 0), (5000, 300)])
def test_a_page_begins_at_any_number(tmp_path: Path, count: int, pad: int) -> None:
    reader = _reader(_write(tmp_path / "items.jl", count, pad=pad))
    for start in {0, 1, 7, count // 2, count - 1, count, count + 5} - {-1}:
        found = reader.range(start, 3)
        assert [each.number for each in found] == list(range(start, min(start + 3, count)))
        assert [each.item["n"] for each in found] == [each.number for each in found]


def test_the_index_follows_a_file_that_grows_and_one_that_was_cut_off(tmp_path: Path) -> None:
    path = _write(tmp_path / "items.jl", 3000, pad=300)
    assert _reader(path).range(2990, 1)[0].item["n"] == 2990
    with path.open("a") as file:
        file.write('{"n": 3000}\n{"n": 30')  # the last line is being written
    reader = _reader(path)
    assert [each.item["n"] for each in reader.range(2999, 10)] == [2999, 3000]
    assert reader.page(0, 10_000).is_last
    _write(path, 4)
    assert [each.item["n"] for each in _reader(path).range(2, 10)] == [2, 3]


def test_an_index_of_a_long_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.storage.local_file._MAX_ENTRIES", 4)
    path = _write(tmp_path / "items.jl", 9000, pad=300)
    with_index = LocalFile(path)
    assert all(with_index.near_line(n)[1] <= n for n in range(0, 9000, 500))
    assert [_reader(path).range(n, 1)[0].item["n"] for n in range(0, 9000, 500)] == list(range(0, 9000, 500))
    with_index.close()


def test_a_deleted_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = _write(tmp_path / "items.jl", 5000, pad=300)
    lines = _reader(path).lines()
    next(lines)
    path.unlink()
    assert sum(1 for _ in lines) == 4999


def test_a_broken_line_keeps_its_number_and_is_no_item(tmp_path: Path) -> None:
    path = tmp_path / "items.jl"
    path.write_bytes(b'{"n": 0}\n{"n": \n\n{"n": 3}\n')
    assert [(each.number, each.item["n"]) for each in _reader(path).range(0, 10)] == [(0, 0), (3, 3)]


@pytest.mark.parametrize("depth", [199, 400, 5000])
def test_an_item_that_is_nested_deep_is_in_the_page_and_in_each_export(tmp_path: Path, depth: int) -> None:
    deep = '{"[": ' * depth + "1" + "}" * depth
    path = tmp_path / "items.jl"
    path.write_text(f'{{"n": 0}}\n{deep}\n{deep[:-1]}\n{{"n": 3}}\n')
    items = [each.item for each in _reader(path).range(0, 10)]
    assert [items[0], items[-1], len(items)] == [{"n": 0}, {"n": 3}, 3]
    assert items[1] == (json.loads(deep) if depth < 200 else {"_json": deep})
    page = ItemPage(items=items, next=None, end="0").model_dump_json()
    assert page.count("[") == 1 + depth
    for form in EXPORTS:
        content = b"".join(export(form, ItemSelection(_reader(path)))).decode()
        assert content.count("[") >= depth
        assert content.rindex("[", 0, -3) < content.rindex("3")  # the item behind it


def test_a_line_that_is_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items_module, "_MAX_LINE_BYTES", 500_000)
    path = tmp_path / "items.jl"
    path.write_text(f'{{"n": 0}}\n{{"n": "{"x" * 3_000_000}"}}\n{{"n": 2}}\n')
    assert [each.item["n"] for each in _reader(path).items()] == [0, 2]


def test_a_condition_that_nothing_meets_ends_the_page_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items_module, "_PAGE_BYTES", 100_000)
    reader = _reader(_write(tmp_path / "items.jl", 2000, pad=300))
    pages, position, is_last = 0, 0, False
    found: list[int] = []
    while not is_last:
        part = reader.page(position, 10, [parse_filter("n=1999")])
        found += [each.item["n"] for each in part.items]
        pages, position, is_last = pages + 1, part.end, part.is_last
    assert found == [1999]
    assert 5 < pages < 10


_ITEM = {"price": 10, "name": "Red Shoe", "tags": ["a", "b"], "none": None, "address": {"city": "Bonn"}, "x.y": True}


@pytest.mark.parametrize(
    ("text", "accepts"),
    [
        ("price=10", True),
        ("price=10.0", True),
        ("price=1", False),
        ("price!=10", False),
        ("price>=10", True),
        ("price<10", False),
        ("name>=10", False),
        ("name=Red Shoe", True),
        ("name~shoe", True),
        ("name~SHOES", False),
        ("tags=b", True),
        ("tags~B", True),
        ("tags=c", False),
        ("none", True),
        ("!none", True),
        ("!price", False),
        ("missing", False),
        ("!missing", True),
        ("missing!=1", True),
        ("address.city=Bonn", True),
        ("address.street", False),
        ("x.y=true", True),
        ("none=null", True),
        ("name=a=b", False),
    ],
)
def test_conditions(text: str, accepts: bool) -> None:
    assert parse_filter(text).accepts(_ITEM) is accepts


@pytest.mark.parametrize("text", ["", "=", "!", "!a=b", "price>cheap"])
def test_a_condition_that_cannot_be_read_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(BadInput, match="filter: "):
        parse_filter(text)


def test_too_many_conditions_are_refused() -> None:
    with pytest.raises(BadInput, match="21 conditions"):
        parse_filters(["a"] * 21)


def test_a_condition_accepts_or_refuses_an_item_that_is_no_object() -> None:
    assert not parse_filter("a").accepts([1])
    assert parse_filter("!a").accepts("text")


def _exported(path: Path, form: str, **selection: Any) -> bytes:
    return b"".join(export(form, ItemSelection(_reader(path), **selection)))


def test_exports_of_a_selection(tmp_path: Path) -> None:
    path = _write(tmp_path / "items.jl", 100)
    for form in EXPORTS:
        text = _exported(path, form, start=10, limit=2, filters=[parse_filter("n>=20")]).decode()
        assert [n for n in range(100) if f'"n":{n},' in text or f"\n{n}," in text or f">{n}</field>" in text] == [
            20,
            21,
        ]
    assert _exported(path, "jsonl") == path.read_bytes()
    assert _exported(path, "json", start=100) == b"[\n]\n"
    assert _exported(tmp_path / "none", "jsonl") == b""


def test_an_export_comes_in_pieces(tmp_path: Path) -> None:
    path = _write(tmp_path / "items.jl", 5000, pad=300)
    for form in EXPORTS:
        pieces = list(export(form, ItemSelection(_reader(path))))
        assert len(pieces) > 10
        assert max(map(len, pieces)) < 100_000


def test_lines_of_a_log_that_contain_a_text(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        for number in range(50_000):
            file.write(f"{number} {'ERROR' if number % 1000 == 999 else 'INFO'} something\n")
        file.write("the last ERROR has no end")
    open_file = LocalFile(path)
    found = b"".join(matching_lines(file_pieces(open_file, 0, open_file.length()), b"ERROR")).decode().splitlines()
    assert found == [f"{n} ERROR something" for n in range(999, 50_000, 1000)] + ["the last ERROR has no end"]


@pytest.fixture
def content() -> bytes:
    return b"".join(b"x" * (n % 500) + b"\n" for n in range(4000))


def test_joined_indexes_equal_the_index_of_the_whole(content: bytes) -> None:
    cuts = [0, 10, 5000, 300_000, 300_001, 700_000, len(content)]
    parts = [content[start:stop] for start, stop in pairwise(cuts)]
    joined = join_indexes([(len(part), *index_lines(part)) for part in parts])
    for offset, count in joined:
        assert content[:offset].count(b"\n") == count
        assert content[offset - 1 : offset] == b"\n"
    assert len(joined) <= 2 * len(content) / INTERVAL_BYTES + 2
    assert entry_before(joined, 0) is None
    assert entry_before(joined, 4000) == joined[-1]


def test_an_integer_beyond_floats_is_compared() -> None:
    item = {"n": 10**400}
    assert parse_filter("n>=0").accepts(item)
    assert not parse_filter("n<5").accepts(item)
