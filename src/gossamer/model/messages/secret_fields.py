"""Secrets in crawl requests: the fields that have them, and a request without their values.

More people may read a crawl, its records and its schedule than have submitted it. The lists must not become shorter.
"""

from collections.abc import Mapping
from typing import Any

REDACTED = "<redacted>"
"""Replaces the value of a secret. Fixed: documented for the readers of records."""
SECRET_FIELDS = ("cookie", "proxy")
"""Fields whose whole value is a secret: the address of a proxy may have a password."""
SECRET_HEADERS = frozenset(("authorization", "cookie", "proxy-authorization"))
"""Headers that are secret in every request, in lower case. A request may name others, in `secret_headers`."""


def redacted_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a crawl request, which is valid, with `REDACTED` in place of each secret."""
    found = dict(request)
    found |= {name: REDACTED for name in SECRET_FIELDS if request.get(name)}
    if headers := request.get("headers"):
        secret = SECRET_HEADERS.union(name.lower() for name in request.get("secret_headers") or ())
        found["headers"] = {name: REDACTED if name.lower() in secret else value for name, value in headers.items()}
    return found
