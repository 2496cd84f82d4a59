"""One session at one site: its cookies, the headers of its login, and the signs that it has ended."""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gossamer.errors import LoginFailed
from gossamer.extract.document import HtmlDocument
from gossamer.extract.encoding import content_type_of, decode, is_html
from gossamer.extract.refusals import find_refusal
from gossamer.extract.selectors import CssSelector, compile_css
from gossamer.fetch.exchange import FetchRequest, FetchResponse, header_lines, redirect_location
from gossamer.model.messages.secret_fields import REDACTED
from gossamer.policy.refusals import may_be_refused
from gossamer.policy.secrets import redacted_head
from gossamer.policy.urls import host, redirect_target, registered_domain
from gossamer.session.form import LoginForm, forms_with_password
from gossamer.session.login import LoginSession
from gossamer.session.session_file import Account, SiteLogin
from gossamer.session.stored_jar import JarStore, StoredJar

_MOST_VISITOR_PAGES = 10
"""Pages in a row that look as to a visitor after a login, from which the login itself counts as failed. Fewer end a
crawl whose first pages no account may see; more fetch in vain."""
_MOST_UNAUTHORIZED = 3
"""Pages in a row that answer user and password with 401, after others that did not, from which they count as wrong.
More let a site lock the account; fewer end a crawl that meets pages which the account may not see."""
_MOST_REPEATED = 1000
"""Requests that a session remembers as repeated. With fewer, a forbidden page may cost several logins."""
_PASSWORD = re.compile(rb"type\s*=\s*[\"']?\s*password", re.IGNORECASE)
"""Sign that a page may have a form with a password. Other pages are not parsed for one."""
_HIDDEN = frozenset(("cookie", "authorization"))
_COOKIE_HEADERS = frozenset(("set-cookie",))

Exchange = Callable[[FetchRequest], Awaitable[FetchResponse]]


