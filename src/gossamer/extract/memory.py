"""Bounded memory of hrefs that were resolved on a site before, so that a navigation link costs one look-up.

An href that starts with http:// or https:// means the same everywhere, one that starts with `//` on all pages of a
scheme, one that starts with `/` on the whole origin, and any other in one directory. An href that depends on the whole
page URL (`?page=2`) or is written in an unusual way is not remembered.
"""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from gossamer.policy.urls import directory, origin

_MAX_HREF_LENGTH = 512
_SCHEMES = ("http", "https")

_HREF_BYTES = 150
_PLACE_BYTES = 700
"""Approximate memory of an href (besides its characters) and of a place."""

_Key = tuple[Hashable, str]

Known = dict[str, str]
"""Outcome by raw href without fragment: `known`, or the reason why the href is not followed."""


class RememberedHrefs(NamedTuple):
    """Remembered hrefs for one document. Each href is in at most one of the three."""

    anywhere: Known
    on_site: Known
    in_directory: Known


class _DirectoryHrefs:
    """Hrefs of one directory, origin or scheme."""

    __slots__ = ("bytes", "known")

    def __init__(self) -> None:
        self.known: Known = {}
        self.bytes = _PLACE_BYTES


_NOTHING: Known = {}


class HrefMemory:
    """Memory of about `max_bytes`. The least recently used directory (or origin) is forgotten first, as a whole.

    It may serve many extractors. Each remembers under its own `namespace`, which stands for everything besides the
    document that an href's outcome depends on (the run, the scope). The bound is for all namespaces together.

    Hrefs that mean the same everywhere get at most half of the memory, so that links to the whole world leave the rest
    to the sites' own.
    """

    def __init__(self, *, max_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._places: dict[_Key, _DirectoryHrefs] = {}
        self._data_epoch = 0
        self.bytes = 0
        """Approximate memory of the hrefs in bytes."""

    def __len__(self) -> int:
        """Number of remembered hrefs."""
        return sum(len(place.known) for place in self._places.values())

    def enter_data_epoch(self, data_epoch: int) -> None:
        """Forget everything that was remembered in another data epoch of the frontier."""
        if data_epoch != self._data_epoch:
            self._data_epoch = data_epoch
            self._places.clear()
            self.bytes = 0

    def recall(self, namespace: Hashable, base: str) -> RememberedHrefs:
        """Return the hrefs that are remembered for documents with this base URL. Valid until the next `keep`."""
        return RememberedHrefs(
            self._touch((namespace, _scheme(base))),
            self._touch((namespace, origin(base))),
            self._touch((namespace, directory(base))),
        )

    def keep(self, namespace: Hashable, base: str, hrefs: Iterable[str], outcome: str) -> None:
        """Remember the outcome of hrefs in a document with this base URL, except hrefs whose outcome depends on the
        whole URL."""
        anywhere, on_site, in_directory = (
            (namespace, _scheme(base)),
            (namespace, origin(base)),
            (namespace, directory(base)),
        )
        for href in hrefs:
            if not href or len(href) > _MAX_HREF_LENGTH or href[0] <= " " or href[0] == "?":
                continue
            if "\t" in href or "\n" in href or "\r" in href:
                continue  # the URL parser removes these characters, so it would not see what the rules below see
            if href[0] == "/":
                key = anywhere if href.startswith("//") else on_site
            else:
                key = in_directory
                if ":" in href:
                    scheme, _, rest = href.partition(":")
                    if scheme.lower() in _SCHEMES:
                        if not rest.startswith("//"):
                            continue  # `http:x` is relative to the whole page URL if the page is http, too
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
        """Return this place's hrefs and make it the most recently used; a place without hrefs is not kept."""
        place = self._places.pop(key, None)
        if place is None:
            return _NOTHING
        self._places[key] = place
        return place.known

    def _forget(self) -> None:
        while self.bytes > self._max_bytes:
            # Dictionaries keep their order, so the first place is the least recently used.
            oldest = next(iter(self._places))
            self.bytes -= self._places.pop(oldest).bytes


def _scheme(base: str) -> str:
    return base[: base.index(":")]
