"""Decides whether a response is a refusal, by the rules of `refusal_rules`, and says by which evidence.

No tree of the page is made: signs are searched in the source. `may_be_refused` is for every page with a status of
success, and must stay within a few microseconds; `find` is only for those where it is True, and for errors.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote, urlsplit

from gossamer.model.record import PageRefusal
from gossamer.policy.refusal_rules import MOST_BYTES, RULES, VERSION, RefusalRule

_TITLE_WITHIN: Final = 2048
"""Bytes from the beginning in which the title of a page is searched before anything else. More cost time for each
page."""
_TITLE_CHARACTERS: Final = 160
"""Characters of a title that are read. More only make the search longer."""
_UNTITLED_BYTES: Final = 2048
"""Largest page without a title that may be a refusal."""


_LOGIN_SEGMENTS: Final = frozenset(
    ("login", "log-in", "log_in", "signin", "sign-in", "sign_in", "wp-login", "logon", "anmelden", "connexion")
)
"""Segments of paths that are those of a login, without their extensions."""
_RETURN_NAMES: Final = (
    "next", "return", "return_to", "returnto", "returnurl", "return_url", "redirect", "redirect_to", "redirect_url",
    "redirecturl", "continue", "destination", "goto", "rd", "service", "back", "back_url", "from", "ref", "target",
)  # fmt: skip
"""Names of parameters by which forms of logins lead back."""


class RefusalFinder:
    """Finds refusals by Gossamer's rules, and by those that a person has added."""

    def __init__(self, own: Sequence[RefusalRule] = (), *, version: int = VERSION) -> None:
        """`own`: rules that were added, which are tried first. `version`: theirs."""
        self._own = frozenset(rule.name for rule in own)
        self._version = version
        self._rules = (*own, *RULES)
        of_pages = [rule for rule in self._rules if not rule.statuses or 200 in rule.statuses]
        self._statuses = frozenset(status for rule in self._rules for status in rule.statuses)
        self._titles = frozenset(title for rule in of_pages for title in rule.titles)
        untitled = [rule for rule in of_pages if not rule.titles and not rule.redirects_to_login]
        self._untitled = tuple(rule.source[0].encode() for rule in untitled if rule.name not in self._own)
        self._sought = tuple(rule.source[0].encode() for rule in untitled if rule.name in self._own)
        """Texts of rules that were added without titles: they are searched in all small pages."""

    def may_be_refused(self, status: int, body: bytes, *, redirected: bool) -> bool:
        """Return whether a response with a status of success is worth `find`: False for nearly all pages."""
        if len(body) > MOST_BYTES:
            return False
        if status != 200 or redirected:
            return True
        if self._sought:
            source = body.lower().replace(b'"', b"")
            unquoted = source.replace(b"'", b"")
            if any(each in source or each in unquoted for each in self._sought):
                return True
        begin = body.find(b"<title", 0, _TITLE_WITHIN)
        if begin < 0:
            begin = body.find(b"<TITLE", 0, _TITLE_WITHIN)
        if begin >= 0:
            title = body[begin + len(b"<title") : begin + 2 * _TITLE_CHARACTERS].partition(b"</")[0].partition(b">")[2]
            return not self._titles.isdisjoint(_parts(title.decode("utf-8", "replace").lower()))
        if len(body) > _UNTITLED_BYTES:
            return False
        source = body.lower()
        return any(each in source for each in self._untitled)

    def find(
        self, status: int, headers: Iterable[tuple[str, str]], body: bytes, *, url: str, requested: str
    ) -> PageRefusal | None:
        """Return the refusal that a response is; None: it is a page, or an error like any other.

        `url`: of the response, `requested`: the one that was asked for, before its redirects."""
        if len(body) > MOST_BYTES or (status not in self._statuses and not 200 <= status < 300):
            return None
        page = _Evidence(status, headers, body, url, requested)
        for rule in self._rules:
            if (status in rule.statuses if rule.statuses else 200 <= status < 300) and (found := page.of(rule)):
                version = self._version if rule.name in self._own else VERSION
                return PageRefusal(kind=rule.kind, rule=rule.name, evidence=found, version=version)
        return None


DEFAULT_FINDER: Final = RefusalFinder()
"""Finder with Gossamer's rules alone."""
may_be_refused: Final = DEFAULT_FINDER.may_be_refused
find_refusal: Final = DEFAULT_FINDER.find


class _Evidence:
    """The signs of one response, as rules ask for them."""

    def __init__(self, status: int, headers: Iterable[tuple[str, str]], body: bytes, url: str, requested: str) -> None:
        self._status = status
        self._headers = [(name.lower(), value.lower()) for name, value in headers]
        self._bytes = len(body)
        lowered = body.decode("utf-8", "replace").lower()
        self._title = _title(lowered)
        self._source = lowered.replace('"', "").replace("\u2019", "'")
        self._unquoted = self._source.replace("'", "")
        self._url, self._requested = url, requested

    def of(self, rule: RefusalRule) -> list[str]:
        """Return the evidence for a rule, in words; empty: it does not hold."""
        found = [f"status {self._status}"] if rule.statuses else []
        if rule.header is not None:
            name, part = rule.header
            value = next((value for key, value in self._headers if key == name and part in value), None)
            if value is None:
                return []
            found.append(f"header {name}: {value[:_TITLE_CHARACTERS]}")
        if rule.titles:
            if not set(rule.titles).intersection(_parts(self._title)):
                return []
            found.append(f"title {self._title}")
        if rule.source:
            if not all(text in self._source or text in self._unquoted for text in rule.source):
                return []
            found += [f"source has {text}" for text in rule.source]
        if rule.most_bytes is not None:
            if self._bytes > rule.most_bytes:
                return []
            found.append(f"size {self._bytes}")
        if rule.most_links is not None:
            links = self._source.count("<a ")
            if links > rule.most_links:
                return []
            found.append(f"links {links}")
        if rule.redirects_to_login or rule.leads_back:
            words = self._of_login(rule)
            return [*found, words] if words else []
        return found

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


def _parts(title: str) -> Sequence[str]:
    """Return a title and its parts: `attention required! | cloudflare` has two."""
    for mark in (" - ", " – ", " — ", " · ", " « ", " » "):
        title = title.replace(mark, "|")
    return [part.strip() for part in title.replace("\u2026", "...").replace("\u2019", "'").split("|")]


def _is_login(url: str) -> bool:
    """Return whether the path of a URL is that of a login."""
    return any(part.partition(".")[0] in _LOGIN_SEGMENTS for part in urlsplit(url.lower()).path.split("/"))
