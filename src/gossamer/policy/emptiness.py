"""The part of a page that a reader sees, and pages that are empty for a reader until a script has built them: judged by
the page as the server sent it."""

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
_HIDDEN_OR_LINK = re.compile(rb"<!--|<(head|script|style|template|svg|noscript|a)\b")
_TAG = re.compile(rb"<[^<>]*>")
_LINK = re.compile(rb"<a\s[^<>]*href")
_BUTTON = re.compile(rb"""<input\b[^<>]*type\s*=\s*["']?(?:submit|button)[^<>]*>""")
_LABEL = re.compile(rb"""value\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>]+))""")
_LEADING_ON = re.compile(rb"<a\s[^<>]*href|<iframe\b")
_SCRIPT = re.compile(rb"<script\b")


def has_scripts(body: bytes) -> bool:
    """Return whether a page has scripts."""
    return bool(_SCRIPT.search(body[:_LONGEST_BYTES].lower()))


def needs_scripts(body: bytes) -> bool:
    """Return whether a page shows a reader next to nothing, and has scripts that may build the rest."""
    body = body[:_LONGEST_BYTES].lower()
    if not _SCRIPT.search(body):
        return False
    shown = shown_source(body)
    most = _ASKING_CHARACTERS if asks_for_scripts(body) else _FEW_CHARACTERS
    return len(text_of(shown)) < most and len(_LINK.findall(shown)) < _FEW_LINKS


def is_shell(body: bytes) -> bool:
    """Return whether a page in lower case needs scripts, and shows neither a link nor a frame with another page."""
    return needs_scripts(body) and not _LEADING_ON.search(shown_source(body))


def shown_text(body: bytes) -> str:
    """Return the text that a page in lower case shows, without its title, and then the labels of its buttons."""
    shown = shown_source(body)
    labels = [b"".join(value) for button in _BUTTON.findall(shown) for value in _LABEL.findall(button)]
    return b" ".join((text_of(shown), *labels)).decode("utf-8", "replace")


def text_beside_links(body: bytes) -> str:
    """Return the text that a page in lower case shows, without that of its links."""
    return text_of(shown_source(body, _HIDDEN_OR_LINK)).decode("utf-8", "replace")


def shown_source(body: bytes, hidden: re.Pattern[bytes] = _HIDDEN) -> bytes:
    """Return the source of a page in lower case without what a reader does not see. `hidden`: beginnings of that."""
    parts = []
    at = 0
    while begin := hidden.search(body, at):
        parts.append(body[at : begin.start()])
        end = b"-->" if begin[1] is None else b"</a>" if begin[1] == b"a" else b"</" + begin[1]
        found = body.find(end, begin.end())
        if found < 0:
            return b" ".join(parts)
        at = body.find(b">", found) + 1 or len(body)
    return b" ".join((*parts, body[at:]))


def asks_for_scripts(body: bytes) -> bool:
    """Return whether a page in lower case asks its reader to switch scripts on."""
    begin = body.find(b"<noscript")
    end = body.find(b"</noscript", begin)
    return begin >= 0 and b"script" in body[begin + len(b"<noscript") : end if end >= 0 else None]


def text_of(shown: bytes) -> bytes:
    """Return the text of a source, with single spaces."""
    return b" ".join(_TAG.sub(b" ", shown).split())
