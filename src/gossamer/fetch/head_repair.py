"""Repair of response heads that browsers read and a strict parser refuses.

A repaired head has one meaning only. Heads that Chromium refuses, too, are left for the parser to refuse: a NUL byte,
and different lengths.
"""

import re
from collections.abc import Iterable

from gossamer.fetch.faults import ResponseFault

# Not compiled here: most processes never meet such a head, and compiling delays their start.
_LINE_END = rb"\r?\n"
_STATUS_LINE = rb"HTTP/1\.[01] \d{3}(?: [^\x00-\x08\x0a-\x1f\x7f]*)?"
_VERSION = rb"(?i)http/(\d)\.(\d)"
_STATUS = rb" *(\d+)"
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # RFC 9110, section 5.6.2
_CONTROLS = rb"[\x01-\x08\x0a-\x1f\x7f]"  # without NUL, and the tab, which is a blank
_LENGTH = rb"\d{1,18}"
"""A length that is a number, and not larger than any file."""
_CODINGS = (b"chunked", b"gzip", b"x-gzip", b"deflate", b"br", b"zstd")
"""Transfer codings that decide about the end of a body or change its bytes."""
_FRAMING = (b"content-length", b"transfer-encoding")

Fields = list[tuple[bytes, bytes]]


def repair_head(head: bytes, faults: set[ResponseFault] | None = None) -> bytes:
    """Return `head` (status line, headers and empty line) with these faults repaired:

    - bare LF as line end (RFC 9112, section 2.2)
    - a value folded over several lines (section 5.2)
    - blanks between a name and its colon (section 5.1)
    - lines without a colon, or with a name that is none (RFC 9110, section 5.1): dropped, as browsers do
    - control characters in a value, also a bare CR (RFC 9110, section 5.5): replaced by blanks
    - another version, letter case or number of blanks in the status line, or no status, which counts as 200
    - a Content-Length beside Transfer-Encoding (dropped, RFC 9112, section 6.3), or repeated with the same value
    - a Content-Length that is no number: dropped, so that the body lasts until the connection ends
    - a Transfer-Encoding without effect, such as `identity`: dropped

    `faults` gets the faults by which something was lost or changed.
    """
    faults = set() if faults is None else faults
    status_line, *lines = re.split(_LINE_END, head.rstrip(b"\r\n"))
    fields = _read_fields(lines, faults)
    fields = _repair_framing(fields, faults)
    repaired = [name + b": " + value for name, value in fields]
    return b"\r\n".join([_repair_status_line(status_line, faults), *repaired, b"", b""])


def start_of_head(data: bytes) -> int | None:
    """Return the position at which a status line begins: at most 4 bytes before it are skipped, as Chromium does. -1:
    more bytes are needed to tell. None: there is no status line."""
    for at in range(min(_MAX_SKIPPED, len(data)) + 1):
        begin = data[at : at + len(_NAME)].lower()
        if begin == _NAME:
            return at
        if _NAME.startswith(begin):  # also where nothing has arrived yet
            return -1
    return None


_NAME = b"http"
_MAX_SKIPPED = 4


def _repair_status_line(line: bytes, faults: set[ResponseFault]) -> bytes:
    """Return the status line with one of the versions 1.0 and 1.1, a status, and a reason."""
    if re.fullmatch(_STATUS_LINE, line):
        return line
    faults.add(ResponseFault.STATUS_LINE)
    version, _, rest = line.partition(b" ")
    number = re.match(_VERSION, version)
    status, reason = b"200", b""
    if found := re.match(_STATUS, rest):
        status, reason = found[1], re.sub(_CONTROLS, b" ", rest[found.end() :]).strip()
    is_newer = number is not None and (number[1], number[2]) >= (b"1", b"1")
    return b"HTTP/1." + (b"1" if is_newer else b"0") + b" " + status + b" " + reason


def _read_fields(lines: Iterable[bytes], faults: set[ResponseFault]) -> Fields:
    """Return name and value of each header, joining folded values and dropping lines that are no header."""
    fields: Fields = []
    is_dropped = True  # the header of the line before; a folded line belongs to it
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            value = line.strip()
            if not is_dropped:
                fields[-1] = fields[-1][0], fields[-1][1] + b" " + _clean(value, faults)
            elif value:
                faults.add(ResponseFault.HEADER_LINE)
            continue
        name, colon, value = line.partition(b":")
        name = name.rstrip(b" \t")
        is_dropped = not colon or not re.fullmatch(_TOKEN, name)
        if is_dropped:
            faults.add(ResponseFault.HEADER_LINE)
        else:
            value = value.strip()
            # A cleaned value could be a coding or a length that the server did not send.
            fields.append((name, value if name.lower() in _FRAMING else _clean(value, faults)))
    return fields


def _clean(value: bytes, faults: set[ResponseFault]) -> bytes:
    """Return a value without control characters."""
    cleaned = re.sub(_CONTROLS, b" ", value)
    if cleaned != value:
        faults.add(ResponseFault.HEADER_LINE)
    return cleaned.strip()


def _repair_framing(fields: Fields, faults: set[ResponseFault]) -> Fields:
    """Return the headers with at most one of those that decide about the end of the body, if they agree."""
    codings = _tokens(fields, b"transfer-encoding")
    lengths = {length.lstrip(b"0") or b"0" for length in _tokens(fields, b"content-length")}
    kept: dict[bytes, bytes] = {}
    """Value of the header that is kept, by its name in lower case."""
    if any(coding.lower() in _CODINGS for coding in codings):
        kept[b"transfer-encoding"] = b", ".join(codings)
    elif len(lengths) > 1:
        return fields  # the parser refuses them
    elif found := re.fullmatch(_LENGTH, b"".join(lengths)):
        kept[b"content-length"] = found[0]
    elif any(name.lower() == b"content-length" for name, _ in fields):
        faults.add(ResponseFault.CONTENT_LENGTH)
    repaired: Fields = []
    for name, value in fields:
        if name.lower() not in _FRAMING:
            repaired.append((name, value))
        elif (only := kept.pop(name.lower(), None)) is not None:
            repaired.append((name, only))
    return repaired


def _tokens(fields: Fields, wanted: bytes) -> list[bytes]:
    """Return the members of the lists in all headers of this lower-case name, without empty ones."""
    tokens = (token.strip() for name, value in fields if name.lower() == wanted for token in value.split(b","))
    return [token for token in tokens if token]
