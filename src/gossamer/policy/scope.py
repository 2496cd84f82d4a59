"""Scope of a crawl: filters that decide which links it follows, by domain, host, prefix, expression, extension.

Filters apply to what a crawl finds (links and the targets of redirects), never to submitted URLs. This module does no
input or output. Terms are the options that one submission of requests carries, its filters among them.

Fixed: the reasons of `Refusal`, which `worker/page.py` and the counts of dropped links use; and that an accepted filter
stays valid and keeps its meaning, because running crawls have it in their stored terms. A new filter must also be
compared in `covers`.
"""

import re
import warnings
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, TypedDict, Unpack

from gossamer.errors import BadInput, BadUrl
from gossamer.model.crawl import Terms
from gossamer.model.logouts import NEVER_FOLLOWED
from gossamer.net.names import domain_name
from gossamer.policy.parameters import DroppedParameters, dropped_parameters
from gossamer.policy.patterns import allowed_repeats
from gossamer.policy.urls import MAX_URL_LENGTH, canonical, composed, host, is_address, origin, shown_url

_ARCHIVES = """
7z 7zip ace apk appimage appx arj br bz2 cab cpio deb dmg egg gz img iso jar lha lz lz4 lzh lzma msix pkg rar rpm sit
sitx snap squashfs tar tbz tbz2 tgz txz war whl xapk xpi xz z zip zipx zst
"""
_IMAGES = """
ai apng avif bmp cdr cr2 cur dng drw dwg dxf eps exr gif heic heif icns ico jfif jp2 jpe jpeg jpg jxl mng nef odg orf
pbm pct pcx pgm png pnm ppm ps psd psp pst svg svgz tga tif tiff webp wmf xbm xcf xpm
"""
_AUDIO = """
aac ac3 aif aiff alac amr ape caf flac m3u m3u8 m4a m4b mid midi mka mp2 mp3 mpa oga ogg opus pls ra ram snd spx wav
wma wv
"""
_VIDEO = """
3g2 3gp asf asx avi f4v flv m1v m2ts m2v m4v mk3d mkv mov mp4 mpe mpeg mpg mpv mts ogm ogv qt rm rmvb srt swf ts vob
vtt webm wmv
"""
_DOCUMENTS = """
azw azw3 cbr cbz csv djv djvu doc docb docm docx dot dotm dotx epub fb2 ics mdb mobi mpp odb odc odf odp ods odt ott
oxps pdf pot potm potx pps ppsm ppsx ppt pptm pptx rtf sxw tsv vcf vsd vsdx wpd wps xls xlsb xlsm xlsx xlt xltm xltx
xps
"""
_FONTS = "eot fon otf ttc ttf woff woff2"
_PARTS_OF_PAGES = "atom css less map mjs js rss scss wasm webmanifest"
_PROGRAMS_AND_DATA = """
accdb asc bak bat bin blend bz cer class cmd cpl crt crx dat db db3 dbf der dll dylib elf exe feather fit fits gpx h5
hdf5 hta kml kmz lnk lock md5 msi msp msu ninja npy npz obj onnx ova ovf p12 parquet pcap pdb pem pfx pickle pkl pt
pyc pyd qcow2 rb reg scr sh sha1 sha256 sha512 shp sig so sql sqlite sqlite3 stl sys tmp torrent vbs vdi vhd vhdx vmdk
wim
"""

DENIED_EXTENSIONS: frozenset[str] = frozenset(
    " ".join((_ARCHIVES, _IMAGES, _AUDIO, _VIDEO, _DOCUMENTS, _FONTS, _PARTS_OF_PAGES, _PROGRAMS_AND_DATA)).split()
)
"""Extensions that are denied by default, in lower case, without the dot: archives, pictures, sound, films, office and
book formats, fonts, parts of pages, programs. After a change of the lists, running crawls follow the list of each
worker's own version.

The lists leave out extensions that can be pages or lead to pages: xml, json, txt, md, and those of programs that write
pages (php, asp, aspx, jsp, cgi, do, pl, py). They also leave out com and au, because many paths end in a host name.
"""

