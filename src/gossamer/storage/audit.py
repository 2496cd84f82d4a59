"""Changes as an audit keeps them: who asked for what, when, from where, on what, and how it ended.

A change has its entry before it is made, and its outcome afterwards: a process that is killed in between leaves an
entry whose outcome is `begun`. Pure: `storage/sql/audit.py` has the statements.
"""

import json
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from gossamer.net.credentials import hide_secrets, hide_secrets_in

LOCAL: Final = "local"
"""Actor of requests from this machine, where there is no password. The name is in audits: fixed."""
BEGUN: Final = "begun"
_MAX_REASON: Final = 1000
_SHOWN: Final = 300
"""Characters of a value that an entry has."""


class AuditedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a client asks for."""

    actor: str
    """Name of the token, of the password's user, or `local`."""
    origin: str = ""
    """Address of the client, or the topic of a message. Empty: not known."""
    action: str
    """Noun and verb, such as `crawl.stop`."""
    subject: str = ""
    """Name of the object, such as `shop/prices`."""
    details: dict[str, Any] = {}
    """Further facts, as JSON has them. Without secrets: see `shown`."""

    @property
    def line(self) -> str:
        """The change in one line, for a log."""
        facts = "".join(f" {name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.details.items())
        return f"{self.action} {self.subject} by {self.actor} from {self.origin or 'an unknown address'}{facts}"


class AuditOutcome(NamedTuple):
    """End of a change."""

    status: int
    """Status code of the answer."""
    reason: str = ""
    """Reason of a refusal."""


class AuditWrite(NamedTuple):
    """An entry, or its outcome, to write."""

    change: AuditedChange
    number: int = 0
    """Number of the entry. 0: a new one."""
    outcome: AuditOutcome | None = None
    """None: the change has begun."""


class AuditFilter(NamedTuple):
    """Conditions on the entries that are listed. Empty: any."""

    actor: str = ""
    action: str = ""
    """Beginning of the action: `crawl` for `crawl.stop`, too."""
    subject: str = ""
    """Text in the subject."""


class AuditTrail(Protocol):
    """Takes the entries of changes."""

    async def begin(self, change: AuditedChange) -> int:
        """Add an entry before the change is made. Return its number; 0, or a negative one: there is none, or none yet,
        and the change is made all the same. An error that this raises keeps the change from being made."""

    async def end(self, number: int, change: AuditedChange, outcome: AuditOutcome) -> None:
        """Complete an entry, after the change was made or refused. Does not fail."""


def outcome_word(status: int | None) -> str:
    """Return the outcome for a status code: `done`, `refused` or `failed`; None: `begun`."""
    if status is None:
        return BEGUN
    return "done" if status < 400 else "refused" if status < 500 else "failed"


def shown(value: object) -> object:
    """Return a value of a request as an entry has it: without secrets of addresses, and short."""
    if isinstance(value, str):
        text = hide_secrets_in(value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return value


def shown_address(address: str) -> str:
    """Return an address of the web as an entry has it."""
    return str(shown(hide_secrets(address, web=True)))


def reason_of(answer: bytes) -> str:
    """Return the reason in the body of a refusal: that of a problem (RFC 9457), or of Scrapy Cluster's or Scrapyd's
    form. Empty: there is none."""
    try:
        found = json.loads(answer)
    except ValueError:
        return ""
    if not isinstance(found, dict):
        return ""
    inner = found["error"] if isinstance(found.get("error"), dict) else {}
    parts = (found.get("detail"), inner.get("cause"), inner.get("message"), found.get("message"), found.get("title"))
    reason = next((part for part in parts if isinstance(part, str) and part), "")
    return hide_secrets_in(reason)[:_MAX_REASON]
