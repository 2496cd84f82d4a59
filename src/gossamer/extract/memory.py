"""A bounded memory of hrefs already resolved on a site, so that a navigation link costs one look-up.

An href that starts with `/` or with http:// or https:// means the same on the whole origin, another one the same in one
directory. What depends on the whole page URL (`?page=2`), or is oddly written, is not remembered.
"""

from gossamer.policy.urls import directory, origin

_MAX_HREF_LENGTH = 512

Known = dict[str, str]
"""Raw href without fragment -> what became of it: `known`, or the reason why it is not followed."""


class HrefMemory:
    """Holds at most `max_hrefs`; the directory (or origin) used longest ago is forgotten first, as a whole."""

    def __init__(self, *, max_hrefs: int = 50_000) -> None:
        self._max_hrefs = max_hrefs
        self._known: dict[str, Known] = {}
        self._size = 0

    def __len__(self) -> int:
        """Hrefs remembered now."""
        return self._size

    def recall(self, base: str) -> tuple[Known, Known]:
        """What is known on the base URL's origin, and in its directory. For looking up, until the next `keep`."""
        return self._touch(origin(base)), self._touch(directory(base))

    def keep(self, base: str, href: str, outcome: str) -> None:
        """Remember what became of an href in a document with this base URL, if that can be said of it in general."""
        place = self._place(base, href)
        if place is None:
            return
        known = self._touch(place)
        if not known:
            self._known[place] = known
        if href not in known:
            self._size += 1
        known[href] = outcome
        if self._size > self._max_hrefs:
            self._forget()

    def _touch(self, place: str) -> Known:
        """This place's hrefs, moved to the end of the order; a place without any is not kept."""
        known = self._known.pop(place, None)
        if known is None:
            return {}
        self._known[place] = known
        return known

    def _forget(self) -> None:
        while self._size > self._max_hrefs:
            # Dictionaries keep their order, so the first one is the one touched longest ago.
            oldest = next(iter(self._known))
            self._size -= len(self._known.pop(oldest))

    @staticmethod
    def _place(base: str, href: str) -> str | None:
        if not href or len(href) > _MAX_HREF_LENGTH or href[0] <= " " or href[0] == "?":
            return None
        if "\t" in href or "\n" in href or "\r" in href:
            return None  # the URL parser takes these out, so the rules below would not see what it sees
        if href[0] == "/":
            return origin(base)
        scheme, colon, rest = href.partition(":")
        if colon and scheme.lower() in ("http", "https"):
            # `http:x` is relative to the whole page URL where the page is http too.
            return origin(base) if rest.startswith("//") else None
        return directory(base)
