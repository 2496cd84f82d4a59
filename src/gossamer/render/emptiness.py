"""Pages that are empty for a reader until a script has built them: judged by the page as the server sent it."""

import re

_LONGEST_BYTES = 512 * 1024
"""Part of a page that is looked at. A page that has shown no text until then is not meant to be read."""
_FEW_CHARACTERS = 200
"""Visible characters of a page below which it is taken for empty, if it also has few links: a title and a spinner."""
_FEW_LINKS = 3
_ASKING_CHARACTERS = 1000
"""Visible characters below which a page that asks for scripts in words is taken for empty."""
# All of them take a time that grows with the page, not with its square: pages choose what they are searched for.
_HIDDEN = re.compile(rb"<!--|<(head|script|style|template|svg|noscript)\b")
_TAG = re.compile(rb"<[^<>]*>")
_LINK = re.compile(rb"<a\s[^<>]*href")
_SCRIPT = re.compile(rb"<script\b")


def has_scripts(body: bytes) -> bool:
    """Return whether a page has scripts."""
    return bool(_SCRIPT.search(body[:_LONGEST_BYTES].lower()))


def needs_scripts(body: bytes) -> bool:
    """Return whether a page shows a reader next to nothing, and has scripts that may build the rest."""
    body = body[:_LONGEST_BYTES].lower()
    if not _SCRIPT.search(body):
        return False
    shown = _shown(body)
    characters = len(b" ".join(_TAG.sub(b" ", shown).split()))
    most = _ASKING_CHARACTERS if _asks_for_scripts(body) else _FEW_CHARACTERS
    return characters < most and len(_LINK.findall(shown)) < _FEW_LINKS


def _shown(body: bytes) -> bytes:
    """Return a page without what a reader does not see."""
    parts = []
    at = 0
    while hidden := _HIDDEN.search(body, at):
        parts.append(body[at : hidden.start()])
        end = b"</" + hidden[1] if hidden[1] else b"-->"
        found = body.find(end, hidden.end())
        if found < 0:
            return b" ".join(parts)
        at = found + len(end)
    return b" ".join((*parts, body[at:]))


def _asks_for_scripts(body: bytes) -> bool:
    """Return whether a page asks its reader to switch scripts on."""
    begin = body.find(b"<noscript")
    end = body.find(b"</noscript", begin)
    return begin >= 0 and b"script" in body[begin + len(b"<noscript") : end if end >= 0 else None]
