"""URLs: canonical form (WHATWG), resolution of links, registered domain (public suffix list), and fingerprint.

Fixed: every result, because the frontier (the cluster's store of requests) keeps canonical URLs, registered domains and
fingerprints; after a change, a running crawl would fetch its pages again.
"""

import hashlib
import re
from functools import cache, lru_cache
from importlib.util import find_spec

from ada_url import join_url, normalize_url
from xxhash import xxh3_64_intdigest

from gossamer.errors import BadScheme, BadUrl, UrlTooLong
from gossamer.net.credentials import hide_secrets

# The public suffix list is read from a file of this package, because importing the package takes longer. All three are
# the package's names; when a release changes them, `_rules` imports the package.
_PACKAGE = "tldextract"
_LIST = ".tld_set_snapshot"
_END = "===END ICANN DOMAINS==="


def suffix_label_count(labels: list[str]) -> int:
    """Return the number of labels of a host name's public suffix (2 for `co.uk`); at least 1, because an unknown top
    level counts as a suffix, too (rule `*`).

    `labels` are those of a canonical URL: in lower case, non-ASCII ones as `xn--…`. Only the list's ICANN section is
    used. Examples of its rules: `co.uk`, `*.ck` (every name below `ck`), and its exception `!www.ck`.
    """
    rules = _rules(any(label.startswith("xn--") for label in labels))
    count = len(labels)
    for start in range(count):
        name = ".".join(labels[start:])
        if name in rules:
            return count - start
        if f"!{name}" in rules:
            return count - start - 1
        if start + 1 < count and f"*{name[len(labels[start]) :]}" in rules:
            return count - start
    return 1


@cache
def _rules(international: bool = True) -> frozenset[str]:
    """Return the list's ICANN rules: suffixes, `*.suffix`, and exceptions as `!name`.

    `international`: with those that have non-ASCII labels. Converting them takes longer than reading the others.
    """
    text = _snapshot()
    if text is None:
        from tldextract import TLDExtract

        # Without URLs and a cache folder, tldextract uses the list in the package, not the network or the disk.
        return frozenset(map(_ascii, TLDExtract(suffix_list_urls=(), cache_dir=None).tlds))
    rules = frozenset(_RULE.findall(text, 0, text.index(_END)))
    return frozenset(map(_ascii, rules)) if international else rules


@cache
def _private_rules() -> frozenset[str]:
    """Return the rules of the list's private section, in the same form: `github.io`, whose subdomains have different
    owners."""
    text = _snapshot()
    if text is None:
        from tldextract import TLDExtract

        every = TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True).tlds
        return frozenset(map(_ascii, every)) - _rules()
    return frozenset(map(_ascii, _RULE.findall(text, text.index(_END))))


def is_public_suffix(name: str) -> bool:
    """Return whether the subdomains of a host name may have different owners, by both sections of the list.

    Unlike `registered_domain`, this also counts the private section, because a cookie for `github.io` would go to the
    sites of others. A single label and an unknown top level count, too."""
    labels = name.split(".")
    if suffix_label_count(labels) >= len(labels):
        return True
    rules = _private_rules()
    return f"!{name}" not in rules and (name in rules or f"*.{name.partition('.')[2]}" in rules)


def _snapshot() -> str | None:
    """Return the list's text; None if it is not where it is expected."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.loader is None or not spec.submodule_search_locations:
        return None
    read = getattr(spec.loader, "get_data", None)
    if read is None:
        return None
    try:
        text = str(read(f"{spec.submodule_search_locations[0]}/{_LIST}"), "utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if _END in text else None


_RULE = re.compile(r"^(?!//)\S+", re.MULTILINE)
"""A rule of the list: the beginning of a line that is no comment. Must be quick: every crawl reads the list at its
start."""


def _ascii(rule: str) -> str:
    """Return a rule of the list, which has normalised Unicode labels, with labels in IDNA's ASCII form."""
    if rule.isascii():
        return rule
    labels = (
        label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii") for label in rule.split(".")
    )
    return ".".join(labels)


MAX_URL_LENGTH = 8192
"""Longest canonical URL in characters (all ASCII). RFC 9110, section 4.1, asks for at least 8,000; longer URLs are
usually crawler traps. Equals `maxLength` of URLs in the schema `crawl`; the frontier can store up to 65,535."""

MAX_HOST_LENGTH = 254
"""Longest host in characters: 253 for the longest name in DNS (RFC 1035), and the trailing dot of a rooted name.
Fixed."""

