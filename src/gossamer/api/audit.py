"""The audit of the service: an entry for each request that changes something, and the endpoint that lists them.

Every endpoint with a method that may change something has an entry: `audited` begins it before the endpoint runs. An
endpoint whose body says what it changes begins it by itself (`begin`), once the body is read and before the change.

Clients read the fields of entries and the words of actions, so none may be renamed or removed; some may be added.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field

from gossamer.api.context import ApiContext, Context
from gossamer.api.crawls import NO_HISTORY
from gossamer.api.openapi import Cursor, Limit, ResponseModel, refusals
from gossamer.api.problems import bad_request, not_found
from gossamer.control.changes import ChangeFacts
from gossamer.net.paths import path_of
from gossamer.storage.audit import LOCAL, AuditFilter, outcome_word
from gossamer.web.access import SAFE_METHODS
from gossamer.web.audit import audit_of, operation_action, origin_of, query_details

if TYPE_CHECKING:
    from gossamer.storage.sql.audit import AuditEntryRow

router = APIRouter(prefix="/v1", tags=["cluster"])

NOT_AUDITED: Final = frozenset({"classic_index_post", "classic_poll", "websub_push"})
"""Operations without an entry although their method may change something: two only read; and a push of a hub is news of
a site, as a fetched page is, which any stranger may send, to a path that is a secret."""
BY_BODY: Final = frozenset({
    "submit", "classic_feed", "announce_changes", "dead_letter_replay",
    "replace_domains", "set_domain", "change_domain", "remove_domain", "put_login",
})  # fmt: skip
"""Operations that begin their entry by themselves."""
OF_HUBS: Final = frozenset({"websub_push"})
"""Operations of hubs, which make pages due, as sitemaps do. They are counted, and their paths are secrets."""
_TOKEN: Final = "token"  # noqa: S105 (a name, no secret)
_MAX_ID: Final = (1 << 63) - 1


async def audited(request: Request) -> None:
    """Begin the entry of a request. Dependency of all endpoints."""
    name = request.scope["route"].operation_id
    if request.method not in SAFE_METHODS and name not in NOT_AUDITED | BY_BODY | OF_HUBS:
        subject = path_of(*request.path_params.values())
        await begin(request, operation_action(name), subject, **query_details(request))


async def begin(request: Request, action: str, subject: str, **details: Any) -> None:
    """Begin the entry of a request, before the change. `subject`: names are encoded as in a path."""
    await begin_change(request, ChangeFacts(action, subject, details))


async def begin_change(request: Request, facts: ChangeFacts) -> None:
    """As `begin`, with facts that the bus has, too."""
    context: ApiContext = request.app.state.context
    await audit_of(request).begin(facts.by(actor_of(context), origin_of(request)))


def actor_of(context: ApiContext) -> str:
    """Return who sends the requests of this API, in the words of the audit."""
    return _TOKEN if context.token else LOCAL


class AuditedChangeModel(ResponseModel):
    """A change that a client asked for."""

    id: int
    at: float
    """Epoch seconds at which it was begun"""
    actor: str = Field(examples=["token"])
    """`token`; `local`, a program of this machine where there is no token; `kafka` or `streams`, for a message of the
    bus; `policy file`"""
    origin: str = Field(examples=["127.0.0.1"])
    """Address of the client, or the topic of the message"""
    action: str = Field(examples=["crawl.stop"])
    subject: str = Field(examples=["shop/prices"])
    """Name of the object; names are percent-encoded as in a path"""
    details: dict[str, Any]
    """Further facts, such as `before` and `after` of a policy. Passwords in addresses are `***`"""
    outcome: str = Field(examples=["done"])
    """`done`; `refused`, by the service; `failed`, because something was away; `begun`: there was no answer yet, or the
    process was killed, and the change may have been made"""
    status: int | None
    """Status code of the answer. Null: `begun`"""
    reason: str
    """Reason of a refusal"""


class AuditPage(ResponseModel):
    """A page of the audit, the latest change first."""

    items: list[AuditedChangeModel]
    cursor: str
    """Start of the next page; empty if this is the last one"""


@router.get(
    "/audit",
    operation_id="list_audit",
    summary="Show who changed what",
    response_model=AuditPage,
    responses=refusals(400, 404, 503),
)
async def list_audit(
    context: Context,
    actor: Annotated[str, Query(description="Only changes of this actor", max_length=200)] = "",
    action: Annotated[
        str, Query(description="Only actions that begin with this, such as `crawl` or `crawl.stop`", max_length=40)
    ] = "",
    subject: Annotated[str, Query(description="Only changes whose subject contains this", max_length=1000)] = "",
    cursor: Cursor = "",
    limit: Limit = 100,
) -> AuditPage:
    """Changes that were asked for by this API, by the dashboard and on the bus, as long as the setting history.days
    says. Needs a history (the setting history.database); otherwise the answer is 404. Commands that change a frontier
    directly, such as `gossamer crawls stop`, are not in it."""
    if context.history is None:
        raise not_found(f"this service keeps no history, and so no audit: {NO_HISTORY}")
    if cursor and not (cursor.isascii() and cursor.isdecimal() and int(cursor) <= _MAX_ID):
        raise bad_request("not a cursor of this list", where="cursor")
    chosen = AuditFilter(actor, action, subject)
    rows = await context.history.audit(chosen, before=int(cursor) if cursor else None, limit=limit + 1)
    items = [_entry(row) for row in rows[:limit]]
    return AuditPage(items=items, cursor=str(items[-1].id) if len(rows) > limit else "")


def _entry(row: "AuditEntryRow") -> AuditedChangeModel:
    return AuditedChangeModel.of(row, details=msgspec.json.decode(row.details), outcome=outcome_word(row.status))
