"""Finds the refusal that a response is, in its body as text."""

from collections.abc import Iterable

from gossamer.extract.encoding import content_type_of, decode, is_utf8_as_it_is
from gossamer.model.record import PageRefusal
from gossamer.policy.refusals import DEFAULT_FINDER, RefusalFinder


def find_refusal(
    status: int,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    url: str,
    requested: str,
    is_built: bool = False,
    finder: RefusalFinder = DEFAULT_FINDER,
) -> PageRefusal | None:
    """Return the refusal that a response is; None: it is a page, or an error like any other. Never raises.

    `body`: as it came, in any encoding. The other arguments are those of `RefusalFinder.find`."""
    if not finder.reads(status, len(body)):
        return None
    headers = list(headers)
    content_type = content_type_of([value for name, value in headers if name.lower() == "content-type"])
    if not is_utf8_as_it_is(body, content_type):
        body = decode(body, content_type).text.encode("utf-8", "replace")
    return finder.find(status, headers, body, url=url, requested=requested, is_built=is_built)
