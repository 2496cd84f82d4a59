"""Reads the items of a job from its file of JSON lines, and writes them in other formats.

A job may be running: a line that is not complete yet is left out. The memory needed does not depend on the number of
items. Waits for the disk: call it in a thread. Fixed: the formats' names and the shapes of what they write.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from sqlalchemy import Row

from gossamer.platform.manager.local_link import FileKind, JobFiles

_CHUNK_BYTES: Final = 256 * 1024
"""Bytes that are read at a time. May be changed."""
_NOT_IN_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may contain, not even escaped."""


class ItemReader:
    """Items of one attempt of a job."""

    def __init__(self, files: JobFiles, job: Row[Any], attempt: int) -> None:
        self._files = files
        self._job = job
        self._attempt = attempt

    def lines(self, position: int = 0) -> Iterator[tuple[bytes, int]]:
        """Yield each complete line from a byte offset on, without its end, and the offset behind it."""
        rest, place = b"", position
        while content := self._files.read(self._job, FileKind.ITEMS, self._attempt, slice(place, place + _CHUNK_BYTES)):
            place += len(content)
            parts = (rest + content).split(b"\n")
            rest = parts.pop()
            for part in parts:
                position += len(part) + 1
                if part:
                    yield part, position

    def parsed(self, position: int = 0) -> Iterator[tuple[Any, int]]:
        """Yield each item from a byte offset on, and the offset behind it. A line that is no JSON is left out."""
        for line, end in self.lines(position):
            try:
                yield json.loads(line), end
            except ValueError:  # the job's process was killed within a write, and its next attempt wrote on
                continue

    def page(self, position: int, limit: int) -> tuple[list[Any], int]:
        """Return up to `limit` items from a byte offset on, and the offset behind the last one."""
        found: list[Any] = []
        for item, end in self.parsed(position):
            found.append(item)
            position = end
            if len(found) == limit:
                break
        return found, position


def _as_json_lines(reader: ItemReader) -> Iterator[bytes]:
    for line, _ in reader.lines():
        yield line + b"\n"


def _as_json(reader: ItemReader) -> Iterator[bytes]:
    yield b"["
    for number, (item, _) in enumerate(reader.parsed()):
        yield (b",\n" if number else b"\n") + json.dumps(item, ensure_ascii=False).encode()
    yield b"\n]\n"


def _as_csv(reader: ItemReader) -> Iterator[bytes]:
    """Write one column for each field that any item has, in the order in which they occur first."""
    columns: dict[str, None] = {}
    for item, _ in reader.parsed():
        columns.update(dict.fromkeys(_fields(item)))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(columns), extrasaction="ignore")
    writer.writeheader()
    for item, _ in reader.parsed():
        writer.writerow({name: _cell(value) for name, value in _fields(item).items()})
        yield buffer.getvalue().encode()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue().encode()


def _fields(item: Any) -> Mapping[str, Any]:
    return item if isinstance(item, dict) else {"value": item}


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _as_xml(reader: ItemReader) -> Iterator[bytes]:
    yield b'<?xml version="1.0" encoding="utf-8"?>\n<items>\n'
    for item, _ in reader.parsed():
        fields = "".join(
            f"<field name={_attribute(name)}>{_xml(value)}</field>" for name, value in _fields(item).items()
        )
        yield f"<item>{fields}</item>\n".encode()
    yield b"</items>\n"


def _attribute(name: str) -> str:
    return quoteattr(_NOT_IN_XML.sub("\ufffd", name))


def _xml(value: Any) -> str:
    if isinstance(value, list):
        return "".join(f"<value>{_xml(part)}</value>" for part in value)
    if isinstance(value, dict):
        return "".join(f"<field name={_attribute(name)}>{_xml(part)}</field>" for name, part in value.items())
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return escape(_NOT_IN_XML.sub("\ufffd", text))


EXPORTS: Final[Mapping[str, tuple[str, Callable[[ItemReader], Iterator[bytes]]]]] = {
    "jsonl": ("application/jsonl", _as_json_lines),
    "json": ("application/json", _as_json),
    "csv": ("text/csv; charset=utf-8", _as_csv),
    "xml": ("application/xml", _as_xml),
}
"""Media type and function of each format."""
