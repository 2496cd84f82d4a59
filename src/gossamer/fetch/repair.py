"""Sloppy but unambiguous response heads, rewritten so that the strict parser takes them.

The parser refuses what could be read in two ways, which matters to a proxy. A crawler only reads, once, and closes the
connection afterwards; so what the RFC lets a user agent accept is accepted, as browsers do. What stays ambiguous or
broken (contradicting lengths, NUL bytes, no status line) is left as it is, for the parser to refuse.
"""

import re

_LINE_END = re.compile(rb"\r?\n")


def repair_head(head: bytes) -> bytes:
    """`head` (status line, headers and the empty line) with these mended:

    - bare LF as line end (RFC 9112, section 2.2)
    - a value folded over several lines (section 5.2)
    - blanks between a name and its colon (section 5.1), lines without a colon or a name (dropped, as browsers do)
    - Content-Length beside Transfer-Encoding (dropped, section 6.3), repeated with the same value (section 6.3)
    """
    status_line, *lines = _LINE_END.split(head.rstrip(b"\r\n"))
    fields = _unfold(lines)
    lengths = {
        part.strip() for name, value in fields if name.lower() == b"content-length" for part in value.split(b",")
    }
    encoded = any(name.lower() == b"transfer-encoding" for name, _ in fields)
    mended = [status_line]
    length_given = False
    for name, value in fields:
        if name.lower() == b"content-length" and len(lengths) <= 1:
            if encoded or length_given:
                continue
            length_given = True
            value = next(iter(lengths))
        mended.append(name + b": " + value)
    return b"\r\n".join([*mended, b"", b""])


def _unfold(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    fields: list[tuple[bytes, bytes]] = []
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            if fields:
                name, value = fields[-1]
                fields[-1] = name, value + b" " + line.strip()
            continue
        name, colon, value = line.partition(b":")
        name = name.rstrip()
        if colon and name:
            fields.append((name, value.strip()))
    return fields
