"""A bounded memory of hrefs already resolved on a site, so that a navigation link costs one look-up.

An href that starts with http:// or https:// means the same everywhere, and one that starts with `//` on all pages of a
scheme; one that starts with `/` means the same on the whole origin, another one the same in one directory. What depends
on the whole page URL (`?page=2`), or is oddly written, is not remembered.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gossamer.policy.urls import directory, origin

_MAX_HREF_LENGTH = 512
_SCHEMES = ("http", "https")

Known = dict[str, str]
"""Raw href without fragment -> what became of it: `known`, or the reason why it is not followed."""


class Recalled(NamedTuple):
    """What is known of the hrefs of one document; of any href, at most one of the three knows something."""

    anywhere: Known
    on_site: Known
    in_directory: Known


class HrefMemory:
    """Holds at most `max_hrefs`; the directory (or origin) used longest ago is forgotten first, as a whole.

    What means the same everywhere gets half of the room at most, so that links to the whole world leave the rest to
    the sites' own.
    """

    def __init__(self, *, max_hrefs: int = 50_000) -> None:
        self._max_hrefs = max_hrefs
        self._known: dict[str, Known] = {}
        self._size = 0

    def __len__(self) -> int:
        """Hrefs remembered now."""
        return self._size

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._size = 0

    def recall(self, base: str) -> Recalled:
        """What is known where this base URL is. For looking up, until the next `keep`."""
        return Recalled(self._touch(_scheme(base)), self._touch(origin(base)), self._touch(directory(base)))

    def keep(self, base: str, hrefs: Iterable[str], outcome: str) -> None:
        """Remember what became of hrefs in a document with this base URL, where that can be said of them in general."""
        anywhere, on_site, in_directory = _scheme(base), origin(base), directory(base)
        for href in hrefs:
            if not href or len(href) > _MAX_HREF_LENGTH or href[0] <= " " or href[0] == "?":
                continue
            if "\t" in href or "\n" in href or "\r" in href:
                continue  # the URL parser takes these out, so the rules below would not see what it sees
            if href[0] == "/":
                place = anywhere if href.startswith("//") else on_site
            else:
                place = in_directory
                if ":" in href:
                    scheme, _, rest = href.partition(":")
                    if scheme.lower() in _SCHEMES:
                        if not rest.startswith("//"):
                            continue  # `http:x` is relative to the whole page URL where the page is http too
                        place = anywhere
            self._enter(place, href, outcome)

    def _enter(self, place: str, href: str, outcome: str) -> None:
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = {}
        if href not in known:
            self._size += 1
            if len(known) >= self._max_hrefs // 2 and place in _SCHEMES:
                self._size -= len(known)
                known.clear()
        known[href] = outcome
        if self._size > self._max_hrefs:
            self._touch(place)
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


def _scheme(base: str) -> str:
    return base[: base.index(":")]