class SiteSession:
    """A session of one account at a site or, without an account, the cookies that the site sets."""

    def __init__(
        self, site: str, store: JarStore | None, login: SiteLogin | None = None, account: Account | None = None
    ) -> None:
        self.account = account
        self._login = login
        self._stored = StoredJar(store, account.name if account else "", site)
        self._headers: tuple[tuple[str, str], ...] = ()
        self._hidden = _HIDDEN
        self._used_tls = False
        self._form_page = login.steps.form if login is not None and login.steps is not None else ""
        self._form: LoginForm | None = None
        """Form by which the session has begun. None: it is not known."""
        self._form_fields = frozenset(login.steps.fields if login is not None and login.steps is not None else ())
        """Names of the fields of that form that the login fills."""
        self._lock = asyncio.Lock()
        self._is_ready = False
        self._is_logging_in = False
        self.number = 0
        """Number of logins so far. A request remembers it, to know whether it was sent by the session of now."""
        self._has_page = False
        """True: a page was fetched since the last login."""
        self._visitor_pages = 0
        self._repeated: OrderedDict[str, int] = OrderedDict()
        """Number of the login by which a request is repeated, by its id."""
        self._signs = login.signs if login is not None else None
        self._selector: CssSelector | None = None
        if self._signs is not None and self._signs.selector:
            self._selector = compile_css(self._signs.selector)

    @property
    def site(self) -> str:
        """Registered domain of the site."""
        return self._stored.jar.site

    @property
    def beginning(self) -> str:
        """Sentence on how the session has begun, without secrets. Empty: without an account."""
        if self._login is None:
            return ""
        if self._login.steps is None:
            return f"begun with the cookies of the account {self._name} at {self.site}"
        if self._login.steps.basic:
            return f"sends user and password of the account {self._name} to {self.site}"
        return f"logged in to {self.site} as {self._name}"

    # --- requests -----------------------------------------------------------------------------------------------------

    async def prepare(self, request_for: Callable[[str], FetchRequest], send: Exchange) -> None:
        """Be ready for a page: log in if that has not happened, and wait for a login in progress. `send` charges a hit
        and sends a request of a login. Raises LoginFailed."""
        if self._is_ready and not self._is_logging_in:
            await self._stored.sync()
            return
        async with self._lock:
            if self._is_ready:
                return
            await self._stored.sync(at_once=True)
            if self._login is not None and self._needs_login():
                await self._log_in(request_for, send)
            self._is_ready = True

    def add_to(self, request: FetchRequest) -> None:
        """Add the session's cookies and headers to a request, if it goes to the site. Cookies of the crawl's own
        options come first."""
        if registered_domain(host(request.url)) != self.site:
            return
        cookie = self._stored.jar.header_for(request.url, now=time.time())
        if not cookie and not self._headers:
            return
        own = {name.lower() for name, _ in self._headers}
        kept = [pair for pair in request.headers if pair[0].lower() not in own]
        if cookie:
            given = [value for name, value in kept if name.lower() == "cookie"]
            kept = [pair for pair in kept if pair[0].lower() != "cookie"]
            kept.append(("Cookie", "; ".join([*given, cookie])))
        if self._headers and self._may_carry_headers(request.url):
            kept += self._headers
        request.headers = tuple(kept)

    def _may_carry_headers(self, url: str) -> bool:
        """Return whether the login's headers go to a URL: over TLS, unless the login itself was without or, where it
        sends nothing (basic auth), no page has been over TLS."""
        steps = self._login.steps if self._login is not None else None
        is_tls = url.startswith("https:")
        if is_tls and steps is not None and steps.basic:
            self._used_tls = True
        return is_tls or not self._used_tls

    def receive(self, url: str, fetched: FetchResponse, *, number: int) -> bool:
        """Take over the cookies of a response whose request was sent by the login of this number. Cookies for another
        login than that of now are ignored: they may be those of a visitor. Returns whether requests now have others."""
        return not self._is_of_now(number) or self._stored.jar.receive(url, fetched.headers, now=time.time())

    def receive_from_scripts(
        self, given: Sequence[Mapping[str, Any]], url: str, found: Sequence[Mapping[str, Any]], *, number: int
    ) -> None:
        """Take over what the scripts of a page have done to its cookies. `given`: of `script_cookies`, before; `found`:
        those that the scripts may read now, as Chromium's `Network.getCookies` returns them; `number`: as for
        `receive`."""
        if not self._is_of_now(number):
            return
        now, jar = time.time(), self._stored.jar
        before = {_place(cookie, url): cookie["value"] for cookie in given}
        after = {_place(cookie, url): cookie for cookie in found}
        lines = [_set_cookie(cookie, now) for place, cookie in after.items() if before.get(place) != cookie["value"]]
        for name, domain, path in before.keys() - after.keys():
            lines.append(f"{name}=; Max-Age=0; Path={path}" + (f"; Domain={domain}" if domain.startswith(".") else ""))
        jar.receive(url, [("Set-Cookie", line) for line in lines], now=now, from_scripts=True)

    def _is_of_now(self, number: int) -> bool:
        """Return whether what the login of this number has sent belongs to the session of now."""
        return number == self.number and not self._is_logging_in

    def without_cookies(self, fetched: FetchResponse) -> FetchResponse:
        """Return a response, and its request, without the values of cookies and of the login's headers, for records
        and archives."""
        head = redacted_head(fetched.request_head, self._hidden)
        if not header_lines(fetched.headers, "set-cookie"):
            fetched.request_head = head
            return fetched
        return msgspec.structs.replace(
            fetched,
            headers=[(name, REDACTED if name.lower() == "set-cookie" else value) for name, value in fetched.headers],
            headers_by_name=None,
            request_head=head,
            response_head=redacted_head(fetched.response_head, _COOKIE_HEADERS),
        )

    @property
    def key(self) -> str:
        """Text that differs from that of other sessions: pages of two sessions share nothing in a browser."""
        return f"{self._name}|{self.number}"

    def script_cookies(self, url: str) -> tuple[dict[str, Any], ...]:
        """Return the cookies that scripts of the page at this URL may read, in the form of Chromium's protocol."""
        return tuple(
            {
                "name": one.name,
                "value": one.value,
                "path": one.path,
                "secure": one.secure,
                **({"url": url} if one.host_only else {"domain": f".{one.domain}"}),
            }
            for one in self._stored.jar.for_scripts(url, now=time.time())
        )

    def merge_cookies(self, url: str, of_page: str, given: str) -> str:
        """Return the Cookie header of what a page loads, with each name once. `of_page`: header of the browser, whose
        values scripts may have changed; `given`: header that `add_to` has made. Cookies that scripts cannot read are
        those of the session."""
        readable = {one.name for one in self._stored.jar.for_scripts(url, now=time.time())}
        session, page = ([(one.partition("=")[0], one) for one in line.split("; ")] for line in (given, of_page))
        names = {name for name, _ in session}
        kept = [(name, one) for name, one in page if name in readable or name not in names]
        names = {name for name, _ in kept}
        return "; ".join([one for _, one in kept] + [one for name, one in session if name not in names])

    # --- the end of a session -----------------------------------------------------------------------------------------

    def is_logged_out(self, fetched: FetchResponse, *, url: str, requested: str) -> bool:
        """Return whether a response is that of a visitor who is not logged in. `url`: of the response, `requested`:
        the one before its redirects."""
        signs, login = self._signs, self._login
        if signs is None or login is None or self._is_login_page(requested):
            return False
        if fetched.status == 401 or fetched.status in signs.status:
            return True
        location = fetched.moved_to or redirect_location(fetched.status, fetched.headers)
        if location is not None:
            return self._is_of_login(redirect_target(url, location) or "")
        if url != requested and self._is_of_login(url):
            return True
        if fetched.status >= 400 or may_be_refused(fetched.status, fetched.body, redirected=url != requested):
            refusal = find_refusal(fetched.status, fetched.headers, fetched.body, url=url, requested=requested)
            if refusal is not None and refusal.kind == "login":
                return True
        if signs.form and self._has_login_form(fetched, url):
            return True
        return self._selector is not None and self._shows(self._selector, fetched)

    def _has_login_form(self, fetched: FetchResponse, url: str) -> bool:
        """Return whether a page has the form by which the session has begun, as many sites show it in place of what
        only members see."""
        if not self._form_page or not self._form_fields or _PASSWORD.search(fetched.body) is None:
            return False
        content_type = content_type_of(header_lines(fetched.headers, "content-type"))
        if not is_html(content_type, fetched.body, fetched.headers):
            return False
        forms = forms_with_password(fetched.body, url, decode(fetched.body, content_type)[1] or "utf-8")
        return any(self._is_login_form(form, url) for form in forms)

    def _is_login_form(self, form: LoginForm, url: str) -> bool:
        """Return whether a form logs in. Of a session that began elsewhere, only the fields of the form and the page of
        the login are known."""
        if self._form is not None and form.is_like(self._form, self._form_fields):
            return True
        return form.asks_for(self._form_fields) and (self._is_login_page(form.action) or form.action == url)

    def _is_of_login(self, url: str) -> bool:
        """Return whether a redirect to a URL leads to the login."""
        begin = self._signs.redirect if self._signs is not None else ""
        return self._is_login_page(url) or (
            bool(begin) and (url.startswith(begin) or urlsplit(url).path.startswith(begin))
        )

    def _is_login_page(self, url: str) -> bool:
        """Return whether a URL is that of the form."""
        return bool(self._form_page) and url.partition("?")[0] == self._form_page.partition("?")[0]

    @staticmethod
    def _shows(selector: CssSelector, fetched: FetchResponse) -> bool:
        """Return whether a page has an element."""
        content_type = content_type_of(header_lines(fetched.headers, "content-type"))
        if not is_html(content_type, fetched.body, fetched.headers):
            return False
        root = HtmlDocument(fetched.body, decode(fetched.body, content_type)[1] or None).root
        return root is not None and selector.first(root) is not None

    def on_page(self) -> None:
        """Record a page that only a visitor who is logged in gets."""
        self._has_page, self._visitor_pages = True, 0

    async def renew(
        self, number: int, request_for: Callable[[str], FetchRequest], send: Exchange, *, status: int
    ) -> bool:
        """Log in again, after a page that was sent by the session `number` has shown that it ended. `status`: of that
        page. Returns whether the page may be sent again: False if the login is as new as the page, or is sent with each
        page. Raises LoginFailed."""
        async with self._lock:
            if number != self.number:
                return True
            if status == 401 and self._login is not None and self._login.steps is not None and self._login.steps.basic:
                self._on_unauthorized()
                return False
            if self._has_page:
                await self._log_in(request_for, send)
                return True
            self._visitor_pages += 1
            if self._visitor_pages >= _MOST_VISITOR_PAGES:
                raise LoginFailed(
                    f"{self.site} shows {_MOST_VISITOR_PAGES} pages in a row as to a visitor who is not logged in, "
                    f"right after the login of {self._name}. Check the account, and logged_out_when in the "
                    "session file (form: false, if pages of members have the form of the login)."
                )
            return False

    def _on_unauthorized(self) -> None:
        """Record a page that answers user and password of basic auth with 401. Raises LoginFailed where they are wrong:
        sites lock accounts after a few such answers."""
        self._visitor_pages += 1
        if not self._has_page:
            raise LoginFailed(f"{self.site} answers {self._name} with 401 Unauthorized. Check user and password.")
        if self._visitor_pages >= _MOST_UNAUTHORIZED:
            raise LoginFailed(
                f"{self.site} answers {self._name} with 401 Unauthorized, {self._visitor_pages} pages in a row. Check "
                "user and password. If the account may not see these pages, name them in never_follow in the session "
                "file."
            )

    def repeat(self, request_id: str) -> None:
        """Record that a request is sent again by the login of now."""
        self._repeated[request_id] = self.number
        if len(self._repeated) > _MOST_REPEATED:
            self._repeated.popitem(last=False)

    def was_made_for(self, request_id: str, number: int) -> bool:
        """Return whether a request was repeated by the login of this number. If it fails again, it is the page's
        fault."""
        return self._repeated.get(request_id) == number

    # --- the login ----------------------------------------------------------------------------------------------------

    def _needs_login(self) -> bool:
        """Return whether the session has to begin with a login, because no cookies of one are known."""
        assert self._login is not None
        assert self.account is not None
        jar, steps = self._stored.jar, self._login.steps
        self._has_page = len(jar) > 0  # cookies of the store may be of a session that has ended
        if not len(jar):
            for cookie in self.account.cookies:
                jar.put(cookie)
            jar.note_changes(cookie.identity for cookie in self.account.cookies)
            self._has_page = bool(self.account.cookies)
        return steps is not None and (steps.basic or bool(steps.spider) or bool(steps.token) or not len(jar))

    async def _log_in(self, request_for: Callable[[str], FetchRequest], send: Exchange) -> None:
        """Log in with new cookies. Raises LoginFailed."""
        assert self._login is not None
        assert self.account is not None
        self._stored.jar.clear()
        session = LoginSession(self._login, self._stored.jar, send, request_for, time.time())
        self._is_logging_in = True
        try:
            self._headers = await session.log_in(self.account)
        finally:
            self._is_logging_in = False
        self._used_tls, self._form_page = self._used_tls or session.used_tls, session.form_page
        self._form = session.form
        self._form_fields = session.form_fields or self._form_fields
        self._hidden = _HIDDEN.union(name.lower() for name, _ in self._headers)
        self._has_page = False
        self.number += 1
        await self._stored.sync(at_once=True)

    @property
    def _name(self) -> str:
        return self.account.name if self.account is not None else ""

    async def close(self) -> None:
        """Store the last changes."""
        if self._stored.jar.has_changes:
            await self._stored.sync(at_once=True)


def _place(cookie: Mapping[str, Any], url: str) -> tuple[str, str, str]:
    """Return name, domain and path of a cookie in the form of Chromium's protocol. `url`: of the page, whose host has
    those without a domain. A domain that holds for its subdomains, too, begins with a dot."""
    return cookie["name"], cookie.get("domain") or host(url), cookie["path"]


def _set_cookie(cookie: Mapping[str, Any], now: float) -> str:
    """Return the header that sets a cookie that Chromium has."""
    parts = [f"{cookie['name']}={cookie['value']}", f"Path={cookie['path']}"]
    if cookie["domain"].startswith("."):
        parts.append(f"Domain={cookie['domain']}")
    if cookie["expires"] >= 0:
        parts.append(f"Max-Age={int(cookie['expires'] - now)}")
    return "; ".join([*parts, "Secure"] if cookie["secure"] else parts)
