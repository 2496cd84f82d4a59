"""Links that end a session: a crawl with one never follows them.

Fixed: accepted expressions, which running crawls have in their stored terms. Documented in docs/howto/login.md.
"""

from typing import Final

_BETWEEN = "(?:.*(?:[^a-z0-9]|%[0-9a-f]{2}))?"
"""Text before a word in any case: nothing, or all up to a character that is part of no word."""
_PLACE = "^[a-z]+://[^/]+/"

NEVER_FOLLOWED: Final = (
    rf"(?i){_PLACE}{_BETWEEN}(?:log|sign)(?:[._-]?me)?[._-]?(?:out|off)(?:[^a-z0-9]|$)",
    rf"{_PLACE}(?:.*[^A-Z])?(?:Log|Sign)[._-]?(?:[Oo]ut|[Oo]ff|OUT|OFF)(?:[^a-z]|$)",
    rf"{_PLACE}(?:.*[^A-Za-z0-9])?(?:log|sign)[._-]?(?:[Oo]ut|[Oo]ff)(?:[^a-z]|$)",
    rf"(?i){_PLACE}{_BETWEEN}(?:abmelden|ausloggen|uitloggen|afmelden|d[eé]connexion|(?:se[-_])?d[eé]connecter|"
    r"desconectar|cerrar[-_ ]?sesi[oó]n|wyloguj|odhl[aá]sit|kil[eé]p[eé]s|end[-_]?session)(?:[^a-z0-9-]|$)",
    rf"(?i){_PLACE}(?:.*/)?sessions?/(?:destroy|delete|end|close|terminate)(?:[^a-z0-9-]|$)",
    rf"(?i){_PLACE}(?:.*[/?&=])?(?:unsubscribe|delete[-_]?account)(?:[/?&=.#]|$)",
)
"""Expressions that are searched in whole URLs, and mean nothing of the host. They stand behind those of --deny."""
