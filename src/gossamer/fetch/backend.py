"""Contract of a fetch backend: a request in, the response of the page out. HTTP client and browser implement it.

A backend is given one FetchRequest, which the frontier has charged as one hit of its site, and sends it once. It
returns one FetchResponse: the URL, the status and the headers of the server, the address, the timings, and the body.

- **Redirects are the caller's.** A backend follows none. The response of a redirect is returned as it is. A page whose
  script or `<meta>` leads elsewhere while the browser builds it is returned with `FetchResponse.moved_to`. In both
  cases the caller checks the scope and robots.txt of the target. A target on the same domain needs another hit; one on
  another domain goes back through the frontier and is charged there.
- **Failures are FetchErrors.** `policy/retry.py` has a row for each kind. An error whose response had begun has it in
  `FetchError.response`.
- **The browser's body is the document** as scripts have built it, in UTF-8, with `FetchResponse.rendering`;
  `wire_body` stays the body as the server sent it. A response that is no HTML is returned as the HTTP client has it.
- **What a page loads besides** is described by `PageLoad`. Such requests are no hits of the frontier, but each is
  judged by robots.txt and by the address guard, and their number, bytes and time are bounded.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec

from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.model.rendering import RenderStep, RenderTerms


class FetchBackend(Protocol):
    """Sends requests and returns responses."""

    def fetch(
        self, request: FetchRequest, timeout_seconds: float | None = None, *, wait_for_room: bool = False
    ) -> Coroutine[Any, Any, FetchResponse]:
        """Send one request and return its response, whatever its status. Arguments and errors as for
        `HttpClient.fetch`; the browser also raises BrowserErrors."""


class PageLoad(msgspec.Struct, frozen=True):
    """Rules for what a page loads while a browser builds it. `FetchRequest.page` has it where a page is rendered."""

    crawl: str
    """Name of the crawl: pages of two crawls share neither cookies nor a cache."""
    site: str
    """Registered domain of the page: pages of two sites share no tab."""
    request_for: Callable[[str], FetchRequest]
    """Returns a GET of this URL with the headers, the cookie, the proxy and the permissions that the crawl has for
    it."""
    allows: Callable[[FetchRequest], Awaitable[bool]]
    """Returns whether robots.txt allows a request."""
    because: str
    """Reason why the page is rendered, for its record: `asked`, `match` or `auto`."""
    why: str = ""
    """Decision that another worker has made on a page that is rendered where it is needed (`auto`): `sample`, `change`
    or `check`. Empty: it is still to be decided."""
    in_lane: bool = False
    """True: it was leased as a page that is to be rendered."""
    captures: Callable[[str], bool] | None = None
    """Returns whether the record of the page has the answer of this URL, if that is JSON. None: it has none."""
    screenshot: str = ""
    """Screenshot that is taken of the page: `page`, or the CSS selector of an element. Empty: none."""
    learns: bool = False
    """True: pages of the crawl are rendered if that changes them, so it is to be learnt from this one."""
    steps: tuple[RenderStep, ...] = ()
    """Steps that are taken on the page before its document is read."""
    terms: RenderTerms | None = None
    """Rules of the crawl that differ from the worker's settings. None: there are none."""
    session: str = ""
    """Name of the crawl's session at the site: pages of two sessions share neither cookies nor a cache. Empty: none."""
    script_cookies: tuple[dict[str, Any], ...] = ()
    """Cookies of a session that scripts of the page may read, as Chromium's `Network.setCookie` takes them."""
    on_open: Callable[[Any], Awaitable[None]] | None = None
    """Called with the open page (`render/open_page.py`) before its document is read."""
    on_response: Callable[[str, FetchResponse], object] | None = None
    """Called with the URL and the response of each request, that of the page among them, for the cookies that it
    sets."""
    merge_cookies: Callable[[str, str, str], str] | None = None
    """Returns the Cookie header of what the page loads: takes its URL, the header that the browser would send, and the
    one of `request_for`. None: there is no session, and one follows the other."""
    on_script_cookies: Callable[[str, list[dict[str, Any]]], object] | None = None
    """Called with the URL of the page and the cookies that its scripts may read when it is built, as Chromium's
    `Network.getCookies` returns them. None: there is no session."""

    @property
    def sharing(self) -> str:
        """Name of what pages share cookies and a cache with."""
        return f"{self.crawl}|{self.session}" if self.session else self.crawl
