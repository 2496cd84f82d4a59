"""Bytes to text, as browsers do it where they agree, and never an error where a page lies about its encoding."""

import codecs
import re
from functools import lru_cache
from typing import NamedTuple

from gossamer.extract.labels import codec_of
from gossamer.extract.prescan import charset_in, declared_codec

_DETECTED_BYTES = 4096
"""Detection without a declaration looks at so much around the first byte that is not ASCII: it is slow."""

_BYTES_A_FAULT = 1000
"""So many bytes of UTF-8 may have one place that is none: a cut string, a pasted quotation."""

_GUESSED = (
    "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874", "koi8_r",
    "koi8_u", "gb18030", "big5", "euc_jp", "cp932", "euc_kr", "cp949",
)  # fmt: skip
"""What the detector may answer: what pages without a declaration are in. Rare relatives would fit as well or better
by chance."""

_A_TIE = 0.02
"""By so little of the detector's coherence (0 to 1) no other encoding wins against windows-1252, the most common."""

_SNIFFED_BYTES = 1024

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_BOM_STARTS = tuple(bom for bom, _ in _BOMS)
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_TEXTUAL = re.compile(
    r"text/|[^;]*(?:html|xml|json|javascript|ecmascript|yaml|csv|x-www-form-urlencoded)", re.IGNORECASE
)
_HTML_TYPE = re.compile(r"\s*(?:text/html|application/xhtml\+xml)\s*(?:;|,|\Z)", re.IGNORECASE)
_XML_TYPE = re.compile(r"\s*(?:text|application)/xml\s*(?:;|\Z)", re.IGNORECASE)
_UNKNOWN_TYPE = re.compile(r"\s*(?:\Z|;|unknown/unknown|application/unknown|\*/\*)", re.IGNORECASE)
# What is before the first tag is matched once and for good: a row of comments has countless ways to be split in two.
_HTML_START = re.compile(
    rb"\s*+(?:(?><!--.*?-->)\s*+|<\?xml[^>]*+>\s*+)*+"
    rb"<(?:!doctype\s+html|html|head|body|script|iframe|h1|div|font|table|a|style|title|b|br|p|meta|link)(?=[\s/>])",
    re.IGNORECASE | re.DOTALL,
)


class Decoded(NamedTuple):
    """A body as text."""

    text: str
    encoding: str
    """The Python codec it was decoded with."""
    strict_ok: bool
    """No byte had to be replaced."""


def decode(body: bytes, content_type: str | None = None) -> Decoded:
    """The body's text. Never raises.

    What counts, in this order: byte-order mark; charset of the HTTP Content-Type; declaration in the first 1,024 bytes
    (HTML, XML, or unknown type); valid UTF-8, or nearly so; detection from a sample among the encodings that are common
    on the web; windows-1252. A declared encoding that does not
    fit the body gives way to UTF-8 where that fits. Labels mean what the WHATWG Encoding standard says (`iso-8859-1` is
    windows-1252, `gb2312` is GB 18030). Of a type that is not text only UTF-8 is tried (then `strict_ok` is False).
    """
    if body.startswith(_BOM_STARTS):
        bom, codec = next(pair for pair in _BOMS if body.startswith(pair[0]))
        return _decoded(body[len(bom) :], codec)
    said = _said(content_type or "")
    codec_named = said.codec
    if codec_named is None and said.may_declare:
        codec_named = declared_codec(body)
    if codec_named is not None and not is_utf8(codec_named):
        declared = _decoded(body, codec_named)
        return declared if declared.strict_ok else _as_utf8(body) or declared
    utf8 = _as_utf8(body)
    if utf8 is not None:
        return utf8
    if codec_named is not None or not said.textual or b"\0" in body[:_DETECTED_BYTES]:
        return Decoded(body.decode("utf-8", "replace"), "utf-8", False)
    return _nearly_utf8(body) or _detected(body)


def decode_as(body: bytes, codec: str) -> str:
    """The body in this codec with what does not fit replaced; as UTF-8 where there is no such codec. Never raises."""
    return _decoded(body, codec).text


def is_utf8(codec: str) -> bool:
    """Whether bytes in this codec can be parsed as UTF-8 as they are."""
    return codec in ("utf-8", "utf8", "ascii")


def is_html(content_type: str | None, body_start: bytes) -> bool:
    """Whether a body is to be read for links: by its type, and where that is missing, by how it begins.

    XML counts where its root is `html`. A type that says something else is believed (MIME Sniffing standard).
    """
    content_type = content_type or ""
    if _HTML_TYPE.match(content_type):
        return True
    start = body_start[:_SNIFFED_BYTES].removeprefix(codecs.BOM_UTF8)
    if _XML_TYPE.match(content_type):
        return re.search(rb"<(?:\w+:)?html[\s>]", start) is not None
    return _UNKNOWN_TYPE.match(content_type) is not None and _HTML_START.match(start) is not None


class _Said(NamedTuple):
    """What a Content-Type says of its body."""

    codec: str | None
    may_declare: bool
    """HTML, XML, or unknown: the body may name its encoding."""
    textual: bool


@lru_cache(maxsize=64)
def _said(content_type: str) -> _Said:
    label = charset_in(content_type)
    unknown = _UNKNOWN_TYPE.match(content_type) is not None
    lower = content_type.lower()
    return _Said(
        codec=codec_of(label) if label else None,
        may_declare=unknown or "html" in lower or "xml" in lower,
        textual=unknown or _TEXTUAL.match(content_type) is not None,
    )


def _as_utf8(body: bytes) -> Decoded | None:
    try:
        return Decoded(body.decode("utf-8"), "utf-8", True)
    except UnicodeDecodeError:
        return None


def _decoded(body: bytes, codec: str) -> Decoded:
    try:
        return Decoded(body.decode(codec), codec, True)
    except (ValueError, LookupError):
        pass
    try:
        return Decoded(body.decode(codec, "replace"), codec, False)
    except (ValueError, LookupError):  # some codecs give up even so
        return Decoded(body.decode("utf-8", "replace"), "utf-8", False)


def _nearly_utf8(body: bytes) -> Decoded | None:
    """With what does not fit replaced, if that is at most one place in 1,000 bytes (one in a shorter body) and fewer
    than what does fit. Other encodings hardly ever look like UTF-8 even once."""
    text = body.decode("utf-8", "replace")
    bad = text.count("\ufffd") - body.count(b"\xef\xbf\xbd")
    if bad > max(1, len(body) // _BYTES_A_FAULT):
        return None
    good = sum(1 for _ in _MULTIBYTE.finditer(body))
    return Decoded(text, "utf-8", False) if good > bad else None


def _detected(body: bytes) -> Decoded:
    from charset_normalizer import from_bytes  # half of this room's start-up time, and seldom needed

    first = _NOT_ASCII.search(body)
    start = max(0, first.start() - _DETECTED_BYTES // 2) if first else 0
    matches = from_bytes(body[start : start + _DETECTED_BYTES], cp_isolation=list(_GUESSED), enable_fallback=False)
    best = matches.best()
    if best is None or any(
        "cp1252" in match.could_be_from_charset
        and match.chaos <= best.chaos
        and match.coherence >= best.coherence - _A_TIE
        for match in matches
    ):
        return _decoded(body, "cp1252")
    guessed = _decoded(body, codec_of(best.encoding.replace("_", "-")) or best.encoding)
    return guessed if guessed.strict_ok else _decoded(body, "cp1252")
