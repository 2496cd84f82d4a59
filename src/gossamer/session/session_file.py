"""A session file: the accounts of a site, how to log in, and how a page shows that the session has ended.

Secrets are not in it: it names environment variables and files, which are read when the crawl starts. No message here
has a secret in it. Fixed: the names of the fields, which stand in people's files.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from gossamer.errors import BadInput, BadUrl
from gossamer.extract.selectors import compile_css
from gossamer.fetch.request import check_headers
from gossamer.model.request import SPIDER_FILE
from gossamer.policy.urls import canonical, host, registered_domain
from gossamer.session.cookie import Cookie
from gossamer.session.redaction import without_secrets
from gossamer.storage.documents import decode_document, read_text

_MOST_FILE_BYTES = 1024 * 1024
"""Largest session file, secret and cookie file. A larger one is some other file."""
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
"""Name of an account. It becomes part of the frontier's keys: it may have no `|`, `,` or line break."""
_HTTP_ONLY = "#HttpOnly_"
"""Beginning of the lines of a cookies.txt with cookies that scripts may not read."""
_SECRET_NAME = re.compile(r"pass|secret|token|key|pin\b|otp", re.IGNORECASE)
"""Names of values that a session file may not contain itself."""


class SecretPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Place of a secret: an environment variable or a file. One of them."""

    env: str = ""
    file: str = ""


class LoginSteps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The way to log in: by a form on a page, by a request whose answer has a token, by basic auth, or by a spider."""

    form: str = ""
    """URL of the page with the form."""
    request: str = ""
    """URL of the request."""
    basic: bool = False
    """True: user and password go with each request (RFC 7617)."""
    spider: bool | str = False
    """True: the method `login` of the crawl's spider logs in. A text: that of the spider of this name or file."""
    fields: dict[str, str] = {}
    """Field of the form or request, and the value of the account that goes there."""
    select: str = ""
    """CSS selector of the form. Empty: the one with a password."""
    body: Literal["json", "form"] = "json"
    """Form of the request's body."""
    token: str = ""
    """Path of the token in the answer, which is JSON: `data.token`. Empty: the answer only sets cookies."""
    header: str = "Authorization: Bearer {token}"
    """Header that carries the token."""

    @property
    def names_spider_file(self) -> bool:
        """True: the spider is that of a Python file, such as `shop.py` or `shop.py:Shop`."""
        return isinstance(self.spider, str) and SPIDER_FILE.fullmatch(self.spider) is not None


class LoggedOutSigns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Signs that a response is that of a visitor who is not logged in. One is enough."""

    selector: str = ""
    """CSS selector of an element that only such a visitor sees."""
    status: tuple[int, ...] = ()
    redirect: str = ""
    """Beginning of the path, or of the URL, to which such a visitor is redirected."""
    form: bool = True
    """True: also a page with the form of the login. False: the site shows it to members, too."""


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    """A session file as it is written."""

    site: str = ""
    accounts: dict[str, dict[str, str | SecretPlace]] = {}
    login: LoginSteps | None = None
    logged_out_when: LoggedOutSigns = LoggedOutSigns()
    never_follow: list[str] = []
    budget: Literal["site", "account"] = "site"


class SpiderWithLogin(Protocol):
    """Spider with a login of its own."""

    async def login(self, session: Any) -> None:
        """Log in, with the requests of a LoginClient."""


class Account(msgspec.Struct, frozen=True):
    """An account of the site, with its secrets."""

    name: str
    values: Mapping[str, str]
    cookies: tuple[Cookie, ...] = ()
    """Cookies of a session that a person has begun in a browser."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may have: the values, and the cookies of the file. Not the name, which all may see."""
        values = (*self.values.values(), *(one.value for one in self.cookies))
        return tuple(value for value in values if value != self.name)

    def __repr__(self) -> str:
        return f"Account({self.name})"  # without values, which must not reach logs


class SiteLogin(msgspec.Struct, frozen=True):
    """A session file that was read: all that a worker needs to log in."""

    site: str
    """Registered domain. No cookie and no secret goes to another one."""
    accounts: tuple[Account, ...]
    steps: LoginSteps | None
    """None: sessions begin with the cookies of a file, and cannot be renewed."""
    signs: LoggedOutSigns
    never_follow: tuple[str, ...]
    """Expressions of links that are not followed, besides those that log out."""
    budget: Literal["site", "account"]
    """account: each account has the whole rate of the site for itself."""
    spider: SpiderWithLogin | None = None
    """Spider that logs in. None: the steps do."""


class _LoginText(NamedTuple):
    """Text that describes a login: a file, or a request."""

    place: str
    """Beginning of messages."""
    folder: Path | None
    """Folder from which the file names others. None: a request, which has its secrets in itself, because it may not
    name files and variables of the service's machine."""
    environment: Mapping[str, str]
    now: float
    """Unix time."""


def read_session_file(path: Path, environment: Mapping[str, str], *, now: float) -> SiteLogin:
    """Return the login that a session file describes, with the secrets that it names. `now`: Unix time. Raises
    BadInput, which names the file."""
    return _site_login(_LoginText(f"{path}: ", path.parent, environment, now), decode_document(path, _text(path)))


