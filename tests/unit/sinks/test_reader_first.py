"""A program reads the pages, and files get what it has read."""

from collections.abc import Sequence

import pytest

from gossamer.errors import OutputClosed, SinkFull
from gossamer.model.record import ItemRecord, Output
from gossamer.sinks.base import ReaderFirst


class Kept:
    """A sink that keeps its outputs, and raises the next of `errors` first."""

    wants_wire = False
    wants_text = True

    def __init__(self, *errors: Exception) -> None:
        self.outputs: list[Output] = []
        self._errors = list(errors)

    async def write(self, outputs: Sequence[Output]) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.outputs += outputs

    async def close(self) -> None:
        """Do nothing."""


def batch(count: int) -> list[Output]:
    record = ItemRecord(
        appid="a", crawlid="c", spiderid="s", request_id="r", attempt=0, url="u", attrs=None, timestamp="", item={}
    )
    return [Output(record=record) for _ in range(count)]


async def test_files_get_what_the_reader_took_before_it_closed() -> None:
    files, outputs = Kept(), batch(5)
    with pytest.raises(OutputClosed):
        await ReaderFirst(Kept(OutputClosed(taken=2)), files).write(outputs)
    assert files.outputs == outputs[:2]


async def test_a_full_disk_repeats_no_page_for_the_reader() -> None:
    reader, files, outputs = Kept(), Kept(SinkFull("full")), batch(3)
    both = ReaderFirst(reader, files)
    with pytest.raises(SinkFull):
        await both.write(outputs)
    await both.write(outputs)
    assert reader.outputs == files.outputs == outputs
    await both.write(outputs)  # a third time: it is another batch of the same objects
    assert len(reader.outputs) == 6
