"""Records that were durable in an output and vanish from it are counted, once; a file that was renamed is followed."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gossamer.sinks import append
from gossamer.sinks.base import Sink
from gossamer.sinks.framing import PlainLines
from gossamer.sinks.jsonl import read_records
from gossamer.sinks.open import delete_ledgers, open_sinks
from tests.integration.sink_writer import page

SUFFIXES = [".jsonl", ".jsonl.gz", ".jsonl.zst", ".warc", ".warc.gz"]
every_suffix = pytest.mark.parametrize("suffix", SUFFIXES)
_numbers = itertools.count()


class Writer:
    """One process's view of an output, and what it is told to be missing."""

    def __init__(self, path: Path, *, run: str = "run") -> None:
        self.missing: list[int] = []
        spool = path.parent / "spool"
        (self.sink,) = open_sinks(
            [str(path)], spool_dir=spool, run=run, on_missing=lambda _, records: self.missing.append(records)
        )

    async def write(self, *batches: int) -> None:
        """Batches of so many records."""
        for size in batches:
            await self.sink.write([page(f"r{next(_numbers)}") for _ in range(size)])


def rename(path: Path) -> None:
    path.rename(path.with_name(f"old{path.name}"))


def cut_to_nothing(path: Path) -> None:
    """As logrotate's copytruncate."""
    path.write_bytes(b"")


@every_suffix
@pytest.mark.parametrize("vanish", [Path.unlink, cut_to_nothing])
async def test_an_output_deleted_or_emptied_in_mid_run(
    tmp_path: Path, suffix: str, vanish: Callable[[Path], None]
) -> None:
    path = tmp_path / f"pages{suffix}"
    writer = Writer(path)
    await writer.write(3, 2)
    vanish(path)
    await writer.write(4)
    assert writer.missing == [5]
    await writer.write(1)
    await writer.sink.close()
    assert writer.missing == [5]
    assert path.stat().st_size > 0


@every_suffix
async def test_an_output_cut_to_a_part(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pages{suffix}"
    writer = Writer(path)
    await writer.write(3)
    size = path.stat().st_size
    await writer.write(2, 2)
    with path.open("r+b") as file:
        file.truncate(size + 1)
    await writer.write(1)
    assert writer.missing == [4]
    path.unlink()
    await writer.sink.close()
    assert writer.missing == [4, 4]


async def test_lines_of_a_batch_that_are_left_are_not_missing(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_text('{"before": 1}\n')
    writer = Writer(path)
    await writer.write(10)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]) + lines[5][:7])
    await writer.write(1)
    assert writer.missing == [6]
    assert len(list(map(json.loads, path.read_text().splitlines()))) == 6


@pytest.mark.parametrize("moment", ["before it is written", "before it is flushed"])
async def test_an_output_cut_while_a_batch_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The batch is whole and there once, behind what is left."""
    path = tmp_path / "pages.jsonl"
    writer = Writer(path)
    await writer.write(2)
    cut = [path]

    def flush_after_cut(fd: int) -> None:
        if cut:
            cut_to_nothing(cut.pop())
        append.flush_folder(tmp_path)

    class CutLines(PlainLines):
        def pack(self, units: Sequence[bytes]) -> bytes:
            if cut:
                cut_to_nothing(cut.pop())
            return super().pack(units)

    if moment == "before it is flushed":
        monkeypatch.setattr(append, "flush", flush_after_cut)
    else:
        writer.sink._file.framing = CutLines()  # type: ignore[attr-defined]
    await writer.write(3)
    await writer.sink.close()
    assert writer.missing == [2]
    assert len({record.request_id for record in read_records(path)}) == len(path.read_bytes().splitlines()) == 3


@every_suffix
async def test_an_output_that_is_renamed_is_followed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pages{suffix}"
    first, second = Writer(path), Writer(path)
    await first.write(3)
    await second.write(2)
    rename(path)
    await second.write(2)
    await first.write(2)
    assert path.exists()
    rename(path)
    await first.sink.close()
    await second.sink.close()
    assert first.missing == second.missing == []


async def test_of_several_writers_one_tells(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    first, second = Writer(path), Writer(path)
    await first.write(3)
    await second.write(2)
    path.unlink()
    await second.write(1)
    await first.write(1)
    await first.sink.close()
    await second.sink.close()
    assert (first.missing, second.missing) == ([], [5])
    assert len(list(read_records(path))) == 2


@every_suffix
@pytest.mark.parametrize(("vanish", "missing"), [(Path.unlink, [5]), (cut_to_nothing, [5]), (rename, [])])
async def test_before_a_run_is_resumed(
    tmp_path: Path, suffix: str, vanish: Callable[[Path], None], missing: list[int]
) -> None:
    path = tmp_path / f"pages{suffix}"
    earlier = Writer(path)
    await earlier.write(5)
    await earlier.sink.close()
    vanish(path)
    for later, expected in ((Writer(path), missing), (Writer(path), [])):
        await later.sink.close()
        assert later.missing == expected


async def test_another_run_and_a_finished_one_miss_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    earlier = Writer(path)
    await earlier.write(5)
    await earlier.sink.close()
    path.unlink()
    other, nameless = Writer(path, run="other"), Writer(path, run="")
    await close(other.sink, nameless.sink)
    delete_ledgers([str(path)], spool_dir=tmp_path / "spool", run="run")
    same = Writer(path)
    await close(same.sink)
    assert other.missing == nameless.missing == same.missing == []


async def test_a_worker_without_a_run_counts_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    worker = Writer(path, run="")
    await worker.write(3)
    path.unlink()
    await close(worker.sink)
    assert worker.missing == [3]


async def close(*sinks: Sink) -> None:
    for sink in sinks:
        await sink.close()
