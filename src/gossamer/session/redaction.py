"""Removes the secrets of an account from texts that a site or a spider has written, in whatever spelling they stand.

All of such a text that leaves a login goes through `without_secrets`: sites echo passwords in URLs, pages and headers,
as percent escapes, entities, escapes of JSON, base64 or hexadecimal digits.
"""

import base64
import html
import json
import re
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import quote, unquote_plus

from gossamer.model.messages.secret_fields import REDACTED

HIDDEN: Final = "<hidden, because it has a secret of the account in it>"
"""Replaces a whole text that has a secret in another spelling than its own."""
_ROUNDS = 3
"""Spellings inside of each other that are read. More cost time with each text."""
_SHORTEST = 4
"""Secrets with fewer characters count only as whole words: else they would be found in every text."""
_CODECS = ("utf-8", "latin-1", "utf-16-le")
_ESCAPE = re.compile(r"\\u\{?([0-9a-f]{4})\}?|(?:\\x|%|=|%u00)([0-9a-f]{2})|\\([0-7]{3})|\\(.)", re.IGNORECASE)


def without_secrets(text: str, secrets: Collection[str]) -> str:
    """Return a text with each of the secrets replaced; without all of the text, if one is in it in another spelling."""
    known = sorted({*secrets} - {""}, key=len, reverse=True)
    for secret in known:
        text = _plain(secret).sub("\0", text)
    if any(_has(view, secret) for view in _views(text) for secret in known):
        return HIDDEN
    return text.replace("\0", REDACTED)


def _plain(secret: str) -> re.Pattern[str]:
    """Return the expression of a secret in its own spelling."""
    text = re.escape(secret)
    return re.compile(rf"(?<!\w){text}(?!\w)" if len(secret) < _SHORTEST else text, re.IGNORECASE)


def _has(text: str, secret: str) -> bool:
    """Return whether a text has a secret, or its bytes as digits."""
    if _plain(secret).search(text):
        return True
    if len(secret) < _SHORTEST:
        return False
    lower = text.lower().replace("-", "+").replace("_", "/")  # the alphabet of URLs
    return any(digits.lower() in lower for data in _bytes(secret) for digits in _digits(data))


def _bytes(secret: str) -> set[bytes]:
    """Return a secret in the encodings that sites use, also as it stands in a URL or in JSON that is encoded again."""
    texts = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return {text.encode(codec, "surrogatepass" if codec[0] == "u" else "ignore") for text in texts for codec in _CODECS}


def _digits(data: bytes) -> Iterator[str]:
    """Yield the digits of these bytes in base 16, 32 and 64: wherever they stand in what was encoded, also where its
    letters have lost their case, as in the name of a host."""
    if len(data) < _SHORTEST:
        return
    yield data.hex()
    for bits, encode in ((5, base64.b32encode), (6, base64.b64encode)):
        for before in range(5 if bits == 5 else 3):
            digits = encode(b"\0" * before + data).decode()
            yield digits[-(-before * 8 // bits) : (before + len(data)) * 8 // bits]


def _views(text: str) -> set[str]:
    """Return a text as readers of each spelling see it."""
    views, new = {text}, {text}
    for _ in range(_ROUNDS):
        new = {
            read
            for one in new
            for read in (
                html.unescape(one),
                unquote_plus(one),
                unquote_plus(one, "latin-1"),
                _unescaped(one),
                _reread(one),
            )
        } - views
        views |= new
    return views


def _reread(text: str) -> str:
    """Return a text whose bytes were read as Latin-1, as those of headers are, read as UTF-8."""
    return text.encode("latin-1", "replace").decode("utf-8", "replace")


def _unescaped(text: str) -> str:
    """Return a text with the escapes of JSON and of programs read."""

    def character(match: re.Match[str]) -> str:
        if match[4]:
            return match[4]
        return chr(int(match[3], 8) if match[3] else int(match[1] or match[2], 16))

    read = _ESCAPE.sub(character, text)
    return read.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