_MAX_INPUT_LENGTH = 8 * MAX_URL_LENGTH
"""Longest text that is parsed; a longer one is refused, because parsing takes time. Must exceed MAX_URL_LENGTH: the
canonical form of a long URL may be short."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HOST_AND_PORT = re.compile(r"[^:/?#\[\]@]+:[0-9]+(?:[/?#]|$)")
_TYPED_PORT = re.compile(r"[A-Za-z]+:[/\\]*[^/?#\\]*:([^/?#\\@:\]]+)(?:[/?#\\]|$)")
# Path and query that a URL parser does not change. No segment is `.` or `..`. Only a shortcut: it may match fewer
# texts, but one too many would get a wrong canonical URL.
_SEGMENT = r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
_CLEAN = re.compile(rf"(?:{_SEGMENT}/)*(?:{_SEGMENT})?(?:\?[A-Za-z0-9._~=&+:,;/-]*)?")
# A whole URL that a parser does not change: no IP address, no label in Punycode, no default port.
_LABEL = r"(?!xn--)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_LAST_LABEL = r"(?!xn--)[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PORT = r":(?!(?:80|443)/)(?:[1-9][0-9]{0,3}|[1-5][0-9]{4})"
_CLEAN_URL = re.compile(rf"https?://(?:{_LABEL}\.)*{_LAST_LABEL}(?:{_PORT})?/{_CLEAN.pattern}")
_CLEAN_LENGTH = MAX_URL_LENGTH // 4
"""Longest base URL, and longest href, for the shortcut. At most half of MAX_URL_LENGTH, which both together must not
exceed."""

_SHOWN_CHARACTERS = 200
"""Characters of a URL that an error shows."""


def canonical(url: str) -> str:
    """Return the canonical form: the WHATWG serialisation (https://url.spec.whatwg.org/) without fragment and
    credentials.

    It is ASCII and always has a path; canonical(canonical(x)) == canonical(x). User name and password are left out, so
    that they do not get into records or queues; a crawl that needs them sends a header. Raises BadScheme for a scheme
    other than http and https, UrlTooLong above MAX_URL_LENGTH (or a host above MAX_HOST_LENGTH), else BadUrl.
    """
    if len(url) <= _CLEAN_LENGTH and _CLEAN_URL.fullmatch(url) is not None:
        return _accepted(url)
    if len(url) > _MAX_INPUT_LENGTH:
        raise UrlTooLong(_shown(url))
    try:
        href = normalize_url(url)
    except ValueError:
        try:
            href = normalize_url(_scalar(url))
        except ValueError:
            raise BadUrl(f"{_shown(url)}{_port_fault(url)}") from None
    return _accepted(href)


def _port_fault(url: str) -> str:
    """Return what is wrong with the port of a URL, for the end of a message. Empty: nothing, or it has none."""
    port = found[1] if (found := _TYPED_PORT.match(url)) else "0"
    is_valid = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 2**16
    return "" if is_valid else " (its port is no number from 0 to 65535)"  # it may be a password, so it is not shown


def join(base: str, href: str) -> str:
    """Return the canonical URL of `href` in a document with the canonical base URL `base`. Raises as `canonical`."""
    return BaseUrl(base).join(href)


class BaseUrl:
    """A document's canonical base URL, split once for all links of the document."""

    __slots__ = ("_allows_shortcut", "_directory", "_origin", "_parent_directory", "_site", "_url")

    def __init__(self, url: str) -> None:
        self._url = url
        self._origin = origin(url)
        self._site = self._origin + "/"
        self._directory = directory(url)
        self._parent_directory = ""  # computed when a link needs it
        self._allows_shortcut = len(url) <= _CLEAN_LENGTH

    def join(self, href: str) -> str:
        """Return the canonical URL of `href`. Raises as `canonical`."""
        return self._join_clean(href) or _parsed(self._url, href)

    def _join_clean(self, href: str) -> str | None:
        """Return the canonical URL of an href that needs no parser, as most do: a clean path is only appended to a part
        of the base URL. None: the href needs the parser."""
        if not self._allows_shortcut or not 0 < len(href) < _CLEAN_LENGTH:
            return None
        if href[0] == "/":
            if _CLEAN.fullmatch(href, 1):  # `/path`
                return self._origin + href
            if href.startswith("//"):  # `//host/path`
                scheme = self._site[: self._site.index("/")]
                return self._on_site(scheme + href)
            return None
        if href.startswith("http"):  # `http://host/path`
            return self._on_site(href)
        if href.startswith("../"):
            return self._parent() + href[3:] if _CLEAN.fullmatch(href, 3) else None
        # `path`. A `?query` alone replaces the query of the whole base URL, which is not kept here.
        return self._directory + href if href[0] != "?" and _CLEAN.fullmatch(href) else None

    def _on_site(self, url: str) -> str | None:
        """Return the URL if it is clean and on the document's own site, else None."""
        return url if url.startswith(self._site) and _CLEAN.fullmatch(url, len(self._site)) else None

    def _parent(self) -> str:
        """Return the URL of the directory above the document's. The parent of the root is the root."""
        if not self._parent_directory:
            if self._directory == self._site:
                self._parent_directory = self._site
            else:
                above = self._directory.rindex("/", 0, len(self._directory) - 1)
                self._parent_directory = self._directory[: above + 1]
        return self._parent_directory


def _parsed(base: str, href: str) -> str:
    """Return the canonical URL of `href` in a document at `base`, by the URL parser."""
    if len(href) > _MAX_INPUT_LENGTH:
        raise UrlTooLong(_shown(href))
    try:
        joined = join_url(base, href)
    except ValueError:
        try:
            joined = join_url(base, _scalar(href))
        except ValueError:
            raise BadUrl(_shown(href)) from None
    return _accepted(joined)


def from_user_input(text: str) -> str:
    """Return the canonical URL of a person's input; `http://` is added where there is no scheme.

    `example.com/x`, `localhost:8000`, `127.1` and `//example.com` are accepted. Raises as `canonical`.
    """
    text = text.strip()
    if text.startswith("//"):
        return canonical("http:" + text)
    # `localhost:8000` looks like a scheme and a path, but is a host and a port.
    if _SCHEME.match(text) and not _HOST_AND_PORT.match(text):
        return canonical(text)
    authority = re.split(r"[/?#\\]", text, maxsplit=1)[0]
    # Text before a colon that is neither a scheme nor a host with a port is a typing error: `ht!tp://x`.
    is_typo = ":" in authority and authority[0] != "[" and not _HOST_AND_PORT.match(authority)
    if not text or text[0] in "/?#.\\" or "@" in authority or is_typo:
        raise BadUrl(f"{_shown(text)} (write it as https://host/path)")
    try:
        return canonical("http://" + text)
    except BadUrl as error:
        fault = _port_fault("http://" + text) if type(error) is BadUrl else ""
        raise type(error)(f"{_shown(text)}{fault}") from None  # as it was typed


def host(url: str) -> str:
    """Return the host of a canonical URL, without port. An IPv6 address keeps its brackets."""
    authority = url.split("/", 3)[2]  # the host, and the port if there is one
    if ":" not in authority or authority[-1] == "]":
        return authority
    return authority.partition(":")[0] if authority[0] != "[" else authority.rpartition(":")[0]


def origin(url: str) -> str:
    """Return `scheme://host[:port]` of a canonical URL, which has a port only if that is not the scheme's default."""
    return url[: url.index("/", len("https://"))]


def directory(url: str) -> str:
    """Return a canonical URL up to the last `/` of its path, to which relative links are appended."""
    path_end = url.find("?")
    return url[: url.rindex("/", 0, path_end if path_end >= 0 else len(url)) + 1]


@lru_cache(maxsize=16_384)
def registered_domain(host: str) -> str:
    """Return the registered domain of a canonical URL's host, by the public suffix list (https://publicsuffix.org).

    Uses the list's ICANN section; an unknown top level counts as a suffix (rule `*`). A public suffix, an IP address
    and a host of a single label are their own domain. A trailing dot is left out. Never raises, never uses the network.
    """
    name = host.removesuffix(".")
    if is_address(name) or "." not in name:
        return name or host
    labels = name.split(".")
    return ".".join(labels[-suffix_label_count(labels) - 1 :])


def is_address(host: str) -> bool:
    """Return whether the host of a canonical URL is an IP address. No name in a WHATWG URL ends in a numeric label."""
    return ":" in host or host.rpartition(".")[2].isdecimal()


def fingerprint(url: str | bytes, *, seed: int, method: str = "GET", body: bytes = b"") -> int:
    """Return the fingerprint of a request: a signed 64-bit number. `seed` comes from `spider_seed`; `url` is canonical.

    It is the XXH3 of the URL for a GET without body, else of `method NUL url NUL body`. The seed is secret, so that a
    site cannot craft a URL that has the fingerprint of another one. The frontier stores fingerprints: fixed.
    """
    data = url.encode() if isinstance(url, str) else url
    if body or method != "GET":
        data = b"\0".join((method.encode(), data, body))
    unsigned: int = xxh3_64_intdigest(data, seed)
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned


def shown_url(url: str) -> str:
    """Return a canonical URL as browsers show it: with the letters that stand percent-encoded in path and query, spaces
    among them, and in the `xn--` labels of the host. It may be the very same object.

    Not for requests: delimiters, controls and invisible characters stay encoded, as in Chromium, but `%41` and `A`
    become the same.
    """
    if "%" not in url and "xn--" not in url:
        return url
    scheme, slashes, rest = url.partition("//")
    name, slash, path = rest.partition("/")
    if "xn--" in name:
        name = ".".join(map(_shown_label, name.split(".")))
    return composed(f"{scheme}{slashes}{name}{slash}{_ESCAPES.sub(_decoded, path)}")


def composed(text: str) -> str:
    """Return a text with composed letters (Unicode NFC), as people type them. Equal letters that are stored differently
    become the same."""
    if text.isascii():
        return text
    from unicodedata import normalize  # imported late: most crawls meet ASCII alone

    return normalize("NFC", text)


_ESCAPES = re.compile("(?:%[0-9A-Fa-f]{2})+")
_KEPT_ESCAPES = frozenset("%/?#&=+;:@\\")
"""Characters that stay encoded in `shown_url`: delimiters, which would change what is a segment or a parameter."""


def _decoded(escapes: re.Match[str]) -> str:
    """Return consecutive percent-encoded bytes as the characters that they are in UTF-8, where a browser shows them."""
    text = bytes.fromhex(escapes[0].replace("%", "")).decode("utf-8", "surrogateescape")
    return "".join(
        character if character.isprintable() and character not in _KEPT_ESCAPES else _encoded(character)
        for character in text
    )


def _encoded(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))


