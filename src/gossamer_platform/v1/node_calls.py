"""Calls of nodes on other machines, under /nodes/v1.

They are no part of the API for clients, so its description leaves them out; `wire.py` has their messages, and
`node/http_link.py` makes them. Fixed: a call may be repeated with the same result; and a call whose node is not the one
that the database knows gets 409, which tells the node to end.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

from gossamer.errors import BadInput
from gossamer_platform import wire
from gossamer_platform.link import AttemptId, NodeOrders, NodeTurn
from gossamer_platform.manager.files import JobPlaces
from gossamer_platform.manager.groups import input_content
from gossamer_platform.manager.nodes import NodeKey, known_attempts
from gossamer_platform.manager.operations import NotFound
from gossamer_platform.state import jobs, projects, tokens
from gossamer_platform.state.jobs import Job
from gossamer_platform.state.nodes import NewNode
from gossamer_platform.state.tokens import TokenScope
from gossamer_platform.v1.access import NotPermitted
from gossamer_platform.v1.context import Client, NodeClient, RemoteNodes
from gossamer_platform.v1.reading import in_reader

router = APIRouter(prefix=wire.PREFIX, include_in_schema=False)

_MAX_NAME: Final = 64
"""Longest name of a node, its process, or its folder. The database's: fixed."""
_MAX_SLOTS: Final = 10_000
"""Largest number of jobs that a node may take at a time."""


class _Caller(NamedTuple):
    nodes: RemoteNodes
    key: NodeKey


async def _caller(request: Request, client: NodeClient) -> _Caller:
    nodes = client.context.nodes
    if nodes is None:
        raise NotFound("this server runs its jobs itself; nodes need `gossamer manager`")
    names = [request.headers.get(name, "") for name in (wire.NODE_HEADER, wire.INCARNATION_HEADER)]
    for name, value in zip((wire.NODE_HEADER, wire.INCARNATION_HEADER), names, strict=True):
        if not (0 < len(value) <= _MAX_NAME and value.isprintable()):
            raise BadInput(f"the header {name} needs 1 to {_MAX_NAME} characters")
    await _check_token(client, names[0])
    return _Caller(nodes, NodeKey(*names))


async def _check_token(client: Client, node: str) -> None:
    """Raise NotPermitted if the token belongs to another node. The first node that uses a token gets it, so a token
    that was stolen from one machine cannot take the place of others."""
    principal = client.principal
    if principal.scope is not TokenScope.NODE or principal.node == node:
        return
    owner = principal.node
    if not owner:
        owner = await client.context.manager.database.write(lambda c: tokens.bind_token(c, principal.token, node))
        if owner == node:
            await client.record("token.bind", f"{principal.token} {node}")
            return
    raise NotPermitted(
        f"the token {principal.name!r} belongs to the node {owner}, which used it first, so {node} cannot use it. Make "
        f"another token for {node}, or release this one: gossamer tokens release {principal.token}"
    )


NodeCaller = Annotated[_Caller, Depends(_caller)]


@router.get("/artefacts/{digest}")
async def get_artefact(digest: Annotated[str, Path(pattern="^[0-9a-f]{64}$")], caller: NodeCaller) -> FileResponse:
    """Return an artefact."""
    manager = caller.nodes.operations.manager
    file = await manager.read(lambda connection: projects.artefact_file(connection, digest))
    path = None if file is None else await in_reader(manager.artefacts.fetch, digest, file)
    if path is None:
        raise NotFound(f"artefact {digest} not found")
    return FileResponse(path, media_type="application/zip")


@router.get("/inputs/{job_id}")
async def get_input(job_id: Annotated[int, Path(ge=1, lt=2**63)], caller: NodeCaller) -> StreamingResponse:
    """Return the input of a job that the node has."""
    manager = caller.nodes.operations.manager
    row = await manager.job(job_id)
    if row.node != caller.key.name or not row.input_digest:
        raise NotFound(f"job {job_id} has no input, or another node has it")
    return StreamingResponse(input_content(manager, job_id), media_type="application/octet-stream")


@router.post("/{name}")
async def call(name: str, request: Request, caller: NodeCaller) -> JSONResponse:
    """Carry out one of the calls in `_CALLS`."""
    if name not in _CALLS:
        raise NotFound(f"there is no call {name}")
    kind, carry_out = _CALLS[name]
    try:
        content = await request.json()
    except ValueError:
        raise BadInput("the body is not JSON") from None
    return JSONResponse(wire.encode(await carry_out(caller, wire.decode(kind, content))))


