"""Queries of links on pages that are not UTF-8 (URL standard, "percent-encode after encoding")."""

import re

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def with_encoded_query(href: str, charset: str) -> str:
    """The href with the non-ASCII characters of its query percent-encoded in the document's charset (a Python codec).

    What the charset lacks becomes `%26%23<number>%3B`. The same object where nothing changes. Only http and https
    targets may be given to it: other schemes' queries are always UTF-8. Never raises.
    """
    mark = href.find("?")
    if mark < 0 or href.isascii() or charset.startswith("utf"):
        return href
    query = _NOT_ASCII.sub(lambda match: _encoded(match[0], charset), href[mark:])
    return href[:mark] + query if query != href[mark:] else href


def _encoded(character: str, charset: str) -> str:
    try:
        data = character.encode(charset)
    except (ValueError, LookupError):
        return f"%26%23{ord(character)}%3B"
    return "".join(f"%{byte:02X}" if byte > 0x7E or byte < 0x21 else chr(byte) for byte in data)
