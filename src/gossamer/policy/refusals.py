"""Decides whether a response is a refusal, by the rules of `refusal_rules`, and says by which evidence.

No tree of the page is made: signs are searched in the source. `may_be_refused` is for every page with a status of
success, and must stay within a few microseconds; `find` is only for those where it is True, and for errors.
"""

import codecs
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final
from urllib.parse import quote, urlsplit

from gossamer.model.record import PageRefusal, RefusalKind
from gossamer.policy.refusal_rules import LARGEST_BYTES, MOST_BYTES, RULES, SHORTEST_BYTES, VERSION, RefusalRule

_TITLE_WITHIN: Final = 2048
"""Bytes from the beginning in which the title of a page is searched before anything else. More cost time for each
page."""
_HEADING_WITHIN: Final = 4096
"""Bytes from the beginning in which the heading of a page is searched."""
_CAPITALS_WITHIN: Final = 2048
"""Bytes from the beginning in which tags in capitals are searched. Most pages have none, and all pay for the search."""
_SHELL_BYTES: Final = 16 * 1024
"""Largest page that may be a shell. More cost time for each page without links."""
_SCRIPT_WITHIN: Final = 2048
"""Bytes at the beginning and at the end of a page, in one of which a shell has a script."""
_TITLE_CHARACTERS: Final = 160
"""Characters of a title that are read. More only make the search longer."""
_UNTITLED_BYTES: Final = 2048
"""Largest page without a title that may be a refusal by a text alone."""
_FEW_PARAGRAPHS: Final = 4
"""Paragraphs that a shell does not have."""


_LOGIN_SEGMENTS: Final = frozenset((
    "login", "log-in", "log_in", "signin", "sign-in", "sign_in", "wp-login", "logon", "anmelden", "connexion", "auth",
    "sso",
))  # fmt: skip
"""Segments of paths that are those of a login, without their extensions."""
_ABOUT_LOGINS: Final = frozenset(("help", "docs", "faq", "kb"))
"""Segments of paths of pages that are about logins."""
_CONSENT_LABELS: Final = ("consent", "guce", "myprivacy", "cookiewall")
"""Labels of hosts that ask for consent."""
_CONSENT_SEGMENTS: Final = (
    "consent", "collectconsent", "cookie-consent", "cookieconsent", "cookiewall", "cookie-wall", "privacy-gate",
    "privacygate", "privacywall", "zustimmung", "einwilligung",
)  # fmt: skip
"""Beginnings of segments of paths where consent is asked for."""
_RETURN_NAMES: Final = (
    "next", "return", "return_to", "returnto", "returnurl", "return_url", "redirect", "redirect_to", "redirect_url",
    "redirecturl", "continue", "destination", "goto", "rd", "service", "back", "back_url", "from", "ref", "target",
)  # fmt: skip
"""Names of parameters by which forms of logins lead back."""
_MARKS: Final = str.maketrans({"\u2026": "...", "\u2019": "'"} | dict.fromkeys("\u2013\u2014\u00b7\u00ab\u00bb", "|"))
"""Characters that stand for others, and those that part titles, as `|` and ` - ` do."""
_REFERENCES: Final = (
    ("&nbsp;", " "), ("&rsquo;", "'"), ("&#8217;", "'"), ("&#x27;", "'"), ("&#39;", "'"), ("&apos;", "'"),
    ("&ndash;", "|"), ("&mdash;", "|"), ("&#8211;", "|"), ("&#8212;", "|"), ("&middot;", "|"), ("&raquo;", "|"),
    ("&laquo;", "|"), ("&hellip;", "..."), ("&#124;", "|"), ("&bull;", "|"),
)  # fmt: skip
"""References to characters that titles have; all others would cost time for each page."""
_INPUT: Final = re.compile(r"<input\b[^<>]*")
_UNFILLED: Final = re.compile(r"\btype\s*=\s*'?(?:hidden|submit|button|image|reset)\b")
"""Kinds of inputs that are not filled in."""
_AROUND_EQUALS: Final = re.compile(r"\s{1,8}=\s{0,8}|=\s{1,8}")
_OF_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UNREADABLE: Final = "\ufffd"
_ENDS_OF: Final = {b"<title": b"</", b"<h1": b"</h1"}
_ENDS: Final = (".", "!", "?")


