"""Cookies of one site in one session of a crawl, bounded in number and size."""

from collections.abc import Iterable

import msgspec

from gossamer.frontier.base import MOST_COOKIES
from gossamer.policy.urls import host, registered_domain
from gossamer.session.cookie import Cookie, parse_set_cookie

Identity = tuple[str, str, str, bool]


class CookieJar:
    """Cookies of a site: a registered domain with its subdomains. No other site sets or gets any of them."""

    def __init__(self, site: str) -> None:
        self.site = site
        self._cookies: dict[Identity, Cookie] = {}
        self._changed: set[Identity] = set()
        self._used: dict[Identity, float] = {}
        """Unix time at which a cookie was sent last, in this process."""

    def __len__(self) -> int:
        return len(self._cookies)

    def receive(
        self,
        url: str,
        headers: Iterable[tuple[str, str]],
        *,
        now: float,
        from_scripts: bool = False,
        of_login: bool = False,
    ) -> bool:
        """Take over what the Set-Cookie headers of the response at this canonical URL say. `now`: Unix time.
        `from_scripts`: scripts of the page have set them, which may not replace those that they cannot read.
        `of_login`: it answers a login. Returns whether a cookie has changed."""
        if registered_domain(host(url)) != self.site:
            return False
        has_changed, is_tls = False, url.startswith("https:")
        for name, value in headers:
            if len(name) != len("set-cookie") or name.lower() != "set-cookie":
                continue
            cookie = parse_set_cookie(value, url, now=now)
            if cookie is None or (not is_tls and any(one.hides(cookie) for one in self._cookies.values())):
                continue
            if from_scripts and (old := self._cookies.get(cookie.identity)) is not None and old.http_only:
                continue
            has_changed = self._put(msgspec.structs.replace(cookie, of_login=of_login), now) or has_changed
        return has_changed

    def put(self, cookie: Cookie) -> None:
        """Add a cookie that a person gives, in place of an older one. It is no change to be stored."""
        self._cookies[cookie.identity] = msgspec.structs.replace(cookie, of_login=True)

    def header_for(self, url: str, *, now: float) -> str:
        """Return the Cookie header of a request for this canonical URL. Empty: none goes there."""
        if not self._cookies:
            return ""
        found = [one for one in self._cookies.values() if one.goes_to(url) and not one.is_expired(now)]
        if len(found) > 1:
            found.sort(key=lambda one: (-len(one.path), one.created))
        self._used.update((one.identity, now) for one in found)
        return "; ".join([one.text for one in found])

    def for_scripts(self, url: str, *, now: float) -> list[Cookie]:
        """Return the cookies that scripts of the page at this canonical URL may read."""
        found = [one for one in self._cookies.values() if one.goes_to(url) and not one.is_expired(now)]
        return [one for one in found if not one.http_only]

    def clear(self) -> None:
        """Remove all cookies, as before a login."""
        self._changed.update(self._cookies)
        self._cookies.clear()
        self._used.clear()

    @property
    def has_changes(self) -> bool:
        """True: `take_changes` returns something."""
        return bool(self._changed)

    def take_changes(self) -> dict[Identity, Cookie | None]:
        """Return the cookies that were set since the last call, and None for those that were removed."""
        changes = {identity: self._cookies.get(identity) for identity in self._changed}
        self._changed.clear()
        return changes

    def note_changes(self, identities: Iterable[Identity]) -> None:
        """Have these cookies returned by `take_changes`, because they are not stored yet."""
        self._changed.update(identities)

    def merge(self, stored: Iterable[Cookie]) -> None:
        """Take over the cookies that the store has now. Changes that are not stored yet are kept."""
        kept = {identity: self._cookies.get(identity) for identity in self._changed}
        self._cookies = {one.identity: one for one in stored}
        self._used = {identity: at for identity, at in self._used.items() if identity in self._cookies}
        for identity, cookie in kept.items():
            if cookie is None:
                self._cookies.pop(identity, None)
            else:
                self._cookies[identity] = cookie

    def _put(self, cookie: Cookie, now: float) -> bool:
        """Set a cookie, or remove it if it is expired. Beyond the bound, another one makes room. Returns whether
        requests now have other cookies."""
        identity = cookie.identity
        old = self._cookies.get(identity)
        if old is not None:
            of_login = cookie.of_login or old.of_login
            cookie = msgspec.structs.replace(cookie, created=old.created, of_login=of_login)
        if cookie.is_expired(now):
            if old is not None:
                del self._cookies[identity]
                self._changed.add(identity)
            return old is not None
        if old is None and len(self._cookies) >= MOST_COOKIES:
            self._make_room(now)
        self._cookies[identity] = cookie
        is_new = old is None or old.value != cookie.value
        if old is None or is_new or _differs(old.expires, cookie.expires, now):
            self._changed.add(identity)
        return is_new

    def _make_room(self, now: float) -> None:
        """Remove expired cookies or, if there are none, the one that was not sent for the longest time; before those of
        the login, without which there is no session, and before secure ones."""
        gone = [one for one in self._cookies.values() if one.is_expired(now)]
        for one in gone or [min(self._cookies.values(), key=self._worth)]:
            del self._cookies[one.identity]
            self._used.pop(one.identity, None)
            self._changed.add(one.identity)

    def _worth(self, cookie: Cookie) -> tuple[bool, bool, float, float]:
        """Return what orders cookies by how long they are to be kept: first the one that makes room first."""
        return cookie.of_login, cookie.secure, self._used.get(cookie.identity, cookie.created), cookie.created


def _differs(before: float | None, after: float | None, now: float) -> bool:
    """Return whether the end of a cookie's life has moved by a tenth of it. Sites set a new one with each page."""
    if before is None or after is None:
        return before != after
    return abs(after - before) > (after - now) / 10
