"""Hides passwords and other secrets in addresses, before a person or a log sees them.

People forget to encode characters in a password, so a parser of URLs is the wrong tool: it takes a password with a
slash for a port. Where an address can be read in two ways, more is hidden than needed.

This module imports little: `cli/terminal.py` loads it at the start of each command, and
`gossamer_platform/node/runner.py`, which runs where no Gossamer is installed, loads it as a file.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

MASK = "***"
ENCODE = "In a password, write %2F for a slash, and other characters that end a host in the same way"
"""Advice for an address that cannot be read."""
_SCHEME = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z0-9+.-]+):([/\\]*)")
"""Beginning of an address. Before it stands another character than those in it, so that a long word is not searched
again from each of its letters."""
_WEB = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h", "ws", "wss"})
"""Schemes, or their last parts (`git+https`), whose user may be a token. Any number of slashes may stand behind one."""
_END_OF_HOST = re.compile(r"[/?#]")
_END_OF_WEB_HOST = re.compile(r"[/?#\\]")
_IPV6 = r"\[[0-9A-Fa-f:.]+(?:%\w+)?\]"
_HOST = rf"(?:{_IPV6}|[^\s:@,\[\]]*)(?::(?:[0-9]{{1,5}}|port))?"  # `host:port` stands in messages
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")
_CERTAIN_HOST = re.compile(r"(?:localhost|[^\s:@,\[\]]*\.[^\s:@,\[\]]*)(?::[0-9]{1,5})?", re.IGNORECASE)
"""Host that is hardly a user: `http://a.test:8080/@me` has a path with an @, `http://me:12/34@proxy` has a password."""
_IPV6_HOST = re.compile(rf"{_IPV6}(?::[0-9]*)?")
_BLANK = re.compile(r"\s|$")
_QUOTED = re.compile(r"""['"`](?=[^\s'"`]*$)""")
"""Quotation mark before an address, with nothing but the name of an option between."""
_LONGEST_OPTION = 80
_SHELL_QUOTE = "'\"'\"'"
"""A quotation mark within an argument that `shlex.quote` has quoted."""
_PUNCTUATION = ".,;:!?)]}>'\"`…"
"""Characters behind an address in a sentence."""
_OPTION = re.compile(r"[?&;#]([^=&;#?\s/]+)=(.*?)(?=[&;][A-Za-z_][\w.%-]*=|$)", re.DOTALL)
"""Option of an address. Its value ends where the next option begins, because people forget to encode an &."""
_SECRET_OPTION = re.compile(
    r"pass|pwd|secret|token|credential|signature|authorization|jwt|hmac"
    r"|(?:api|access|account|private|shared|auth|session|sas)[-_.]?key|(?<![a-z])(?:sig|auth|sas|pw)(?![a-z])"
)
_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ENCODED = re.compile(r"%([0-9A-Fa-f]{2})")
_PARTS = re.compile(r"[/?#@\\:;=&\s]+")
_WORD = re.compile(r"\S+")
_SHORT = 4
"""Length below which a part of a secret is replaced in a text only where it is a word of its own."""

Span = tuple[int, int]
"""First and last but one position of a secret in a text."""


def hide_secrets(address: str, *, web: bool = False) -> str:
    """Return an address with `***` for its secrets: the password, also one with characters that should have been
    encoded; the user of a web address, which may be a token; the values of options such as `?token=`.

    The whole text is one address, which may have blanks. A text without a scheme is the path of a file, and is returned
    unchanged; `web`: it is an address of the web.
    """
    return _masked(address, _secrets_of_address(address, is_web=web))


_MASKED_USER = re.compile(rf"(?<=://):?{re.escape(MASK)}@")
_MASKED_PASSWORD = re.compile(rf"(://[^@]*):{re.escape(MASK)}@")
_MASKED_FIRST_OPTION = re.compile(rf"\?[^=&;#?\s/]+={re.escape(MASK)}[&;]")
_MASKED_OPTION = re.compile(rf"[?&;#][^=&;#?\s/]+={re.escape(MASK)}")


def without_secrets(address: str) -> str:
    """Return an address, which has `://`, without what `hide_secrets` hides in it: an address for programs that have
    secrets of their own. A user with a password stays, unless it is an address of the web."""
    text = _MASKED_PASSWORD.sub(r"\1@", _MASKED_USER.sub("", hide_secrets(address)))
    while _MASKED_FIRST_OPTION.search(text):
        text = _MASKED_FIRST_OPTION.sub("?", text)
    return _MASKED_OPTION.sub("", text)


def has_password(address: str) -> bool:
    """Return whether an address has a password before its host. True also where it may be read in that way."""
    return f"{MASK}@" in hide_secrets(address)


def hide_secrets_in(text: str) -> str:
    """Return a text for people with `***` for the secrets of the addresses in it.

    An address ends at a blank, or at the quotation mark before it. A caller that has the address itself passes it to
    `hide_secrets`, which also finds passwords with blanks.
    """
    if ":" not in text and "=" not in text:
        return text
    return "\n".join(_masked(line, _secrets_of_line(line)) for line in text.split("\n"))