MAX_REGEXES = 100
"""Maximum number of expressions in one filter of a scope. Equals `maxItems` in the schema `crawl`; with a lower value,
workers refuse the filters of running crawls."""

MAX_REGEX_LENGTH = 1000
"""Maximum length of an expression in characters. Equals `maxLength` in the schema `crawl`; with a lower value, workers
refuse the filters of running crawls."""

_MEMORY_BYTES = 1024 * 1024
"""Maximum memory of one compiled expression: `(x{100}){100}` is short and large. With a lower
value, services refuse more expressions, and `re` matches those of running crawls, slowly."""

_SET_MEMORY_BYTES = 4 * _MEMORY_BYTES
"""Maximum memory of all expressions of a filter together, including the states that matching makes. Without enough
memory for the set, the expressions are searched one by one, which is slower."""

_ORIGINS_REMEMBERED = 10_000
"""Maximum number of origins whose decision a scope caches. More take more memory."""

# Measured memory. Only estimates (`estimated_bytes`) depend on it; change it when a measurement differs.
_SCOPE_BYTES = 2500  # a scope without names
_ORIGIN_BYTES = 200  # each cached origin and each name
_PATTERN_BYTES = 5000  # a compiled expression, alone and in its set, without its instructions
_INSTRUCTION_BYTES = 32  # each instruction of a compiled expression

Search = Callable[[str], object]
"""Search function of a compiled expression: returns a match, or None."""

_AMBIGUOUS = re.compile(r"\{,\d*\}|\[:\^?[a-z]+:\]|(?<!\\)(?:\\\\)*\\[1-9]\d")
"""Syntax that Python and RE2 accept with different meanings: `{,9}` is no repetition in RE2, `[:alpha:]` in a class is
special only in RE2, and `\\10` is the tenth group in Python and a character in RE2. Services refuse new expressions
that have one, and `re` matches stored ones."""

_ASCII_WORDS = re.compile(r"(?<!\\)(?:\\\\)*\\[bBwW]")
"""Syntax for words, which are ASCII in RE2 and of any alphabet in Python. Ambiguous in an expression with other
letters: one of ASCII alone has always had RE2's meaning."""

_NAMES_SCHEME = re.compile(r"http|/\\?/|/\{2")
"""Expressions that name the scheme, or the two slashes before the host: they are searched in the whole URL."""
_STARTS_AT_PATH = re.compile(r"(?<![\[\\])(?:\^|\\A)(?:\((?:\?:)?)*\\?/")
"""Expressions with `^/`: they are searched in the path, too. No URL begins with a slash."""


def _whole(url: str) -> str:
    return url


def _from_host(url: str) -> str:
    return url.partition("//")[2]


def _from_path(url: str) -> str:
    _, slash, path = url.partition("//")[2].partition("/")
    return slash + path


