"""Links that end a session: a crawl with one never follows them.

Fixed: accepted expressions, which running crawls have in their stored terms. Documented in docs/howto/login.md.
"""

from typing import Final

NEVER_FOLLOWED: Final = (
    r"(?i)[/?&=;._-](?:log|sign)[-_]?(?:out|off)(?:[/?&=;.#_-]|$)",
    r"(?i)[/?&=](?:abmelden|deconnexion|cerrar[-_]?sesion|end[-_]?session|unsubscribe|delete[-_]?account)(?:[/?&=.#]|$)",
)
"""Expressions that are searched in URLs from the host on. They stand behind those of --deny."""
