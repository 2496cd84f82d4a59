"""Pages made of pieces that parsers disagree on: a pure function of a random generator.

Pieces may be added. Each `%s` becomes an href that no other piece of the page has.
"""

import random
from typing import Final

_LINKS: Final = (
    "<a href=%s>", '<a href="%s">', "<a href='%s'>", '<area href="%s">', '<base href="/b%s/">',
    "<link rel=next href=%s>",
    '<meta http-equiv=refresh content="0;url=%s">', '<a\thref\n=\n"%s"\n>', '<a/href="%s"/>', "<a data-href=z href=%s>",
    '<a x=">" href=%s>', "<a href=%s href=twice>", '<a href="q?a=1&amp;b=%s&copy=2&copy;&#47;&#x2f;&notit;&lt">',
    '<A HREF="%s" REL="x NoFollow">', '<a href=" %s#part ">', '<a href="//h%s.test/x">', '<a href="../%s?q=1">',
    '<a href="?q=%s">', '<a href="http://u:p@other.test:81/%s">', '<a href="/ä/%s?ö">', '<a href="mailto:%s">',
    '<a href="/f%s.pdf">', '<a title="<a href=no>" href=%s>', "<svg><a xlink:href=x href=%s>", "<svg><a xlink:href=%s>",
    "<iframe src=%s>", '<iframe SRC="%s" title=x></iframe>', "<iframe srcdoc='&lt;a href=%s>' src=>", "<frame src=%s>",
    "<noframes><a href=%s></noframes>", "<noframes><body><p><iframe src=%s></iframe>",
)  # fmt: skip
_OTHERS: Final = (
    "</a>", "<meta name=robots content='noindex, nofollow'>", "<!-- ", "-->", "--!>", "<!-->", "<!--->", "<script>",
    "</script>", '<SCRIPT type="x">', "</script >", "<style>", "</style>", "<textarea>", "</textarea>", "<title>",
    "</title>", "<noscript>", "</noscript>", "<template>", "</template>", "<svg>", "</svg>", "<svg/>", "<math>",
    "</math>", "<mi>", "</mi>", "<foreignObject>", "</foreignObject>", "<desc>", "</desc>", "<g>", "</g>",
    '<path d="x"/>', "<path>", "<p>", "</p>", "<div>", "</div>", "<span>", "</span>", "<table>", "<tr>", "<td>",
    "</table>", "</td>", "<select>", "<option>", "</select>", "<b>", "</b>", "<i>", "<ul>", "<li>", "</li>", "</ul>",
    "<iframe>", "</iframe>", "<xmp>", "</xmp>", "<noframes>", "</noframes>", "<form>", "</form>", "<button>",
    "</button>", '<img src="a>b" alt=x>', '<input value="<a href=no>">', "<h1>", "</h1>", "<body>", "</body>",
    "</html>", "<html>", "<head>", "</head>", "<![CDATA[", "]]>", "<?php >", "<!doctype html>", "</>", "</ x>", "<",
    ">", '"', "'", "=", "/", "&amp;", "&", "text ", "\n", "\r\n", "<a ", "<a href", "href=", "rel=nofollow ", "<br>",
    "<br/>", "<font color=red>", "<font>", "</font>", '<annotation-xml encoding="text/html">', "</annotation-xml>",
    "<caption>", "<col>", "<object>", "</object>", "<embed>", "<image>", "<video>", "<ruby>", "<rt>", "<dl>", "<dd>",
    "<pre>", "<hr>", "<center>", "<label>", "<nobr>", "<title/>", "<script/>", "<style/>", "<!-- <script> ",
)  # fmt: skip
_RARE: Final = (
    "<plaintext>", "<frameset>", "<frameset>", "<frameset><frame src=%s>", "</frameset>", "\0", "<a href=\0%s>",
)  # fmt: skip


COSTLY: Final = b"<p title='" + b"x" * 4200 + b"'>"
"""A tag that makes every page one that is not parsed as a whole."""


def make_page(chance: random.Random) -> bytes:
    """Return a page of up to 14 pieces."""
    pieces = []
    for number in range(chance.randint(1, 14)):
        kind = chance.choices((_LINKS, _OTHERS, _RARE), weights=(30, 69, 1))[0]
        pieces.append(chance.choice(kind).replace("%s", f"u{number}"))
    return "".join(pieces).encode()


def well_formed(chance: random.Random, depth: int = 4) -> str:
    """Return HTML in which every element is closed where it belongs."""
    if depth == 0 or chance.random() < 0.2:
        return chance.choice(("text ", "<br>", "&amp;", "<!-- <a href=no> -->", "<script>'<a href=no>'</script>"))
    inside = "".join(well_formed(chance, depth - 1) for _ in range(chance.randint(1, 4)))
    name = chance.choice(("a", "a", "a", "p", "div", "span", "ul", "svg", "table", "template", "noscript", "button"))
    match name:
        case "a":
            return f'<a href="/{chance.randrange(10**6)}">{chance.choice(("text", "<b>text</b>", "<img src=x>"))}</a>'
        case "p":
            return f"<p>text {chance.choice(('', '<em>x</em>'))}</p>{inside}"
        case "svg":
            return '<svg><title>x</title><g><a href="/in-svg"><path d="M0"/></a></g><style>a > b {}</style></svg>'
        case "table":
            return f"<table><tbody><tr><td>{inside}</td></tr></tbody></table>"
        case "ul":
            return f"<ul><li>{inside}</li></ul>"
        case _:
            return f"<{name}>{inside}</{name}>"