class RegexSet:
    """Expressions that are all searched in one pass over a text.

    They have the syntax of Python's `re`. RE2 (https://github.com/google/re2/wiki/Syntax) matches them, with the same
    results as `re` in ASCII text. Expressions that RE2 cannot match in linear time (look-around, back-references) or
    that mean something else to it are matched by `re`, which may take exponential time. A command-line crawl may have
    such expressions; `check_regex` refuses them for a service.
    """

    def __init__(self, texts: Iterable[str], kind: str) -> None:
        """`kind` names the filter in errors (`allow`, `deny`). Raises BadInput as `check_regex` does."""
        self.texts = tuple(texts)
        self._python: list[tuple[int, Search]] = []
        """Positions and search functions of the expressions that `re` matches, one by one."""
        self._re2: list[tuple[int, Search]] = []
        """Positions and search functions of the other expressions, for when their set does not fit into its memory."""
        self.estimated_bytes = 0
        """Estimated memory of the compiled expressions."""
        re2_texts: list[str] = []
        for position, text in enumerate(self.texts):
            check_regex(text, kind, linear=False)
            text = composed(text)
            compiled = _compile_re2(text)
            if compiled is None:
                self._python.append((position, _compile_python(text, kind).search))
                self.estimated_bytes += _PATTERN_BYTES + _INSTRUCTION_BYTES * len(text)
            else:
                re2_texts.append(text)
                self._re2.append((position, compiled.search))
                self.estimated_bytes += _PATTERN_BYTES + _INSTRUCTION_BYTES * compiled.programsize
        self._set = _compile_set(re2_texts) if re2_texts else None

    def matches(self, text: str) -> bool:
        """Return whether any of the expressions is found in this text."""
        return self.position(text) is not None

    def position(self, text: str) -> int | None:
        """Return the position of the first expression that is found in this text; None: none is."""
        found = [position for position, search in self._python if search(text)]
        if self._re2:
            # The set also contains the empty expression, which always matches. So there are three cases:
            # several matches: expressions were found; one match: only the empty one; no match: there is no set, or it
            # ran out of memory, so the expressions are searched one by one.
            matched = () if self._set is None else self._set.Match(text)
            if len(matched) > 1:
                found.append(min(self._re2[number - 1][0] for number in matched if number))
            elif not matched:
                found += [position for position, search in self._re2 if search(text)]
        return min(found) if found else None

    def first_match(self, text: str) -> str:
        """Return the text of the first expression that is found; empty if none is."""
        found = self.position(text)
        return "" if found is None else self.texts[found]


class UrlExpressions:
    """The expressions of one filter of URLs.

    A URL has two forms, and an expression that is found in one of them matches: the canonical one, which is sent
    (`/%D0%BA/a%20b`), and the one that browsers show (`/к/a b`; see `shown_url`).
    """

    def __init__(self, texts: Iterable[str], kind: str, *, from_host: bool = False) -> None:
        """`kind`: as for RegexSet. `from_host`: expressions that name neither scheme nor `//` are searched from the
        host on (`shop.test/a?b`), so that the `/` of `/shop` is never the one before the host. False: in the whole URL.
        In both cases `^/` is the start of the path. Raises BadInput as `check_regex` does."""
        self.texts = tuple(texts)
        positions: dict[Callable[[str], str], list[int]] = {}
        for position, text in enumerate(self.texts):
            part = _from_host if from_host and not _NAMES_SCHEME.search(text) else _whole
            positions.setdefault(part, []).append(position)
            if _STARTS_AT_PATH.search(text):
                positions.setdefault(_from_path, []).append(position)
        self._sets = [
            (part, RegexSet([self.texts[one] for one in chosen], kind), chosen) for part, chosen in positions.items()
        ]
        """Part of the URL, the expressions that are searched there, and their positions in `texts`."""
        self.estimated_bytes = sum(regexes.estimated_bytes for _, regexes, _ in self._sets)
        """Estimated memory of the compiled expressions."""

    def matches(self, url: str) -> bool:
        """Return whether any of the expressions matches this canonical URL."""
        return self.position(url) is not None

    def position(self, url: str) -> int | None:
        """Return the position of the first expression that matches this canonical URL; None: none does."""
        shown = shown_url(url)
        found = None
        for form in (url,) if shown is url else (url, shown):
            for part, regexes, positions in self._sets:
                at = regexes.position(part(form))
                if at is not None and (found is None or positions[at] < found):
                    found = positions[at]
        return found

    def first_match(self, url: str) -> str:
        """Return the text of the first expression that matches; empty if none does."""
        found = self.position(url)
        return "" if found is None else self.texts[found]


def check_regex(text: str, kind: str, *, linear: bool) -> None:
    """Raise BadInput for an expression that is malformed or too long.

    `linear`: refuse also one that may take exponential time, or that RE2 would understand differently. `kind` names the
    filter in the error.
    """
    if len(text) > MAX_REGEX_LENGTH:
        raise BadInput(f"{kind} expression of {len(text)} characters; at most {MAX_REGEX_LENGTH} are taken")
    _compile_python(text, kind)
    if linear:
        import re2  # late, as below: it loads slowly, and most crawls have no expressions

        if odd := _ambiguity(text):
            raise BadInput(
                f"{kind} expression {text!r:.200}: {odd} means different things to different matchers; "
                "write {0,9} for {,9}, [a-z] for [:lower:], [а-я] for \\w beside such letters, and no back-references"
            )
        try:
            re2.compile(text, _options())
        except re2.error as fault:
            reason = fault.args[0].decode() if isinstance(fault.args[0], bytes) else str(fault)
            raise BadInput(
                f"{kind} expression {text!r:.200}: {reason}; only what RE2 can match in linear time is taken "
                "(no look-around, no back-references)"
            ) from None


