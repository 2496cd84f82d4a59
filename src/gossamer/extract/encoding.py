"""Decodes bodies to text, as browsers do where they agree, without an error for a page that declares a wrong encoding.

docs/adr/0010-own-robots-rules-and-encoding-labels.md compares the labels with the libraries that exist.

Fixed: the labels (WHATWG Encoding standard) and the order of the sources in `decode`; the names of codecs, which are in
the records of pages; that no page makes a function raise; and that every expression takes time proportional to the
text, or a page could stop a worker. Neighbouring parts of an expression that match the same characters therefore have
possessive quantifiers (`++`, `*+`), which never give a character back.
"""

import codecs
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from gossamer.compiled import native

PRESCAN_BYTES = 1024
"""Bytes that are searched for a declaration. HTML standard: fixed."""

# Parts of a page's beginning that matter for its declaration: a comment, the label in an XML declaration, and the
# beginning of a meta element.
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_XML = re.compile(rb"""\A\s*<\?xml[^>]*?\bencoding\s*=\s*["']([A-Za-z0-9._:-]+)["']""")
_META = re.compile(rb"<meta(?=[\s/])", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    rb"""[\s/]*+([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"'][^\s>]*+)))?+""", re.DOTALL
)
"""One attribute of a tag: its name, and its value by the kind of quotes."""
# The label behind `charset=`, by the kind of quotes around it.
_CHARSET = re.compile(r"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""", re.IGNORECASE)


def declared_codec(body: bytes) -> str | None:
    """Return the codec of the first usable `<meta charset>`, `<meta http-equiv=content-type>` or XML declaration.

    None: there is none in the first PRESCAN_BYTES. A declaration that is readable as ASCII cannot be UTF-16, so UTF-16
    there means UTF-8.
    """
    start = body[:PRESCAN_BYTES]
    xml = _XML.match(start)
    codec = codec_of(xml[1].decode("ascii")) if xml else None
    if codec is None:
        start = _COMMENT.sub(b"", start)
        for meta in _META.finditer(start):
            codec = _codec_of_meta(start, meta.end())
            if codec is not None:
                break
    return "utf-8" if codec is not None and codec.startswith("utf-16") else codec


def charset_in(text: str) -> str | None:
    """Return the label after `charset=` in a Content-Type or in the content of a meta element. None: there is none."""
    match = _CHARSET.search(text)
    return next(filter(None, match.groups()), None) if match else None


def _codec_of_meta(start: bytes, position: int) -> str | None:
    """Return the codec that a meta tag declares. `position`: end of the tag's name in `start`."""
    attributes: dict[str, str] = {}
    while (match := _ATTRIBUTE.match(start, position)) is not None:
        name, *values = match.groups()
        value = next((value for value in values if value is not None), b"")
        # Latin-1 has a character for every byte, so it never fails; real labels are ASCII.
        attributes.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        position = match.end()
    label: str | None = attributes.get("charset")
    if label is None and attributes.get("http-equiv", "").strip().lower() == "content-type":
        label = charset_in(attributes.get("content", ""))
    return codec_of(label) if label else None


# Labels of the WHATWG Encoding standard by Python codec. That list does not change any more. `latin-1` is added, which
# is no label of the standard but occurs on the web.
_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859_2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso8859_3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso8859_4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso8859_5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso8859_6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e "
    "iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso8859_7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
    "iso_8859-7:1987 sun_eu_greek",
    "iso8859_8": "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8 "
    "iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical",
    "iso8859_10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859_13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859_14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859_15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859_16": "iso-8859-16",
    "koi8_r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8_u": "koi8-ru koi8-u",
    "mac_roman": "csmacintosh mac macintosh x-mac-roman",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "cp1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
    "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252 x-user-defined latin-1",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 "
    "windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "mac_cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    # The standard's GBK decoder is that of GB 18030, of which it is a part.
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk gb18030",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 "
    "windows-949",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
    # The standard refuses these because they hide scripts from filters; a crawler runs no scripts and can read them.
    "hz": "hz-gb-2312",
    "iso2022_kr": "csiso2022kr iso-2022-kr",
}

_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}
"""_LABELS the other way round: the codec of each label."""


