"""URLs: their one spelling (WHATWG), the domain they belong to, and the number they are remembered by. Pure."""

import hashlib
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.util import find_spec

from ada_url import join_url, normalize_url
from xxhash import xxh3_64_intdigest

from gossamer.errors import BadScheme, BadUrl, UrlTooLong

_PACKAGE = "tldextract"
_LIST = ".tld_set_snapshot"
_END = "===END ICANN DOMAINS==="


def suffix_label_count(labels: list[str]) -> int:
    """How many of a host name's last labels are its public suffix; at least one, as an unknown top level counts (`*`).

    `labels` as in a canonical URL: lower case, not ASCII ones as `xn--`. The list's ICANN section only.
    """
    rules = _rules()
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
def _rules() -> frozenset[str]:
    text = _snapshot()
    if text is None:
        # A release of the package that keeps its list elsewhere.
        from tldextract import TLDExtract

        # No addresses and no folder: the list inside the package is used, never the network, never a cache on disk.
        return frozenset(map(_ascii, TLDExtract(suffix_list_urls=(), cache_dir=None).tlds))
    return frozenset(_ascii(rule) for rule in _lines(text[: text.index(_END)]))


def _snapshot() -> str | None:
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


def _lines(text: str) -> Iterable[str]:
    for line in text.splitlines():
        rule = line.partition(" ")[0].strip()
        if rule and not rule.startswith("//"):
            yield rule


def _ascii(rule: str) -> str:
    """The list has labels in Unicode, normalised; hosts of canonical URLs have them as IDNA's ASCII form."""
    if rule.isascii():
        return rule
    labels = (
        label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii") for label in rule.split(".")
    )
    return ".".join(labels)


MAX_URL_LENGTH = 8192
"""Characters (all ASCII) of a canonical URL. Longer ones are traps in practice; RFC 9110 asks for 8,000 at least."""

MAX_HOST_LENGTH = 254
"""Characters: 253 is the longest name that DNS can ask for (RFC 1035), and the trailing dot of a rooted one."""

# What is this long cannot become a short canonical URL by any honest way, and is not worth parsing.
_MAX_INPUT_LENGTH = 8 * MAX_URL_LENGTH

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PORT = re.compile(r"[^:/?#\[\]@]+:[0-9]+(?:[/?#]|$)")
# Segments that a URL parser leaves as they are, none of them `.` or `..`, and a query of the same kind.
_SEGMENT = r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
_CLEAN = re.compile(rf"(?:{_SEGMENT}/)*(?:{_SEGMENT})?(?:\?[A-Za-z0-9._~=&+:,;/-]*)?")
_CLEAN_LENGTH = MAX_URL_LENGTH // 4

_CREDENTIALS = re.compile(r"^([^/\\]*[/\\]+)?[^/?#\\]*@")


def canonical(url: str) -> str:
    """The URL's one spelling: WHATWG serialisation (https://url.spec.whatwg.org/) without fragment and credentials.

    ASCII only, always with a path, canonical(canonical(x)) == canonical(x). User name and password are left out, so
    that they never get into records or queues; what needs them sends a header. Raises BadUrl: BadScheme for another
    scheme than http and https, UrlTooLong above 8 KiB (or a host above 254 characters), else BadUrl itself.
    """
    if len(url) > _MAX_INPUT_LENGTH:
        raise UrlTooLong(_shown(url))
    try:
        href = normalize_url(url)
    except ValueError:
        try:
            href = normalize_url(_scalar(url))
        except ValueError:
            raise BadUrl(_shown(url)) from None
    return _accepted(href)


def join(base: str, href: str) -> str:
    """The canonical URL that `href` means in a document whose base URL is `base` (canonical). Raises as canonical."""
    return BaseUrl(base).join(href)


class BaseUrl:
    """A document's base URL (canonical), taken apart once for all its links."""

    __slots__ = ("_above", "_directory", "_origin", "_site", "_url", "_usual")

    def __init__(self, url: str) -> None:
        self._url = url
        self._origin = origin(url)
        self._site = self._origin + "/"
        self._directory = directory(url)
        self._above = ""
        self._usual = len(url) <= _CLEAN_LENGTH

    def join(self, href: str) -> str:
        """The canonical URL that `href` means. Raises as canonical."""
        return self._join_clean(href) or _parsed(self._url, href)

    def _join_clean(self, href: str) -> str | None:
        # Most hrefs of most pages need no parser: clean paths only have to be put behind something.
        if not self._usual or not 0 < len(href) < _CLEAN_LENGTH:
            return None
        if href[0] == "/":
            if _CLEAN.fullmatch(href, 1):
                return self._origin + href
            return self._on_site(self._site[: self._site.index("/")] + href) if href.startswith("//") else None
        if href.startswith("http"):
            return self._on_site(href)
        if href.startswith("../"):
            return self._parent() + href[3:] if _CLEAN.fullmatch(href, 3) else None
        return self._directory + href if href[0] != "?" and _CLEAN.fullmatch(href) else None

    def _on_site(self, url: str) -> str | None:
        return url if url.startswith(self._site) and _CLEAN.fullmatch(url, len(self._site)) else None

    def _parent(self) -> str:
        if not self._above:
            end = len(self._directory) - 1
            # There is nothing above the root, and `..` stays there.
            self._above = (
                self._directory[: self._directory.rindex("/", 0, end) + 1] if end >= len(self._site) else self._site
            )
        return self._above


