"""Which files a page or style sheet names, of which kind they are, and which responses count as them."""

import time

import pytest

from gossamer.errors import BadInput
from gossamer.extract.assets import MAX_ASSETS, find_assets, find_css_assets
from gossamer.extract.document import HtmlDocument
from gossamer.model.assets import KINDS, file_ending, kind_of_response, kind_of_url, read_kinds
from gossamer.model.messages.reader import schema

PAGE = "http://a.test/dir/page.html"


def found(html: str, kinds: tuple[str, ...] = KINDS, *, page: str = PAGE, encoding: str = "utf-8") -> dict[str, str]:
    assets = find_assets(HtmlDocument(html.encode(encoding), encoding), page, kinds, encoding=encoding)
    return {url.removeprefix("http://a.test/dir/"): kind for url, kind in assets.items()}


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<img src=a.png>", {"a.png": "images"}),
        ("<img data-src=lazy.png>", {"lazy.png": "images"}),
        ("<img src=noending>", {"noending": "images"}),
        ("<img srcset='a.png, b.png 2x,c.png 3x'>", {"a.png": "images", "b.png": "images", "c.png": "images"}),
        ("<img srcset='w_1,h_2.png 1x, d.png'>", {"w_1,h_2.png": "images", "d.png": "images"}),
        ("<picture><source srcset=p.webp></picture>", {"p.webp": "images"}),
        ("<video src=v.mp4 poster=p.jpg></video>", {"v.mp4": "video", "p.jpg": "images"}),
        ("<video><source src=v><track src=t.vtt></video>", {"v": "video", "t.vtt": "video"}),
        ("<audio src=a><source src=b></audio>", {"a": "audio", "b": "audio"}),
        ("<link rel='Stylesheet alternate' href=s>", {"s": "css"}),
        ("<link rel='shortcut icon' href=f.ico>", {"f.ico": "images"}),
        ("<link rel=preload as=font href=f>", {"f": "fonts"}),
        ("<link rel=preload as=fetch href=x.json><link rel=next href=2.html><link rel=canonical href=c>", {}),
        ("<script src=j.mjs></script><script>x</script>", {"j.mjs": "js"}),
        ("<object data=o.pdf></object><embed src=e type=application/pdf>", {"o.pdf": "pdf", "e": "pdf"}),
        ("<iframe src=doc.PDF></iframe><iframe src=frame.html></iframe>", {"doc.PDF": "pdf"}),
        ("<input type=image src=b.gif><input type=text src=c.gif>", {"b.gif": "images"}),
        ("<svg><image href=i.png></svg>", {"i.png": "images"}),
        ("<p style='background:url(&quot;b.png&quot;)'>", {"b.png": "images"}),
        ("<style>@import 'i.css'; a{background:url( b.png )}@font-face{src:url(f.woff2)}</style>",
         {"i.css": "css", "b.png": "images", "f.woff2": "fonts"}),
        ("<body background=b.gif>", {"b.gif": "images"}),
        ("<a href=r.pdf?v=1>r</a><area href=d.docx><a href=full.JPG><a href=s.css><a href=p.html>",
         {"r.pdf?v=1": "pdf", "d.docx": "documents", "full.JPG": "images"}),
        ("<img src='data:image/png;base64,x'><img src='#x'><img src=''><img><img src='http://['>", {}),
        ("<base href=/other/><img src=a.png>", {"http://a.test/other/a.png": "images"}),
        ("<img src=//cdn.test/a.png>", {"http://cdn.test/a.png": "images"}),
        ("<img src=a.png><a href=a.png>", {"a.png": "images"}),
    ],
)  # fmt: skip
def test_a_page_names_its_assets(html: str, expected: dict[str, str]) -> None:
    assert found(html) == expected


def test_only_wanted_kinds_are_found() -> None:
    html = "<img src=a.png><link rel=stylesheet href=s.css><a href=r.pdf>r</a><style>a{background:url(b.png)}</style>"
    assert found(html, ("pdf",)) == {"r.pdf": "pdf"}
    assert found(html, ("css",)) == {"s.css": "css"}


def test_a_query_is_in_the_encoding_of_the_page() -> None:
    assert list(found("<img src='a.png?q=ü'>", encoding="cp1252")) == ["a.png?q=%FC"]


@pytest.mark.parametrize(
    ("css", "expected"),
    [
        ('@import "a.css"; @import url(b.css) screen;', ["a.css", "b.css"]),
        ("a{background:url(x.png)} b{background:URL( 'y.png' )}", ["x.png", "y.png"]),
        ("/* url(no.png) */ a{background:url(x\\.png)} /* open url(no.png)", ["x.png"]),
        ("a{background:url('it\\'s.png')} b{background:url(a\\20 b.png)}", ["it's.png", "a%20b.png"]),
        ('a{background:image-set("/a.png" 1x, url(b.png) 2x, "c.avif" type("image/avif"))} b{content:"d.png"}',
         ["http://a.test/a.png", "b.png", "c.avif"]),
        ("a{background:-webkit-image-set('e.png' 1x; b{content:'f.png'}", ["e.png"]),
        ("a{background:url('last.png", ["last.png"]),
        ("a{background:url(last.png", ["last.png"]),
        ("""a{content:"url(/x.png)"} b{content:'/*'} c{background:url(y.png)} d{content:"*/"}""", ["y.png"]),
        ("a{content:'open\nb{background:url(z.png)}", ["z.png"]),
        ("a{filter:url(#f)} b{background:url()} c{background:url(data:image/png;base64,x)} @import '';", []),
    ],
)  # fmt: skip
def test_a_style_sheet_names_its_assets(css: str, expected: list[str]) -> None:
    base = "http://a.test/css/"
    assert sorted(url.removeprefix(base) for url in find_css_assets(css, f"{base}s.css", KINDS)) == sorted(expected)


