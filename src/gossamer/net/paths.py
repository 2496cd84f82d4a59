"""Paths of URLs that are made of names, such as those of crawls and projects."""

from urllib.parse import quote

_UNQUOTED = "!$&'()*+,;=:@~"
"""Characters, besides letters, digits and -._, that need no encoding in a path segment (RFC 3986, pchar): fixed. With a
slash here, the crawl `a/b` would become two segments, and no request for it would find its route."""

_DOTS = {".": "%2E", "..": "%2E%2E"}
"""Names that clients would take for steps in the path (RFC 3986, section 5.2.4), so that they would ask for
another resource."""


def path_of(*names: str) -> str:
    """Return names as the segments of a path, without a slash at its ends."""
    return "/".join(_DOTS.get(name) or quote(name, safe=_UNQUOTED) for name in names)