def _parsed(base: str, href: str) -> str:
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
    """The canonical URL a person means: as `canonical`, and `http://` goes before what has no scheme.

    `example.com/x`, `localhost:8000`, `127.1` and `//example.com` will do. Raises BadUrl (BadScheme, UrlTooLong).
    """
    text = text.strip()
    if text.startswith("//"):
        return canonical("http:" + text)
    # `localhost:8000` has the form of a scheme and a path, and never means one.
    if _SCHEME.match(text) and not _PORT.match(text):
        return canonical(text)
    authority = re.split(r"[/?#\\]", text, maxsplit=1)[0]
    # What is before a colon and neither a scheme nor a host with a port is a slip of the fingers: `ht!tp://x`.
    slip = ":" in authority and authority[0] != "[" and not _PORT.match(authority)
    if not text or text[0] in "/?#.\\" or "@" in authority or slip:
        raise BadUrl(f"{_shown(text)} (write it as https://host/path)")
    return canonical("http://" + text)


def host(url: str) -> str:
    """The host of a canonical URL, without port; an IPv6 address keeps its brackets."""
    authority = url.split("/", 3)[2]
    if authority[-1] == "]":
        return authority
    return authority.partition(":")[0] if authority[0] != "[" else authority.rpartition(":")[0]


def origin(url: str) -> str:
    """`scheme://host[:port]` of a canonical URL; the port only where it is not the scheme's own."""
    return url[: url.index("/", 8)]


def directory(url: str) -> str:
    """A canonical URL up to the last `/` of its path: what its relative links start from."""
    path_end = url.find("?")
    return url[: url.rindex("/", 0, path_end if path_end >= 0 else len(url)) + 1]


@lru_cache(maxsize=16_384)
def registered_domain(host: str) -> str:
    """The domain that a host (of a canonical URL) belongs to, by the public suffix list (https://publicsuffix.org).

    ICANN section only; an unknown top level counts as one (rule `*`). A public suffix, an IP address and a host of a
    single label are their own domain. A trailing dot is left out. Never raises, never asks the network.
    """
    name = host.removesuffix(".")
    if is_address(name) or "." not in name:
        return name or host
    labels = name.split(".")
    return ".".join(labels[-suffix_label_count(labels) - 1 :])


def is_address(host: str) -> bool:
    """Whether the host of a canonical URL is an IP address. In WHATWG URLs a name never ends in a numeric label."""
    return ":" in host or host.rpartition(".")[2].isdecimal()


def fingerprint(url: str | bytes, *, seed: int, method: str = "GET", body: bytes = b"") -> int:
    """The signed 64-bit number a request is remembered by; `seed` from `spider_seed`, `url` canonical.

    XXH3 of the URL; of `method NUL url NUL body` for anything else than a GET without body. The seed is secret, so
    that nobody can craft a URL that counts as seen before it was.
    """
    data = url.encode() if isinstance(url, str) else url
    if body or method != "GET":
        data = b"\0".join((method.encode(), data, body))
    unsigned: int = xxh3_64_intdigest(data, seed)
    return unsigned - 0x1_0000_0000_0000_0000 if unsigned & 0x8000_0000_0000_0000 else unsigned


def with_sorted_query(url: str) -> str:
    """The canonical URL with its query parameters sorted: equal for URLs that differ only in their order."""
    path, mark, query = url.partition("?")
    return f"{path}{mark}{'&'.join(sorted(query.split('&')))}" if "&" in query else url


@lru_cache(maxsize=1024)
def spider_seed(secret: int, spider: str) -> int:
    """The unsigned 64-bit seed of a spider's fingerprints: the frontier's secret (0 <= secret < 2**64) and its name.

    The same URL is another request for another spider; in the seed, the name costs nothing per URL.
    """
    key = secret.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(spider.encode(), digest_size=8, key=key).digest(), "little")


def _accepted(href: str) -> str:
    """A serialised URL without fragment and credentials, if it can be crawled."""
    if "#" in href:
        href = href[: href.index("#")]
    if not href.startswith(("http://", "https://")):
        raise BadScheme(_shown(href))
    if "@" in href:
        start = href.index("//") + 2
        end = href.index("/", start)
        href = href[:start] + href[href.rfind("@", start, end) + 1 :] if "@" in href[start:end] else href
    if len(href) > MAX_HOST_LENGTH and (len(href) > MAX_URL_LENGTH or len(host(href)) > MAX_HOST_LENGTH):
        raise UrlTooLong(_shown(href))
    return href


def _scalar(text: str) -> str:
    """Lone surrogates replaced, as where the URL standard takes a USVString."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _shown(text: str) -> str:
    """For a person: short, printable, and without credentials."""
    safe = _CREDENTIALS.sub(r"\1…@", text[:_MAX_INPUT_LENGTH])
    return repr(safe if len(safe) <= 200 else safe[:200] + "…")


def redirect_target(base: str, value: str) -> str | None:
    """The canonical URL that a Location of this value leads to from `base` (canonical); None where that is no web page
    (RFC 9110, section 10.2.2). `value` as headers arrive, decoded as latin-1; user and password in it are left out."""
    try:
        return join(base, _without_raw_bytes(value))
    except BadUrl:
        return None


def _without_raw_bytes(value: str) -> str:
    """As text: it was UTF-8, or its bytes are taken one by one."""
    if value.isascii():
        return value
    try:
        raw = value.encode("latin-1")
    except UnicodeEncodeError:
        return value
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # What the server meant is the resource whose path has these very bytes, as browsers take it.
        return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in raw)
