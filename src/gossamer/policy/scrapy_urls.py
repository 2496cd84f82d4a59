"""Scrapy's default request fingerprint, computed without Scrapy. Does no input or output.

Scrapy identifies a request by the SHA-1 of its method, its body and the canonical form that w3lib gives its URL: query
arguments sorted, `?x` written as `?x=`, and every percent-encoding in one form. The functions here return the same
bytes; a test compares them with Scrapy's own. Existing projects have stored such fingerprints: the bytes are fixed.
"""

import hashlib
import re
from ipaddress import ip_address
from urllib.parse import quote_from_bytes, quote_plus, unquote_to_bytes

# URLs that w3lib does not change, but for the order of arguments: a lower-case host, segments and arguments of
# characters that need no encoding, no dot segment. May match fewer URLs, which is slower; one too many gets a wrong
# fingerprint.
_PATH = r"(?:/(?:[\w~!$&'()*+,:=@-][\w.~!$&'()*+,:=@-]*)?)+"
_PORT = "[1-9][0-9]{0,3}|[1-5][0-9]{4}"
_ARGUMENT = r"[\w.~+-]*(?:=[\w.~+-]*)?"
_CLEAN = re.compile(
    rf"https?://[a-z0-9-]{{1,63}}(?:\.[a-z0-9-]{{1,63}})*(?::(?:{_PORT}))?{_PATH}"
    rf"(?:\?({_ARGUMENT}(?:&{_ARGUMENT})*))?",
    re.ASCII,
)

# Fixed: w3lib leaves these characters as they are, in the parameters (from the first `;` of the last segment) and
# before.
_SAFE_IN_PARAMETERS = "!$&'()*+,/:;=?@%"
_SAFE_IN_PATH = _SAFE_IN_PARAMETERS + "[]|"
_KEPT_ENCODED = re.compile(r"%(25|2[fF]|3[bB]|3[fF])")
"""Escapes of `%`, `/`, `;` and `?`, which w3lib leaves encoded in a path. Fixed."""


def scrapy_fingerprint(url: str, *, method: str = "GET", body: bytes = b"") -> bytes:
    """Return the 20 bytes of Scrapy's default fingerprint. `url` is canonical in the sense of `policy.urls`."""
    return digest(clean_form(url) or _form(url), method=method, body=body)


def clean_form(url: str) -> str | None:
    """Return w3lib's canonical form of a URL that is simple enough to need no parser; None for any other URL.

    Most URLs are: their host is in lower case, and nothing in them is percent-encoded. The URL may be any text.
    """
    found = _CLEAN.fullmatch(url)
    if found is None:
        return None
    query = found[1]
    if query is None or ("&" not in query and "=" in query):
        return url
    # w3lib sorts decoded arguments, in which `+` is a space. Both sort before all other characters of a clean argument,
    # so that these may be sorted as they are.
    arguments = sorted(_argument(part) for part in query.split("&") if part)
    return _joined(url[: found.start(1) - 1], arguments)


def digest(form: str, *, method: str, body: bytes) -> bytes:
    """Return the fingerprint of a request whose URL has this w3lib form."""
    # The usual case without the JSON library, which writes exactly this text, spaces and order of keys included.
    if method == "GET" and not body and '"' not in form and "\\" not in form:
        text = f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{form}"}}'
    else:
        import json  # imported late: only requests of Scrapy with a body or another method need it

        text = json.dumps({"body": body.hex(), "headers": {}, "method": method, "url": form})
    return hashlib.sha1(text.encode(), usedforsecurity=False).digest()


def _form(url: str) -> str:
    """Return w3lib's canonical form of any canonical URL."""
    path_start = url.index("/", len("https://"))
    site = url[:path_start]  # scheme, host and port
    path, _, query = url[path_start:].partition("?")
    if "[" in site:  # an IPv6 address, which w3lib shortens in its own way
        start, end = site.index("["), site.index("]")
        site = f"{site[:start]}[{ip_address(site[start + 1 : end])}]{site[end + 1 :]}"
    semicolon = path.find(";", path.rfind("/"))
    parameters = ""
    if semicolon >= 0:
        path, parameters = path[:semicolon], quote_from_bytes(path[semicolon + 1 :].encode(), _SAFE_IN_PARAMETERS)
    path = _KEPT_ENCODED.sub(lambda found: "%25" + found[1].upper(), path)
    path = _without_dot_segments(quote_from_bytes(unquote_to_bytes(path), _SAFE_IN_PATH))
    arguments = [_argument(part) for part in query.split("&") if part]
    decoded = sorted(
        (unquote_to_bytes(key.replace("+", " ")), unquote_to_bytes(value.replace("+", " "))) for key, value in arguments
    )
    encoded = [(quote_plus(key), quote_plus(value)) for key, value in decoded]
    return _joined(f"{site}{path};{parameters}" if parameters else site + path, encoded)


def _argument(part: str) -> tuple[str, str]:
    """Return the key and value of an argument; the value is empty where there is none."""
    key, _, value = part.partition("=")
    return key, value


def _joined(base: str, arguments: list[tuple[str, str]]) -> str:
    """Return a URL with these arguments, in w3lib's form: each with a `=`."""
    return f"{base}?{'&'.join(f'{key}={value}' for key, value in arguments)}" if arguments else base


def _without_dot_segments(path: str) -> str:
    """Return a path without the dot segments that may be left when `;` parameters were cut off its last segment."""
    if "/." not in path:
        return path
    kept: list[str] = []
    *segments, last = path[1:].split("/")
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if last == "..":
        del kept[-1:]
    return "/" + "/".join([*kept, "" if last in (".", "..") else last])
