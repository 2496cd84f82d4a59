"""Logs in to a site: by a form, by a request, by basic auth, or by the method of a spider.

Each request counts as a hit of the site. Nothing that a site answers makes a secret leave it: the requests stay on the
registered domain of the session, and on TLS where they began on it. Messages have the status of an answer, in our own
words; all else that a site or a spider has written is in them only by `_shown`.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from gossamer.errors import (
    BadResponse,
    BadUrl,
    DecodeBomb,
    DecodeFailed,
    FetchError,
    FrontierError,
    HeadersTooLarge,
    LoginFailed,
    LoginUnanswered,
)
from gossamer.extract.encoding import content_type_of, decode
from gossamer.extract.refusals import find_refusal
from gossamer.fetch.exchange import FetchRequest, FetchResponse, header_lines, redirect_location
from gossamer.fetch.request import basic_credentials, check_headers
from gossamer.policy.retry import is_worth_a_retry
from gossamer.policy.urls import canonical, host, origin, redirect_target, registered_domain
from gossamer.policy.words import status_phrase
from gossamer.session.form import LoginForm, find_form, forms_with_password
from gossamer.session.jar import CookieJar
from gossamer.session.redaction import HIDDEN, without_secrets
from gossamer.session.second_factor import asks_second_factor
from gossamer.session.session_file import Account, SiteLogin

_MOST_HOPS: Final = 10
"""Redirects of one step of a login, as many as of a page."""
_PAGE_EXPIRED: Final = 419
"""Status of Laravel for a form without its token."""
_FOR_PERSONS: Final = ("challenge", "captcha")
"""Kinds of refusals that only a person passes."""

_OF_ANSWERS: Final = frozenset(error.kind for error in (BadResponse, HeadersTooLarge, DecodeFailed, DecodeBomb))
"""Kinds of errors whose messages quote the answer."""

Send = Callable[[FetchRequest], Awaitable[FetchResponse]]
"""Charges a hit, and sends a request of a login."""


class LoginSession:
    """Requests of one login: their cookies, and the headers that pages get afterwards."""

    def __init__(
        self, login: SiteLogin, jar: CookieJar, send: Send, request_for: Callable[[str], FetchRequest], now: float
    ) -> None:
        """`request_for`: returns a GET with the headers and the proxy of the crawl. `now`: Unix time."""
        self._login = login
        self._jar = jar
        self._send = send
        self._request_for = request_for
        self._now = now
        self._account: Account | None = None
        self.used_tls = False
        """True: a request went over TLS. What it got is not to be sent without."""
        self.form_page = login.steps.form if login.steps is not None else ""
        """URL of the page with the form of the login. Empty: it is not known."""
        self.form: LoginForm | None = None
        """Form by which the login was sent. None: it was not sent by one."""
        self.form_fields: frozenset[str] = frozenset()
        """Names of its fields that the login has filled."""

    async def log_in(self, account: Account) -> tuple[tuple[str, str], ...]:
        """Log in, and return the headers that pages of the site then get. Raises LoginFailed, and FetchError if another
        attempt may succeed."""
        self._account = account
        steps = self._login.steps
        if steps is None:
            raise LoginFailed(
                f"The session of {account.name} at {self._login.site} has ended. Log in with a browser, and export its "
                "cookies again."
            )
        if steps.basic:
            user, password = account.values["user"], account.values["password"]
            return (("Authorization", basic_credentials(user.encode(), password.encode())),)
        if steps.spider:
            return await self._by_spider(account)
        if steps.form:
            await self._by_form(account)
            return ()
        return await self._by_request(account)

    # --- a form -------------------------------------------------------------------------------------------------------

    async def _by_form(self, account: Account) -> None:
        steps = self._login.steps
        assert steps is not None
        page = await self._open(self._request_for(steps.form))
        self._check_answer(page, account)
        form = self._form_of(page)
        if form is None:
            raise LoginFailed(
                f"{steps.form} has no form {f'{steps.select!r}' if steps.select else 'with a password'}. Name the "
                "page of the login, and the form by select."
            )
        if form.has_captcha:
            raise self._for_a_person("asks for a captcha")
        values = {name: account.values[key] for name, key in steps.fields.items()}
        missing = [name for name in values if name not in form.names]
        if missing:
            has = self._shown(", ".join(sorted(form.names))) or "none"
            raise LoginFailed(f"The form at {steps.form} has no field {missing[0]}. It has: {has}.")
        self._check_action(form, page.url)
        answer = await self._open(self._submission(form, values, page.url))
        if answer.status == _PAGE_EXPIRED:
            raise LoginFailed(
                f"{self._login.site} answers the login of {account.name} with 419: it wants a token that the form at "
                f"{steps.form} does not have. Log in by the method of a spider, which can send it."
            )
        self._check_answer(answer, account)
        self.form, self.form_fields = form, frozenset(values)
        named = self._form_of(answer) if steps.select else None
        forms = [*([named] if named else ()), *forms_with_password(answer.body, answer.url, _encoding(answer))]
        again = next((other for other in forms if other.is_like(form, values)), None)
        if again is not None:
            if again.has_captcha:
                raise self._for_a_person("asks for a captcha")
            raise LoginFailed(
                f"{self._login.site} shows the form again after the login of {account.name}. Check user and password."
            )
        if asks_second_factor(answer.body, _encoding(answer), url=answer.url):
            raise self._for_a_person("asks for a second factor")

    def _form_of(self, page: FetchResponse) -> LoginForm | None:
        steps = self._login.steps
        assert steps is not None
        return find_form(page.body, page.url, _encoding(page), selector=steps.select)

    def _check_action(self, form: LoginForm, url: str) -> None:
        """Raise LoginFailed for a form that secrets must not be sent by."""
        self._check_target(form.action, url)
        if form.is_multipart:
            raise LoginFailed(
                f"The form at {self._shown(url)} is sent as multipart/form-data, which logins do not support."
            )
        if form.method != "POST":
            raise LoginFailed(f"The form at {self._shown(url)} is sent by GET: the secrets would be in a URL.")

    def _check_target(self, target: str, url: str) -> None:
        """Raise LoginFailed if the form of a page leads to where secrets must not go."""
        if not target or registered_domain(host(target)) != self._login.site:
            leads = f"The form at {self._shown(url)} leads to {self._shown(target) or 'no web page'}"
            raise LoginFailed(f"{leads}, and secrets stay on {self._login.site}.")
        if url.startswith("https:") and not target.startswith("https:"):
            leads = f"The form at {self._shown(url)} leads to {self._shown(target)}"
            raise LoginFailed(f"{leads}, which is not encrypted.")

    def _submission(self, form: LoginForm, values: dict[str, str], url: str) -> FetchRequest:
        """Return the request that a browser would send. Sites compare Origin and Referer with their own."""
        return self._with_body(
            form.action,
            form.filled(values).encode(),
            "application/x-www-form-urlencoded",
            (("Origin", origin(url)), ("Referer", url), *form.headers),
        )

    # --- a request ----------------------------------------------------------------------------------------------------

    async def _by_request(self, account: Account) -> tuple[tuple[str, str], ...]:
        steps = self._login.steps
        assert steps is not None
        values = {name: account.values[key] for name, key in steps.fields.items()}
        as_json = steps.body == "json"
        body = json.dumps(values) if as_json else urlencode(values)
        kind = "application/json" if as_json else "application/x-www-form-urlencoded"
        accepts = ("Accept", "application/json")
        answer = await self._open(self._with_body(steps.request, body.encode(), kind, (accepts,)))
        self._check_answer(answer, account)
        if not steps.token:
            return ()
        token = _token(answer.body, steps.token)
        if not token:
            raise LoginFailed(f"The answer of {steps.request} has no {steps.token}, which should be the token.")
        name, _, value = steps.header.partition(":")
        return ((name.strip(), value.strip().replace("{token}", token)),)

    # --- a spider -----------------------------------------------------------------------------------------------------

    async def _by_spider(self, account: Account) -> tuple[tuple[str, str], ...]:
        from gossamer.session.login_client import LoginClient  # imported late: few logins need it

        spider = self._login.spider
        assert spider is not None
        client = LoginClient(account, self._exchange, self._check_target, self._shown)
        try:
            await spider.login(client)
            self.form_page, self.form, self.form_fields = client.form_page, client.form, client.form_fields
            headers = tuple(client.headers.items())
            check_headers(headers)
        except LoginFailed as error:
            raise LoginFailed(self._shown(error.detail)) from None  # it may be the spider's own
        except FetchError as error:
            error.set_detail(self._shown(error.detail))
            raise
        except FrontierError:
            raise
        except (Exception, SystemExit) as error:  # also sys.exit(): it must not end the worker
            text = f"{type(error).__name__}: {self._shown(str(error))}"
            raise LoginFailed(f"The method login of the spider failed for {account.name}: {text}") from None
        return headers

    async def _exchange(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> FetchResponse:
        """Send a request of a spider's login. Raises LoginFailed for another site, and where only a person can go
        on."""
        given = url
        try:
            url = canonical(url)
        except BadUrl as error:
            raise LoginFailed(f"The login of the spider: {self._shown(str(error))}") from None
        if registered_domain(host(url)) != self._login.site:
            leads = f"The login of the spider leads to {self._shown(host(url), part_of=given)}"
            raise LoginFailed(f"{leads}, and secrets stay on {self._login.site}.")
        if self.used_tls and not url.startswith("https:"):
            raise LoginFailed(f"The login of the spider leads to {self._shown(url)}, which is not encrypted.")
        added = tuple(headers.items())
        check_headers(added)
        if body is not None:
            kind = next(value for name, value in added if name == "Content-Type")
            others = tuple(pair for pair in added if pair[0] != "Content-Type")
            request = self._with_body(url, body, kind, (("Origin", origin(url)), *others))
        else:
            request = self._request_for(url)
            names = {name.lower() for name, _ in added}
            request.headers = (*(pair for pair in request.headers if pair[0].lower() not in names), *added)
        answer = await self._open(request)
        self._check_presence(answer)
        return answer

    # --- all of them --------------------------------------------------------------------------------------------------

    def _with_body(self, url: str, body: bytes, kind: str, headers: Iterable[tuple[str, str]]) -> FetchRequest:
        """Return a POST with the headers of the crawl, overridden by these."""
        request = self._request_for(url)
        added = (("Content-Type", kind), *headers)
        names = {name.lower() for name, _ in added}
        kept = tuple(pair for pair in request.headers if pair[0].lower() not in names)
        return msgspec.structs.replace(request, method="POST", body=body, headers=kept + added)

    async def _open(self, request: FetchRequest) -> FetchResponse:
        """Send a request with the session's cookies, and follow the redirects. Raises FetchError and LoginFailed."""
        for _ in range(_MOST_HOPS + 1):
            cookie = self._jar.header_for(request.url, now=self._now)
            if cookie:
                request.headers = (*request.headers, ("Cookie", cookie))
            self.used_tls = self.used_tls or request.url.startswith("https:")
            try:
                answer = await self._send(request)
            except FetchError as error:
                # Not the response: it would be in the record of the page.
                error.response = None
                error.set_detail("" if error.kind in _OF_ANSWERS else self._shown(error.detail))
                raise error from None
            self._jar.receive(request.url, answer.headers, now=self._now, of_login=True)
            location = redirect_location(answer.status, answer.headers)
            if location is None:
                return answer
            target = redirect_target(request.url, location)
            if target is None or registered_domain(host(target)) != self._login.site:
                name = self._shown(host(target), part_of=location) if target else "no web page"
                raise self._for_a_person(f"continues the login at {name}")
            if answer.status in (307, 308):
                if request.url.startswith("https:") and not target.startswith("https:"):
                    raise LoginFailed(f"The login leads to {self._shown(target)}, which is not encrypted.")
                request = msgspec.structs.replace(
                    request, url=target, headers=tuple(pair for pair in request.headers if pair[0] != "Cookie")
                )
            else:
                request = self._request_for(target)
        raise LoginFailed(f"The login at {self._login.site} is redirected more than {_MOST_HOPS} times.")

    def _check_answer(self, answer: FetchResponse, account: Account) -> None:
        """Raise LoginFailed for an answer that ends the login, and LoginUnanswered for one that may change."""
        self._check_presence(answer)
        if answer.status >= 400:
            raise LoginFailed(
                f"{self._login.site} answers the login of {account.name} with {_words(answer.status)}. Check user and "
                "password."
            )

    def _check_presence(self, answer: FetchResponse) -> None:
        """Raise LoginFailed for an answer that only a person can deal with, and LoginUnanswered for one that may
        change."""
        refusal = find_refusal(answer.status, answer.headers, answer.body, url=answer.url, requested=answer.url)
        if refusal is not None and refusal.kind in _FOR_PERSONS:
            raise self._for_a_person(f"asks for a {refusal.kind}")
        if is_worth_a_retry(answer.status):
            raise LoginUnanswered(_words(answer.status))

    def _shown(self, text: str, *, part_of: str = "") -> str:
        """Return a text that a site or a spider has written, without the secrets of the account. `part_of`: the longer
        text that it is from, which may have a secret of which only a part is in `text`."""
        secrets = self._account.secrets if self._account is not None else ()
        return HIDDEN if without_secrets(part_of, secrets) != part_of else without_secrets(text, secrets)

    def _for_a_person(self, reason: str) -> LoginFailed:
        """Return the error of a login that only a person can do, with the way out."""
        site = self._login.site
        return LoginFailed(
            f"{site} {reason}, so only a person can log in. Log in with a browser, export the cookies of {site} "
            "(cookies.txt or JSON), and write the file into the session file: accounts: {me: {cookies: cookies.txt}}."
        )


def _words(status: int) -> str:
    """Return a status with its name by the standards: the site's own may be anything."""
    return f"{status} {status_phrase(status)}".rstrip()


def _encoding(answer: FetchResponse) -> str:
    """Return the Python codec of a page."""
    return decode(answer.body, content_type_of(header_lines(answer.headers, "content-type")))[1] or "utf-8"


def _token(body: bytes, path: str) -> str:
    """Return the text at a path of a JSON answer. Empty: there is none."""
    try:
        value: Any = json.loads(body)
        for part in path.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
    except (ValueError, KeyError, TypeError, IndexError):
        return ""
    return value if isinstance(value, str) and value.isprintable() else ""