async def _register(caller: _Caller, message: wire.Registration) -> wire.Registered:
    if not 0 < message.slots <= _MAX_SLOTS:
        raise BadInput(f"slots: {message.slots} is not from 1 to {_MAX_SLOTS}")
    if not 0 < len(message.folder) <= _MAX_NAME:
        raise BadInput("folder: has the wrong length")
    node = NewNode(
        caller.key.name,
        message.folder,
        caller.key.incarnation,
        message.slots,
        message.labels,
        message.address[:200],
        message.release[:100],
    )
    operations = caller.nodes.operations
    known = known_attempts(await operations.register(node))
    return wire.Registered([wire.KnownAttempt(*each) for each in known.items()], operations.limit_seconds)


async def _beat(caller: _Caller, message: wire.Beat) -> wire.BeatAnswer:
    return await caller.nodes.operations.beat(caller.key, message)


async def _leave(caller: _Caller, message: wire.Leave) -> wire.Done:
    await caller.nodes.operations.leave(caller.key)
    return wire.Done()


async def _turn(caller: _Caller, message: NodeTurn) -> NodeOrders:
    if not 0 <= message.free <= _MAX_SLOTS:
        raise BadInput(f"turn: free is not from 0 to {_MAX_SLOTS}")
    return await caller.nodes.operations.turn(caller.key, message, places=_no_places)


def _no_places(job: Job) -> JobPlaces:
    """Leave the places of the files to the node."""
    return JobPlaces(output="", items="", arguments={"_job": job.name}, settings={})


async def _started(caller: _Caller, message: wire.Started) -> wire.Done:
    if not 0 < message.pid < 2**31:
        raise BadInput(f"started: {message.pid} is no pid")
    if await _own(caller, message.attempt):
        await caller.nodes.operations.started(message.attempt, message.pid)
    return wire.Done()


async def _returned(caller: _Caller, message: wire.Returned) -> wire.Done:
    if await _own(caller, message.attempt):
        await caller.nodes.operations.returned(message.attempt, message.reason)
    return wire.Done()


async def _ended(caller: _Caller, message: wire.Ended) -> wire.Done:
    if any(abs(number or 0) >= 2**31 for number in (message.end.exit_code, message.end.signal)):
        raise BadInput("ended: exit_code or signal is no such number")
    if await _own(caller, message.attempt):
        await caller.nodes.operations.ended(message.attempt, message.end)
    return wire.Done()


async def _progress(caller: _Caller, message: wire.Progress) -> wire.Done:
    own = await _own(caller, *(report.id for report in message.attempts))
    await caller.nodes.operations.progress([report for report in message.attempts if report.id in own])
    return wire.Done()


async def _own(caller: _Caller, *attempts: AttemptId) -> set[AttemptId]:
    """Return those of the attempts that the node has, or had last. What it says of others has no effect."""
    manager = caller.nodes.operations.manager
    mine = await manager.read(lambda c: jobs.jobs_of_node(c, caller.key.name, [attempt.job for attempt in attempts]))
    return {attempt for attempt in attempts if attempt.job in mine}


async def _listed(caller: _Caller, message: wire.Listed) -> wire.Done:
    await caller.nodes.operations.listed(caller.key, message.version_id, message.result)
    return wire.Done()


async def _prepared(caller: _Caller, message: wire.Prepared) -> wire.Done:
    await caller.nodes.operations.prepared(caller.key, message.report)
    return wire.Done()


async def _wait(caller: _Caller, message: wire.Wait) -> wire.Woken:
    seconds = max(0.0, min(message.seconds, wire.LONGEST_WAIT_SECONDS))
    return await caller.nodes.wake_ups.wait(message.cursor, seconds)


_CALLS: Final[dict[str, tuple[type[Any], Callable[[_Caller, Any], Awaitable[Any]]]]] = {
    "register": (wire.Registration, _register),
    "beat": (wire.Beat, _beat),
    "leave": (wire.Leave, _leave),
    "turn": (NodeTurn, _turn),
    "started": (wire.Started, _started),
    "returned": (wire.Returned, _returned),
    "ended": (wire.Ended, _ended),
    "progress": (wire.Progress, _progress),
    "listed": (wire.Listed, _listed),
    "prepared": (wire.Prepared, _prepared),
    "wait": (wire.Wait, _wait),
}
"""Calls with their messages. A name is fixed; calls may be added."""