@pytest.mark.parametrize(
    "html",
    [
        "<img srcset='" + "," * 400_000 + "'>",
        "<img srcset='" + "a " * 200_000 + "'>",
        "<style>" + "url('" * 100_000 + "</style>",
        "<style>" + "@import " * 100_000 + "</style>",
        "<style>" + "/*" * 200_000 + "</style>",
        "<style>" + "url(\\" * 100_000 + "</style>",
        "<style>@import " + " " * 400_000 + "</style>",
        "<style>" + "image-set('" * 100_000 + "</style>",
        "<style>image-set(" + "(" * 400_000 + "</style>",
        '<style>"' + '\\"' * 400_000 + "\\</style>",
    ],
)
def test_a_hostile_page_takes_no_time_that_explodes(html: str) -> None:
    began = time.process_time()
    found(html)
    assert time.process_time() - began < 3


def test_the_assets_of_a_page_are_limited() -> None:
    assert len(found("".join(f"<img src={number}.png>" for number in range(MAX_ASSETS + 5)))) == MAX_ASSETS


def test_a_style_sheet_with_lone_surrogates_is_read() -> None:
    assert find_css_assets("a{background:url('\ud800.png')}", "http://a.test/s.css", KINDS)


@pytest.mark.parametrize(
    ("expected", "content_type", "url", "kind"),
    [
        ("images", "image/png", "http://a.test/x", "images"),
        ("images", "image/svg+xml; charset=utf-8", "http://a.test/x", "images"),
        ("images", "", "http://a.test/x", "images"),
        ("fonts", "application/octet-stream", "http://a.test/x", "fonts"),
        ("css", "text/plain", "http://a.test/x.css", "css"),
        ("images", "text/html; charset=utf-8", "http://a.test/x.png", ""),
        ("images", "application/json", "http://a.test/x", ""),
        ("images", "text/xml", "http://a.test/x.svg", "images"),
        ("images", "video/mp4", "http://a.test/x.gif", "video"),
        ("documents", "application/vnd.ms-excel", "http://a.test/x", "documents"),
    ],
)
def test_a_response_is_of_the_kind_that_its_type_says(expected: str, content_type: str, url: str, kind: str) -> None:
    assert kind_of_response(expected, content_type, url) == kind


@pytest.mark.parametrize(
    ("content_type", "url", "ending"),
    [
        ("image/jpeg", "http://a.test/x.php", ".jpg"),
        ("image/png", "http://a.test/x", ".png"),
        ("image/jpeg", "http://a.test/x.JPEG?a=.gif", ".jpeg"),
        ("", "http://a.test/x.woff2", ".woff2"),
        ("application/octet-stream", "http://a.test/x", ""),
        ("image/../../etc", "http://a.test/x", ""),
        ("image/png", "http://a.test/x.png;jsessionid=1", ".png"),
    ],
)
def test_a_file_has_the_ending_of_its_url_or_type(content_type: str, url: str, ending: str) -> None:
    assert file_ending(content_type, url) == ending


def test_kinds_are_read_in_any_form_and_order() -> None:
    assert read_kinds(["PDF, images", "css", ""]) == ("images", "css", "pdf")
    assert read_kinds(["pdf,all"]) == KINDS
    assert read_kinds([]) == ()
    with pytest.raises(BadInput, match="no kind 'pictures'"):
        read_kinds(["images,pictures"])


def test_the_schema_of_requests_has_the_kinds() -> None:
    assert schema("crawl")["properties"]["assets"]["items"]["enum"] == [*KINDS, "all"]


def test_an_ending_in_the_host_or_query_is_none() -> None:
    assert (
        kind_of_url("http://a.png/")
        == kind_of_url("http://a.test/x?f=y.png")
        == kind_of_url("http://a.test/.png")
        == ""
    )


@pytest.mark.parametrize("filler", ["<div>" * 20_000, "x" * 2**21, f"<p title='{'x' * 5000}'>"])
def test_assets_of_a_page_that_has_no_whole_tree(filler: str) -> None:
    """It nests too deeply, is longer than what is parsed, or has a huge tag."""
    html = (
        f"<base href=/b/><img src=1.png>{filler}<img title='{'x' * 5000}' src=2.png><video src=3.mp4>"
        "<source src=4.webm></video><picture><source srcset='5.png 2x, 6.png'></picture>"
        "<link rel=stylesheet href=7.css>"
        "<script src=8.js>'<img src=no.png>'</script><iframe src=9.pdf></iframe><a href=10.pdf>x</a><template>"
        "<img src=no.png></template>"
    )
    names = {url.rpartition("/b/")[2]: kind for url, kind in found(html).items()}
    assert names == {
        "1.png": "images", "2.png": "images", "3.mp4": "video", "4.webm": "video", "5.png": "images", "6.png": "images",
        "7.css": "css", "8.js": "js", "9.pdf": "pdf", "10.pdf": "pdf",
    }  # fmt: skip