def hide_secrets_of(address: str, text: str) -> str:
    """Return a text with `***` for the secrets of this address, also where only a part of a secret stands.

    For messages of libraries, which name the bucket, the host or the port that they have read in an address. Single
    letters of a secret may stay.
    """
    found: set[str] = set()
    for start, end in _secrets_of_address(address, is_web=False):
        for secret in (address[start:end], _decoded(address[start:end])):
            found |= {secret, secret.partition(":")[2], *_PARTS.split(secret)}
    found |= {repr(part)[1:-1] for part in found}
    patterns = [
        rf"(?<!\w){re.escape(part)}(?!\w)" if len(part) < _SHORT else re.escape(part)
        for part in sorted(found, key=len, reverse=True)
        if len(part) > 1
    ]
    shown = hide_secrets(address)
    if not patterns:
        return hide_secrets_in(text)
    parts = re.compile("|".join(patterns))
    return shown.join(hide_secrets_in(parts.sub(MASK, piece)) for piece in text.split(shown))


def _masked(text: str, secrets: Iterator[Span]) -> str:
    """Return the text with the mask for each of these secrets, which may overlap and be in any order."""
    pieces, done = [], 0
    for start, end in sorted(secrets):
        if start >= done:
            pieces += [text[done:start], MASK]
        done = max(done, end)
    return "".join((*pieces, text[done:])) if pieces else text


def _secrets_of_address(address: str, *, is_web: bool) -> Iterator[Span]:
    """Return the secrets in a text that is one address."""
    first = _SCHEME.match(address)
    beginnings = list(_beginnings(address))
    if is_web and (first is None or not first[2]) and address.find(":") not in (each.colon for each in beginnings):
        yield from _credentials(address, 0, len(address), is_web=True, may_be_host=True)
    for each in beginnings:
        yield from _credentials(address, each.start, len(address), is_web=each.is_web, may_be_host=each.is_web)
    yield from _options(address, 0, len(address))


def _secrets_of_line(line: str) -> Iterator[Span]:
    """Return the secrets in the addresses of a line."""
    for each in _beginnings(line):
        end = _behind_blanks(line, each, _end_of_address(line, each))
        yield from _credentials(line, each.start, end, is_web=each.is_web, may_be_host=each.is_web)
        yield from _options(line, each.start, end)
    for word in _WORD.finditer(line):  # options of addresses without a scheme
        yield from _options(line, word.start(), word.end())


class _Beginning(NamedTuple):
    """Beginning of an address in a text: positions of its scheme, of the colon, and behind the slashes."""

    scheme: int
    colon: int
    start: int
    is_web: bool


def _beginnings(text: str) -> Iterator[_Beginning]:
    for found in _SCHEME.finditer(text):
        is_web = re.split(r"[+.-]", found[1].lower())[-1] in _WEB
        if is_web or found[2] in ("/", "//"):  # three slashes are before a path
            yield _Beginning(found.start(), found.end(1), found.end(), is_web)


def _end_of_address(line: str, address: _Beginning) -> int:
    before = max(0, address.scheme - _LONGEST_OPTION)
    if quote := _QUOTED.search(line[before : address.scheme]):
        end = line.find(quote[0], address.start)
        while quote[0] == "'" and line.startswith(_SHELL_QUOTE, end):
            end = line.find(quote[0], end + len(_SHELL_QUOTE))
        if end >= 0:
            return end
    blank = _BLANK.search(line, address.start)
    assert blank is not None
    return blank.start()


def _behind_blanks(line: str, address: _Beginning, end: int) -> int:
    """Return the end of an address in a line, after blanks that must belong to its password: what stands before them is
    no host."""
    authority = _authority(line, address.start, end, is_web=address.is_web).rstrip(_PUNCTUATION)
    if ":" not in authority or "@" in line[address.start : end] or _HOSTS.fullmatch(authority):
        return end
    at = line.find("@", end)
    if at < 0:
        return end
    blank = _BLANK.search(line, at)
    assert blank is not None
    return blank.start()


def _authority(text: str, start: int, end: int, *, is_web: bool) -> str:
    """Return the part of an address before its path. It may end within a password."""
    found = (_END_OF_WEB_HOST if is_web else _END_OF_HOST).search(text, start, end)
    return text[start : end if found is None else found.start()]


def _credentials(text: str, start: int, end: int, *, is_web: bool, may_be_host: bool) -> Iterator[Span]:
    """Return the secret before the @ of an address whose part behind the scheme is from `start` to `end`.

    `may_be_host`: a name with a port and an @ behind it, such as `a.test:8080/@me`, is a host and a path.
    """
    authority = _authority(text, start, end, is_web=is_web)
    colon = authority.find(":")
    at = text.rfind("@", start, end) - start
    if colon < 0 or at < colon:
        at = authority.rfind("@")
        if is_web and at > 0:
            yield start, start + at
        return
    if "@" not in authority:
        is_host = _CERTAIN_HOST.fullmatch(authority) is not None
        if (may_be_host and is_host) or _IPV6_HOST.fullmatch(authority):
            return
    first = start if is_web else start + colon + 1
    if first < start + at:
        yield first, start + at


def _options(text: str, start: int, end: int) -> Iterator[Span]:
    """Return the values of the secret options in this part of a text."""
    for option in _OPTION.finditer(text[start:end]):
        name = _WORD_BREAK.sub("_", _decoded(option[1])).lower()
        if option[2] and _SECRET_OPTION.search(name):
            yield start + option.start(2), start + option.end(2)


def _decoded(text: str) -> str:
    """Return a text without percent encoding, as far as it is ASCII."""
    return _ENCODED.sub(lambda found: chr(int(found[1], 16)), text)
