"""An estate agent's site for tests and tutorials: lists, details, logins, a JSON API, images, a slow geocoder.

The content of a page depends only on the property's number, so it is the same everywhere. Only sessions, nonces
(numbers that a form accepts once) and the geocoder's limit remember anything.

Fixed: the paths, the markup with its class and itemprop names, the logins and PER_INDEX, which the examples and the
tutorials rely on.
"""

import base64
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

import msgspec
from markupsafe import escape

from gossamer.fakeweb.answer import Answer, html, redirect
from gossamer.fakeweb.site import scramble
from gossamer_fakeweb.estate_words import ADDRESSES, KINDS, PLACES, PRICE_PERCENT, TRAITS

HOSTS = frozenset({"estate.test", "localhost", "127.0.0.1"})
"""Host names of the site. The last two need no `--resolve` of the client."""
PER_INDEX = 30
"""Properties of each index page, and of the API."""
USER, PASSWORD = "user", "pass"
"""User and password that both logins accept."""
GEOCODES_A_SECOND = 10
"""Look-ups that the geocoder answers in any second; the others get OVER_QUERY_LIMIT. The examples are throttled to
it."""
GEOCODE_DELAY_MS = 100.0
"""Delay of each look-up, so that a cache is worth having."""

_NOT_FOUND = html("<html><body><h1>Not found</h1></body></html>", status=404)
_IMAGES = 20
"""Number of pictures, which the properties share."""
_GATED = (3, 17, 29)
"""Properties that the page behind the login links to."""
_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERXRTc4UG1RV19i"
    "Z2hnPk1xeXBkeFxlZ2P/wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAI"
    "AQEAAD8AP//Z"
)
"""8 by 8 grey pixels."""


