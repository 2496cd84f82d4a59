"""The encoding that a document declares in its first bytes (HTML standard, "prescan a byte stream")."""

import re

from gossamer.extract.labels import codec_of

PRESCAN_BYTES = 1024
"""Where the standard stops looking."""

_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_XML = re.compile(rb"""\A\s*<\?xml[^>]*?\bencoding\s*=\s*["']([A-Za-z0-9._:-]+)["']""")
_META = re.compile(rb"<meta(?=[\s/])", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    rb"""[\s/]*+([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"'][^\s>]*+)))?+""", re.DOTALL
)
_CHARSET = re.compile(r"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""", re.IGNORECASE)


def declared_codec(body: bytes) -> str | None:
    """The codec of the first usable `<meta charset>`, `<meta http-equiv=content-type>` or XML declaration.

    None: there is none in the first 1,024 bytes. A declaration that can be read without knowing UTF-16 is not UTF-16.
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
    """The label after `charset=` in a Content-Type or in the content of a meta element. None: there is none."""
    match = _CHARSET.search(text)
    return next(filter(None, match.groups()), None) if match else None


def _codec_of_meta(start: bytes, position: int) -> str | None:
    attributes: dict[str, str] = {}
    while (match := _ATTRIBUTE.match(start, position)) is not None:
        name, *values = match.groups()
        value = next((value for value in values if value is not None), b"")
        attributes.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        position = match.end()
    label: str | None = attributes.get("charset")
    if label is None and attributes.get("http-equiv", "").strip().lower() == "content-type":
        label = charset_in(attributes.get("content", ""))
    return codec_of(label) if label else None
