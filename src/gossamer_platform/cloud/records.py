"""Endpoints that read items, log entries, requests and samples of a job, as JSON lines or msgpack.

Requests are those that Scrapy's engine names in the log at the level DEBUG; there are no samples. The answers are made
while they are sent, so memory does not depend on their length. Fixed, because clients read them: paths, parameters,
fields, and that a row's number does not change.
"""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import JSONResponse, Response, StreamingResponse

from gossamer.errors import BadInput
from gossamer_platform.cloud.calls import CloudCall, CloudRoute, JobKey, NotOffered
from gossamer_platform.cloud.log_entries import MAX_LINES, log_entries, response_of
from gossamer_platform.cloud.row_filter import RowFilter, parse_row_filters
from gossamer_platform.lifecycle import ENDED
from gossamer_platform.manager.files import FileKind
from gossamer_platform.manager.operations import NotFound
from gossamer_platform.state.jobs import Job
from gossamer_platform.state.tokens import TokenScope
from gossamer_platform.v1.items import ItemReader
from gossamer_platform.v1.reading import in_reader, pieces

JSON_LINES: Final = "application/x-jsonlines"
_MSGPACK: Final = "application/x-msgpack"
_PIECE_BYTES: Final = 64 * 1024
_PIECE_ROWS: Final = 2000
"""Bytes and rows after which a piece of an answer is sent."""
_WRITING_SECONDS: Final = 1.0
"""Time since the last change of a growing log in which further lines of its last entry may follow."""
_TYPES_KEY: Final = "gossamer/item_types"
"""Counter of a job with the names of the classes of its items. The runner's: fixed."""
_END: Final = 2**62
"""Number of a line that no file has."""

NumberedRow = tuple[int, Any]
"""Number of a row, and the row; None: nothing is to be shown at this place."""


class RecordSelection(NamedTuple):
    """Rows that a client asks for."""

    start: int
    limit: int | None
    """None: all."""
    since: int
    """Earliest time in milliseconds, of rows that have one."""
    filters: list[RowFilter]
    with_key: bool


class JobRecords:
    """Rows of one job, of one kind."""

    def __init__(self, reader: ItemReader, job: Job, kind: str) -> None:
        """`kind`: items, logs or requests."""
        self._reader = reader
        self._job = job
        self._kind = kind
        types = (job.stats or {}).get(_TYPES_KEY)
        self._types = types.split(",") if isinstance(types, str) else []
        """Names of the classes of items; the spaces behind an item count up to its own."""

    def rows(self, start: int) -> Iterator[NumberedRow]:
        """Yield the rows from a number on."""
        if self._kind == "items":
            yield from self._items(start)
            return
        for entry in self._entries(start):
            if entry.number >= start:
                yield entry.number, entry.row() if self._kind == "logs" else response_of(entry)

    def _items(self, start: int) -> Iterator[NumberedRow]:
        position, number = self._reader.position(start)
        if number < start:
            return
        for found in self._reader.items(position, number):
            item = found.item if isinstance(found.item, dict) else {"value": found.item}
            if found.spaces < len(self._types):
                item.setdefault("_type", self._types[found.spaces])
            yield found.number, item

    def _entries(self, start: int) -> Iterator[Any]:
        first = max(0, start - MAX_LINES)
        position, number = self._reader.position(first)
        begun = self._job.started_at or self._job.created_at
        grows = self._job.state not in ENDED and time.time() - self._reader.modified_at() < _WRITING_SECONDS
        return log_entries(self._reader.lines(position, number), starts_at=begun, hold_last=grows)

    def close(self) -> None:
        """End the reading. May be repeated."""
        self._reader.close()


async def _rows(call: CloudCall, kind: str) -> Response:
    wanted, key = _selection(call), call.key()
    as_msgpack = _MSGPACK in call.request.headers.get("accept", "") and kind != "requests"
    row = await call.job()
    if row is None:
        raise NotFound(f"job {key} not found")
    reader = await in_reader(ItemReader, call.files, row, 0, _file_of(kind))
    content = _content(JobRecords(reader, row, kind), wanted, key, _packed if as_msgpack else _line)
    media_type = _MSGPACK if as_msgpack else JSON_LINES
    return StreamingResponse(pieces(content), media_type=media_type, headers={"X-Content-Type-Options": "nosniff"})


async def _one_row(call: CloudCall, kind: str) -> Response:
    number, row = call.path("number"), await call.existing_job()
    reader = await in_reader(ItemReader, call.files, row, 0, _file_of(kind))
    only = RecordSelection(number, 1, 0, [], with_key=False)
    as_msgpack = _MSGPACK in call.request.headers.get("accept", "") and kind != "requests"
    encode = _packed if as_msgpack else _line
    content = await in_reader(lambda: b"".join(_content(JobRecords(reader, row, kind), only, call.key(), encode)))
    return Response(content, media_type=_MSGPACK if as_msgpack else JSON_LINES)