class RefusalFinder:
    """Finds refusals by Gossamer's rules, and by those that a person has added."""

    def __init__(
        self, own: Sequence[RefusalRule] = (), *, version: int = VERSION, accepted: Collection[RefusalKind] = ()
    ) -> None:
        """`own`: rules that were added, which are tried first. `version`: theirs. `accepted`: kinds that are taken for
        pages."""
        self._own = frozenset(rule.name for rule in own)
        self._version = version
        self._rules = tuple(rule for rule in (*own, *RULES) if rule.kind not in accepted)
        self.accepts_repeats = "same" in accepted
        """True: pages that are the same as many others are none of a refusal."""
        of_pages = [rule for rule in self._rules if not rule.statuses or 200 in rule.statuses]
        self._statuses = frozenset(status for rule in self._rules for status in rule.statuses)
        self._titles = frozenset(title for rule in of_pages for title in rule.titles)
        self._titles_of_large = frozenset(
            title for rule in of_pages if (rule.most_bytes or 0) > MOST_BYTES for title in rule.titles
        )
        self._headings = frozenset(heading for rule in of_pages for heading in rule.headings)
        self._ends = tuple(end for rule in of_pages for end in rule.ends)
        self._of_shells = tuple(
            text.encode()
            for rule in of_pages
            if rule.is_shell or rule.is_script
            for text in (rule.any_source if rule.is_shell else rule.source[:1])
        )
        untitled = [rule for rule in of_pages if rule.source and not rule.titles and not rule.redirects_to_login]
        self._untitled = tuple(rule.source[0].encode() for rule in untitled if rule.name not in self._own)
        self._sought = tuple(rule.source[0].encode() for rule in untitled if rule.name in self._own)
        """Texts of rules that were added without titles: they are searched in all small pages."""

    def may_be_refused(self, status: int, body: bytes, *, redirected: bool) -> bool:
        """Return whether a response with a status of success is worth `find`: False for nearly all pages."""
        size = len(body)
        if size > MOST_BYTES:
            title = _begin_of(body, b"<title", _TITLE_WITHIN) if size <= LARGEST_BYTES else ""
            return bool(title) and self._is_of_large(_parts(title))
        if status != 200 or redirected or body.startswith(_OF_UTF_16):
            return True
        if self._sought:
            source = body.lower().replace(b'"', b"")
            unquoted = source.replace(b"'", b"")
            if any(each in source or each in unquoted for each in self._sought):
                return True
        title = _begin_of(body, b"<title", _TITLE_WITHIN)
        if title:
            if not title.isascii() and _UNREADABLE in title:  # in an older encoding, which `find` reads
                return True
            parts = _parts(title)
            if not self._titles.isdisjoint(parts):
                return True
            for part in parts:  # not `any`: a generator costs as much as all of the loop
                if part.endswith(self._ends):
                    return True
        elif size <= _UNTITLED_BYTES:
            source = body.lower()
            if any(each in source for each in self._untitled):
                return True
        heading = _begin_of(body, b"<h1", _HEADING_WITHIN)
        if heading and not self._headings.isdisjoint(_parts(heading)):
            return True
        if not self._of_shells or not _has_scripts_alone(body):
            return False
        source = body.lower().replace(b'"', b"").replace(b"'", b"")
        return any(each in source for each in self._of_shells) or (len(body) <= SHORTEST_BYTES and b"<p" not in source)

    def _is_of_large(self, parts: Sequence[str]) -> bool:
        """Return whether parts of a title are those of refusals that may be large pages."""
        return not self._titles_of_large.isdisjoint(parts) or any(part.endswith(self._ends) for part in parts)

    def reads(self, status: int, size: int) -> bool:
        """Return whether `find` looks at all at a response with this status and so many bytes."""
        return size <= LARGEST_BYTES and (status in self._statuses or 200 <= status < 300)

    def find(
        self,
        status: int,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        *,
        url: str,
        requested: str,
        is_built: bool = False,
    ) -> PageRefusal | None:
        """Return the refusal that a response is; None: it is a page, or an error like any other.

        `body`: in UTF-8. `url`: of the response, `requested`: the one that was asked for, before its redirects.
        `is_built`: a browser builds the page, or has built it, or would change nothing in it."""
        if not self.reads(status, len(body)):
            return None
        page = _Evidence(status, headers, body, url, requested)
        for rule in self._rules:
            if rule.is_shell and is_built:
                continue
            if (status in rule.statuses if rule.statuses else 200 <= status < 300) and (found := page.of(rule)):
                version = self._version if rule.name in self._own else VERSION
                return PageRefusal(kind=rule.kind, rule=rule.name, evidence=found, version=version)
        return None


DEFAULT_FINDER: Final = RefusalFinder()
"""Finder with Gossamer's rules alone."""
may_be_refused: Final = DEFAULT_FINDER.may_be_refused


