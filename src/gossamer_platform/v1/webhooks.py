"""Endpoints of webhooks: create, list, change, delete, try; and of what was sent to them.

Fixed, because clients read them: paths, names of fields, status codes; and that a secret is shown once, when it is
made.
"""

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from gossamer.errors import BadInput
from gossamer_platform.delivery.addresses import check_url
from gossamer_platform.delivery.sending import new_secret
from gossamer_platform.manager.operations import NotFound
from gossamer_platform.state import events, projects, webhooks
from gossamer_platform.state.events import EventKind
from gossamer_platform.state.webhooks import Webhook
from gossamer_platform.v1.context import RESPONSES, Admin, Client
from gossamer_platform.v1.models import NamedModel, RequestModel
from gossamer_platform.v1.pages import PageLimit, PageStart, cut_page, parse_cursor

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], responses=RESPONSES)

_Id = Annotated[int, Path(ge=1, lt=2**63, description="Number of the webhook.")]
_Url = Annotated[str, Field(max_length=2000)]
_Events = Annotated[list[EventKind], Field(min_length=1, max_length=len(EventKind))]
_Factor = Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)]


class NewWebhookModel(RequestModel):
    """A webhook to create."""

    url: _Url
    """Address that gets the events, by POST. Redirects count as failures; proxies of the environment are not used."""
    events: _Events
    """Kinds of events."""
    project: Annotated[str, Field(max_length=200)] = ""
    """Project whose events it gets. Empty: those of all projects and nodes; needs the scope admin for all projects."""
    slow_factor: _Factor = 2.0
    """A job is slow that takes so many times as long as the spider's earlier jobs."""


class WebhookChange(RequestModel):
    """Changes of a webhook. A field that is absent or null stays as it is."""

    url: _Url | None = None
    events: _Events | None = None
    slow_factor: _Factor | None = None
    paused: bool | None = None
    """True: new events are left out, and what waits is sent when it is false again."""


class WebhookModel(NamedModel):
    """A webhook, without its secret."""

    id: int
    project: str
    """Empty: it gets events of all projects and nodes."""
    url: str
    events: list[str]
    slow_factor: float
    paused: bool
    dropped: int
    """Number of events that were not kept, because too many waited."""
    created_at: datetime

    @classmethod
    def of(cls, row: Webhook, **more: Any) -> Self:
        """Return the model of a webhook."""
        return cls.of_row(row, project=row.project or "", **more)


class NewWebhookResponse(WebhookModel):
    """A webhook that was created, or that has got another secret."""

    secret: str
    """Key of the signatures, which is shown this once."""


class DeliveryModel(NamedModel):
    """An event for a webhook."""

    id: int
    event_id: str
    """Number of the event, which the receiver gets as the header webhook-id."""
    event: str
    """Kind of the event."""
    state: str
    """waiting; sent: the receiver has accepted it; dead: it was tried for as often as it may be."""
    attempts: int
    status: int | None
    """Status of the last answer. Null: there was none."""
    error: str
    """Reason why the last attempt failed."""
    created_at: datetime
    next_at: datetime
    """Time of the next attempt, if it waits."""
    ended_at: datetime | None
    body: dict[str, Any]
    """The event as it is sent."""


class DeliveryPage(NamedModel):
    """Deliveries, the latest first."""

    deliveries: list[DeliveryModel]
    next: str | None
    """Value of `after` for the next page. Null: this is the last one."""


@router.post("", status_code=201, summary="Create a webhook")
async def create_webhook(webhook: NewWebhookModel, client: Admin) -> NewWebhookResponse:
    """Create a webhook. Its secret is in the answer, and is not shown again. The manager needs a key for secrets."""
    client.check_project(webhook.project)
    manager, secret, name = client.context.manager, new_secret(), f"webhook:{uuid.uuid4().hex}"
    if webhook.project and await manager.read(lambda c: projects.project_row(c, webhook.project)) is None:
        raise NotFound(f"project '{webhook.project}' not found")
    columns = {
        "url": check_url(webhook.url),
        "events": [kind.value for kind in webhook.events],
        "slow_factor": webhook.slow_factor,
        "secret_name": name,
        "secret": manager.vault.encrypt(webhook.project, name, secret),
    }
    row = await manager.database.write(lambda c: webhooks.add_webhook(c, webhook.project, columns))
    if row is None:
        raise BadInput(f"there are {webhooks.MAX_WEBHOOKS} webhooks already; delete some first")
    client.name_change("webhook.create", f"{row.id} {webhook.project} {row.url}")
    return NewWebhookResponse.of(row, secret=secret)


