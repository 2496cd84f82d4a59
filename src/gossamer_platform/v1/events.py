"""Endpoint that follows a job: its log while it grows, and its state, as server-sent events.

    event: log     data: {"text": "…"}       id: ATTEMPT:OFFSET
    event: state   data: {"state": "…", "reason": "…", "attempt": 1}
    event: end     data: {}

A client that was cut off continues with the header Last-Event-ID, which browsers send by themselves: the id is the
number of the attempt, from 1, and the byte offset behind the event. Fixed: names of events and the form of ids; and
that the stream closes after `end`, which tells a browser to close its side, or it would connect again for ever.
"""

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request
from fastapi.responses import StreamingResponse

from gossamer.errors import BadInput
from gossamer.model.json_codec import encode_value
from gossamer.web.streams import KEEPALIVE, KEEPALIVE_SECONDS, EventStreamResponse, EventStreams, event
from gossamer_platform.lifecycle import ENDED
from gossamer_platform.manager.files import FileKind, read_part
from gossamer_platform.state.jobs import Job
from gossamer_platform.v1.context import RESPONSES, Client, Reader
from gossamer_platform.v1.jobs import JobId, visible_job
from gossamer_platform.v1.reading import in_reader

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=RESPONSES)

_LOOK_SECONDS: Final = 0.5
"""Pause between two looks at the job. Each is a read of the database."""
_EVENT_BYTES: Final = 64 * 1024
"""Longest part of a log in one event."""
_ID: Final = re.compile(r"(\d{1,9}):(\d{1,18})", re.ASCII)


@router.get("/{job_id}/events", summary="Follow a job", response_class=StreamingResponse)
async def follow_job(
    job_id: JobId, client: Reader, request: Request, last_event_id: Annotated[str, Header(max_length=100)] = ""
) -> StreamingResponse:
    """Return the log from its begin, and then as it grows, until the job has ended; with a header Last-Event-ID from
    that place on."""
    row = await visible_job(client, job_id)
    streams: EventStreams = request.app.state.streams
    follower = JobFollower(client, row, streams)
    if last_event_id:
        found = _ID.fullmatch(last_event_id)
        if found is None:
            raise BadInput(f"Last-Event-ID: {last_event_id} is not the id of an event of this job")
        follower.continue_at(int(found[1]), int(found[2]))
    return EventStreamResponse(follower.events(), streams)


class JobFollower:
    """One client's place in the log of a job."""

    def __init__(self, client: Client, row: Job, streams: EventStreams) -> None:
        self._client = client
        self._streams = streams
        self._row = row
        self._attempt = len(row.earlier_attempts) + 1
        """Number of the attempt whose log is read, from 1. At first, the latest attempt."""
        self._offset = 0

    def continue_at(self, attempt: int, offset: int) -> None:
        """Continue at a byte offset of an attempt's log. An attempt that does not exist yet counts as the latest
        one."""
        self._attempt, self._offset = min(max(1, attempt), self._attempt), offset

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events until the job has ended and its log was read, or the server stops."""
        shown: tuple[Any, ...] = ()
        silent_seconds = 0.0
        while not self._streams.closing.is_set():
            state = (self._row.state, self._row.reason, self._row.attempt)
            if state != shown:
                shown = state
                fields = dict(zip(("state", "reason", "attempt"), state, strict=True))
                yield event("state", encode_value(fields))
            is_complete = self._is_complete()
            async for part in self._log(is_complete=is_complete):
                silent_seconds = 0.0
                yield part
            if is_complete and not self._next_attempt():
                yield event("end", b"{}")
                return
            if not is_complete:
                await self._streams.pause(_LOOK_SECONDS)
                silent_seconds += _LOOK_SECONDS
            if silent_seconds >= KEEPALIVE_SECONDS:
                silent_seconds = 0.0
                yield KEEPALIVE
            # Read the row before the log: when the row says that the job has ended, the log is complete.
            self._row = await self._client.context.manager.job(self._row.id)

    def _is_complete(self) -> bool:
        """Return whether nothing is written to the log of this attempt any more."""
        return self._attempt <= len(self._row.earlier_attempts) or self._row.state in ENDED

    def _next_attempt(self) -> bool:
        if self._attempt > len(self._row.earlier_attempts):
            return False
        self._attempt, self._offset = self._attempt + 1, 0
        return True

    async def _log(self, *, is_complete: bool) -> AsyncIterator[bytes]:
        while text := await self._part(is_complete=is_complete):
            self._offset += len(text)
            data = encode_value({"text": text.decode(errors="replace")})
            yield event("log", data, id=f"{self._attempt}:{self._offset}")

    async def _part(self, *, is_complete: bool) -> bytes:
        """Return the next lines of the log. A line that is not complete is left out until it is, or is long."""
        files, place = self._client.context.files, slice(self._offset, self._offset + _EVENT_BYTES)
        content = await in_reader(read_part, files, self._row, FileKind.LOG, self._attempt, place)
        lines = content.rfind(b"\n") + 1
        if lines or (len(content) < _EVENT_BYTES and not is_complete):
            return content[:lines]
        return content