def _ambiguity(text: str) -> str:
    """Return the part of an expression that RE2 would understand differently; empty: there is none."""
    odd = _AMBIGUOUS.search(text) or (None if text.isascii() else _ASCII_WORDS.search(text))
    return odd[0] if odd else ""


def _compile_re2(text: str) -> Any:
    """Return the expression compiled by RE2; None if RE2 cannot match it or would understand it differently."""
    if _ambiguity(text):
        return None
    import re2

    try:
        return re2.compile(text, _options())
    except re2.error:
        return None


def _compile_set(texts: Iterable[str]) -> Any:
    """Return the expressions and the empty one as a set of RE2; None if they are too large together."""
    import re2

    options = _options()
    options.max_mem = _SET_MEMORY_BYTES
    try:
        matcher = re2.Set.SearchSet(options)
        for text in ("", *texts):
            matcher.Add(text)
        matcher.Compile()
    except re2.error:
        return None
    return matcher


def _compile_python(text: str, kind: str) -> re.Pattern[str]:
    """Return the expression compiled by `re`. Raises BadInput if it is malformed."""
    try:
        with warnings.catch_warnings():
            # A warning that `re` may change the meaning of some syntax is of no use to the crawl.
            warnings.simplefilter("ignore")
            return re.compile(text)
    except re.error as fault:
        raise BadInput(f"{kind} expression {text!r}: {fault}") from None
    except (RecursionError, OverflowError):
        raise BadInput(f"{kind} expression {text!r} is nested too deeply or has too large a repetition") from None


def _options() -> Any:
    """Return the options of every RE2 expression. Others would change what expressions of running crawls match."""
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    return options


_OF_SESSION = "never followed in a session: it may log out, unsubscribe or delete the account"


class Refusal(NamedTuple):
    """Reason why a link is not followed."""

    reason: str
    """`offsite`, `extension`, `allow_regex`, `deny_regex`, `scheme`, `too_long` or `bad_url`. Fixed."""
    rule: str
    """The rule that refused it, for a person."""


