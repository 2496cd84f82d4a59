"""Bytes to text, whatever the page says of itself."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.compiled import native
from gossamer.extract.encoding import (
    _CODECS,
    charset_in,
    codec_of,
    content_type_of,
    declared_codec,
    decode,
    decode_as,
    is_html,
    is_utf8_as_it_is,
)

RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 20
JAPANESE = "日本語の文章をここに書いておきます。" * 20


@pytest.mark.parametrize(
    ("body", "content_type", "text", "codec"),
    [
        (b"plain", None, "plain", "utf-8"),
        (b"", "text/html", "", "utf-8"),
        ("é".encode(), "text/html", "é", "utf-8"),
        (b"\xe9", "text/html; charset=ISO-8859-1", "é", "cp1252"),
        (b"\x93q\x94", 'text/html; charset="latin1"', "“q”", "cp1252"),
        (b"\xe9", "text/html;Charset = 'windows-1251' ; x", "й", "cp1251"),
        ("中€".encode("gb18030"), "text/html; charset=gb2312", "中€", "gb18030"),
        # A byte-order mark beats the header.
        (codecs.BOM_UTF8 + "é".encode(), "text/html; charset=windows-1251", "é", "utf-8"),
        (codecs.BOM_UTF16_LE + "é".encode("utf-16-le"), "text/html; charset=utf-8", "é", "utf-16-le"),
        (codecs.BOM_UTF16_BE + "é".encode("utf-16-be"), None, "é", "utf-16-be"),
        # The header beats the document.
        (b"<meta charset=koi8-r>\xe9", "text/html; charset=windows-1251", "<meta charset=koi8-r>й", "cp1251"),
        (b"<meta charset=windows-1251>\xe9", "text/html", "<meta charset=windows-1251>й", "cp1251"),
        (b"<meta charset=windows-1251>\xe9", None, "<meta charset=windows-1251>й", "cp1251"),
        # A header that names nothing known is passed over.
        (b"<meta charset=windows-1251>\xe9", "text/html; charset=nonsense", "<meta charset=windows-1251>й", "cp1251"),
        # A declaration that does not fit gives way to UTF-8 where that fits.
        ("日本é".encode(), "text/html; charset=euc-kr", "日本é", "utf-8"),
        # Of several types, the last one counts, with the charset that was named for it.
        (b"\xe9", "text/html; charset=windows-1251, text/html", "й", "cp1251"),
        (b"\xe9", "text/plain; charset=koi8-r, text/html; charset=windows-1251", "й", "cp1251"),
        # What is no type may name a charset, and so may the document.
        (b"\xe9", "charset=windows-1251", "й", "cp1251"),
        (b"<meta charset=windows-1251>\xe9", "html", "<meta charset=windows-1251>й", "cp1251"),
        # Plain text declares nothing inside.
        (b"<meta charset=koi8-r>x", "text/plain", "<meta charset=koi8-r>x", "utf-8"),
    ],
)
def test_what_counts(body: bytes, content_type: str | None, text: str, codec: str) -> None:
    assert decode(body, content_type) == (text, codec, True)


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("Příliš žluťoučký kůň úpěl ďábelské ódy. " * 20, "cp1250"),
        ("Καλημέρα κόσμε, πώς είστε. " * 20, "cp1253"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8_r"),
        (JAPANESE, "cp932"),
        (JAPANESE, "euc_jp"),
    ],
)
def test_undeclared_encodings_are_detected(text: str, codec: str) -> None:
    decoded = decode(b"<p>" + text.encode(codec), "text/html")
    assert decoded.strict_ok
    assert decoded.text == "<p>" + text


GERMAN = "Größere Häuser müssen schön über die Straße gebracht werden. " * 20


@pytest.mark.parametrize("bad", [b"\xe9", b"\xff", b"\xe2\x80", b"\xc3 "])
@pytest.mark.parametrize("text", [GERMAN, RUSSIAN, JAPANESE])
def test_utf8_with_a_fault_stays_utf8(text: str, bad: bytes) -> None:
    body = b"<p>" + text.encode() + bad + b"</p>"
    decoded = decode(body, "text/html")
    assert (decoded.encoding, decoded.strict_ok) == ("utf-8", False)
    assert decoded.text == "<p>" + text + bad.decode("utf-8", "replace") + "</p>"


@pytest.mark.parametrize(
    "text", ["caf\xe9", "Caf\xe9 \xfcber alles, na\xefve fa\xe7ade. " * 30, "\xc3\xa9 \xe9 \xe8 \xfc " * 9]
)
def test_western_text_without_a_declaration_is_windows_1252(text: str) -> None:
    decoded = decode(text.encode("latin-1"), "text/html")
    assert decoded.encoding == "cp1252"
    assert decoded.text == text


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"\xff\xfe\xfd", "text/html; charset=utf-8"),
        (b"abc\x81\xff", "text/html; charset=shift_jis"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\xff", "image/png"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\xff", None),
        (b"%PDF-1.4\xe2\xe3", "application/pdf"),
    ],
)
def test_lies_and_binaries_are_replaced_and_said_so(body: bytes, content_type: str | None) -> None:
    assert not decode(body, content_type).strict_ok


@given(
    st.binary(max_size=300),
    st.one_of(st.none(), st.text(max_size=40), st.sampled_from(sorted(_CODECS)).map("text/html; charset={}".format)),
)
def test_nothing_is_ever_raised(body: bytes, content_type: str | None) -> None:
    decoded = decode(body, content_type)
    assert decoded.strict_ok or "\ufffd" in decoded.text
    is_html(content_type, body)


@given(
    st.binary(max_size=100),
    st.one_of(st.text(max_size=20), st.sampled_from(["rot13", "base64", "idna", "undefined", "zlib"])),
)
def test_any_codec_name_decodes(body: bytes, codec: str) -> None:
    assert isinstance(decode_as(body, codec), str)


def test_every_label_has_a_codec() -> None:
    for label, codec in _CODECS.items():
        assert codecs.lookup(codec)
        assert codec_of(f" {label.upper()}\n") == codec
    assert codec_of("nonsense") is None
    assert codec_of("") is None


@pytest.mark.parametrize(
    ("body", "codec"),
    [
        (b"<meta charset=windows-1251>", "cp1251"),
        (b"<META\nCHARSET = 'windows-1251' />", "cp1251"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">', "cp1251"),
        (b"<meta content='text/html;charset=\"windows-1251\"' http-equiv=content-type>", "cp1251"),
        (b"<meta content='text/html; charset=windows-1251'>", None),
        (b"<!-- <meta charset=koi8-r> --><meta charset=windows-1251>", "cp1251"),
        (b"<meta charset=nonsense><meta charset=windows-1251>", "cp1251"),
        (b"<metal charset=windows-1251>", None),
        (b"<meta charset=utf-16>", "utf-8"),
        (b"<meta charset=>", None),
        (b"<meta", None),
        (b"<?xml version='1.0' encoding='windows-1251'?>", "cp1251"),
        (b" " * 1024 + b"<meta charset=windows-1251>", None),
    ],
)
def test_prescan(body: bytes, codec: str | None) -> None:
    assert declared_codec(body) == codec


@given(st.binary(max_size=200))
def test_prescan_never_raises(body: bytes) -> None:
    declared_codec(b"<meta " + body)


def test_charset_in() -> None:
    assert charset_in("text/html; charset=utf-8; x=y") == "utf-8"
    assert charset_in('text/html; charset="utf-8"') == "utf-8"
    assert charset_in("text/html; charset=") is None
    assert charset_in("text/html") is None


@pytest.mark.parametrize(
    ("content_type", "start", "wanted"),
    [
        ("text/html", b"", True),
        ("TEXT/HTML;charset=x", b"anything", True),
        ("application/xhtml+xml", b"", True),
        ("application/xml", b"<?xml version='1.0'?><html xmlns='x'>", True),
        ("text/xml", b"<urlset>", False),
        (None, b"\xef\xbb\xbf  <!DOCTYPE html>", True),
        ("", b"<!-- x --> <HTML>", True),
        ("", b"<p>", True),
        (None, b"<pre>", False),
        (None, b"%PDF", False),
        (None, b"", False),
        ("text/plain", b"<html>", False),
        ("image/png", b"<html>", False),
        ("text/htmlx", b"<html>", False),
        # What is no media type counts as if it were missing.
        *[
            (no_type, start, start == b"<html>")
            for no_type in (
                "html",
                "utf-8",
                "charset=utf-8",
                "; charset=utf-8",
                "text",
                "text/",
                "/html",
                "text html",
                "*/*",
                "text/html<br>",
                "text/html charset=utf-8",
                "unknown/unknown",
                "application/unknown",
                "*/*, utf-8",
                ",",
            )
            for start in (b"<html>", b"text")
        ],
        # The last of several types counts.
        ("text/plain, text/html", b"", True),
        ('text/html; x="a,b", text/plain', b"<html>", False),
        ("text/html, utf-8", b"", True),
        ("text/html, */*", b"", True),
        ("utf-8, application/pdf", b"<html>", False),
        (" text/html ; charset=utf-8", b"", True),
        ("text/html;", b"", True),
        ("application/vnd.x+xml", b"<?xml version='1.0'?>\n<!DOCTYPE html [<!ENTITY x '>'>]><!-- x --> <x:html>", True),
        ("application/rss+xml", b"<rss><![CDATA[<html>]]>", False),
        ("text/xml", b"<feed><!-- <html> --><x/>", False),
        ("", b"<!-- x -->text", True),
        ("", b" " * 1400 + b"<html>", True),
        ("", b" " * 1500 + b"<html>", False),
    ],
)
def test_is_html(content_type: str | None, start: bytes, wanted: bool) -> None:
    assert is_html(content_type, start) is wanted


@pytest.mark.parametrize("value", ["nosniff", "NoSniff", "nosniff, x"])
def test_a_server_may_forbid_to_judge_by_the_body(value: str) -> None:
    headers = [("x-content-type-options", value)]
    assert not is_html("", b"<html>", headers)
    assert not is_html("html", b"<html>", headers)
    assert is_html("text/html", b"text", headers)
    assert is_html("", b"<html>", [("X-Content-Type-Options", "sniff"), *headers])


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([], ""),
        (["html"], "html"),
        (["text/html;charset=x"], "text/html;charset=x"),
        (["text/plain", "text/html"], "text/html"),
        (["text/html", "utf-8"], "text/html"),
        (["text/html; charset=koi8-r", "text/html"], "text/html; charset=koi8-r"),
        (["text/html; charset=koi8-r", "text/html; charset=utf-8"], "text/html; charset=utf-8"),
        (["text/plain; charset=koi8-r", "text/html"], "text/html"),
        (["html", "utf-8"], "html, utf-8"),
    ],
)
def test_several_lines_of_a_content_type_are_one(lines: list[str], wanted: str) -> None:
    assert content_type_of(lines) == wanted


@pytest.mark.timeout(10)
@pytest.mark.parametrize("start", [b"<!---->", b"<!----> ", b"<?xml?>", b"<!----><?xml ?>"])
def test_a_row_of_comments_is_soon_judged(start: bytes) -> None:
    """A hundred of them can be split into comments in more ways than anybody could try."""
    assert not is_html("", start * 1000)
    assert is_html("", start * 20 + b"<html>")


@pytest.mark.skipif(native is None, reason="gossamer_native is not installed: `make setup` builds it where cargo is")
@pytest.mark.parametrize(
    "content_type", ["", "text/html", "text/html; charset=utf-8", "text/html; charset=latin1", "image/png"]
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"plain",
        "é".encode(),
        b"\xef\xbb\xbfmark",
        b"\xff",
        b"\xc3",
        b"<meta charset=utf-8>\xc3\xa9",
        b"<meta charset=koi8-r>a",
    ],
)
def test_a_body_that_may_stay_bytes_decodes_to_itself(body: bytes, content_type: str) -> None:
    decoded = decode(body, content_type)
    is_same = decoded.strict_ok and decoded.encoding == "utf-8" and decoded.text.encode() == body
    assert is_utf8_as_it_is(body, content_type) == is_same
