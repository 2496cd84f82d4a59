"""Choice between HTTP/1.1 and HTTP/2 for each origin, remembered by what its server has answered.

HTTP/2 is offered in the TLS handshake (ALPN, RFC 7301) together with HTTP/1.1, and the server decides. A server that
takes neither version from this client is tried with HTTP/2 once.
"""

import time
from collections.abc import Callable, Hashable
from enum import Enum, auto
from functools import cached_property
from importlib.util import find_spec
from typing import Literal

from gossamer.errors import BadInput, Http2Needed

Wish = Literal["never", "auto", "prefer"]
"""Setting `fetch.http2`: never: HTTP/1.1 only; auto: HTTP/2 with servers that fail with HTTP/1.1; prefer: HTTP/2 with
each server that speaks it."""


def check_wish(wish: Wish) -> None:
    """Raise BadInput if HTTP/2 is preferred but its library is not installed."""
    if wish == "prefer" and find_spec("h2") is None:
        from gossamer.extras import install_advice  # imported late: most crawls need no advice

        raise BadInput(f"HTTP/2 needs h2: {install_advice('http2')}")


ASKING_STATUSES = frozenset((426, 464, 505))
"""Statuses by which a server refuses the version of a request: RFC 9110, sections 15.5.22 and 15.6.6; 464 is that of
a common load balancer."""

_MAX_ORIGINS = 10_000
_REMEMBERED_SECONDS = 24 * 3600.0
_DOUBTED_SECONDS = 60.0
"""Time without HTTP/2 after a connection with it was lost, if the server does not answer with HTTP/1.1 either."""


class _Known(Enum):
    """Knowledge of an origin."""

    SPEAKS_1 = auto()
    TRIED_WITH_2 = auto()
    SPEAKS_2 = auto()
    ONLY_1 = auto()
    """HTTP/2 was of no use."""


class HttpVersions:
    """Record of the versions that servers speak: of at most 10,000 origins, each for a day. Several clients may share
    one."""

    def __init__(self, wish: Wish, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: monotonic seconds."""
        self._wish = wish
        self._now = now
        self._known: dict[Hashable, tuple[_Known, float]] = {}

    def offers_2(self, origin: Hashable) -> bool:
        """Return whether the next connection to this origin offers HTTP/2."""
        known = self._get(origin)
        if known is None:
            return self._wish == "prefer" and self._has_library
        return known in (_Known.TRIED_WITH_2, _Known.SPEAKS_2)

    def try_2(self, origin: Hashable, *, surely: bool) -> bool:
        """Record that a request with HTTP/1.1 has failed in a way by which some servers refuse that version. Returns
        whether HTTP/2 is to be offered now: once for each origin.

        `surely`: the server has said that it wants another version. Else its failure may have another cause, and only
        a server is tried that has never answered with HTTP/1.1."""
        known = self._get(origin)
        if not (known is None or (surely and known is _Known.SPEAKS_1)) or not self._has_library:
            return False
        self._set(origin, _Known.TRIED_WITH_2)
        return True

    def check_2(self, origin: Hashable, sign: str, *, is_sure: bool = True) -> None:
        """Raise Http2Needed if a server of which nothing else is known has given a sign that it speaks only HTTP/2, and
        that cannot be tried. `sign`: a sentence about the server, without its subject. `is_sure`: as in the error."""
        if self._get(origin) is None and not self._has_library:
            cause = "the setting http2 is never" if self._wish == "never" else "the extra http2 is not installed"
            raise Http2Needed(f"it {sign}, and {cause}", is_sure=is_sure)

    def answered(self, origin: Hashable, *, with_2: bool) -> None:
        """Record the first answer on a connection."""
        if with_2:
            self._set(origin, _Known.SPEAKS_2)
        elif (known := self._get(origin)) in (_Known.TRIED_WITH_2, _Known.ONLY_1):
            self._set(origin, _Known.ONLY_1)
        elif known is None:
            self._set(origin, _Known.SPEAKS_1)

    def failed_with_2(self, origin: Hashable) -> bool:
        """Record that a connection that offered HTTP/2 has failed before the first answer. Returns whether HTTP/1.1
        is spoken with the origin from now on: unless it has answered with HTTP/2 before. If it does not answer with
        HTTP/1.1 either, the failure had another cause, perhaps, and a minute later nothing is known of it."""
        if self._get(origin) is _Known.SPEAKS_2:
            return False
        self._set(origin, _Known.ONLY_1, _DOUBTED_SECONDS)
        return True

    def refuse_2(self, origin: Hashable) -> None:
        """Record that the server wants HTTP/1.1 (error HTTP_1_1_REQUIRED of RFC 9113)."""
        self._set(origin, _Known.ONLY_1)

    @cached_property
    def _has_library(self) -> bool:
        return self._wish != "never" and find_spec("h2") is not None

    def _get(self, origin: Hashable) -> _Known | None:
        known, until = self._known.get(origin, (None, 0.0))
        return known if self._now() < until else None

    def _set(self, origin: Hashable, known: _Known, seconds: float = _REMEMBERED_SECONDS) -> None:
        self._known.pop(origin, None)
        if len(self._known) >= _MAX_ORIGINS:
            del self._known[next(iter(self._known))]
        self._known[origin] = known, self._now() + seconds
