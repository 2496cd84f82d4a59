"""Sessions of browsers that have shown the API's token once.

A session is a cookie that any process with the same token accepts, until its time is over. The cookie does not contain
the token, and cannot be made without it.
"""

import hashlib
import hmac
import secrets
from typing import Final

from gossamer.web.access import is_secret

COOKIE: Final = "gossamer_session"
"""Name of the cookie of a crawl service. A browser sends its cookies to all ports of a machine, so each kind of server
has a name of its own: otherwise a login at one would end the session at the other."""
SESSION_SECONDS: Final = 12 * 3600
"""Life of a session. After that, the page asks for the token again."""
_PURPOSE: Final = b"gossamer dashboard session\0"
"""Keeps a signature from being valid for anything else that is signed with the token."""


class Sessions:
    """Makes and checks the sessions of one token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def begin(self, *, now: float) -> str:
        """Return the cookie's value for a new session. `now`: epoch seconds."""
        facts = f"{int(now) + SESSION_SECONDS}.{secrets.token_urlsafe(18)}"
        return f"{facts}.{self._signature(facts)}"

    def is_valid(self, cookie: str, *, now: float) -> bool:
        """Return whether the value is that of a session which has not ended."""
        facts, _, signature = cookie.rpartition(".")
        if not is_secret(signature.encode("utf-8", "replace"), self._signature(facts)):
            return False
        return int(facts.partition(".")[0]) > now

    def _signature(self, facts: str) -> str:
        message = _PURPOSE + facts.encode("utf-8", "replace")
        return hmac.new(self._token.encode(), message, hashlib.sha256).hexdigest()
