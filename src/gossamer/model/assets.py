"""Assets: files that pages embed or link, such as images, style sheets and PDFs. Recognises the kind of each.

A crawl names the kinds that it wants. An asset is a request of its own in the frontier (the store of waiting requests),
under the name ASSET_SPIDER instead of a spider's. Fixed: that name and the names of KINDS, which users write and the
frontier keeps; and the fields of `Asset`, which it keeps with each request (a field with a default may be added).
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from gossamer.errors import BadInput

ASSET_SPIDER = "gossamer.assets"
"""Name under which the frontier keeps the assets of all spiders of a crawl. No spider may have it. Fixed: the Lua
scripts know it (`include/assets.lua`), because assets do not count in limits of pages."""

_ENDINGS = {
    "images": "apng avif bmp cur gif heic heif ico jfif jpe jpeg jpg jxl png svg svgz tif tiff webp",
    "css": "css",
    "js": "js mjs",
    "fonts": "eot otf ttc ttf woff woff2",
    "video": "3gp avi flv m3u8 m4v mkv mov mp4 mpeg mpg ogv vtt webm wmv",
    "audio": "aac aif aiff flac m4a m4b mid midi mka mp3 oga ogg opus wav weba wma",
    "pdf": "pdf",
    "documents": "csv doc docm docx dot dotx epub odp ods odt pot potx pps ppsx ppt pptm pptx rtf xls xlsb xlsm xlsx",
}
"""Endings of URLs by kind. Each ending belongs to one kind."""
SCREENSHOTS = "screenshots"
"""Kind of the screenshots of rendered pages, which no request fetches."""
KINDS = tuple(_ENDINGS)
"""Names of the kinds. The schema `crawl.json` repeats them (a test compares)."""
ALL = "all"
"""Word for all kinds together. Fixed: users write it."""
LINKED_KINDS = frozenset(("images", "video", "audio", "pdf", "documents"))
"""Kinds of files to which a link (`a href`) leads by its ending; the others are only embedded."""

_KIND_BY_ENDING = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings.split()}
# Kinds by content type.
_KIND_BY_TYPE = {
    "text/css": "css",
    "text/javascript": "js",
    "application/javascript": "js",
    "application/x-javascript": "js",
    "application/ecmascript": "js",
    "application/pdf": "pdf",
    "application/x-pdf": "pdf",
    "application/vnd.ms-fontobject": "fonts",
    "application/vnd.apple.mpegurl": "video",
    "application/x-mpegurl": "video",
    "text/vtt": "video",
    "application/ogg": "audio",
    "application/msword": "documents",
    "application/rtf": "documents",
    "text/rtf": "documents",
    "text/csv": "documents",
    "application/epub+zip": "documents",
}
_KIND_BY_BEGINNING = (
    ("image/", "images"),
    ("font/", "fonts"),
    ("application/font", "fonts"),
    ("application/x-font", "fonts"),
    ("video/", "video"),
    ("audio/", "audio"),
    ("application/vnd.ms-", "documents"),
    ("application/vnd.openxmlformats", "documents"),
    ("application/vnd.oasis.opendocument", "documents"),
)
"""Kinds by the beginning of a content type, for types that are not in _KIND_BY_TYPE. The first that fits counts."""
_UNTYPED = frozenset(
    ("", "application/octet-stream", "binary/octet-stream", "application/x-download", "application/force-download",
     "application/download", "text/plain")
)  # fmt: skip
"""Content types that say nothing about a file."""
_PAGES = frozenset(("text/html", "application/xhtml+xml"))
"""Content types of pages. A page in the place of an asset is an error page or a login form."""
_TYPE_ENDINGS = {
    "image/jpeg": "jpg",
    "image/svg+xml": "svg",
    "image/x-icon": "ico",
    "image/vnd.microsoft.icon": "ico",
    "text/javascript": "js",
    "application/javascript": "js",
    "application/x-javascript": "js",
    "application/vnd.ms-fontobject": "eot",
    "application/font-woff": "woff",
    "application/x-font-ttf": "ttf",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/x-wav": "wav",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
    "video/ogg": "ogv",
    "application/vnd.apple.mpegurl": "m3u8",
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
    "application/vnd.ms-powerpoint": "ppt",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.oasis.opendocument.presentation": "odp",
    "application/epub+zip": "epub",
}
"""Endings of files by content type, for types whose second part is no ending, as that of `image/png` is. Files of
earlier crawls keep their names."""


class Asset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Part of a request that makes it one for an asset."""

    kind: str
    """Kind that the place in the page suggests, one of KINDS."""
    referrer: str
    """URL of the page or style sheet that names the asset. If several do: of the one that was read first."""
    level: int = 1
    """1: the page names the asset; 2: a style sheet of the page does, and so on."""


def read_kinds(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds that a user names, each once and in the order of KINDS. A text may name several, with commas.

    Raises BadInput for an unknown one."""
    names = {name.strip().lower() for text in texts for name in text.split(",")} - {""}
    for name in sorted(names):
        if name not in _ENDINGS and name != ALL:
            raise BadInput(f"there is no kind {name!r:.80}. Write {', '.join(KINDS)} or {ALL}.", option="assets")
    return KINDS if ALL in names else tuple(kind for kind in KINDS if kind in names)


def ending_of_url(url: str) -> str:
    """Return the ending of a URL's path in lower case, without the dot. Empty: it has none."""
    segment = urlsplit(url).path.rpartition("/")[2].partition(";")[0]
    name, dot, ending = segment.rpartition(".")
    return ending.lower() if dot and name else ""


def kind_of_url(url: str) -> str:
    """Return the kind that the ending of a URL suggests. Empty: none."""
    return _KIND_BY_ENDING.get(ending_of_url(url), "")


def _media_type(content_type: str) -> str:
    """Return a content type in lower case, without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def kind_of_type(content_type: str) -> str:
    """Return the kind of a content type. Empty: it is of none."""
    media_type = _media_type(content_type)
    found = _KIND_BY_TYPE.get(media_type)
    if found is not None:
        return found
    return next((kind for beginning, kind in _KIND_BY_BEGINNING if media_type.startswith(beginning)), "")


def kind_of_response(expected: str, content_type: str, url: str) -> str:
    """Return the kind of a response. Empty: it is no asset, for example a page with an error message.

    `expected`: kind that the place in the page suggests. It counts where the content type says nothing, and where the
    type is unknown but the URL has an ending of that kind."""
    media_type = _media_type(content_type)
    if media_type in _UNTYPED:
        return expected
    if media_type in _PAGES:
        return ""
    return kind_of_type(media_type) or (expected if kind_of_url(url) == expected else "")


def file_ending(content_type: str, url: str) -> str:
    """Return the ending for the file of an asset, with its dot. Empty: none is known."""
    media_type = _media_type(content_type)
    ending = ending_of_url(url)
    kind = kind_of_type(media_type)
    if ending and ending in _KIND_BY_ENDING and (not kind or _KIND_BY_ENDING[ending] == kind):
        return f".{ending}"
    if media_type in _UNTYPED:
        return ""
    subtype = media_type.rpartition("/")[2]
    guessed = _TYPE_ENDINGS.get(media_type) or (subtype if subtype in _KIND_BY_ENDING else "")
    return f".{guessed}" if guessed else ""
