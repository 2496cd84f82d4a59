"""Where a redirect leads: of pages, robots.txt and lists of seeds alike. Pure."""

from gossamer.errors import BadUrl
from gossamer.policy.urls import join


def location_target(base: str, value: str) -> str | None:
    """The canonical URL that a Location of this value leads to from `base` (canonical); None where that is no web page
    (RFC 9110, section 10.2.2). `value` as headers arrive, decoded as latin-1; user and password in it are left out."""
    try:
        return join(base, _without_raw_bytes(value))
    except BadUrl:
        return None


def _without_raw_bytes(value: str) -> str:
    """As text: it was UTF-8, or its bytes are taken one by one."""
    if value.isascii():
        return value
    try:
        raw = value.encode("latin-1")
    except UnicodeEncodeError:
        return value
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # What the server meant is the resource whose path has these very bytes, as browsers take it.
        return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in raw)
