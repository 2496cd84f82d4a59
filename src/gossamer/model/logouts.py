"""Links that end a session: a crawl with one never follows them.

Fixed: accepted expressions, which running crawls have in their stored terms. Documented in docs/howto/login.md.
"""

from typing import Final

NEVER_FOLLOWED: Final = (
    r"(?i)^[a-z]+://[^/]+/(?:.*[/?&=;._-])?(?:log|sign)[-_]?(?:out|off)(?:[/?&=;.#_-]|$)",
    r"(?i)^[a-z]+://[^/]+/(?:.*[/?&=])?(?:abmelden|deconnexion|cerrar[-_]?sesion|end[-_]?session)(?:[/?&=.#]|$)",
    r"(?i)^[a-z]+://[^/]+/(?:.*[/?&=])?(?:unsubscribe|delete[-_]?account)(?:[/?&=.#]|$)",
)
"""Expressions that are searched in whole URLs, and mean nothing of the host. They stand behind those of --deny."""