def codec_of(label: str) -> str | None:
    """Return the Python codec of a label as found on the web, in any letter case, with spaces around. None: it is
    unknown."""
    return _CODECS.get(label.strip("\t\n\f\r ").lower())


_DETECTED_BYTES = 4096
"""Size of the sample around the first non-ASCII byte, from which an undeclared encoding is guessed. A larger sample
gives better guesses and takes longer."""

_BYTES_PER_ERROR = 1000
"""UTF-8 may have one invalid place (a cut string, a pasted quotation) in every so many bytes. With a smaller number,
more pages in other encodings are taken for UTF-8."""

_CANDIDATES = (
    "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874", "koi8_r",
    "koi8_u", "gb18030", "big5", "euc_jp", "cp932", "euc_kr", "cp949",
)  # fmt: skip
"""Python codecs that the detector may return: the encodings that pages without a declaration really have. A rarer
encoding of the same script (such as ISO 8859-5 beside windows-1251) is left out, because it would often fit a text
better by chance. Each takes time."""

_TIE_MARGIN = 0.02
"""Margin of the detector's coherence (0 to 1) by which another encoding must beat windows-1252, the most common one."""

_SNIFFED_BYTES = 1445
"""Bytes that are searched for the first HTML tag of a body without a type (MIME Sniffing standard, "resource
header")."""

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
"""Byte-order marks, with which a text may begin, and the codecs that they stand for. HTML standard: fixed."""
_BOM_STARTS = tuple(bom for bom, _ in _BOMS)
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
# A character of two, three or four bytes in UTF-8.
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
# Media types: of text; of HTML; of XML, which may be HTML; and those that say nothing, where the body is looked at.
_TEXTUAL = re.compile(r"text/|.*(?:html|xml|json|javascript|ecmascript|yaml|csv|x-www-form-urlencoded)")
_HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))
_XML_TYPE = re.compile(r"(?:text|application)/xml\Z|.*\+xml\Z")
_UNKNOWN_TYPES = frozenset(("", "unknown/unknown", "application/unknown"))
_HEADER_VALUE = re.compile(r'(?:[^",]++|"(?:[^"\\]|\\.)*+(?:"|\Z))++', re.DOTALL)
"""Value of a header that may have several, with commas between them (Fetch standard, "get, decode, and split")."""
_MEDIA_TYPE = re.compile(r"[\t\n\r ]*+([!#$%&'*+.^_`|~\w-]++/[!#$%&'*+.^_`|~\w-]++)[\t\n\r ]*+(?:;|\Z)", re.ASCII)
_XML_START = re.compile(rb"\s*+(?:(?><\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*+(?:\[.*?\]\s*+)?+>)\s*+)*+", re.DOTALL)
"""Beginning of an XML document, up to its root element."""
_HTML_ROOT = re.compile(rb"<(?:[\w.-]+:)?html[\s/>]")
# The part before the first tag is possessive: `<!--.*?-->` may end at any later `-->`, so a row of comments could be
# divided in exponentially many ways, all of which would be tried where no tag follows.
_HTML_START = (
    rb"(?is)\s*+(?:(?><!--.*?-->)\s*+|<\?xml[^>]*+>\s*+)*+"
    rb"<(?:!doctype\s+html|html|head|body|script|iframe|h1|div|font|table|a|style|title|b|br|p|meta|link)(?=[\s/>])"
    rb"|\s*+<!--[ >]"
)


class DecodedText(NamedTuple):
    """Body as text."""

    text: str
    encoding: str
    """Python codec that it was decoded with."""
    strict_ok: bool
    """True: no byte had to be replaced."""


