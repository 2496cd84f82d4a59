"""Calls of nodes on other machines, under /nodes/v1.

They are no part of the API for clients, so its description leaves them out; `wire.py` has their messages, and
`node/http_link.py` makes them. Fixed: a call may be repeated with the same result; and a call whose node is not the one
that the database knows gets 409, which tells the node to end.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from msgspec import Struct
from sqlalchemy import Connection

from gossamer.errors import BadInput
from gossamer_platform import wire
from gossamer_platform.link import NodeOrders, NodeTurn
from gossamer_platform.manager.chunk_files import ChunkFiles
from gossamer_platform.manager.groups import input_content
from gossamer_platform.manager.nodes import NodeKey, known_attempts
from gossamer_platform.manager.operations import NotFound
from gossamer_platform.state import audit, projects, tokens
from gossamer_platform.state.nodes import NewNode
from gossamer_platform.state.tokens import Principal, TokenScope
from gossamer_platform.v1.access import NotPermitted
from gossamer_platform.v1.context import Client, NodeClient, RemoteNodes
from gossamer_platform.v1.reading import in_reader

router = APIRouter(prefix=wire.PREFIX, include_in_schema=False)


class _Caller(NamedTuple):
    nodes: RemoteNodes
    key: NodeKey


async def _caller(request: Request, client: NodeClient) -> _Caller:
    nodes = client.context.nodes
    if nodes is None:
        raise NotFound("this server runs its jobs itself; nodes need `gossamer manager`")
    names = [request.headers.get(name, "") for name in (wire.NODE_HEADER, wire.INCARNATION_HEADER)]
    for name, value in zip((wire.NODE_HEADER, wire.INCARNATION_HEADER), names, strict=True):
        if not (0 < len(value) <= wire.MAX_NAME and value.isprintable()):
            raise BadInput(f"the header {name} needs 1 to {wire.MAX_NAME} characters")
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
        owner = await client.context.manager.database.write(lambda c: _bind(c, principal, node))
        if owner == node:
            return
    raise NotPermitted(
        f"the token {principal.name!r} belongs to the node {owner}, which used it first, so {node} cannot use it. Make "
        f"another token for {node}, or release this one: gossamer tokens release {principal.token}"
    )


def _bind(connection: Connection, principal: Principal, node: str) -> str:
    """Give a token to the node that uses it first. Return the node that has it. Empty: there is no such token."""
    owner = tokens.bind_token(connection, principal.token, node)
    if owner == node:
        audit.record_action(connection, principal.name, "token.bind", f"{principal.token} {node}")
    return owner


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
async def call(name: str, request: Request, caller: NodeCaller) -> Response:
    """Carry out one of the calls in `_CALLS`, or a report."""
    content = await request.body()
    answer: Struct = wire.Done()
    if name in wire.REPORTS:
        await caller.nodes.operations.report(caller.key, wire.decode(wire.REPORTS[name], content))
    elif name in _CALLS:
        kind, carry_out = _CALLS[name]
        answer = await carry_out(caller, wire.decode(kind, content))
    else:
        raise NotFound(f"there is no call {name}")
    return Response(wire.encode(answer), media_type="application/json")


async def _register(caller: _Caller, message: wire.Registration) -> wire.Registered:
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
    return await caller.nodes.operations.turn(caller.key, message, places=ChunkFiles(caller.nodes.files).places)


async def _wait(caller: _Caller, message: wire.Wait) -> wire.Woken:
    seconds = max(0.0, min(message.seconds, wire.LONGEST_WAIT_SECONDS))
    return await caller.nodes.wake_ups.wait(message.cursor, seconds)


_CALLS: Final[dict[str, tuple[type[Any], Callable[[_Caller, Any], Awaitable[Struct]]]]] = {
    "register": (wire.Registration, _register),
    "beat": (wire.Beat, _beat),
    "leave": (wire.Leave, _leave),
    "turn": (NodeTurn, _turn),
    "wait": (wire.Wait, _wait),
}
"""Calls with an answer, and their messages. A name is fixed; calls may be added."""