class Estate:
    """The site: `indexes` pages of `PER_INDEX` properties each. `clock` gives seconds, for the geocoder's limit."""

    def __init__(self, indexes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.indexes = indexes
        self._clock = clock
        self._tokens = 0
        """Number of nonces and session ids so far, from which the next one is made."""
        self._nonces: set[str] = set()
        self._sessions: set[str] = set()
        self._looked_up: list[float] = []
        """Times of the look-ups of the last second."""

    @property
    def properties(self) -> int:
        """Number of properties, which are numbered from 0."""
        return self.indexes * PER_INDEX

    def answer(self, method: str, target: str, *, body: bytes = b"", cookie: str = "") -> Answer:
        """Return the answer to one request, 404 for an unknown path. `cookie` is the request's Cookie header."""
        parts = urlsplit(target)
        match parts.path:
            case "/properties/api.json":
                return self._api()
            case "/dynamic/login":
                return self._login(body) if method == "POST" else _form("/dynamic/login")
            case "/dynamic/nonce":
                return self._nonce_form()
            case "/dynamic/nonce-login" if method == "POST":
                return self._nonce_login(body)
            case "/dynamic/gated":
                return self._gated(cookie)
            case "/dynamic/error":
                return html("<html><body><h1>Wrong user or password</h1></body></html>")
            case "/maps/api/geocode/json":
                return self._geocode(parse_qs(parts.query).get("address", [""])[0])
        if (number := _number(parts.path, "/properties/index_", ".html", 5)) is not None and number < self.indexes:
            return self._index(number)
        if (number := _number(parts.path, "/properties/property_", ".html", 6)) is not None:
            return self._detail(number) if number < self.properties else _NOT_FOUND
        if (number := _number(parts.path, "/images/i", ".jpg", 2)) is not None and number < _IMAGES:
            return Answer(headers=(("Content-Type", "image/jpeg"),), body=_image(number))
        return _NOT_FOUND

    def _index(self, number: int) -> Answer:
        rows = "".join(
            '<li itemscope itemtype="http://schema.org/Product">'
            f'<a itemprop="url" href="{_detail_name(each)}"><span itemprop="name">{escape(_title(each))}</span></a> '
            f'<span itemprop="price">{_price(each)}</span> <p itemprop="description">{escape(_description(each))}</p>'
            f'<span itemscope itemtype="http://schema.org/Place">{escape(_address(each))}</span>'
            f'<img itemprop="image" src="../images/{_image_name(each)}"></li>\n'
            for each in range(number * PER_INDEX, (number + 1) * PER_INDEX)
        )
        following = number + 1
        link = (
            f'<p class="page next"><a href="index_{following:05d}.html">Next</a></p>'
            if following < self.indexes
            else ""
        )
        return html(
            f"<html><head><title>Properties, page {number}</title></head><body><ul>\n{rows}</ul>{link}</body></html>"
        )

    def _detail(self, number: int) -> Answer:
        return html(
            f"<html><head><title>{escape(_title(number))}</title></head>"
            '<body itemscope itemtype="http://schema.org/Product">'
            f'<h1 itemprop="name" class="space">{escape(_title(number))}</h1>\n'
            f'<p itemprop="price">{_price(number)}</p>\n'
            f'<p itemprop="description">{escape(_description(number))}</p>\n'
            f'<p itemscope itemtype="http://schema.org/Place">\n  {escape(_address(number))}\n</p>\n'
            f'<img itemprop="image" src="../images/{_image_name(number)}"></body></html>'
        )

    def _api(self) -> Answer:
        count = min(PER_INDEX, self.properties)
        return _json([{"id": number, "title": _title(number)} for number in range(count)])

    def _login(self, body: bytes) -> Answer:
        form = parse_qs(body.decode("latin-1"))
        if form.get("user") != [USER] or form.get("pass") != [PASSWORD]:
            return redirect("/dynamic/error")
        session = self._token()
        self._sessions.add(session)
        moved = redirect("/dynamic/gated")
        return msgspec.structs.replace(moved, headers=(*moved.headers, ("Set-Cookie", f"session={session}; Path=/")))

    def _nonce_form(self) -> Answer:
        nonce = self._token()
        self._nonces.add(nonce)
        return _form("/dynamic/nonce-login", f'<input type="hidden" name="nonce" value="{nonce}">')

    def _nonce_login(self, body: bytes) -> Answer:
        nonce = parse_qs(body.decode("latin-1")).get("nonce", [""])[0]
        if nonce not in self._nonces:
            return redirect("/dynamic/error")
        self._nonces.remove(nonce)
        return self._login(body)

    def _gated(self, cookie: str) -> Answer:
        try:
            morsel = SimpleCookie(cookie).get("session")
        except CookieError:
            morsel = None
        if morsel is None or morsel.value not in self._sessions:
            return redirect("/dynamic/error")
        links = "".join(
            f'<li><a itemprop="url" href="/properties/{_detail_name(number)}">{escape(_title(number))}</a></li>'
            for number in _GATED
        )
        return html(f"<html><body><h1>Welcome</h1><ul>{links}</ul></body></html>")

    def _geocode(self, address: str) -> Answer:
        now = self._clock()
        self._looked_up = [moment for moment in self._looked_up if now - moment < 1.0]
        if len(self._looked_up) >= GEOCODES_A_SECOND:
            return _json({"results": [], "status": "OVER_QUERY_LIMIT"})
        self._looked_up.append(now)
        if address not in ADDRESSES:
            return _json({"results": [], "status": "ZERO_RESULTS"}, delay_ms=GEOCODE_DELAY_MS)
        drawn = scramble(ADDRESSES.index(address))
        location = {"lat": 51.3 + drawn % 4001 / 10_000, "lng": -0.4 + (drawn >> 32) % 6001 / 10_000}
        found = {"formatted_address": address, "geometry": {"location": location}}
        return _json({"results": [found], "status": "OK"}, delay_ms=GEOCODE_DELAY_MS)

    def _token(self) -> str:
        """Return a text that was not returned before: a nonce or the id of a session."""
        self._tokens += 1
        return f"{scramble(self._tokens):016x}"


def _number(path: str, before: str, after: str, digits: int) -> int | None:
    """Return the number between two parts of a path; None unless it has exactly so many digits."""
    middle = path.removeprefix(before).removesuffix(after)
    fits = path == before + middle + after and len(middle) == digits and middle.isascii() and middle.isdecimal()
    return int(middle) if fits else None


def _form(action: str, hidden: str = "") -> Answer:
    fields = '<input name="user"><input name="pass" type="password"><input type="submit" value="Log in">'
    return html(f'<html><body><form method="post" action="{action}">{hidden}{fields}</form></body></html>')


def _json(content: object, *, delay_ms: float = 0.0) -> Answer:
    headers = (("Content-Type", "application/json"),)
    return Answer(headers=headers, body=msgspec.json.encode(content), delay_ms=delay_ms)


def _image(number: int) -> bytes:
    """Return a JPEG. A comment after the start-of-image marker makes each picture different."""
    text = f"picture {number}".encode()
    return _JPEG[:2] + b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text + _JPEG[2:]


def _detail_name(number: int) -> str:
    return f"property_{number:06d}.html"


def _image_name(number: int) -> str:
    return f"i{scramble(number) % _IMAGES:02d}.jpg"


def _words(number: int) -> tuple[str, str, str]:
    """Return the trait, the kind and the place in the title."""
    drawn = scramble(number)
    return TRAITS[(drawn >> 8) % len(TRAITS)], KINDS[drawn % len(KINDS)], PLACES[(drawn >> 16) % len(PLACES)]


def _title(number: int) -> str:
    trait, kind, place = _words(number)
    return f"{trait} {kind} near {place}"


def _address(number: int) -> str:
    return ADDRESSES[(scramble(number) >> 24) % len(ADDRESSES)]


def _description(number: int) -> str:
    drawn = scramble(number) >> 32
    return f"A {TRAITS[drawn % len(TRAITS)]} place to live, {drawn % 29 + 1} minutes' walk from {_address(number)}."


def _price(number: int) -> str:
    pence = 15_000 + (scramble(number) >> 20) % 200_000
    for word in _words(number):
        pence = pence * PRICE_PERCENT.get(word, 100) // 100
    return f"£{pence / 100:,.2f}pw"
