"""Call of nodes that sends a part of a log or of items, under /nodes/v1.

    PUT /nodes/v1/attempts/JOB/ATTEMPT/KIND?offset=N     body: the bytes; answer: {"end": N}

The answer is the end of what the manager has, from which the node continues: a part that was known already, or that
lies behind the end, is no error. Fixed: the path and the answer; and that a body is read only for a node, and only
while few others are.
"""

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.exceptions import HTTPException

from gossamer_platform import wire
from gossamer_platform.manager.files import FileKind
from gossamer_platform.state.chunks import FileKey
from gossamer_platform.v1.node_calls import NodeCaller
from gossamer_platform.v1.reading import in_receiver

router = APIRouter(prefix=wire.PREFIX, include_in_schema=False)

PARTS_PATH: Final = f"{wire.PREFIX}/attempts/"
"""Begin of the path. Fixed."""
_PARTS: Final = asyncio.Semaphore(16)
"""Parts that are in memory at a time; a further call waits."""
_BODY_SECONDS: Final = 30.0
"""Time limit for the body of a call, so that slow nodes do not hold all places."""
_Number = Annotated[int, Path(ge=1, lt=2**31)]


@router.put("/attempts/{job}/{attempt}/{kind}")
async def put_part(
    job: Annotated[int, Path(ge=1, lt=2**63)],
    attempt: _Number,
    kind: FileKind,
    request: Request,
    caller: NodeCaller,
    offset: Annotated[int, Query(ge=0, lt=2**62)],
    lost: bool = False,
) -> Response:
    """Keep bytes of a file from an offset on. `lost`: what is missing before them does not exist any more."""
    key = FileKey(job, attempt, kind)
    async with _PARTS:
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                content = await request.body()
        except TimeoutError:
            raise HTTPException(408, f"the body took longer than {_BODY_SECONDS:g} seconds") from None
        end = await in_receiver(caller.nodes.files.append, caller.key.name, key, offset, content, lost=lost)
    return Response(wire.encode(wire.ReceivedEnd(end)), media_type="application/json")
