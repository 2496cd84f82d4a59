"""Subscriptions of a crawl to the hubs of its feeds (W3C WebSub), in its page index.

A hub calls back at an address that contains the id of the subscription. It first asks whether the subscription is
wanted, then pushes what is new, signed with the secret of the subscription, until the lease ends. Blocking, as the
index is; times are Unix times.
"""

from enum import StrEnum
from secrets import token_hex
from typing import Final, NamedTuple

from gossamer.fresh.database import IndexDatabase

CALLBACKS: Final = "/v1/websub/"
"""Beginning of the paths of callbacks, behind which are the token of the crawl and the id of the subscription. Fixed,
because hubs keep them while leases last."""
LEASE_SECONDS: Final = 10 * 86_400
"""Lease that is asked for. Hubs may grant another one."""
_LONGEST_LEASE_SECONDS: Final = 90 * 86_400
_SHORTEST_LEASE_SECONDS: Final = 60
_RENEWED_SHARE: Final = 0.75
"""Part of a lease after which it is renewed."""
VERIFY_SECONDS: Final = 600
"""Time in which a hub must ask whether a subscription is wanted. It doubles with each try, up to a day."""
_LONGEST_WAIT_SECONDS: Final = 86_400
MOST_SUBSCRIPTIONS: Final = 1000
"""Subscriptions of one crawl."""
_MOST_REASON_CHARACTERS: Final = 300
_COLUMNS: Final = "id, topic, hub, secret, state, due, until, tries, pushes, refused, reason"

TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS subscriptions (id TEXT PRIMARY KEY, topic TEXT UNIQUE NOT NULL, hub TEXT NOT NULL, "
    "secret TEXT NOT NULL, state TEXT NOT NULL, due DOUBLE PRECISION NOT NULL, until DOUBLE PRECISION NOT NULL, "
    "tries INTEGER NOT NULL, pushes BIGINT NOT NULL, refused BIGINT NOT NULL, reason TEXT NOT NULL)"
)


class SubscriptionState(StrEnum):
    """State of a subscription. The values are stored."""

    WANTED = "wanted"
    """The hub has not asked yet whether it is wanted."""
    ACTIVE = "active"
    DENIED = "denied"
    """The hub refuses it."""


class Subscription(NamedTuple):
    """A subscription to one topic."""

    id: str
    """32 random hex digits, which only the hub knows."""
    topic: str
    hub: str
    secret: str
    state: SubscriptionState
    due: float
    """When the hub is asked the next time, to begin it or to renew it."""
    until: float
    """End of the lease."""
    tries: int
    """Requests to the hub since it last asked whether the subscription is wanted."""
    pushes: int
    refused: int
    """Callbacks that were refused."""
    reason: str
    """Latest fault. Empty: there is none."""

    def is_active(self, now: float) -> bool:
        """Return whether the hub may push."""
        return self.state is SubscriptionState.ACTIVE and now < self.until


class Subscriptions:
    """Subscriptions in the database of an index."""

    def __init__(self, database: IndexDatabase) -> None:
        self._database = database

    def want(self, topic: str, hub: str, *, now: float) -> None:
        """Note that a feed names this hub. May be repeated; another hub takes the place of the one before."""
        with self._database.transaction(locks="changes"):
            rows = self._database.rows("SELECT hub FROM subscriptions WHERE topic = ?", [topic])
            if rows and rows[0][0] == hub:
                return
            if rows:
                # Another id and secret: the hub before knows the old ones.
                self._database.run(
                    "UPDATE subscriptions SET id = ?, secret = ?, hub = ?, state = ?, due = ?, tries = 0 "
                    "WHERE topic = ?",
                    [token_hex(16), token_hex(32), hub, SubscriptionState.WANTED, now, topic],
                )
                return
            [(count,)] = self._database.rows("SELECT count(*) FROM subscriptions")
            if count < MOST_SUBSCRIPTIONS:
                row = [token_hex(16), topic, hub, token_hex(32), SubscriptionState.WANTED, now, 0.0, 0, 0, 0, ""]
                self._database.run(
                    f"INSERT INTO subscriptions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row
                )

    def all(self) -> list[Subscription]:
        """Return all subscriptions, by topic."""
        return self._rows("TRUE ORDER BY topic")

    def find(self, id: str) -> Subscription | None:
        """Return a subscription. None: there is none with this id."""
        found = self._rows("id = ?", id)
        return found[0] if found else None

    def take_due(self, now: float, limit: int) -> list[Subscription]:
        """Return subscriptions whose hubs are to be asked now, as they were before; each is due again later, in case
        the hub does not ask back."""
        found = self._rows("due <= ? ORDER BY due LIMIT ?", now, limit)
        with self._database.transaction():
            for one in found:
                wait = min(VERIFY_SECONDS * 2.0**one.tries, _LONGEST_WAIT_SECONDS)
                self._database.run(
                    "UPDATE subscriptions SET due = ?, tries = tries + 1 WHERE id = ?", [now + wait, one.id]
                )
        return found

    def activate(self, one: Subscription, lease_seconds: float, *, now: float) -> None:
        """Begin a lease that the hub has granted, and note when it is renewed."""
        lease = min(max(lease_seconds, _SHORTEST_LEASE_SECONDS), _LONGEST_LEASE_SECONDS)
        self._database.run(
            "UPDATE subscriptions SET state = ?, until = ?, due = ?, tries = 0, reason = '' WHERE id = ?",
            [SubscriptionState.ACTIVE, now + lease, now + _RENEWED_SHARE * lease, one.id],
        )

    def deny(self, one: Subscription, reason: str, *, now: float) -> None:
        """Note that the hub refuses a subscription. It is asked again in a day."""
        self._database.run(
            "UPDATE subscriptions SET state = ?, until = 0, due = ?, reason = ? WHERE id = ?",
            [SubscriptionState.DENIED, now + _LONGEST_WAIT_SECONDS, reason[:_MOST_REASON_CHARACTERS], one.id],
        )

    def note_fault(self, id: str, reason: str, *, is_callback: bool = False) -> None:
        """Note a fault of the hub. `is_callback`: a callback of it was refused."""
        self._database.run(
            "UPDATE subscriptions SET reason = ?, refused = refused + ? WHERE id = ?",
            [reason[:_MOST_REASON_CHARACTERS], int(is_callback), id],
        )

    def count_push(self, one: Subscription) -> None:
        """Count a push that was accepted."""
        self._database.run("UPDATE subscriptions SET pushes = pushes + 1 WHERE id = ?", [one.id])

    def _rows(self, condition: str, *values: object) -> list[Subscription]:
        rows = self._database.rows(f"SELECT {_COLUMNS} FROM subscriptions WHERE {condition}", values)
        return [Subscription._make((*row[:4], SubscriptionState(row[4]), *row[5:])) for row in rows]