def login_of_request(value: object, *, now: float) -> SiteLogin:
    """Return the login that a request describes: the fields of a session file, with the secrets themselves, and in
    place of the names of cookie files their text. `now`: Unix time. Raises BadInput, without a secret, also where one
    stands in the place of something else."""
    try:
        return _site_login(_LoginText("", None, {}, now), value)
    except BadInput as error:
        raise BadInput(without_secrets(error.detail, set(_private_texts(value)))) from None


def _private_texts(value: object) -> Iterator[str]:
    """Yield the texts of a request that may be secrets: all but the site, and names of accounts and of their values."""
    known = {"user", "password"}
    if isinstance(value, dict):
        accounts = value.get("accounts")
        accounts = accounts if isinstance(accounts, dict) else {}
        known.update(accounts, *(account for account in accounts.values() if isinstance(account, dict)))
        value = [part for name, part in value.items() if name != "site"]
    for text in _texts(value):
        if text not in known:
            yield text


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a JSON value, without the names of its fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _site_login(source: _LoginText, value: object) -> SiteLogin:
    """Return the login that an object describes. Raises BadInput."""
    begin = source.place
    try:
        document = msgspec.convert(value, _Document)
    except msgspec.ValidationError as error:
        raise BadInput(f"{begin}{error}{_known_fields(str(error))}") from None
    steps = _steps(source, document.login)
    url = steps.form or steps.request if steps else ""
    site = document.site or (registered_domain(host(url)) if url else "")
    if not site:
        raise BadInput(f"{begin}name the site, for example site: example.com.")
    site = registered_domain(site.lower())
    if url and registered_domain(host(url)) != site:
        raise BadInput(f"{begin}the login is at {host(url)}, which does not belong to the site {site}.")
    if not document.accounts:
        raise BadInput(f"{begin}name an account, for example accounts: {{me: {{user: me}}}}.")
    accounts = tuple(_account(source, site, name, values, steps) for name, values in document.accounts.items())
    if document.logged_out_when.selector:
        _check_selector(f"{begin}logged_out_when: selector", document.logged_out_when.selector)
    return SiteLogin(site, accounts, steps, document.logged_out_when, tuple(document.never_follow), document.budget)


_UNKNOWN_FIELD = re.compile(r"unknown field `[^`]*`(?: - at `\$\.(\w+)`)?$")
_PARTS = {None: _Document, "login": LoginSteps, "logged_out_when": LoggedOutSigns}


def _known_fields(error: str) -> str:
    """Return what a message about an unknown field of a session file lacks: the fields that there are. Empty: it is
    about something else."""
    found = _UNKNOWN_FIELD.search(error)
    part = _PARTS.get(found[1]) if found else None
    return "" if part is None else f". The fields are {', '.join(part.__struct_fields__)}."


def _check_selector(place: str, selector: str) -> None:
    """Raise BadInput for a selector that does not parse."""
    try:
        compile_css(selector)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from None


def _steps(source: _LoginText, steps: LoginSteps | None) -> LoginSteps | None:
    """Return the checked steps of a login. Raises BadInput."""
    if steps is None:
        return None
    begin = f"{source.place}login"
    if bool(steps.form) + bool(steps.request) + steps.basic + bool(steps.spider) != 1:
        raise BadInput(f"{begin}: write one of form: URL, request: URL, basic: true and spider: true.")
    if steps.select:
        _check_selector(f"{begin}: select", steps.select)
    if steps.token and "{token}" not in steps.header:
        raise BadInput(f"{begin}: header has no {{token}}. Write, for example, Authorization: Bearer {{token}}.")
    if steps.token:
        name, colon, value = steps.header.partition(":")
        try:
            check_headers(((name.strip(), value.strip()),))
        except BadInput as error:
            raise BadInput(f"{begin}: header: {error}. Write, for example, Authorization: Bearer {{token}}.") from None
        if not colon or "{token}" in name:
            raise BadInput(f"{begin}: header has no name. Write, for example, Authorization: Bearer {{token}}.")
    if steps.names_spider_file and source.folder is not None:
        return msgspec.structs.replace(steps, spider=str(source.folder / str(steps.spider)))
    if steps.basic or steps.spider:
        return steps
    if not steps.fields:
        raise BadInput(f"{begin}: name the fields, for example fields: {{username: user, password: password}}.")
    try:
        return msgspec.structs.replace(
            steps, form=steps.form and canonical(steps.form), request=steps.request and canonical(steps.request)
        )
    except BadUrl as error:
        raise BadInput(f"{begin}: {error if source.folder is not None else type(error)()}") from None