@router.get("", summary="List webhooks")
async def list_webhooks(client: Admin, project: str = "") -> list[WebhookModel]:
    """Return the webhooks that the client may see."""
    wanted = client.listed_project(project)
    rows = await client.context.manager.read(lambda c: webhooks.list_webhooks(c, wanted))
    return [WebhookModel.of(row) for row in rows]


@router.get("/{webhook_id}", summary="Show a webhook")
async def get_webhook(webhook_id: _Id, client: Admin) -> WebhookModel:
    """Return a webhook."""
    return WebhookModel.of(await _webhook(client, webhook_id))


@router.patch("/{webhook_id}", summary="Change or pause a webhook")
async def change_webhook(webhook_id: _Id, change: WebhookChange, client: Admin) -> WebhookModel:
    """Change a webhook. Events that wait are sent to the new address."""
    row = await _webhook(client, webhook_id)
    columns = change.model_dump(exclude_none=True, mode="json")
    if change.url is not None:
        check_url(change.url)
    await client.context.manager.database.write(lambda c: webhooks.change_webhook(c, webhook_id, columns))
    client.name_change("webhook.change", f"{row.id} {', '.join(sorted(columns))}")
    return WebhookModel.of(await _webhook(client, webhook_id))


@router.delete("/{webhook_id}", status_code=204, summary="Delete a webhook")
async def delete_webhook(webhook_id: _Id, client: Admin) -> Response:
    """Delete a webhook, and the events that wait for it."""
    row = await _webhook(client, webhook_id)
    await client.context.manager.database.write(lambda c: webhooks.delete_webhook(c, webhook_id))
    client.name_change("webhook.delete", f"{row.id} {row.url}")
    return Response(status_code=204)


@router.post("/{webhook_id}/secret", status_code=201, summary="Give a webhook another secret")
async def renew_secret(webhook_id: _Id, client: Admin) -> NewWebhookResponse:
    """Replace the secret by a new one, which signs all further attempts, and is not shown again."""
    row = await _webhook(client, webhook_id)
    manager, secret = client.context.manager, new_secret()
    token = manager.vault.encrypt(row.project or "", row.secret_name, secret)
    await manager.database.write(lambda c: webhooks.change_webhook(c, webhook_id, {"secret": token}))
    client.name_change("webhook.secret", str(row.id))
    return NewWebhookResponse.of(row, secret=secret)


@router.post("/{webhook_id}/test", status_code=202, summary="Send an event to try a webhook")
async def try_webhook(webhook_id: _Id, client: Admin) -> Response:
    """Send an event of the kind `webhook.test`."""
    row = await _webhook(client, webhook_id)
    await client.context.manager.database.write(lambda c: events.emit_test(c, row))
    return Response(status_code=202)


@router.get("/{webhook_id}/deliveries", summary="List what was sent to a webhook")
async def list_deliveries(
    webhook_id: _Id,
    client: Admin,
    state: Annotated[
        list[Literal["waiting", "sent", "dead"]] | None, Query(description="State; may be repeated.")
    ] = None,
    after: PageStart = "",
    limit: PageLimit = 100,
) -> DeliveryPage:
    """Return the events of a webhook, the latest first. Those that were sent or are dead are kept for 30 days."""
    await _webhook(client, webhook_id)
    before = parse_cursor(after)
    rows = await client.context.manager.read(
        lambda c: webhooks.delivery_page(c, webhook_id, states=state or (), before=before, limit=limit + 1)
    )
    page, following = cut_page(rows, limit)
    return DeliveryPage(deliveries=[DeliveryModel.of_row(row) for row in page], next=following)


@router.post("/{webhook_id}/deliveries/{delivery_id}/again", status_code=202, summary="Send an event again")
async def send_again(webhook_id: _Id, delivery_id: Annotated[int, Path(ge=1, lt=2**63)], client: Admin) -> Response:
    """Send an event again that was sent or is dead, with the same id."""
    await _webhook(client, webhook_id)
    if not await client.context.manager.database.write(lambda c: webhooks.send_again(c, webhook_id, delivery_id)):
        raise NotFound(f"delivery {delivery_id} of webhook {webhook_id} not found, or it waits")
    return Response(status_code=202)


async def _webhook(client: Client, number: int) -> Webhook:
    """Return a webhook that the client may see. Raises NotFound."""
    row = await client.context.manager.read(lambda c: webhooks.find_webhook(c, number))
    return client.visible(row, f"webhook {number}")