class LinkScope:
    """Compiled filters of one set of terms, made by `compile_scope`. It caches its decisions about origins."""

    def __init__(
        self,
        *,
        domains: frozenset[str],
        hosts: frozenset[str],
        prefixes: tuple[str, ...],
        allow: UrlExpressions,
        deny: UrlExpressions,
        extensions: frozenset[str],
        schemes: tuple[str, ...],
        max_length: int,
    ) -> None:
        """All values are in their canonical form. `prefixes` begin with `//`, so that they count for http and https."""
        self._domains = domains
        self._hosts = hosts
        self._prefixes = prefixes
        self._anywhere = not (domains or hosts or prefixes)
        self._allow = allow
        self._deny = deny
        self._has_expressions = bool(allow.texts or deny.texts)
        self._extensions = extensions
        self._double_extensions = tuple(f".{extension}" for extension in extensions if "." in extension)
        self._schemes = schemes
        self._url_starts = tuple(f"{scheme}://" for scheme in schemes)
        self._max_length = max_length
        self.dropped: DroppedParameters | None = None
        """Query parameters without which URLs are followed; None: none."""
        self._compiled: Any = None
        names = len(domains) + len(hosts) + len(prefixes)
        self._fixed_bytes = _SCOPE_BYTES + _ORIGIN_BYTES * names + allow.estimated_bytes + deny.estimated_bytes
        self.on_expression: Callable[[str, str | None, str], None] | None = None
        """Called with `deny` or `allow`, the expression that matches and the URL; with None where none of `allow`
        does."""
        self._known_origins: dict[str, bool] = {}
        """True for each origin (`scheme://host:port`) whose host is inside. Prefixes are checked apart, for each
        URL."""

    def compiled(self, native: Any) -> Any:
        """Return these filters for the compiled extension `native`. It asks this object about hosts, and about all URLs
        if there are expressions or prefixes."""
        if self._compiled is None:
            reason = self.reason if self._prefixes or self._has_expressions else None
            texts = (list(self._url_starts), list(self._extensions), list(self._double_extensions))
            self._compiled = native.Scope(*texts, self._max_length, self._anywhere, reason, self._host_is_inside)
        return self._compiled

    @property
    def estimated_bytes(self) -> int:
        """Estimated memory of the scope now. It grows with the number of cached origins."""
        return self._fixed_bytes + _ORIGIN_BYTES * len(self._known_origins)

    def reason(self, url: str) -> str | None:
        """Return the reason why this *canonical* URL is refused (see Refusal), or None. Faster than `refusal`.

        The length must be checked first: it bounds the time that a slow expression takes. The order of the other checks
        decides only which reason is reported for a URL with several; the cheap ones come first.
        """
        if len(url) > self._max_length:
            return "too_long"
        if not url.startswith(self._url_starts):
            return "scheme"
        if not self._anywhere and not self._is_inside(url):
            return "offsite"
        if self._extensions and self._denied_extension(url):
            return "extension"
        return self._refused_by_expression(url) if self._has_expressions else None

    def cleaned(self, url: str) -> str:
        """Return a canonical URL as it is followed: without the parameters to leave out."""
        return url if self.dropped is None or "?" not in url else self.dropped.remove(url)

    def _refused_by_expression(self, url: str) -> str | None:
        url = self.cleaned(url)
        for name, expressions in (("deny", self._deny), ("allow", self._allow)):
            if not expressions.texts:
                continue
            position = expressions.position(url)
            if self.on_expression is not None and (position is not None or name == "allow"):
                self.on_expression(name, None if position is None else expressions.texts[position], url)
            if (position is None) == (name == "allow"):
                return f"{name}_regex"
        return None

    def refusal(self, url: str) -> Refusal | None:
        """Return the reason why this URL, canonical or not, is refused, and the rule; None: it is followed.

        Never raises."""
        try:
            url = canonical(url)
        except BadUrl as fault:
            return Refusal(fault.reason, str(fault))
        reason = self.reason(url)
        return None if reason is None else Refusal(reason, self._rule(reason, url))

    def _is_inside(self, url: str) -> bool:
        """Return whether a canonical URL is on one of the domains or hosts, or under one of the prefixes."""
        if self._domains or self._hosts:
            site = origin(url)
            inside = self._known_origins.get(site)
            if inside is None:
                inside = self._host_is_inside(host(url).removesuffix("."))
                if len(self._known_origins) >= _ORIGINS_REMEMBERED:
                    self._known_origins.clear()
                self._known_origins[site] = inside
            if inside:
                return True
        return bool(self._prefixes) and url.startswith(self._prefixes, url.index("//"))

    def _host_is_inside(self, name: str) -> bool:
        """Return whether the host is listed, or it or a domain above it is an allowed domain."""
        if name in self._hosts or name in self._domains:
            return True
        if is_address(name):
            return False
        while (dot := name.find(".")) >= 0:
            name = name[dot + 1 :]
            if name in self._domains:
                return True
        return False

    def _denied_extension(self, url: str) -> str:
        """Return the denied extension of the path's last segment, or an empty string."""
        end = url.find("?")
        path = url if end < 0 else url[:end]
        segment = path[path.rindex("/") + 1 :]
        if "." not in segment:
            return ""
        # `report.pdf;jsessionid=1` is a PDF too.
        segment = segment.partition(";")[0].lower()
        extension = segment[segment.rfind(".") + 1 :]
        if extension in self._extensions:
            return extension
        if self._double_extensions and segment.endswith(self._double_extensions):
            return next(double[1:] for double in self._double_extensions if segment.endswith(double))
        return ""

    def _rule(self, reason: str, url: str) -> str:
        """Return the text of `Refusal.rule` for a reason that `reason` gave for this URL."""
        match reason:
            case "offsite":
                lists = {
                    "allowed domains": self._domains,
                    "allowed hosts": self._hosts,
                    "allowed paths": self._prefixes,
                }
                return "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in lists.items() if names)
            case "extension":
                return f"denied extension: {self._denied_extension(url)}"
            case "deny_regex":
                text = self._deny.first_match(self.cleaned(url))
                return _OF_SESSION if text in NEVER_FOLLOWED else f"denied by: {text}"
            case "allow_regex":
                return "allowed by none of: " + ", ".join(self._allow.texts)
            case "scheme":
                return "allowed schemes: " + ", ".join(self._schemes)
            case _:
                return f"longer than {self._max_length} characters"