def _account(
    source: _LoginText, site: str, name: str, values: Mapping[str, str | SecretPlace], steps: LoginSteps | None
) -> Account:
    """Return an account with its secrets. Raises BadInput."""
    begin = f"{source.place}accounts: "
    if not _NAME.fullmatch(name):
        raise BadInput(f"{begin}cannot use the name {name!r:.100}. Write letters, digits, . _ @ and -.")
    found: dict[str, str] = {}
    cookies: tuple[Cookie, ...] = ()
    for key, value in values.items():
        place = f"{begin}{name}: {key}"
        if key == "cookies":
            cookies = _cookies(source, place, value, site)
        elif isinstance(value, SecretPlace):
            found[key] = _secret(source, place, value)
        elif _SECRET_NAME.search(key) and source.folder is not None:
            raise BadInput(f"{place}: a secret may not stand in the file. Write {{env: NAME}} or {{file: PATH}}.")
        else:
            found[key] = value
    if steps is None and not cookies:
        raise BadInput(f"{begin}{name} has no way to log in. Add login:, or cookies: FILE to the account.")
    needed = {"user": "user", "password": "password"} if steps is not None and steps.basic else {}
    for field, key in (needed or (steps.fields if steps is not None else {})).items():
        if key not in found:
            raise BadInput(f"{begin}{name} has no value {key}, which the login needs for the field {field:.100}.")
    return Account(name, found, cookies)


def _cookies(source: _LoginText, place: str, value: str | SecretPlace, site: str) -> tuple[Cookie, ...]:
    """Return the cookies of an account: those of a file that the session file names, or of a text. Raises BadInput."""
    if isinstance(value, SecretPlace):
        return read_cookies(None, _secret(source, place, value), site=site, now=source.now)
    if source.folder is None:
        return read_cookies(None, value, site=site, now=source.now)
    return read_cookies(source.folder / value, site=site, now=source.now)


def _secret(source: _LoginText, place: str, where: SecretPlace) -> str:
    """Return a secret. Raises BadInput, without the secret."""
    if source.folder is None:
        raise BadInput(f"{place}: a request cannot name files and environment variables. Write the value itself.")
    if bool(where.env) == bool(where.file):
        raise BadInput(f"{place}: write either {{env: NAME}} or {{file: PATH}}.")
    if where.env:
        if where.env not in source.environment:
            raise BadInput(f"{place}: the environment variable {where.env} is not set.")
        return source.environment[where.env]
    return _text(source.folder / where.file, place).removesuffix("\n").removesuffix("\r")


def _text(path: Path, place: str = "") -> str:
    """Return the text of a file. `place`: where a session file names it. Raises BadInput."""
    return read_text(path, most_bytes=_MOST_FILE_BYTES, place=f"{place}: " if place else "")


def read_cookies(path: Path | None, text: str = "", *, site: str, now: float) -> tuple[Cookie, ...]:
    """Return the cookies of a site that a person has exported from a browser: cookies.txt (Netscape), or JSON as
    browser extensions write it. `path` None: they are in `text`. Raises BadInput."""
    place = str(path) if path else "cookies"
    text = _text(path, "cookies") if path else text
    rows = _json_cookies(place, text) if text.lstrip().startswith(("[", "{")) else _netscape_cookies(text)
    found = []
    for row in rows:
        domain = row["domain"].lower()
        cookie = Cookie(
            row["name"],
            row["value"],
            domain.removeprefix("."),
            row["path"] or "/",
            not domain.startswith("."),
            row["secure"],
            now,
            row["expires"] or None,
            row["http_only"],
        )
        if cookie.is_expired(now) or registered_domain(cookie.domain) != site:
            continue
        if not cookie.is_valid:
            raise BadInput(
                f"{place}: the cookie {cookie.name!r:.100} has a character that no cookie has, such as a line end or a "
                "semicolon, or is too long. Export the cookies of the site again."
            )
        found.append(cookie)
    if not found:
        raise BadInput(f"{place}: has no valid cookie of {site}. Export the cookies of the site again.")
    return tuple(found)


def _netscape_cookies(text: str) -> list[dict[str, Any]]:
    """Return the rows of a cookies.txt: domain, subdomains, path, secure, expiry, name and value, with tabs between."""
    found = []
    for line in text.splitlines():
        parts = line.removeprefix(_HTTP_ONLY).split("\t")
        if len(parts) == 7 and not parts[0].startswith("#"):
            domain, subdomains, path, secure, expires, name, value = parts
            dotted = f".{domain.removeprefix('.')}" if subdomains == "TRUE" else domain.removeprefix(".")
            until = float(expires) if expires.isdecimal() else 0.0
            row = {"domain": dotted, "path": path, "secure": secure == "TRUE", "expires": until}
            row["http_only"] = line.startswith(_HTTP_ONLY)
            found.append(row | {"name": name, "value": value})
    return found


def _json_cookies(place: str, text: str) -> list[dict[str, Any]]:
    """Return the cookies of a JSON export: a list, or an object with the list `cookies`. Raises BadInput."""
    try:
        value = json.loads(text)
        rows = value["cookies"] if isinstance(value, dict) else value
        return [
            {
                "name": str(row["name"]),
                "value": str(row["value"]),
                "domain": str(row["domain"]).removeprefix(".") if row.get("hostOnly") else str(row["domain"]),
                "path": str(row.get("path", "/")),
                "secure": bool(row.get("secure")),
                "http_only": bool(row.get("httpOnly")),
                "expires": max(0.0, float(row.get("expirationDate") or row.get("expires") or 0)),
            }
            for row in rows
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{place}: is no list of cookies with name, value and domain.") from None
