"""Parameters of a request, as bytes: from the query, a form, or a form with files.

Bytes, because a client sends an egg of many megabytes percent-encoded in a form; a parser of text would corrupt it.
The rules are those of Scrapyd's server (Twisted): both `&` and `;` separate parameters, one without `=` is ignored, and
a parameter of the body replaces the one of the query. Fixed.
"""

import re
from binascii import a2b_qp
from email.message import Message
from typing import Final
from urllib.parse import unquote_to_bytes

Parameters = dict[bytes, list[bytes]]

_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_MAX_PARAMETERS: Final = 10_000
"""Most parameters of a form. Each takes a hundred bytes of memory or more, however short it is. A query needs no such
limit, because the server bounds its length."""
_PART_BYTES: Final = 256 * 1024
"""Bytes that are decoded at a time; other threads wait for the end of each part."""
_TOO_MANY: Final = f"there are more than {_MAX_PARAMETERS} parameters"
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_DISPOSITION: Final = re.compile(
    rb'^content-disposition:(?:[^";\r\n]|"(?:\\.|[^"\\\r\n])*"|;(?!\s*name=))*;\s*name="?([^";\r\n]*)"?',
    re.IGNORECASE | re.MULTILINE,
)
"""Name of a part. Text in quotes, such as the name of a file, is passed over as a whole."""


def parse_query(query: bytes) -> Parameters:
    """Return the parameters of a query or of a form, in the order of their first values."""
    found: Parameters = {}
    for part in query.replace(b";", b"&").split(b"&"):
        name, separator, value = part.partition(b"=")
        if separator:
            found.setdefault(_unquoted(name), []).append(_unquoted(value))
    return found


def _unquoted(text: bytes) -> bytes:
    if len(text) <= _PART_BYTES:
        return _unquoted_part(text)
    parts, position = [], 0
    while position < len(text):
        end = position + _PART_BYTES
        cut = text.rfind(b"%", end - 2, end)  # an escape is not cut
        end = end if cut < 0 else cut
        parts.append(_unquoted_part(text[position:end]))
        position = end
    return b"".join(parts)


def _unquoted_part(text: bytes) -> bytes:
    text = text.replace(b"+", b" ")
    if b"%" not in text:
        return text
    if _BAD_ESCAPE.search(text):
        return unquote_to_bytes(text)
    # The escapes of quoted-printable differ in their sign only, and Python decodes those in C: an egg of 50 MB takes
    # one second, not thirty, and 300 MB of memory, not 8 GB.
    return a2b_qp(text.replace(b"=", b"=3D").replace(b"%", b"="))


def parse_body(content_type: str, body: bytes) -> Parameters:
    """Return the parameters of a body. Empty: it is not a form. Raises ValueError for a broken one, and for too many
    parameters."""
    header = Message()
    header["content-type"] = content_type
    kind = header.get_content_type() if content_type else ""
    if kind == _FORM:
        if body.count(b"&") + body.count(b";") >= _MAX_PARAMETERS:  # counted before there is an object for each
            raise ValueError(_TOO_MANY)
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
    count = 0
    while not body.startswith(b"--", position):
        count += 1
        if count > _MAX_PARAMETERS:
            raise ValueError(_TOO_MANY)
        end = body.find(delimiter, position)
        head = body.find(b"\r\n\r\n", position)
        if end < 0 or not 0 <= head < end:
            raise ValueError("the multipart form is incomplete")
        name = _DISPOSITION.search(body[position:head].lstrip())
        if name is not None:
            found.setdefault(name.group(1), []).append(body[head + 4 : end])
        position = end + len(delimiter)
    return found