class ScopeFilters(TypedDict, total=False):
    """Filters of links, each optional. The fields of `Terms` (model/crawl.py) with these names say what they mean."""

    allowed_domains: Iterable[str] | None
    allowed_hosts: Iterable[str] | None
    allowed_prefixes: Iterable[str] | None
    allow_regex: Iterable[str] | None
    deny_regex: Iterable[str] | None
    regex_from_host: bool
    deny_extensions: Iterable[str] | None
    """They may have a dot and any case. None: the default list; empty: no extension is denied."""
    drop_parameters: Iterable[str]
    """Query parameters that expressions do not see, because URLs are followed without them."""
    schemes: Iterable[str]
    """Unset: http and https."""
    max_length: int
    """Unset: MAX_URL_LENGTH."""


def compile_scope(**filters: Unpack[ScopeFilters]) -> LinkScope:
    """Return the compiled filters of a submission. Raises BadInput for a filter that is not valid.

    A link is inside the scope if it is on one of the domains (with their subdomains), *or* on one of the hosts (on any
    port), *or* under one of the prefixes (URLs up to a `/`, with http and https as the same, because sites move between
    them). If all three are None or empty, every link is inside. Then the expressions are searched in the URL (see
    UrlExpressions, also for `regex_from_host`): one of `allow_regex` must match, if there are any, and none of
    `deny_regex` may match.
    """
    extensions, from_host = filters.get("deny_extensions"), filters.get("regex_from_host", False)
    scope = LinkScope(
        domains=frozenset(map(domain_name, filters.get("allowed_domains") or ())),
        hosts=frozenset(map(domain_name, filters.get("allowed_hosts") or ())),
        prefixes=tuple(dict.fromkeys(map(_prefix, filters.get("allowed_prefixes") or ()))),
        allow=_url_expressions(filters.get("allow_regex") or (), "allow", from_host=from_host),
        deny=_url_expressions(filters.get("deny_regex") or (), "deny", from_host=from_host),
        extensions=DENIED_EXTENSIONS if extensions is None else frozenset(map(file_extension, extensions)),
        schemes=tuple(map(_scheme, filters.get("schemes", ("http", "https")))),
        max_length=filters.get("max_length", MAX_URL_LENGTH),
    )
    if dropped := tuple(filters.get("drop_parameters") or ()):
        scope.dropped = dropped_parameters(dropped)
    return scope


def scope_of(terms: Terms) -> LinkScope:
    """Compile the filters of discovered links and redirect targets. Raises BadInput for an invalid regex."""
    return compile_scope(
        allowed_domains=terms.allowed_domains,
        allowed_hosts=terms.allowed_hosts,
        allowed_prefixes=terms.allowed_prefixes,
        allow_regex=terms.allow_regex or (),
        deny_regex=terms.deny_regex or (),
        regex_from_host=terms.regex_from_host,
        drop_parameters=terms.drop_parameters,
        deny_extensions=terms.deny_extensions,
    )


