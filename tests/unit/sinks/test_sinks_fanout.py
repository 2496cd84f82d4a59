"""Several outputs: durable when all have it, and a repeat goes only where it is missing."""

import pytest

from gossamer.errors import SinkError, SinkFull
from gossamer.sinks.base import Fanout


class Shelf:
    """A sink in memory that can be told to refuse."""

    def __init__(self, *, wants_wire=False):
        self.wants_wire = wants_wire
        self.wants_text = True
        self.refusal = None
        self.held = []
        self.closed = 0

    async def write(self, outputs):
        if self.refusal:
            raise self.refusal
        self.held.extend(output.record.request_id for output in outputs)

    async def close(self):
        self.closed += 1
        if self.refusal:
            raise self.refusal


async def test_every_sink_gets_every_batch(page):
    shelves = [Shelf(), Shelf()]
    fanout = Fanout(shelves)
    await fanout.write([page("r1"), page("r2")])
    await fanout.write([])
    await fanout.write([page("r3")])
    assert [shelf.held for shelf in shelves] == [["r1", "r2", "r3"]] * 2


async def test_a_repeat_goes_only_where_it_is_missing(page):
    roomy, full = Shelf(), Shelf()
    fanout = Fanout([roomy, full])
    full.refusal = SinkFull("no room")
    first, second = page("r1"), page("r2")
    for _ in range(3):
        with pytest.raises(SinkFull):
            await fanout.write([first])
    with pytest.raises(SinkFull):
        await fanout.write([second])
    full.refusal = None
    await fanout.write([first])
    await fanout.write([second])
    assert roomy.held == full.held == ["r1", "r2"]
    await fanout.write([first])  # it was complete: this is a new batch
    assert roomy.held == full.held == ["r1", "r2", "r1"]


async def test_the_gravest_failure_is_told(page):
    full, broken = Shelf(), Shelf()
    full.refusal, broken.refusal = SinkFull("no room"), SinkError("broken")
    with pytest.raises(SinkError, match="broken"):
        await Fanout([full, broken]).write([page()])
    broken.refusal = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await Fanout([full, broken]).write([page()])


async def test_every_sink_is_closed_though_one_fails():
    shelves = [Shelf(), Shelf()]
    shelves[0].refusal = SinkError("broken")
    with pytest.raises(SinkError):
        await Fanout(shelves).close()
    assert [shelf.closed for shelf in shelves] == [1, 1]


def test_the_wire_is_wanted_if_any_sink_wants_it():
    assert Fanout([Shelf(), Shelf(wants_wire=True)]).wants_wire
    assert not Fanout([Shelf(), Shelf()]).wants_wire
