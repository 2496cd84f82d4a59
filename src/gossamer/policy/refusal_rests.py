"""Rests of a domain whose site refuses this crawler: longer while it does, and none where only the page is missing."""

from typing import Final

from gossamer.model.record import RefusalKind

IN_A_ROW: Final = 10
"""Refusals of a host without a page between them from which a person is told, and its domain rests longer. Fewer would
also be found on sites with some pages that need a login."""
_FIRST_SECONDS: Final = 10.0
"""Shortest rest. Shorter ones send more requests that are refused."""
LONGEST_SECONDS: Final = 80.0
"""Longest rest. Longer ones make a crawl slow where a site refuses only some pages."""
_OF_CLIENT: Final = ("challenge", "captcha")
"""Kinds that are about the client, whatever it asks for: the first one is worth a rest."""
_OF_MANY: Final = ("denied", "consent", "same")
"""Kinds that may be about the page: other pages may be had, unless many in a row are refused."""


def rest_seconds(kind: RefusalKind, in_a_row: int) -> float:
    """Return for how long the domain of a host rests after a refusal; 0: it does not. `in_a_row`: refusals of the host
    since its last page, with this one."""
    doublings = in_a_row // IN_A_ROW
    if kind in _OF_MANY:
        doublings -= 1
    elif kind not in _OF_CLIENT:
        return 0.0
    return 0.0 if doublings < 0 else min(_FIRST_SECONDS * 2.0 ** min(doublings, 16), LONGEST_SECONDS)


def rests(kind: str) -> bool:
    """Return whether the domain of a host rests after many refusals of this kind in a row."""
    return kind in _OF_CLIENT or kind in _OF_MANY