def _shown_label(label: str) -> str:
    """Return a label of a host name with its own letters."""
    if not label.startswith("xn--"):
        return label
    try:
        shown = label[len("xn--") :].encode("ascii").decode("punycode")
    except UnicodeError:
        return label
    return shown if shown.isprintable() else label


def with_sorted_query(url: str) -> str:
    """Return a canonical URL with its query parameters sorted. URLs that differ only in their order become equal."""
    path, separator, query = url.partition("?")
    return f"{path}{separator}{'&'.join(sorted(query.split('&')))}" if "&" in query else url


@lru_cache(maxsize=1024)
def spider_seed(secret: int, spider: str) -> int:
    """Return the seed of a spider's fingerprints (64 bits, unsigned), from the frontier's secret (0 <= secret < 2**64).

    The same URL is another request for another spider. With the spider's name in the seed, that costs no time per URL.
    Fixed, like the fingerprints that depend on it.
    """
    key = secret.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(spider.encode(), digest_size=8, key=key).digest(), "little")


def _accepted(href: str) -> str:
    """Return a serialised URL without fragment and credentials. Raises BadScheme or UrlTooLong."""
    if "#" in href:
        href = href[: href.index("#")]
    if not href.startswith(("http://", "https://")):
        raise BadScheme(_shown(href))
    if "@" in href:
        start = href.index("//") + 2
        at_sign = href.rfind("@", start, href.index("/", start))
        if at_sign >= 0:
            href = href[:start] + href[at_sign + 1 :]
    if len(href) > MAX_HOST_LENGTH and (len(href) > MAX_URL_LENGTH or len(host(href)) > MAX_HOST_LENGTH):
        raise UrlTooLong(_shown(href))
    return href


def _scalar(text: str) -> str:
    """Return text with lone surrogates replaced, as in a USVString of the URL standard."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _shown(text: str) -> str:
    """Return a URL for an error message: short, printable, and without credentials."""
    safe = hide_secrets(text[:_MAX_INPUT_LENGTH], web=True)
    return repr(safe if len(safe) <= _SHOWN_CHARACTERS else safe[:_SHOWN_CHARACTERS] + "…")


def redirect_target(base: str, value: str) -> str | None:
    """Return the canonical URL that a Location header leads to (RFC 9110, section 10.2.2); None if it cannot be
    crawled.

    `base` is the canonical URL of the response; `value` is the header decoded as latin-1. User and password are left
    out.
    """
    try:
        return join(base, _without_raw_bytes(value))
    except BadUrl:
        return None


def _without_raw_bytes(value: str) -> str:
    """Return a header's value, decoded as latin-1, as the UTF-8 that it was, else with its bytes percent-encoded."""
    if value.isascii():
        return value
    try:
        raw = value.encode("latin-1")
    except UnicodeEncodeError:
        return value
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # As in browsers, the resource is the one whose path has these bytes.
        return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in raw)
