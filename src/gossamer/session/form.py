"""A form on a page: its fields as a browser would send them, CSRF tokens and other hidden fields among them."""

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
_SECOND_FACTORS: Final = (
    "input[autocomplete=one-time-code], input[name*=otp i], input[name*=totp i], input[name*=mfa i], "
    "input[name*=two_factor i], input[name*=twofactor i], input[name*=second_factor i], input[name*='2fa' i], "
    "input[name*=verification i], input[name*=auth_code i]"
)
_UNSENT: Final = frozenset(("button", "reset", "file", "image"))
_MULTIPART: Final = "multipart/form-data"


class LoginForm(msgspec.Struct, frozen=True):
    """A form as it stands on a page."""

    action: str
    """Canonical URL that it is sent to. Empty: it leads to no web page."""
    method: str
    fields: tuple[tuple[str, str], ...]
    """Name and value of each field, in the order of the page."""
    names: frozenset[str]
    """Names of all fields, those that would not be sent among them."""
    has_captcha: bool
    is_multipart: bool

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
    found = compile_css(selector or "form:has(input[type=password i])").first(root)
    while found is not None and found.tag != "form":
        found = found.parent
    return None if found is None else _read(found, root, url)


def asks_second_factor(html: bytes, encoding: str) -> bool:
    """Return whether a page has a field for a code."""
    root = HtmlDocument(html, encoding).root
    return root is not None and compile_css(_SECOND_FACTORS).first(root) is not None


def _read(form: "LexborNode", root: "LexborNode", url: str) -> LoginForm:
    """Return a form with what a browser would send of it."""
    attributes = form.attributes
    base = compile_css("base[href]").first(root)
    base_url = (base and redirect_target(url, base.attributes.get("href") or "")) or url
    action = (attributes.get("action") or "").strip()
    fields, names = _fields(form)
    return LoginForm(
        action=(redirect_target(base_url, action) or "") if action else url,
        method="POST" if (attributes.get("method") or "").lower() == "post" else "GET",
        fields=tuple(fields),
        names=frozenset(names),
        has_captcha=compile_css(_CAPTCHAS).first(form) is not None,
        is_multipart=(attributes.get("enctype") or "").lower() == _MULTIPART,
    )


def _fields(form: "LexborNode") -> tuple[list[tuple[str, str]], list[str]]:
    """Return the fields that a browser would send, with the first button, and the names of all."""
    fields: list[tuple[str, str]] = []
    names: list[str] = []
    has_button = False
    for node in compile_css("input, select, textarea, button").select(form):
        attributes = node.attributes
        name, kind = attributes.get("name") or "", (attributes.get("type") or "").lower()
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
