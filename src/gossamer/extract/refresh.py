"""Where `<meta http-equiv=refresh>` leads (HTML standard, shared declarative refresh steps)."""

import re

_REFRESH = re.compile(
    r"""
    [\t\n\f\r ]*+ (?:[0-9]++ [0-9.]*+ | \.[0-9.]*+)
    (?:[\t\n\f\r ]*+[;,][\t\n\f\r ]*+ | [\t\n\f\r ]++)
    (?:[Uu][Rr][Ll][\t\n\f\r ]*+=[\t\n\f\r ]*+)?+
    (?P<target>.++)
    """,
    re.VERBOSE | re.DOTALL,
)


def refresh_target(content: str) -> str | None:
    """The href that a refresh's `content` names; None where it names none (the page then only reloads itself)."""
    match = _REFRESH.match(content)
    if match is None:
        return None
    target = match["target"]
    if target[0] in "\"'":
        target = target[1:].partition(target[0])[0]
    return target.strip("\t\n\f\r ") or None
