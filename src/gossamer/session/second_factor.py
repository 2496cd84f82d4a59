"""The page of a site that asks for a second factor: a code from a telephone, an application or a mail."""

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gossamer.extract.document import HtmlDocument
from gossamer.extract.selectors import compile_css
from gossamer.session.form import control_type

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_UNTYPED: Final = frozenset(("hidden", "submit", "button", "reset", "image", "file", "checkbox", "radio", "search"))
"""Types of inputs that take no typed code."""
_NAMES: Final = frozenset(
    (
        "otp", "totp", "mfa", "twofa", "tfa", "authcode", "passcode", "otpcode", "totpcode", "mfacode", "twofacode",
        "tfacode", "onetimecode", "onetimepassword", "onetimepasscode", "verificationcode", "authenticationcode",
        "authenticatorcode", "twofactor", "twofactorcode", "twostep", "secondfactor", "smscode", "wflstoken",
    )
)  # fmt: skip
"""Names of fields for codes. They count as whole words of a name, also where it splits them."""
_VAGUE: Final = frozenset(("code", "token", "pin"))
"""Words of names that mean a second factor only where the page says so."""
_LONGEST: Final = 3
"""Words that one name above is written as: `one_time_code`."""
_PATH: Final = re.compile(
    r"[/_.-](?:2fa|mfa|tfa|otp|totp|two-?_?factor|two-?_?step|second-?_?factor)(?:[/_.-]|$)", re.IGNORECASE
)
_TEXT: Final = re.compile(
    r"two.?(?:factor|step)|2.?(?:factor|step)|second factor|authenticat(?:or|ion) (?:app|code)|verification code|"
    r"one.time (?:code|pass)|zwei.faktor|deux facteurs|dos factores|due fattori",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def asks_second_factor(html: bytes, encoding: str, *, url: str = "") -> bool:
    """Return whether a page has a field for a code. `url`: of the page."""
    root = HtmlDocument(html, encoding).root
    if root is None:
        return False
    inputs = [node for node in compile_css("input").select(root) if control_type(node) not in _UNTYPED]
    if any(_is_code(node) for node in inputs):
        return True
    vague = [node for node in inputs if not _VAGUE.isdisjoint(_words(node.attributes.get("name") or ""))]
    return bool(vague) and (_PATH.search(urlsplit(url).path) is not None or any(map(_is_described, vague)))


def _is_code(node: "LexborNode") -> bool:
    """Return whether the attributes of a field say that it is for a code."""
    if "one-time-code" in (node.attributes.get("autocomplete") or "").lower().split():
        return True
    words = _words(node.attributes.get("name") or "")
    return any(
        "".join(words[at : at + count]) in _NAMES for at in range(len(words)) for count in range(1, _LONGEST + 1)
    )


def _is_described(node: "LexborNode") -> bool:
    """Return whether the form of a field, or the field itself, speaks of a second factor."""
    form: LexborNode | None = node
    while form is not None and form.tag != "form":
        form = form.parent
    action = (form.attributes.get("action") or "") if form is not None else ""
    texts = (node.attributes.get("placeholder") or "", form.text(separator=" ") if form is not None else "")
    return _PATH.search(action) is not None or any(map(_TEXT.search, texts))


def _words(name: str) -> list[str]:
    """Return the words of a field's name in lower case: `user2FACode` has user, twofa and code."""
    return [word.lower() for word in _WORD.findall(re.sub(r"(?i)2fa", "_Twofa_", name))]