def _prefix(text: str) -> str:
    """Return a URL prefix in canonical form, without its scheme: `//host/path/`. Raises BadInput."""
    try:
        url = canonical(text)
    except BadUrl as fault:
        raise BadInput(f"not a URL prefix: {fault.detail}") from None
    if "?" in url or not url.endswith("/"):
        raise BadInput(f"{text!r} is not a URL prefix; it ends with a / and has no query, as in https://host/path/")
    return url[url.index("//") :]


def file_extension(text: str) -> str:
    """Return a file extension in lower case, without its dot. Raises BadInput."""
    extension = text.strip().removeprefix("*").removeprefix(".").lower()
    if not extension or any(character in extension for character in "/?#; "):
        raise BadInput(f"{text!r} is not a file extension; write it as pdf")
    return extension


def _scheme(text: str) -> str:
    """Return `http` or `https`. Raises BadInput for another scheme."""
    scheme = text.strip().lower()
    if scheme not in ("http", "https"):
        raise BadInput(f"{text!r} cannot be crawled; http and https can")
    return scheme


def _url_expressions(texts: Iterable[str], kind: str, *, from_host: bool) -> UrlExpressions:
    """Return the expressions of one filter. Raises BadInput for too many, or one that is not valid."""
    texts = tuple(texts)
    if len(texts) > MAX_REGEXES:
        raise BadInput(f"{len(texts)} {kind} expressions; at most {MAX_REGEXES} are taken")
    return UrlExpressions(texts, kind, from_host=from_host)


def covers(old: Terms, new: Terms) -> bool:
    """Return whether a crawl with the terms `old` follows every link that a crawl of the same URLs with `new` follows.

    Each filter of `old` is compared with that of `new`: none may be stricter. Expressions are compared as texts: an
    equivalent `allow_regex` that is written differently counts as different. So False may be wrong, but True must
    always be right: pages that `new` asked for would not be fetched.
    """
    if new.maxdepth == 0:  # `new` follows no link
        return True
    return (
        (old.maxdepth is None or (new.maxdepth is not None and new.maxdepth <= old.maxdepth))
        and set(old.drop_parameters) == set(new.drop_parameters)  # else the URLs are others
        and allowed_repeats(old) >= allowed_repeats(new)
        and _places_cover(old, new)
        and _expressions_cover(old, new)
        and _denied(old) <= _denied(new)
        and (old.follow_nofollow or not new.follow_nofollow)
        and (old.sitemaps or not new.sitemaps)
    )


def _expressions_cover(old: Terms, new: Terms) -> bool:
    """Return whether the expressions of `old` refuse nothing that those of `new` let through."""
    if not (old.allow_regex or old.deny_regex):
        return True
    return (
        old.regex_from_host == new.regex_from_host
        and _contains(old.allow_regex, new.allow_regex)
        and set(old.deny_regex or ()) <= set(new.deny_regex or ())
    )


def _contains(old: Collection[str] | None, new: Collection[str] | None) -> bool:
    """Return whether `old` contains all of `new`. A list that is None or empty permits everything."""
    return not old or (bool(new) and set(new or ()) <= set(old))


def _places_cover(old: Terms, new: Terms) -> bool:
    """Return whether `old` allows every place (domain, host, prefix) that `new` allows. Terms without any allow all.

    Hosts and prefixes must be the same; a domain of `new` may lie below one of `old`.
    """
    if old.allowed_hosts != new.allowed_hosts or old.allowed_prefixes != new.allowed_prefixes:
        return False
    old_domains, new_domains = old.allowed_domains or (), new.allowed_domains or ()
    if not (old.allowed_hosts or old.allowed_prefixes or (old_domains and new_domains)):
        return not old_domains  # True: `old` goes everywhere; False: only `new` does

    def is_allowed_by_old(name: str) -> bool:
        return any(name == domain or name.endswith(f".{domain}") for domain in old_domains)

    return all(map(is_allowed_by_old, new_domains))


def _denied(terms: Terms) -> frozenset[str]:
    """Return the extensions that the terms deny."""
    given = terms.deny_extensions
    return DENIED_EXTENSIONS if given is None else frozenset(name.lower().lstrip(".") for name in given)