def decode(body: bytes, content_type: str | None = None) -> DecodedText:
    """Return the body as text. Never raises.

    The sources of the encoding, in this order: byte-order mark; charset of the HTTP Content-Type; declaration in the
    first PRESCAN_BYTES (HTML, XML, or unknown type); valid or nearly valid UTF-8; detection from a sample among the
    encodings that are common on the web; windows-1252. A declared encoding that does not fit the body gives way to
    UTF-8 if that fits. Labels mean what the WHATWG Encoding standard says (`iso-8859-1` is windows-1252, `gb2312` is GB
    18030). For a type that is not text, detection is left out, and invalid UTF-8 is replaced.
    """
    if body.startswith(_BOM_STARTS):
        bom, codec = next(pair for pair in _BOMS if body.startswith(pair[0]))
        return _decoded(body[len(bom) :], codec)
    parsed_type = _parse_content_type(content_type or "")
    named = parsed_type.codec
    if named is None and parsed_type.may_declare:
        named = declared_codec(body)
    if named is not None and not is_utf8(named):
        decoded = _decoded(body, named)
        return decoded if decoded.strict_ok else _as_utf8(body) or decoded
    utf8 = _as_utf8(body)
    if utf8 is not None:
        return utf8
    if named is not None or not parsed_type.textual or b"\0" in body[:_DETECTED_BYTES]:
        return DecodedText(body.decode("utf-8", "replace"), "utf-8", strict_ok=False)
    return _nearly_utf8(body) or _detected(body)


def is_utf8_as_it_is(body: bytes, content_type: str) -> bool:
    """Return whether `decode` would return this body as UTF-8 with the same bytes. False also where the compiled
    extension is missing."""
    if native is None or body.startswith(_BOM_STARTS):
        return False
    parsed_type = _parse_content_type(content_type)
    if not parsed_type.is_utf8:
        named = parsed_type.codec
        if named is None and parsed_type.may_declare:
            named = declared_codec(body)
        if named is not None and not is_utf8(named):
            return False
    return cast(bool, native.is_utf8(body))


def decode_as(body: bytes, codec: str) -> str:
    """Return the body decoded by this codec with invalid bytes replaced; as UTF-8 if there is no such codec. Never
    raises."""
    return _decoded(body, codec).text


_UTF8 = frozenset(("utf-8", "utf8", "ascii"))
"""Codecs whose bytes are UTF-8: names of Python, fixed."""


def is_utf8(codec: str) -> bool:
    """Return whether bytes in this codec can be parsed as UTF-8 without decoding."""
    return codec in _UTF8


def is_html(content_type: str | None, body_start: bytes, headers: Iterable[tuple[str, str]] = ()) -> bool:
    """Return whether a body is read for links: by its type, or, if that is missing or no type, by its first bytes.

    XML counts if its root is `html`. A type that says something else is believed (MIME Sniffing standard). `headers`:
    those of the response, of which `X-Content-Type-Options: nosniff` forbids to look at the body.
    """
    parsed_type = _parse_content_type(content_type or "")
    if parsed_type.is_html:
        return True
    if parsed_type.is_unknown:
        return looks_like_html(body_start) and not _forbids_sniffing(headers)
    if parsed_type.is_xml:
        start = body_start[:_SNIFFED_BYTES].removeprefix(codecs.BOM_UTF8)
        before_root = _XML_START.match(start)
        return before_root is not None and _HTML_ROOT.match(start, before_root.end()) is not None
    return False


def looks_like_html(body_start: bytes) -> bool:
    """Return whether a body is HTML by its first bytes."""
    return re.match(_HTML_START, body_start[:_SNIFFED_BYTES].removeprefix(codecs.BOM_UTF8)) is not None


def _forbids_sniffing(headers: Iterable[tuple[str, str]]) -> bool:
    """Return whether the first `X-Content-Type-Options` is `nosniff` (Fetch standard, "determine nosniff")."""
    for name, value in headers:
        if name.lower() == "x-content-type-options":
            return value.partition(",")[0].strip("\t\n\r ").lower() == "nosniff"
    return False


def content_type_of(lines: Sequence[str]) -> str:
    """Return the Content-Type of a response with these lines of that header: of several, what browsers take."""
    if len(lines) == 1:
        return lines[0]
    media_type, label = _declared(", ".join(lines))
    return f"{media_type}; charset={label}" if label and media_type else media_type or ", ".join(lines)


def _declared(content_type: str) -> tuple[str, str | None]:
    """Return the media type in lower case, empty if there is none, and the label of the charset.

    The last type counts of those that are one, and the charset that was named for it (Fetch standard, "extract a MIME
    type"). Without a type, any charset counts."""
    media_type, label = "", None
    for value in _HEADER_VALUE.findall(content_type):
        match = _MEDIA_TYPE.match(value)
        if match is None or match[1] == "*/*":
            continue
        if match[1].lower() != media_type:
            media_type, label = match[1].lower(), None
        label = charset_in(value) or label
    return media_type, label if media_type else charset_in(content_type)


