"""Endpoints of nodes and of labels: list, show, drain, forget; and how many jobs of a label run at a time.

Fixed, because clients read them: paths, names of parameters, status codes; and that a token for one project permits
none of this, because nodes and labels serve all projects.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from gossamer_platform.manager.operations import JobConflict, NotFound
from gossamer_platform.state import nodes
from gossamer_platform.state.nodes import NodeState
from gossamer_platform.state.row_page import ALL_ROWS
from gossamer_platform.v1.context import RESPONSES, Client, Operator, OperatorReader
from gossamer_platform.v1.models import LabelChange, LabelModel, NodeChange, NodeCounts, NodeModel
from gossamer_platform.v1.pages import PageOfList

router = APIRouter(prefix="/v1", responses=RESPONSES)

_NodeName = Annotated[str, Path(max_length=64, description="Name of the node.")]


@router.get("/nodes", tags=["nodes"], summary="List nodes")
async def list_nodes(
    client: OperatorReader,
    page: PageOfList,
    state: Annotated[NodeState | None, Query(description="State. Absent: any.")] = None,
) -> list[NodeModel]:
    """Return nodes, also those that are lost: all by name; or a page of them, or those in a state, in the order in
    which they came."""
    if page == ALL_ROWS and state is None:
        return [NodeModel.of(row) for row in await client.context.manager.read(nodes.list_nodes)]
    return [NodeModel.of(row) for row in await client.context.manager.read(lambda c: nodes.node_page(c, page, state))]


@router.get("/node-counts", tags=["nodes"], summary="Count nodes by state")
async def count_nodes(client: OperatorReader) -> NodeCounts:
    """Return how many nodes there are, and how many jobs they run at a time."""
    by_state, slots = await client.context.manager.read(nodes.count_nodes)
    return NodeCounts(nodes=by_state, slots=slots)


@router.get("/nodes/{name}", tags=["nodes"], summary="Show a node")
async def get_node(name: _NodeName, client: OperatorReader) -> NodeModel:
    """Return a node."""
    return await _node(client, name)


@router.patch("/nodes/{name}", tags=["nodes"], summary="Drain a node, or end that")
async def change_node(name: _NodeName, change: NodeChange, client: Operator) -> NodeModel:
    """Give a node no more jobs; those that it has go on to their ends. Or give it jobs again. A node that is draining
    still is when it is started again."""
    database = client.context.manager.database
    if not await database.write(lambda c: nodes.set_draining(c, name, is_draining=change.draining)):
        raise NotFound(f"node '{name}' not found")
    client.name_change("node.drain" if change.draining else "node.undrain", name)
    client.context.manager.wake_nodes()
    return await _node(client, name)


@router.delete("/nodes/{name}", status_code=204, tags=["nodes"], summary="Forget a lost node")
async def forget_node(name: _NodeName, client: Operator) -> Response:
    """Delete a node that is lost. If it comes back, it must be started anew."""
    if not await client.context.manager.database.write(lambda c: nodes.forget_node(c, name)):
        state = (await _node(client, name)).state
        raise JobConflict(f"node '{name}' is {state}; only a node that is lost or offline can be forgotten. Stop it")
    client.name_change("node.forget", name)
    return Response(status_code=204)


@router.get("/labels", tags=["nodes"], summary="List the limits of labels")
async def list_labels(client: OperatorReader) -> list[LabelModel]:
    """Return the labels that have a limit."""
    return [LabelModel.of_row(row) for row in await client.context.manager.read(nodes.list_labels)]


@router.put("/labels/{name}", tags=["nodes"], summary="Limit the jobs of a label")
async def change_label(
    name: Annotated[str, Path(min_length=1, max_length=100, description="Label of jobs.")],
    change: LabelChange,
    client: Operator,
) -> LabelModel:
    """Set how many jobs with this label run at a time, on all nodes together."""
    limit = change.max_running
    await client.context.manager.database.write(lambda c: nodes.limit_label(c, name, limit))
    client.name_change("label.change", f"{name} max_running={limit}")
    client.context.manager.wake_nodes()
    return LabelModel(name=name, max_running=limit)


async def _node(client: Client, name: str) -> NodeModel:
    row = await client.context.manager.read(lambda c: nodes.find_node(c, name))
    if row is None:
        raise NotFound(f"node '{name}' not found")
    return NodeModel.of(row)
