"""A form on a page: its fields as a browser would send them, CSRF tokens and other hidden fields among them."""

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import msgspec

from gossamer.extract.document import HtmlDocument
from gossamer.extract.selectors import compile_css
from gossamer.policy.urls import redirect_target

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_CAPTCHAS: Final = (
    ".g-recaptcha, .h-captcha, .cf-turnstile, [data-sitekey], iframe[src*=recaptcha], iframe[src*=hcaptcha], "
    "input[name*=captcha i], img[src*=captcha i]"
)
"""Widgets of captchas. Only inside of a form: a page may have another form with one."""
_UNSENT: Final = frozenset(("button", "reset", "file", "image"))
_MULTIPART: Final = "multipart/form-data"


_CONCEALED: Final = "input[type=password i]"
_CONTROLS: Final = "input, select, textarea, button"
_TOKEN_NAMES: Final = frozenset(("csrf-token", "csrf_token", "_csrf", "x-csrf-token", "xsrf-token"))
"""Names of the `<meta>` by which Rails, Laravel, Spring and others give scripts the token of a page."""
_CSRF_HEADER: Final = "X-CSRF-Token"
_MOST_TOKEN_CHARACTERS: Final = 4096


class LoginForm(msgspec.Struct, frozen=True):
    """A form as it stands on a page."""

    action: str
    """Canonical URL that it is sent to. Empty: it leads to no web page."""
    method: str
    fields: tuple[tuple[str, str], ...]
    """Name and value of each field, in the order of the page."""
    names: frozenset[str]
    """Names of all fields, those that would not be sent among them."""
    passwords: frozenset[str]
    """Names of the fields for passwords."""
    has_captcha: bool
    is_multipart: bool
    headers: tuple[tuple[str, str], ...] = ()
    """Headers that scripts of the page send with it: the token of a `<meta>` that none of the fields has."""

    def is_like(self, other: "LoginForm", names: Collection[str]) -> bool:
        """Return whether this is the login form `other`, in which a login fills the fields `names`: another form with a
        password, such as that of a profile, is sent elsewhere or has other fields."""
        return self.asks_for(names) and _without_query(self.action) == _without_query(other.action)

    def asks_for(self, names: Collection[str]) -> bool:
        """Return whether the form has all these fields, and no other for a password."""
        return self.passwords <= set(names) <= self.names

    def filled(self, values: dict[str, str]) -> str:
        """Return the fields with these values in place of their own, as a form is encoded."""
        left = dict(values)
        pairs = [(name, left.pop(name, value)) for name, value in self.fields]
        return urlencode([*pairs, *left.items()])


def find_form(html: bytes, url: str, encoding: str, *, selector: str = "") -> LoginForm | None:
    """Return the form that `selector` finds on a page, or the one with a password. None: there is none. `url`:
    canonical URL of the page."""
    root = HtmlDocument(html, encoding).root
    if root is None:
        return None
    if not selector:
        return next(_forms_with_password(root, url), None)
    found = compile_css(selector).first(root)
    while found is not None and found.tag != "form":
        found = found.parent
    return None if found is None else _read(found, root, url)


def forms_with_password(html: bytes, url: str, encoding: str) -> Iterator[LoginForm]:
    """Yield the forms of a page that ask for a password. `url`: canonical URL of the page."""
    root = HtmlDocument(html, encoding).root
    if root is not None:
        yield from _forms_with_password(root, url)


def _forms_with_password(root: "LexborNode", url: str) -> Iterator[LoginForm]:
    """Yield the same of a document."""
    tied = {node.attributes.get("form") for node in compile_css(f"{_CONCEALED}[form]").select(root)}
    for form in compile_css("form").select(root):
        identity = form.attributes.get("id")
        if (identity and identity in tied) or compile_css(_CONCEALED).first(form) is not None:
            yield _read(form, root, url)


def _read(form: "LexborNode", root: "LexborNode", url: str) -> LoginForm:
    """Return a form with what a browser would send of it."""
    attributes = form.attributes
    base = compile_css("base[href]").first(root)
    base_url = (base and redirect_target(url, base.attributes.get("href") or "")) or url
    action = (attributes.get("action") or "").strip()
    controls = _controls(form, root)
    fields, names = _fields(controls)
    passwords = {node.attributes.get("name") or "" for node in controls if control_type(node) == "password"}
    return LoginForm(
        action=(redirect_target(base_url, action) or "") if action else url,
        method="POST" if (attributes.get("method") or "").lower() == "post" else "GET",
        fields=tuple(fields),
        names=frozenset(names),
        passwords=frozenset(passwords),
        has_captcha=compile_css(_CAPTCHAS).first(form) is not None,
        is_multipart=(attributes.get("enctype") or "").lower() == _MULTIPART,
        headers=_token_headers(root, {value for _, value in fields}),
    )


def _controls(form: "LexborNode", root: "LexborNode") -> list["LexborNode"]:
    """Return the controls of a form: those inside of it, and others that name it by their attribute `form`."""
    identity = form.attributes.get("id") or ""
    inside = [
        node for node in compile_css(_CONTROLS).select(form) if node.attributes.get("form") in (None, "", identity)
    ]
    if not identity:
        return inside
    known = {node.mem_id for node in inside}
    tied = compile_css("input[form], select[form], textarea[form], button[form]").select(root)
    return [
        *inside,
        *(node for node in tied if node.attributes.get("form") == identity and node.mem_id not in known),
    ]


def control_type(node: "LexborNode") -> str:
    """Return the type of a control. Empty: it names none."""
    return (node.attributes.get("type") or "").strip().lower()


def _token_headers(root: "LexborNode", values: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the header with the token of the page's `<meta>`, if no field has it among these values."""
    for node in compile_css("meta[name][content]").select(root):
        token = node.attributes.get("content") or ""
        if (node.attributes.get("name") or "").lower() in _TOKEN_NAMES:
            is_usable = token.isascii() and token.isprintable() and len(token) <= _MOST_TOKEN_CHARACTERS
            return ((_CSRF_HEADER, token),) if token and is_usable and token not in values else ()
    return ()


def _without_query(url: str) -> str:
    """Return a URL without its query, and without the session that some servers write behind its path."""
    return url.partition("?")[0].partition(";")[0]


def _fields(controls: "Iterable[LexborNode]") -> tuple[list[tuple[str, str]], list[str]]:
    """Return the fields that a browser would send, with the first button, and the names of all."""
    fields: list[tuple[str, str]] = []
    names: list[str] = []
    has_button = False
    for node in controls:
        attributes = node.attributes
        name, kind = attributes.get("name") or "", control_type(node)
        if node.tag == "button" and not kind:
            kind = "submit"
        if not name or "disabled" in attributes or kind in _UNSENT:
            has_button = has_button or kind == "submit"
            continue
        names.append(name)
        if kind == "submit":
            if not has_button:
                fields.append((name, attributes.get("value") or ""))
            has_button = True
        elif kind in ("checkbox", "radio"):
            if "checked" in attributes:
                fields.append((name, attributes.get("value") or "on"))
        elif node.tag == "select":
            option = compile_css("option[selected]").first(node) or compile_css("option").first(node)
            if option is not None:
                value = option.attributes.get("value")
                fields.append((name, option.text(strip=True) if value is None else value))
        else:
            fields.append((name, node.text() if node.tag == "textarea" else attributes.get("value") or ""))
    return fields, names
