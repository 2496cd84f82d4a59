"""Bounded memory of hrefs that were resolved on a site before, so that a navigation link costs one look-up.

An href is a link as the page writes it. One that starts with http:// or https:// means the same URL everywhere, one
that starts with `//` on all pages of a scheme, one that starts with `/` on the whole origin, and any other in one
directory. An href that depends on the whole page URL (`?page=2`) or is written in an unusual way (with white space) is
not remembered. The frontier is the store of all requests of a crawl.

Fixed: the rules above. An href that is remembered for more pages than it means the same on would be taken for known
there, and its page would never be fetched.
"""

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from gossamer.compiled import native
from gossamer.policy.urls import directory, origin


def new_href_memory(*, max_bytes: int = 16 * 1024 * 1024) -> Any:
    """Return the memory of the compiled extension, or that of this module where there is none."""
    return (HrefMemory if native is None else native.Memory)(max_bytes=max_bytes)


_MAX_HREF_LENGTH = 512
"""Length in characters of the longest href that is remembered. Long ones seldom recur and take memory."""
_SCHEMES = ("http", "https")
"""Schemes of the URLs that are crawled; also the names of the places of hrefs that mean the same everywhere."""

_HREF_BYTES = 150
"""Approximate memory of an href besides its characters, measured. Larger remembers fewer."""
_PLACE_BYTES = 700
"""Approximate memory of a place (see `_Place`), measured. Larger remembers fewer."""

_PlaceKey = tuple[Hashable, str]
"""Namespace, and the place's URL or scheme."""

Outcomes = dict[str, str]
"""Outcome by raw href without fragment: `known` (the URL is in the frontier), or the reason why it is not followed."""


class RememberedHrefs(NamedTuple):
    """Remembered hrefs for one document. Each href is in at most one of the three."""

    anywhere: Outcomes
    """Hrefs with a host."""
    on_site: Outcomes
    """Hrefs that start with a single `/`."""
    in_directory: Outcomes
    """All others."""


class _Place:
    """Hrefs that mean the same in one directory, on one origin, or wherever the page has one scheme."""

    __slots__ = ("bytes", "outcomes")

    def __init__(self) -> None:
        self.outcomes: Outcomes = {}
        self.bytes = _PLACE_BYTES
        """Approximate memory."""


_NOTHING: Outcomes = {}
"""Hrefs of a place that is not kept. Shared by all, so it must stay empty."""


NOTHING_REMEMBERED = RememberedHrefs(_NOTHING, _NOTHING, _NOTHING)


class HrefMemory:
    """Memory of about `max_bytes`. The least recently used place is forgotten first, as a whole.

    It may serve many extractors. Each remembers under its own `namespace`, which stands for everything besides the
    document that an href's outcome depends on, such as the crawl's current run and its filters of URLs. The bound is
    for all namespaces together.

    The hrefs that mean the same everywhere are kept in one place for each namespace and scheme. Each of these places
    gets at most half of the memory, so that in a crawl of one scheme, links to the whole world leave the rest to the
    sites' own. Several such places may together take more."""

    def __init__(self, *, max_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._places: dict[_PlaceKey, _Place] = {}  # the least recently used first
        self._data_epoch = 0
        self.bytes = 0
        """Approximate memory of all places."""

    def __len__(self) -> int:
        """Number of remembered hrefs."""
        return sum(len(place.outcomes) for place in self._places.values())

    def enter_data_epoch(self, data_epoch: int) -> None:
        """Forget everything that was remembered in another data epoch: a number that changes when the frontier
        may have lost requests. Their URLs must not stay `known`."""
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
        """Remember the outcome of hrefs in a document with this base URL. Not remembered are hrefs that are long,
        written in an unusual way (with white space), or whose meaning depends on the whole URL (`?page=2`, `http:x`).

        The very object `outcome` is kept: `links.py` compares it by identity."""
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
            self._put(key, href, outcome)

    def _put(self, key: _PlaceKey, href: str, outcome: str) -> None:
        """Remember an href at a place. A place of hrefs that mean the same everywhere is emptied when it takes half of
        the memory; when all places take more than all of it, the least recently used places are forgotten, this one
        last."""
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place()
            self.bytes += _PLACE_BYTES
        if href not in place.outcomes:
            _, place_name = key
            if place.bytes >= self._max_bytes // 2 and place_name in _SCHEMES:
                self.bytes -= place.bytes - _PLACE_BYTES
                place.outcomes.clear()
                place.bytes = _PLACE_BYTES
            size = _HREF_BYTES + len(href)
            place.bytes += size
            self.bytes += size
        place.outcomes[href] = outcome
        if self.bytes > self._max_bytes:
            self._touch(key)
            self._forget()

    def _touch(self, key: _PlaceKey) -> Outcomes:
        """Return this place's hrefs and make it the most recently used."""
        place = self._places.pop(key, None)
        if place is None:
            return _NOTHING
        self._places[key] = place
        return place.outcomes

    def _forget(self) -> None:
        """Forget the least recently used places until the memory is within its bound."""
        while self.bytes > self._max_bytes:
            least_recently_used = next(iter(self._places))
            self.bytes -= self._places.pop(least_recently_used).bytes


def _scheme(base: str) -> str:
    return base[: base.index(":")]
