"""Client of one login, for spiders: what `Spider.login` gets.

Spiders outside this project use it: names and arguments are fixed; arguments with a default may be added.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from gossamer.errors import LoginFailed
from gossamer.extract.document import HtmlDocument
from gossamer.extract.encoding import content_type_of, decode
from gossamer.extract.selection import SelectorList, select_css
from gossamer.fetch.exchange import FetchResponse, header_lines
from gossamer.session.form import LoginForm, find_form
from gossamer.session.session_file import Account

Exchange = Callable[[str, bytes | None, Mapping[str, str]], Awaitable[FetchResponse]]
"""Sends a request to a URL, with this body and these headers: a POST or, where the body is None, a GET."""


class LoginAnswer:
    """Answer of a site to a request of a login, after redirects."""

    def __init__(self, fetched: FetchResponse) -> None:
        self.url = fetched.url
        """URL after redirects."""
        self.status_code = fetched.status
        self.body = fetched.body
        self._content_type = content_type_of(header_lines(fetched.headers, "content-type"))
        self._fetched = fetched

    @cached_property
    def headers(self) -> dict[str, list[str]]:
        """Headers by lower-case name."""
        found: dict[str, list[str]] = {}
        for name, value in self._fetched.headers:
            found.setdefault(name.lower(), []).append(value)
        return found

    @cached_property
    def text(self) -> str:
        """Body as text."""
        return decode(self.body, self._content_type)[0] or ""

    @property
    def encoding(self) -> str:
        """Python codec of the body."""
        return decode(self.body, self._content_type)[1] or "utf-8"

    @cached_property
    def _document(self) -> HtmlDocument:
        return HtmlDocument(self.body, self.encoding)

    def css(self, selector: str) -> SelectorList:
        """Return what a CSS selector matches, as `Page.css` does. Raises BadInput."""
        return select_css(self._document.root, selector)

    def json(self) -> Any:
        """Return the body as JSON. Raises ValueError."""
        return json.loads(self.body)


class LoginClient:
    """Sends the requests of one login. Each counts as a hit of the site, has the session's cookies and follows
    redirects; none leaves the site. All methods raise LoginFailed for an answer that only a person can deal with."""

    def __init__(
        self,
        account: Account,
        exchange: Exchange,
        check_url: Callable[[str, str], None],
        shown: Callable[[str], str],
    ) -> None:
        """`check_url`: raises LoginFailed for a form on a page (second) that leads to a URL (first) that must not get
        secrets. `shown`: returns a text without secrets."""
        self.account = account.name
        """Name of the account."""
        self.values = account.values
        """Values of the account in the session file, with its secrets."""
        self.headers: dict[str, str] = {}
        """Headers that all pages of the site get after the login, such as that of a token."""
        self.form_page = ""
        """URL of the page whose form was sent last. Pages that lead there are those of a visitor. Empty: none was."""
        self.form: LoginForm | None = None
        """That form. A page that has it is that of a visitor, too."""
        self.form_fields: frozenset[str] = frozenset()
        """Names of its fields that were filled."""
        self._exchange = exchange
        self._check_url = check_url
        self._shown = shown

    async def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> LoginAnswer:
        """Fetch a URL."""
        return LoginAnswer(await self._exchange(url, None, headers or {}))

    async def post(
        self,
        url: str,
        *,
        fields: Mapping[str, str] | None = None,
        json: Any = None,  # as in other clients
        headers: Mapping[str, str] | None = None,
    ) -> LoginAnswer:
        """Send `fields` as a form does, or `json`."""
        if (fields is None) == (json is None):
            raise LoginFailed("session.post: name either fields or json.")
        kind = "application/json" if fields is None else "application/x-www-form-urlencoded"
        body = _as_json(json) if fields is None else urlencode(fields).encode()
        return LoginAnswer(await self._exchange(url, body, {"Content-Type": kind, **(headers or {})}))

    async def submit(self, page: LoginAnswer, values: Mapping[str, str], *, select: str = "") -> LoginAnswer:
        """Send the form of a page with these values, and with its own of all other fields, as a browser does.
        `select`: CSS selector of the form; empty: the one with a password."""
        form = find_form(page.body, page.url, page.encoding, selector=select)
        if form is None:
            raise LoginFailed(f"{self._shown(page.url)} has no form {f'{select!r}' if select else 'with a password'}.")
        if form.method != "POST":
            raise LoginFailed(f"The form at {self._shown(page.url)} is sent by GET: the secrets would be in a URL.")
        self._check_url(form.action, page.url)
        self.form_page, self.form, self.form_fields = page.url, form, frozenset(values)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Referer": page.url, **dict(form.headers)}
        return LoginAnswer(await self._exchange(form.action, form.filled(dict(values)).encode(), headers))

    def fail(self, reason: str) -> None:
        """End the crawl, because the login does not work. Secrets of the account in `reason` are replaced."""
        raise LoginFailed(f"The login of {self.account} failed: {self._shown(str(reason))}")


def _as_json(value: Any) -> bytes:
    return json.dumps(value).encode()
