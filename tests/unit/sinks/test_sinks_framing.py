"""Wherever a file is torn, the next writer finds the end of the last whole unit; nothing in a page misleads it."""

import gzip
import os
import random

import pytest
import zstandard

from gossamer.sinks.framing import GzipMembers, PlainLines, ZstdFrames
from gossamer.sinks.warc import WarcRecords, warc_units, warcinfo_units

FRAMINGS = {"lines": PlainLines(), "members": GzipMembers(), "frames": ZstdFrames(), "blocks": WarcRecords()}


@pytest.fixture(params=FRAMINGS)
def framing(request):
    return FRAMINGS[request.param]


@pytest.fixture
def file(tmp_path):
    with (tmp_path / "file").open("w+b") as stream:
        yield stream


def unit_of(framing, page, number):
    if isinstance(framing, WarcRecords):
        return warc_units([page(f"r{number}")])[0]
    return b'{"n":%d,"text":"%s"}\n' % (number, random.Random(number).randbytes(40).hex().encode())


def fill(file, data):
    file.seek(0)
    file.truncate()
    file.write(data)
    file.flush()
    return file.fileno()


@pytest.mark.parametrize("verify", [True, False])
def test_a_tear_at_every_byte_is_found(framing, page, file, verify):
    units = [framing.pack([unit_of(framing, page, number)]) for number in range(3)]
    data = b"".join(units)
    ends = [len(b"".join(units[:count])) for count in range(4)]
    for cut in range(len(data), -1, -1):
        fd = fill(file, data[:cut])
        tail = framing.tail(fd, 0, cut, verify=verify)
        if isinstance(framing, PlainLines) and cut + 1 in ends[1:]:
            assert (tail.end, tail.separator) == (cut, b"\n")  # only the newline is missing
        else:
            assert (tail.end, tail.separator) == (max(end for end in ends if end <= cut), b"")


def test_a_walk_may_begin_at_any_whole_unit(framing, page, file):
    units = [framing.pack([unit_of(framing, page, number)]) for number in range(3)]
    start = len(units[0])
    size = len(b"".join(units)) - 3
    fd = fill(file, b"".join(units)[:size])
    assert framing.tail(fd, start, size, verify=False).end == len(units[0]) + len(units[1])


def test_zeros_that_a_power_cut_left_are_cut(framing, page, file):
    units = [framing.pack([unit_of(framing, page, number)]) for number in range(3)]
    for kept in (0, len(units[2]) // 2, len(units[2]) - 9):
        data = units[0] + units[1] + units[2][:kept] + bytes(len(units[2]) - kept)
        fd = fill(file, data)
        assert framing.tail(fd, 0, len(data), verify=True).end == len(units[0]) + len(units[1])


@pytest.mark.parametrize("framing", [GzipMembers(), WarcRecords()], ids=["members", "blocks"])
def test_an_archive_inside_a_page_is_not_taken_for_the_end(framing, page, file):
    """A torn record whose body holds a whole record: a scan for a pattern from behind would stop there."""
    inner = framing.pack(warcinfo_units())
    first = framing.pack([b"WARC/1.1\r\nContent-Length: 2\r\n\r\nok\r\n\r\n"])
    body = inner * 3 + random.Random(1).randbytes(500)
    outer = framing.pack([b"WARC/1.1\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n" % (len(body), body)])
    data = first + outer[:-40]
    fd = fill(file, data)
    assert framing.tail(fd, 0, len(data), verify=True).end == len(first)


def test_a_digest_of_another_program_may_be_in_lower_case(file):
    [record] = warcinfo_units()
    begin = record.index(b"sha1:") + len(b"sha1:")
    record = record[:begin] + record[begin : begin + 32].lower() + record[begin + 32 :]
    fd = fill(file, record)
    assert WarcRecords().tail(fd, 0, len(record), verify=True).end == len(record)


def test_members_of_another_program_are_walked_too(file):
    ours, theirs = GzipMembers().pack([b"ours\n"]), gzip.compress(os.urandom(3_000_000))
    data = theirs + ours + gzip.compress(b"theirs\n")
    fd = fill(file, data + theirs[:999_999])
    assert GzipMembers().tail(fd, 0, len(data) + 999_999, verify=True).end == len(data)


def test_frames_of_another_program_are_walked_too(file):
    theirs = zstandard.ZstdCompressor().compress(os.urandom(3_000_000))
    skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    data = theirs + skippable + ZstdFrames().pack([b"ours\n"]) + theirs
    fd = fill(file, data + theirs[:999_999])
    assert ZstdFrames().tail(fd, 0, len(data) + 999_999, verify=True).end == len(data)


def test_a_length_that_lies_is_no_endless_walk(file):
    member = bytearray(GzipMembers().pack([b"text\n"]))
    member[16:24] = bytes(8)
    fd = fill(file, bytes(member))
    assert GzipMembers().tail(fd, 0, len(member), verify=False).end == 0