class _Evidence:
    """The signs of one response, as rules ask for them."""

    def __init__(self, status: int, headers: Iterable[tuple[str, str]], body: bytes, url: str, requested: str) -> None:
        self._status = status
        self._headers = [(name.lower(), value.lower()) for name, value in headers]
        self._body = body
        lowered = body.decode("utf-8", "replace").lower()
        self._title = _title(lowered)
        self._source = lowered.replace('"', "").replace("\u2019", "'")
        self._unquoted = self._source.replace("'", "")
        self._tight = _AROUND_EQUALS.sub("=", self._unquoted)
        self._url, self._requested = url, requested

    def of(self, rule: RefusalRule) -> list[str]:
        """Return the evidence for a rule, in words; empty: it does not hold."""
        found = [f"status {self._status}"] if rule.statuses else []
        for sign in (self._of_header, self._of_title, self._of_source, self._of_size, self._of_request, self._of_text):
            evidence = sign(rule)
            if evidence is None:
                return []
            found += evidence
        return found

    # Each sign returns its evidence; empty: the rule does not ask for it; None: it is not there.

    def _of_header(self, rule: RefusalRule) -> list[str] | None:
        if rule.header is None:
            return []
        name, part = rule.header
        value = next((value for key, value in self._headers if key == name and part in value), None)
        return None if value is None else [f"header {name}: {value[:_TITLE_CHARACTERS]}"]

    def _of_title(self, rule: RefusalRule) -> list[str] | None:
        if not (rule.titles or rule.ends):
            return []
        parts = _parts(self._title)
        if rule.ends:
            return [f"title {self._title}"] if any(part.endswith(rule.ends) for part in parts) else None
        return [f"title {self._title}"] if set(rule.titles).intersection(parts) else None

    def _of_source(self, rule: RefusalRule) -> list[str] | None:
        if any(map(self._has if rule.is_shell else self._has_above_footer, rule.lacks)):
            return None
        if not all(map(self._has, rule.source)):
            return None
        one = next(filter(self._has, rule.any_source), "")
        if rule.any_source and not one:
            return None
        return [f"source has {text}" for text in (*rule.source, one) if text]

    def _of_size(self, rule: RefusalRule) -> list[str] | None:
        size, found = len(self._body), []
        if size > (rule.most_bytes or MOST_BYTES):
            return None
        if rule.most_bytes is not None:
            found.append(f"size {size}")
        if rule.most_links is not None:
            links = self._source.count("<a ")
            if links > rule.most_links:
                return None
            found.append(f"links {links}")
        if rule.most_fields is not None:
            fields = sum(_UNFILLED.search(each) is None for each in _INPUT.findall(self._source))
            if fields > rule.most_fields:
                return None
            found.append(f"fields {fields}")
        return found

    def _of_request(self, rule: RefusalRule) -> list[str] | None:
        if rule.spares:
            path = urlsplit(self._requested).path.lower()
            if path in ("", "/") or any(_has_word(path, word) for word in rule.spares):
                return None
        if rule.redirects_to_consent:
            is_moved = _asks_for_consent(self._url) and not _asks_for_consent(self._requested)
            return [f"redirected to {self._url.partition('?')[0]}"] if is_moved else None
        if rule.redirects_to_login or rule.leads_back:
            words = self._of_login(rule)
            return [words] if words else None
        return []

    def _of_text(self, rule: RefusalRule) -> list[str] | None:
        if not (rule.headings or rule.ends or rule.says or rule.is_shell or rule.most_text is not None):
            return []
        from gossamer.policy.emptiness import is_shell, shown_text, text_beside_links  # late: few pages get here

        found = []
        body = self._body.lower()
        if rule.is_shell:
            if not is_shell(body):
                return None
            found.append("scripts, and next to nothing to read")
        if rule.headings or rule.ends:
            heading = " ".join(_begin_of(body, b"<h1", len(body)).split())
            parts = _parts(heading)
            if not set(rule.headings).intersection(parts) and not any(part.endswith(rule.ends) for part in parts):
                return None
            found.append(f"heading {heading}")
        if rule.most_text is not None:
            characters = len(text_beside_links(body))
            if characters > rule.most_text:
                return None
            found.append(f"text {characters}")
        if rule.says:
            text = _unescaped(shown_text(body)).translate(_MARKS)
            said = next((each for each in rule.says if each in text), None)
            if said is None:
                return None
            found.append(f"text has {said}")
        return found

    def _has(self, text: str) -> bool:
        return text in self._source or text in self._unquoted or text in self._tight

    def _has_above_footer(self, text: str) -> bool:
        """Return whether the source has a text; a time in the last footer, such as a year, is of no article."""
        if text != "<time":
            return self._has(text)
        return text in self._source.rpartition("<footer")[0] or ("<footer" not in self._source and self._has(text))

    def _of_login(self, rule: RefusalRule) -> str:
        """Return the evidence of a rule about logins: where the request was led to, or where the form leads back to."""
        if _is_login(self._requested):
            return ""
        if rule.redirects_to_login:
            return f"redirected to {urlsplit(self._url).path}" if _is_login(self._url) else ""
        parts = urlsplit(self._requested.lower())
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        if path == "/":
            return ""
        targets = {
            target for one in (path, self._requested.lower()) for target in (one, quote(one), quote(one, safe=""))
        }
        targets |= {target.lower() for target in targets}
        for name in _RETURN_NAMES:
            for target in targets:
                if f"{name}={target}" in self._unquoted or f"name={name} value={target}" in self._unquoted:
                    return f"{name} leads back to {path}"
        return ""


