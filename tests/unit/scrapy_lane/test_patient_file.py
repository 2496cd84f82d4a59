"""Whatever is written arrives whole and in order, however often the disk is full in between."""

import errno
import io
import random
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from scrapy.exporters import CsvItemExporter, JsonItemExporter, JsonLinesItemExporter, XmlItemExporter
from scrapy.extensions.feedexport import FileFeedStorage

from gossamer.scrapy.buffered_feeds import FeedFiles, PatientFile
from gossamer.scrapy.feeds import WholeFileStorage

EXPORTERS = [CsvItemExporter, JsonItemExporter, JsonLinesItemExporter, XmlItemExporter]


class Disk(io.RawIOBase):
    """Has `room` for so many bytes more; takes what fits, and then nothing."""

    def __init__(self) -> None:
        self.room = 0
        self.content = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self.room and len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = bytes(data)[: self.room]
        self.room -= len(taken)
        self.content += taken
        return len(taken)


def opened(disk: Disk, buffer_bytes: int = 4096) -> PatientFile:
    return PatientFile(io.BufferedWriter(disk, buffer_bytes))


@pytest.mark.parametrize("buffer_bytes", [512, 4096, 8192])
def test_nothing_is_torn_or_lost_or_written_twice(buffer_bytes: int) -> None:
    chance = random.Random(buffer_bytes)
    disk = Disk()
    file = opened(disk, buffer_bytes)
    wanted = b""
    for number in range(400):
        line = f"{number}:{'x' * chance.choice((0, 10, 600, 5000, 20000))}\n".encode()
        assert file.write(line) == len(line)
        wanted += line
        if chance.random() < 0.5:
            disk.room = chance.randrange(8000)
        if chance.random() < 0.1:
            disk.room = 10**6
            file.flush()
            assert disk.content == wanted
            disk.room = chance.randrange(100)
    disk.room = 10**9
    file.close()
    assert disk.content == wanted


def test_flushing_says_that_there_is_no_room() -> None:
    disk = Disk()
    file = opened(disk)
    file.write(b"a" * 10_000)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            file.flush()
    disk.room = 20_000
    file.flush()
    assert disk.content == b"a" * 10_000


def test_closing_a_full_disk_says_so_and_closes() -> None:
    file = opened(Disk())
    file.write(b"a" * 10_000)
    with pytest.raises(OSError, match="No space left"):
        file.close()
    assert file.closed


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_scrapys_exporters_write_what_they_write_to_a_plain_file(exporter: Any) -> None:
    items = [{"url": f"http://site{number}.test/", "text": "ü" * number * 7} for number in range(200)]
    plain = io.BytesIO()
    disk = Disk()
    patient = opened(disk)
    for file in (cast("PatientFile", plain), patient):
        export = exporter(file)
        export.start_exporting()
        for item in items:
            export.export_item(item)
            disk.room += 100
        export.finish_exporting()
        disk.room = 10**9
        file.flush()
    assert bytes(disk.content) == plain.getvalue()
    patient.close()


def test_a_whole_feed_gets_its_name_though_the_disk_was_full_for_a_while(tmp_path: Path) -> None:
    feed = tmp_path / "items.jl"
    files = FeedFiles(cast("Any", SimpleNamespace(extensions=None)))
    storage = files._with_patient_files(WholeFileStorage)(str(feed), feed_options={"overwrite": True})
    file = storage.open(cast("Any", None))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        file.write(b"a" * 20_000)
        with pytest.raises(OSError, match="File too large"):
            file.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    file.write(b"b")
    storage.store(file)
    assert feed.read_bytes() == b"a" * 20_000 + b"b"
    assert [path.name for path in tmp_path.iterdir()] == ["items.jl"]


def test_a_feed_that_its_own_plugin_has_closed_is_stored(tmp_path: Path) -> None:
    feed = tmp_path / "items.jl"
    files = FeedFiles(cast("Any", SimpleNamespace(extensions=None)))
    storage = files._with_patient_files(FileFeedStorage)(str(feed), feed_options={"overwrite": True})
    file = storage.open(cast("Any", None))
    file.write(b"a" * 20_000)
    file.close()
    storage.store(file)
    assert feed.read_bytes() == b"a" * 20_000