class _ContentType(NamedTuple):
    """Declarations of a Content-Type header."""

    codec: str | None
    may_declare: bool
    """True for HTML, XML, or an unknown type: the body may name its encoding."""
    textual: bool
    """True for text or an unknown type: the encoding may be detected."""
    is_html: bool
    is_xml: bool
    """True: it may be HTML, which its root element tells."""
    is_unknown: bool
    """True: it names no type."""
    is_utf8: bool
    """True: the codec is UTF-8."""


@lru_cache(maxsize=64)  # sites send few different headers
def _parse_content_type(content_type: str) -> _ContentType:
    """Return what a Content-Type header declares. Empty: there is no header."""
    media_type, label = _declared(content_type)
    codec = codec_of(label) if label else None
    unknown = media_type in _UNKNOWN_TYPES
    return _ContentType(
        codec=codec,
        may_declare=unknown or "html" in media_type or "xml" in media_type,
        textual=unknown or _TEXTUAL.match(media_type) is not None,
        is_html=media_type in _HTML_TYPES,
        is_xml=_XML_TYPE.match(media_type) is not None,
        is_unknown=unknown,
        is_utf8=codec is not None and is_utf8(codec),
    )


def _as_utf8(body: bytes) -> DecodedText | None:
    """Decode valid UTF-8; None: it is not valid."""
    try:
        return DecodedText(body.decode("utf-8"), "utf-8", strict_ok=True)
    except UnicodeDecodeError:
        return None


def _decoded(body: bytes, codec: str) -> DecodedText:
    """Decode by this codec, replacing invalid bytes; as UTF-8 if the codec fails or does not exist."""
    try:
        return DecodedText(body.decode(codec), codec, strict_ok=True)
    except (ValueError, LookupError):
        pass
    try:
        return DecodedText(body.decode(codec, "replace"), codec, strict_ok=False)
    except (ValueError, LookupError):  # some codecs raise even then
        return DecodedText(body.decode("utf-8", "replace"), "utf-8", strict_ok=False)


def _nearly_utf8(body: bytes) -> DecodedText | None:
    """Decode as UTF-8 with invalid bytes replaced, if these are at most one place in _BYTES_PER_ERROR (one in a shorter
    body) and fewer than valid multi-byte characters. None: the body has more. Other encodings hardly ever look like
    UTF-8 even once."""
    text = body.decode("utf-8", "replace")
    replaced = text.count("\ufffd") - body.count("\ufffd".encode())  # without those that the body itself has
    if replaced > max(1, len(body) // _BYTES_PER_ERROR):
        return None
    valid = sum(1 for _ in _MULTIBYTE.finditer(body))
    return DecodedText(text, "utf-8", strict_ok=False) if valid > replaced else None


def _detected(body: bytes) -> DecodedText:
    """Decode by the encoding that the detector finds in a sample; by windows-1252 if that fits nearly as well."""
    from charset_normalizer import from_bytes  # half of this package's start-up time, and seldom needed

    first = _NOT_ASCII.search(body)
    start = max(0, first.start() - _DETECTED_BYTES // 2) if first else 0
    matches = from_bytes(body[start : start + _DETECTED_BYTES], cp_isolation=list(_CANDIDATES), enable_fallback=False)
    best = matches.best()
    # The detector's own measures: chaos is low where the text is orderly, coherence high where it resembles a language.
    if best is None or any(
        "cp1252" in match.could_be_from_charset
        and match.chaos <= best.chaos
        and match.coherence >= best.coherence - _TIE_MARGIN
        for match in matches
    ):
        return _decoded(body, "cp1252")
    # Read as a label, the detector's name means the larger encoding that pages really have: `big5` means big5hkscs.
    label = best.encoding.replace("_", "-")
    guessed = _decoded(body, codec_of(label) or best.encoding)
    return guessed if guessed.strict_ok else _decoded(body, "cp1252")