def _title(source: str) -> str:
    """Return the title of a page, of its source in lower case; empty: it has none."""
    begin = source.find("<title")
    begin = source.find(">", begin) if begin >= 0 else -1
    end = source.find("</title", begin)
    return " ".join(source[begin + 1 : end].split())[:_TITLE_CHARACTERS] if 0 <= begin < end else ""


def _tag_at(body: bytes, tag: bytes, within: int) -> int:
    """Return where a tag begins first within so many bytes, in small letters, in capitals or as `<Title`; below 0:
    nowhere."""
    begin = body.find(tag, 0, within)
    if begin < 0:  # pages of those days have them
        begin = body.find(tag.upper(), 0, min(within, _CAPITALS_WITHIN))
        if begin < 0 and tag == b"<title":
            begin = body.find(b"<Title", 0, _CAPITALS_WITHIN)
    return begin


def _begin_of(body: bytes, tag: bytes, within: int) -> str:
    """Return the text of the first element with a tag, in lower case, if it begins within so many bytes; empty: none
    does."""
    begin = _tag_at(body, tag, within)
    if begin < 0:
        return ""
    text = body[begin : begin + 2 * _TITLE_CHARACTERS].lower().partition(_ENDS_OF[tag])[0].partition(b">")[2]
    if b"<" in text:  # there are elements in it
        text = b" ".join(b" ".join([part.rpartition(b">")[2] for part in text.split(b"<")]).split())
    return text.decode("utf-8", "replace").lower()


def _parts(title: str) -> Sequence[str]:
    """Return a title and its parts, also without the marks at their ends: `attention required! | x` has two."""
    if "&" in title:
        for reference, character in _REFERENCES:
            title = title.replace(reference, character)
    title = title.replace(" - ", "|")
    if not title.isascii():
        title = title.translate(_MARKS)
    parts = [part.strip() for part in title.split("|")]
    for part in parts:
        if part[-1:] in _ENDS:
            return [*parts, *(part.rstrip(".!? ") for part in parts)]
    return parts


def _unescaped(text: str) -> str:
    """Return a text with characters in place of their references."""
    from html import unescape  # late: it loads a long table

    return unescape(text)


def _has_scripts_alone(body: bytes) -> bool:
    """Return whether a small page has scripts, and few links and paragraphs, in a quick look."""
    size = len(body)
    if size > _SHELL_BYTES or not (
        body.find(b"<script", 0, _SCRIPT_WITHIN) >= 0 or body.find(b"<script", max(0, size - _SCRIPT_WITHIN)) >= 0
    ):
        return False
    at = -1
    for _ in range(3):
        at = body.find(b"<a ", at + 1)
        if at < 0:
            return body.count(b"</p>") < _FEW_PARAGRAPHS
    return False


def _asks_for_consent(url: str) -> bool:
    """Return whether a URL is one where consent is asked for."""
    parts = urlsplit(url.lower())
    labels = (parts.hostname or "").split(".")
    return not set(labels[:-1]).isdisjoint(_CONSENT_LABELS) or any(
        segment.startswith(_CONSENT_SEGMENTS) for segment in parts.path.split("/")
    )


def _has_word(path: str, word: str) -> bool:
    """Return whether a path has a word or words, or their plural: `/terrorism` has no `error`."""
    at = path.find(word)
    while at >= 0:
        after = path[at + len(word) :].removeprefix("s")
        if not path[at - 1 : at].isalnum() and not after[:1].isalnum():
            return True
        at = path.find(word, at + 1)
    return False


def _is_login(url: str) -> bool:
    """Return whether the path of a URL is that of a login."""
    segments = urlsplit(url.lower()).path.split("/")
    return _ABOUT_LOGINS.isdisjoint(segments) and any(part.partition(".")[0] in _LOGIN_SEGMENTS for part in segments)
