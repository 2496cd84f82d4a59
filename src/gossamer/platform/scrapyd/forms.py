"""Parameters of a request, as bytes: from the query, a form, or a form with files.

Bytes, because a client sends an egg of many megabytes percent-encoded in a form; a parser of text would corrupt it.
The rules are those of Scrapyd's server (Twisted): both `&` and `;` separate parameters, one without `=` is ignored, and
a parameter of the body replaces the one of the query. Fixed.
"""

import re
from email.message import Message
from typing import Final
from urllib.parse import unquote_to_bytes

Parameters = dict[bytes, list[bytes]]

_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_DISPOSITION: Final = re.compile(rb'^content-disposition:.*?;\s*name="?([^";\r\n]*)"?', re.IGNORECASE | re.MULTILINE)


def parse_query(query: bytes) -> Parameters:
    """Return the parameters of a query or of a form, in the order of their first values."""
    found: Parameters = {}
    for part in query.replace(b";", b"&").split(b"&"):
        name, separator, value = part.partition(b"=")
        if separator:
            found.setdefault(_unquoted(name), []).append(_unquoted(value))
    return found


def _unquoted(text: bytes) -> bytes:
    text = text.replace(b"+", b" ")
    return unquote_to_bytes(text) if b"%" in text else text


def parse_body(content_type: str, body: bytes) -> Parameters:
    """Return the parameters of a body. Empty: it is not a form. Raises ValueError for a broken one."""
    header = Message()
    header["content-type"] = content_type
    kind = header.get_content_type() if content_type else ""
    if kind == _FORM:
        return parse_query(body)
    if kind == _MULTIPART:
        boundary = header.get_param("boundary")
        if not isinstance(boundary, str) or not boundary:
            raise ValueError("the multipart form names no boundary")
        return _parse_multipart(boundary.encode("latin-1"), body)
    return {}


def _parse_multipart(boundary: bytes, body: bytes) -> Parameters:
    found: Parameters = {}
    delimiter = b"\r\n--" + boundary
    position = 0 if body.startswith(delimiter[2:]) else body.find(delimiter) + 2
    if not body.startswith(delimiter[2:], position):
        raise ValueError("the multipart form does not contain its boundary")
    position += len(delimiter) - 2
    while not body.startswith(b"--", position):
        end = body.find(delimiter, position)
        head = body.find(b"\r\n\r\n", position)
        if end < 0 or not 0 <= head < end:
            raise ValueError("the multipart form is incomplete")
        name = _DISPOSITION.search(body[position:head].lstrip())
        if name is not None:
            found.setdefault(name.group(1), []).append(body[head + 4 : end])
        position = end + len(delimiter)
    return found
