"""Statements on webhooks and their deliveries: add, change, lease, record, forget.

A delivery is an event for one webhook. A manager leases it for a time before it sends it; so of several managers one
sends it, and another one does if that manager is killed. Every function runs in a transaction of its caller. Fixed:
that a result is recorded only while the lease is the caller's.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, delete, func, select, update

from gossamer.storage.sql.batches import delete_batch
from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import add_row, fetch, fetch_first
from gossamer_platform.state.projects import project_id
from gossamer_platform.state.tables import Delivery, WebhookRow, deliveries, projects, webhooks

MAX_WEBHOOKS: Final = 50
"""Webhooks of a project, and of all projects together."""
MAX_ATTEMPTS: Final = 10
"""Attempts after which a delivery is dead. The docs name it."""
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 6 * 3600.0
"""Seconds before the second attempt, and between two at most; each pause is three times the one before. The docs name
their sum."""
_LEASE_SECONDS: Final = 60.0
"""Time that a manager has for a delivery. Must be more than the time limit of a request."""
_AT_ONCE: Final = 4
"""Deliveries of one webhook that are under way at a time, so that a slow receiver does not keep others waiting."""
_FORGET_SECONDS: Final = 30 * 86400.0
"""Age from which a delivery that was sent or is dead is deleted."""
_FORGOTTEN_AT_ONCE: Final = 5000
"""Rows that one call deletes. Writers wait meanwhile."""


class Webhook(WebhookRow):
    """A webhook with the name of its project, which is None for one of all projects."""

    project: str | None


class LeasedDelivery(Delivery):
    """A delivery with what it takes to send it."""

    url: str
    secret: str
    secret_name: str
    project: str | None


def add_webhook(connection: Connection, project: str, columns: Mapping[str, Any]) -> Webhook | None:
    """Add a webhook of a project, or of all if `project` is empty. Return it; None: there are too many."""
    number = project_id(connection, project) if project else None
    same = webhooks.c.project_id.is_(None) if number is None else webhooks.c.project_id == number
    if (connection.scalar(select(func.count()).select_from(webhooks).where(same)) or 0) >= MAX_WEBHOOKS:
        return None
    values = {**columns, "project_id": number, "created_at": DatabaseNow()}
    return find_webhook(connection, add_row(connection, webhooks, **values))


def find_webhook(connection: Connection, number: int) -> Webhook | None:
    """Return a webhook. None: there is none of this number."""
    return fetch_first(connection, Webhook, _with_project().where(webhooks.c.id == number))


def list_webhooks(connection: Connection, project: str) -> list[Webhook]:
    """Return the webhooks of a project, or all if `project` is empty."""
    statement = _with_project().order_by(webhooks.c.id)
    return fetch(connection, Webhook, statement.where(projects.c.name == project) if project else statement)


def change_webhook(connection: Connection, number: int, columns: Mapping[str, Any]) -> None:
    """Change columns of a webhook."""
    if columns:
        connection.execute(update(webhooks).where(webhooks.c.id == number).values(**columns))


def delete_webhook(connection: Connection, number: int) -> None:
    """Delete a webhook with its deliveries."""
    connection.execute(delete(deliveries).where(deliveries.c.webhook_id == number))
    connection.execute(delete(webhooks).where(webhooks.c.id == number))


def delete_webhooks(connection: Connection, project: str) -> None:
    """Delete all webhooks of a project."""
    for row in list_webhooks(connection, project):
        delete_webhook(connection, row.id)


def replace_secret(connection: Connection, number: int, *, old: str, new: str) -> bool:
    """Replace the token of a secret that stays. Return False if the secret was changed or deleted meanwhile."""
    unchanged = and_(webhooks.c.id == number, webhooks.c.secret == old)
    return bool(connection.execute(update(webhooks).where(unchanged).values(secret=new)).rowcount)


def has_due(connection: Connection) -> bool:
    """Return whether `lease_deliveries` would find any. Cheaper, because it does not write."""
    joined = select(deliveries.c.id).join(webhooks, webhooks.c.id == deliveries.c.webhook_id)
    return connection.execute(joined.where(*_due(), webhooks.c.paused.is_(False)).limit(1)).first() is not None


def _due() -> tuple[Any, ...]:
    now = DatabaseNow()
    return (deliveries.c.state == "waiting", deliveries.c.next_at <= now, deliveries.c.leased_until <= now)


def lease_deliveries(connection: Connection, most: int) -> list[LeasedDelivery]:
    """Lease deliveries that are due, and return them. Few are of one webhook."""
    order = func.row_number().over(partition_by=deliveries.c.webhook_id, order_by=(deliveries.c.next_at))
    running = webhooks.c.paused.is_(False)
    ranked = select(deliveries.c.id, deliveries.c.next_at, order.label("place")).join(
        webhooks, webhooks.c.id == deliveries.c.webhook_id
    )
    other = deliveries.alias("other")
    under_way = (other.c.webhook_id == webhooks.c.id, other.c.state == "waiting", other.c.leased_until > DatabaseNow())
    busy = select(func.count()).select_from(other).where(*under_way).scalar_subquery()
    first = ranked.add_columns(busy.label("busy")).where(*_due(), running).subquery()
    free = first.c.place + first.c.busy <= _AT_ONCE
    # The first one of each webhook before the second ones: one with many events keeps no other waiting.
    chosen = select(first.c.id).where(free).order_by(first.c.place, first.c.next_at).limit(most)
    # Looked at again once the row is locked: another manager may have leased it meanwhile.
    locked = select(deliveries.c.id).where(deliveries.c.id.in_(chosen), *_due())
    numbers = connection.scalars(locked.with_for_update(of=deliveries, skip_locked=True)).all()
    if not numbers:
        return []
    leased = {"lease": uuid.uuid4().hex, "leased_until": DatabaseNow() + _LEASE_SECONDS}
    leased["attempts"] = deliveries.c.attempts + 1
    connection.execute(update(deliveries).where(deliveries.c.id.in_(numbers)).values(**leased))
    columns = (webhooks.c.url, webhooks.c.secret, webhooks.c.secret_name, projects.c.name.label("project"))
    joined = select(deliveries, *columns).join(webhooks, webhooks.c.id == deliveries.c.webhook_id)
    joined = joined.outerjoin(projects, projects.c.id == webhooks.c.project_id)
    return fetch(connection, LeasedDelivery, joined.where(deliveries.c.id.in_(numbers)).order_by(deliveries.c.id))


def record_sent(connection: Connection, delivery: LeasedDelivery, status: int) -> None:
    """Record that the receiver has accepted a leased delivery."""
    values = {"state": "sent", "status": status, "error": "", "ended_at": DatabaseNow()}
    connection.execute(update(deliveries).where(*_mine(delivery)).values(**values))


def record_failure(connection: Connection, delivery: LeasedDelivery, error: str, status: int | None) -> None:
    """Record that an attempt failed. After the last one the delivery is dead."""
    values: dict[str, Any] = {"error": error[:500], "status": status, "leased_until": 0.0}
    if delivery.attempts >= MAX_ATTEMPTS:
        values |= {"state": "dead", "ended_at": DatabaseNow()}
    else:
        values["next_at"] = DatabaseNow() + min(_FIRST_PAUSE * 3 ** (delivery.attempts - 1), _LONGEST_PAUSE)
    connection.execute(update(deliveries).where(*_mine(delivery)).values(**values))


def _mine(delivery: LeasedDelivery) -> tuple[Any, ...]:
    return (deliveries.c.id == delivery.id, deliveries.c.lease == delivery.lease, deliveries.c.state == "waiting")


def delivery_page(
    connection: Connection, webhook: int, *, states: Sequence[str], before: int | None, limit: int
) -> list[Delivery]:
    """Return deliveries of a webhook, the latest first. `states` empty: in whatever state."""
    statement = select(deliveries).where(deliveries.c.webhook_id == webhook)
    statement = statement.where(deliveries.c.state.in_(states)) if states else statement
    statement = statement if before is None else statement.where(deliveries.c.id < before)
    return fetch(connection, Delivery, statement.order_by(deliveries.c.id.desc()).limit(limit))


def send_again(connection: Connection, webhook: int, delivery: int) -> bool:
    """Let a delivery be sent again, with as many attempts as a new one. Return False if there is no such one, or it
    waits."""
    wanted = (deliveries.c.id == delivery, deliveries.c.webhook_id == webhook, deliveries.c.state != "waiting")
    values = {"state": "waiting", "attempts": 0, "next_at": DatabaseNow(), "leased_until": 0.0, "ended_at": None}
    return bool(connection.execute(update(deliveries).where(*wanted).values(**values)).rowcount)


def forget_deliveries(connection: Connection) -> None:
    """Delete some of the old deliveries that were sent or are dead. The next call goes on."""
    old = deliveries.c.ended_at < DatabaseNow() - _FORGET_SECONDS
    delete_batch(connection, deliveries, old, limit=_FORGOTTEN_AT_ONCE, order=deliveries.c.id)


def _with_project() -> Select[Any]:
    joined = select(webhooks, projects.c.name.label("project"))
    return joined.outerjoin(projects, projects.c.id == webhooks.c.project_id)
