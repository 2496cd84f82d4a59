"""Scrapy downloader middleware that shares cookies between the processes of a crawl, in place of Scrapy's own.

A process that logs in stores the cookies before its callback runs, so that the requests which the callback yields have
them in whichever process they are fetched. The rules are those of RFC 6265bis, as in Gossamer's own crawls.

Fixed: the name SharedCookiesMiddleware, which projects write into their settings, and the meaning of `cookiejar` and
`dont_merge_cookies` in a request's meta, which is Scrapy's.
"""

import asyncio
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http import Response

from gossamer.errors import BadInput, BadUrl
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Run
from gossamer.policy.urls import canonical, host, registered_domain
from gossamer.scrapy.options import abort
from gossamer.session.stored_jar import JarStore, StoredJar
from gossamer.session.vault import open_vault_keys
from gossamer.storage.secret_keys import KEYS_FILE_VARIABLE, new_key_advice

POSITION = 700
"""Position among the downloader middlewares: that of Scrapy's CookiesMiddleware."""
_MOST_JARS = 1000
"""Jars of a process; the least recently used makes room. More take more memory."""


class _SharedJar:
    """A jar of one site, and the lock of its exchange with the store."""

    def __init__(self, store: JarStore | None, account: str, site: str) -> None:
        self.stored = StoredJar(store, account, site)
        self._lock = asyncio.Lock()

    async def sync(self) -> None:
        """Exchange changes with the store. Each request asks, because it may be the child of a login."""
        async with self._lock:
            await self.stored.sync(at_once=True)


class SharedCookiesMiddleware(CookiesMiddleware):
    """Keeps the cookies of each site in the frontier's server, encrypted with the operator's key."""

    def __init__(self, debug: bool = False) -> None:
        """Raises BadInput if there is no key."""
        super().__init__(debug)
        keys = open_vault_keys(os.environ)
        if keys is None:
            raise BadInput(
                f"GOSSAMER_SHARED_COOKIES needs a key, by which cookies are encrypted. Name its file in "
                f"{KEYS_FILE_VARIABLE}. {new_key_advice()}"
            )
        self._keys = keys
        self._store: JarStore | None = None
        self._jars: OrderedDict[tuple[str, str], _SharedJar] = OrderedDict()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "SharedCookiesMiddleware":
        """Invalid settings end the crawl with one line in the log."""
        try:
            return super().from_crawler(crawler)
        except BadInput as error:
            abort(error)

    def join_frontier(self, frontier: ValkeyFrontier, run: Run) -> None:
        """Share the cookies of this run from now on."""
        self._store = JarStore(frontier, run, self._keys)

    async def process_request(self, request: Request, spider: Any = None) -> None:  # type: ignore[override]
        """Add the cookies of the jar, and those that the request itself has, which the jar keeps."""
        found = None if request.meta.get("dont_merge_cookies", False) else self._jar_of(request)
        if found is None:
            return
        url, jar = found
        await jar.sync()
        jar.stored.jar.receive(url, [("Set-Cookie", line) for line in _own_cookies(request, url)], now=time.time())
        request.headers.pop("Cookie", None)
        if header := jar.stored.jar.header_for(url, now=time.time()):
            request.headers["Cookie"] = header
        self._debug_cookie(request)

    async def process_response(  # type: ignore[override]
        self, request: Request, response: Response, spider: Any = None
    ) -> Response:
        """Keep the cookies that a response sets. They are stored before the response is passed on."""
        found = None if request.meta.get("dont_merge_cookies", False) else self._jar_of(request)
        if found is not None:
            url, jar = found
            lines = [line.decode("latin-1") for line in response.headers.getlist("Set-Cookie")]
            jar.stored.jar.receive(url, [("Set-Cookie", line) for line in lines], now=time.time())
            if jar.stored.jar.has_changes:
                await jar.sync()
            self._debug_set_cookie(response)
        return response

    def _jar_of(self, request: Request) -> tuple[str, _SharedJar] | None:
        """Return the canonical URL of a request, and the jar of its site. None: it is no web page."""
        try:
            url = canonical(request.url)
        except BadUrl:
            return None
        name = request.meta.get("cookiejar")
        account = "" if name is None else hashlib.blake2b(str(name).encode(), digest_size=8).hexdigest()
        key = account, registered_domain(host(url))
        jar = self._jars.get(key)
        if jar is None:
            jar = self._jars[key] = _SharedJar(self._store, *key)
            if len(self._jars) > _MOST_JARS:
                self._jars.popitem(last=False)
        else:
            self._jars.move_to_end(key)
        return url, jar


def _own_cookies(request: Request, url: str) -> Iterator[str]:
    """Yield the cookies of a request as Set-Cookie headers of a response at this URL would have them."""
    cookies: Any = request.cookies or ()
    if isinstance(cookies, dict):
        cookies = [{"name": name, "value": value} for name, value in cookies.items()]
    for cookie in cookies:
        parts = [f"{_text(cookie.get('name'))}={_text(cookie.get('value'))}"]
        parts += [f"{name}={_text(cookie[name])}" for name in ("domain", "path") if cookie.get(name)]
        if "path" not in cookie:
            parts.append("path=/")
        if cookie.get("secure", False) and url.startswith("https:"):
            parts.append("secure")
        yield "; ".join(parts)


def _text(value: Any) -> str:
    """Return a part of a cookie as text."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
