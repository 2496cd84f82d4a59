"""Politeness towards a domain, as the operator sets it."""

from enum import StrEnum

import msgspec


class Scope(StrEnum):
    """What shares one budget: a domain; a domain per spider (type); per egress address (ip); or both."""

    DOMAIN = "domain"
    TYPE = "type"
    IP = "ip"
    TYPE_IP = "type+ip"


class WhenBlacklisted(StrEnum):
    """What becomes of the requests of a blacklisted domain."""

    HELD = "held"
    """They wait until the domain is taken off the blacklist."""
    DROPPED = "dropped"
    """Each is dropped with a record, those that wait already too."""


class DomainPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Every field None: not set, the next level's counts (domain, then the operator's default, then the built-in)."""

    hits: int | None = None
    window_seconds: float | None = None
    moderated: bool | None = None
    elastic: bool | None = None
    """After a stall, the even gap shrinks by a tenth while the window holds fewer than `hits`."""
    scale: float | None = None
    """0..1, multiplies hits; below one hit the window is stretched; 0 pauses."""
    scope: Scope | None = None
    concurrency: int | None = None
    blacklisted: bool | None = None
    """Not fetched."""
    when_blacklisted: WhenBlacklisted | None = None
    """Whether requests of the domain are held or dropped while it is blacklisted."""


BUILT_IN = DomainPolicy(
    hits=1,
    window_seconds=1.0,
    moderated=True,
    elastic=True,
    scale=1.0,
    scope=Scope.DOMAIN,
    blacklisted=False,
    when_blacklisted=WhenBlacklisted.HELD,
)
"""One hit a second, evenly spaced: polite and not glacial."""
