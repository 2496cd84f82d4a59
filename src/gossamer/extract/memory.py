"""A bounded memory of hrefs already resolved on a site, so that a navigation link costs one look-up.

An href that starts with http:// or https:// means the same everywhere, and one that starts with `//` on all pages of a
scheme; one that starts with `/` means the same on the whole origin, another one the same in one directory. What depends
on the whole page URL (`?page=2`), or is oddly written, is not remembered.
"""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from gossamer.policy.urls import directory, origin

_MAX_HREF_LENGTH = 512
_SCHEMES = ("http", "https")

_HREF_BYTES = 150
_PLACE_BYTES = 700
"""About what an href (beside its characters) and a place take."""

_Key = tuple[Hashable, str]

Known = dict[str, str]
"""Raw href without fragment -> what became of it: `known`, or the reason why it is not followed."""


class RememberedHrefs(NamedTuple):
    """What is known of the hrefs of one document; of any href, at most one of the three knows something."""

    anywhere: Known
    on_site: Known
    in_directory: Known


class _DirectoryHrefs:
    """The hrefs of one directory, origin or scheme."""

    __slots__ = ("bytes", "known")

    def __init__(self) -> None:
        self.known: Known = {}
        self.bytes = _PLACE_BYTES


_NOTHING: Known = {}


class HrefMemory:
    """Holds about `max_bytes`; the directory (or origin) used longest ago is forgotten first, as a whole.

    It may serve many extractors: what each remembers is kept apart by its `namespace`, which is whatever the meaning of
    an href depends on beside the document (the run, the scope). The bound is for all parts together.

    What means the same everywhere gets half of the room at most, so that links to the whole world leave the rest to
    the sites' own.
    """

    def __init__(self, *, max_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._places: dict[_Key, _DirectoryHrefs] = {}
        self._era = 0
        self.bytes = 0
        """About how much memory the hrefs take now."""

    def __len__(self) -> int:
        """Hrefs remembered now."""
        return sum(len(place.known) for place in self._places.values())

    def enter_era(self, era: int) -> None:
        """Forget everything unless it was remembered in this era of the frontier."""
        if era != self._era:
            self._era = era
            self._places.clear()
            self.bytes = 0

    def recall(self, namespace: Hashable, base: str) -> RememberedHrefs:
        """What is known where this base URL is. For looking up, until the next `keep`."""
        return RememberedHrefs(
            self._touch((namespace, _scheme(base))),
            self._touch((namespace, origin(base))),
            self._touch((namespace, directory(base))),
        )

    def keep(self, namespace: Hashable, base: str, hrefs: Iterable[str], outcome: str) -> None:
        """Remember what became of hrefs in a document with this base URL, where that can be said of them in general."""
        anywhere, on_site, in_directory = (
            (namespace, _scheme(base)),
            (namespace, origin(base)),
            (namespace, directory(base)),
        )
        for href in hrefs:
            if not href or len(href) > _MAX_HREF_LENGTH or href[0] <= " " or href[0] == "?":
                continue
            if "\t" in href or "\n" in href or "\r" in href:
                continue  # the URL parser takes these out, so the rules below would not see what it sees
            if href[0] == "/":
                key = anywhere if href.startswith("//") else on_site
            else:
                key = in_directory
                if ":" in href:
                    scheme, _, rest = href.partition(":")
                    if scheme.lower() in _SCHEMES:
                        if not rest.startswith("//"):
                            continue  # `http:x` is relative to the whole page URL where the page is http too
                        key = anywhere
            self._enter(key, href, outcome)

    def _enter(self, key: _Key, href: str, outcome: str) -> None:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _DirectoryHrefs()
            self.bytes += _PLACE_BYTES
        if href not in place.known:
            if place.bytes >= self._max_bytes // 2 and key[1] in _SCHEMES:
                self.bytes -= place.bytes - _PLACE_BYTES
                place.known.clear()
                place.bytes = _PLACE_BYTES
            size = _HREF_BYTES + len(href)
            place.bytes += size
            self.bytes += size
        place.known[href] = outcome
        if self.bytes > self._max_bytes:
            self._touch(key)
            self._forget()

    def _touch(self, key: _Key) -> Known:
        """This place's hrefs, moved to the end of the order; a place without any is not kept."""
        place = self._places.pop(key, None)
        if place is None:
            return _NOTHING
        self._places[key] = place
        return place.known

    def _forget(self) -> None:
        while self.bytes > self._max_bytes:
            # Dictionaries keep their order, so the first one is the one touched longest ago.
            oldest = next(iter(self._places))
            self.bytes -= self._places.pop(oldest).bytes


def _scheme(base: str) -> str:
    return base[: base.index(":")]
