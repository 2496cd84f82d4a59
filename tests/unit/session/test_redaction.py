"""Texts of sites that leave a login: no spelling of a secret stays in them."""

import base64
import html
import json
from urllib.parse import quote

import pytest

from gossamer.session.redaction import HIDDEN, without_secrets

SECRET = 'h&"nter2/sécret <x>'
SPELLINGS = {
    "upper case": SECRET.upper(),
    "percent": quote(SECRET, safe=""),
    "percent of all": "".join(f"%{byte:02x}" for byte in SECRET.encode()),
    "percent of percent": quote(quote(SECRET, safe="")),
    "percent of latin-1": quote(SECRET.encode("latin-1"), safe=""),
    "plus": quote(SECRET, safe=" ").replace(" ", "+"),
    "entities": html.escape(SECRET),
    "numbered entities": "".join(f"&#{ord(one)};" for one in SECRET),
    "hexadecimal entities": "".join(f"&#x{ord(one):04X};" for one in SECRET),
    "percent of entities": quote(html.escape(SECRET)),
    "json": json.dumps(SECRET),
    "json of all": "".join(f"\\u{ord(one):04x}" for one in SECRET),
    "json of json": json.dumps(json.dumps(SECRET)),
    "ascii": ascii(SECRET),
    "bytes": repr(SECRET.encode()),
    "slashes": SECRET.replace("/", "\\/"),
    "octal": "".join(f"\\{byte:03o}" for byte in SECRET.encode("latin-1")),
    "quoted printable": "".join(f"={byte:02X}" for byte in SECRET.encode("latin-1")),
    "bytes as Latin-1": SECRET.encode().decode("latin-1"),
    "hexadecimal": SECRET.encode().hex(),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 of URLs": base64.urlsafe_b64encode(SECRET.encode()).decode(),
    "base64 of a pair": base64.b64encode(f"me:{SECRET}!".encode()).decode(),
    "base64 of an object": base64.b64encode(json.dumps({"p": SECRET}, ensure_ascii=False).encode()).decode(),
    "base64 in a host": base64.b64encode(b"0" + SECRET.encode()).decode().lower().rstrip("="),
    "base32 in a host": base64.b32encode(b"0" + SECRET.encode()).decode().lower().rstrip("="),
    "base64 of UTF-16": base64.b64encode(SECRET.encode("utf-16-le")).decode(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_text_with_a_secret_in_another_spelling_is_not_shown(spelling: str) -> None:
    shown = without_secrets(f"bad login: x{SPELLINGS[spelling]}y", ["other", SECRET])
    assert shown == (HIDDEN if spelling != "upper case" else "bad login: x<redacted>y")


def test_other_texts_stay_and_a_secret_that_is_a_word_of_the_replacement_hides_nothing_else() -> None:
    assert without_secrets("100% &amp; \\n c2VjcmV0", ["hunter2", ""]) == "100% &amp; \\n c2VjcmV0"
    assert without_secrets("redacted hunter2", ["redacted", "hunter2"]) == "<redacted> <redacted>"
    assert without_secrets("name a me", ["me"]) == "name a <redacted>"
