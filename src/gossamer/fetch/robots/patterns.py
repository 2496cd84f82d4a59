"""Path patterns and the paths they are compared with, in one spelling (RFC 9309, sections 2.2.2 and 2.2.3). Pure.

They are compared octet by octet. What is not ASCII stands percent-encoded, hexadecimal digits are upper case, and an
encoded ASCII character is that character, but for those that would then mean something else.
"""

import re
from functools import cache

_PLAIN = re.compile(r"/[A-Za-z0-9._~/=&?-]*")
_UNUSUAL = re.compile(r"%[0-9A-Fa-f]{2}|[^!-~]|[%*$]")
# Not the same encoded and as they are: what parts a path, begins an escape, a comment or a fragment, or is special in a
# pattern. The last two stand encoded wherever they mean themselves.
_KEPT = frozenset("/?%#*$")

_SLASH_OR_MARK = re.compile("%2F|%3F|[/?]")


def normal_pattern(pattern: str) -> str:
    """Of an Allow or Disallow line's value, in ASCII: `*` stands for anything, a `$` at the end for the end."""
    if _PLAIN.fullmatch(pattern):
        return pattern
    anchor = "$" if pattern.endswith("$") else ""
    return "*".join(map(_spelled, pattern.removesuffix("$").split("*"))) + anchor


def normal_targets(target: str) -> tuple[str, ...]:
    """Of a URL's path and query: the spelling, or spellings, of which a pattern has to match one.

    A slash or question mark in a query is the same encoded or not (the table in section 2.2.2), in a path it is not.
    Since nobody can tell which of both the end of `/*b=c%2Fd` is meant for, it is the query that gets both spellings.
    """
    if not _PLAIN.fullmatch(target):
        target = _spelled(target.encode("utf-8", "surrogatepass").decode("latin-1"))
    path, mark, query = target.partition("?")
    if not mark or not _SLASH_OR_MARK.search(query):
        return (target,)
    plain = path + mark + query.replace("%2F", "/").replace("%3F", "?")
    encoded = path + mark + query.replace("/", "%2F").replace("?", "%3F")
    return tuple({target: None, plain: None, encoded: None})


def _spelled(octets: str) -> str:
    """A character stands for an octet (latin-1)."""
    return _UNUSUAL.sub(lambda found: _one(found[0]), octets)


@cache
def _one(octet: str) -> str:
    """Of an escape or a character that is unusual; there are fewer than 700."""
    value = int(octet[1:], 16) if len(octet) == 3 else ord(octet)
    character = chr(value)
    return character if "!" <= character <= "~" and character not in _KEPT else f"%{value:02X}"