async def _stats(call: CloudCall, kind: str) -> Response:
    row = await call.existing_job()
    reader = await in_reader(ItemReader, call.files, row, 0, _file_of(kind))
    try:
        length, lines = await in_reader(lambda: (reader.length(), reader.position(_END)[1]))
    finally:
        await in_reader(reader.close)
    return JSONResponse({"counts": {}, "totals": {"input_bytes": length, "input_values": lines}})


async def _no_samples(call: CloudCall) -> Response:
    await call.existing_job()
    as_msgpack = _MSGPACK in call.request.headers.get("accept", "")
    return Response(b"", media_type=_MSGPACK if as_msgpack else JSON_LINES)


async def _refuse_writing(call: CloudCall) -> Response:
    raise NotOffered("a job's items, log and requests are written by its own process; nothing else can add to them")


def _file_of(kind: str) -> FileKind:
    return FileKind.ITEMS if kind == "items" else FileKind.LOG


def _selection(call: CloudCall) -> RecordSelection:
    key = call.key()
    start = max(_number_in(call, "start", key), _number_in(call, "startafter", key, behind=1))
    meta = {name for value in call.query.get("meta", []) for name in value.split(",")}
    filters = parse_row_filters(call.query.get("filter", []))
    return RecordSelection(start, call.whole("count"), call.whole("startts") or 0, filters, "_key" in meta)


def _number_in(call: CloudCall, name: str, key: JobKey, *, behind: int = 0) -> int:
    """Return the number of the row that a parameter names, by its key or alone. Raises BadInput."""
    text = call.text(name)
    if not text:
        return 0
    number = text.removeprefix(f"{key}/")
    if number.lstrip("-").isdigit() and number.isascii() and len(number) < 18:
        return max(0, int(number) + behind)
    raise BadInput(f"{name}: {text!r} is no key of a row of {key}")


def _content(
    records: JobRecords, wanted: RecordSelection, key: JobKey, encode: Callable[[Any], bytes]
) -> Iterator[bytes]:
    """Yield the answer in pieces, some of which may be empty, and close the records."""
    parts: list[bytes] = []
    length, seen, left = 0, 0, wanted.limit
    try:
        for number, row in records.rows(wanted.start):
            if left == 0:
                break
            seen += 1
            if row is not None and _is_wanted(row, wanted):
                parts.append(encode({"_key": f"{key}/{number}", **_without_key(row)} if wanted.with_key else row))
                length += len(parts[-1])
                left = None if left is None else left - 1
            if length >= _PIECE_BYTES or seen >= _PIECE_ROWS:
                yield b"".join(parts)
                parts, length, seen = [], 0, 0
        yield b"".join(parts)
    finally:
        records.close()


def _without_key(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without a `_key` of its own: the key of the row takes its place."""
    return {name: value for name, value in row.items() if name != "_key"}


def _is_wanted(row: dict[str, Any], wanted: RecordSelection) -> bool:
    at = row.get("time")  # a site's items may have any value here; only numbers are compared
    if wanted.since and isinstance(at, int | float) and at < wanted.since:
        return False
    return all(condition.accepts(row) for condition in wanted.filters)


def _line(row: Any) -> bytes:
    try:
        return msgspec.json.encode(row) + b"\n"
    except (ValueError, TypeError, OverflowError):
        return json.dumps(row).encode() + b"\n"  # a lone surrogate is escaped


def _packed(row: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(row)
    except (ValueError, TypeError, OverflowError):
        return msgspec.msgpack.encode(_packable(row))


def _packable(value: Any) -> Any:
    """Return a value that msgpack can express: longer integers become text, lone surrogates question marks."""
    if isinstance(value, dict):
        return {_packable(key): _packable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_packable(each) for each in value]
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


_JOB: Final = "{project:int}/{spider:int}/{job:int}"
ROUTES: Final = (
    *(
        CloudRoute("GET", f"/{kind}/{_JOB}{path}", TokenScope.READ, partial(answer, kind=kind))
        for kind in ("items", "logs", "requests")
        for path, answer in (("", _rows), ("/stats", _stats), ("/{number:int}", _one_row))
    ),
    *(
        CloudRoute("POST", f"/{kind}/{_JOB}", TokenScope.RUN, _refuse_writing)
        for kind in ("items", "logs", "requests", "samples")
    ),
    CloudRoute("GET", f"/samples/{_JOB}", TokenScope.READ, _no_samples),
)
