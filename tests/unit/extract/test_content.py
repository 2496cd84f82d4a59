"""The main content of a page: tables, code, lists and headings stay whole, in Markdown and as text."""

import re

import pytest

from gossamer.extract.content import extract_content
from gossamer.model.content import ContentError, ContentOptions

MARKDOWN, TEXT = ContentOptions(markdown=True), ContentOptions(text=True)
FILLER = "<p>" + "This sentence makes the page long enough to have a main text. " * 8 + "</p>"


def page(main: str, head: str = "<title>T</title>", attributes: str = "") -> str:
    navigation = "<nav><a href='/'>Home</a> <a href='/x'>Menu</a></nav>"
    body = f"<body>{navigation}<main>{main}{FILLER}</main><footer><p>Imprint and terms</p></footer></body>"
    return f"<!DOCTYPE html><html {attributes}><head>{head}</head>{body}</html>"


def markdown(main: str) -> str:
    content, _ = extract_content(page(main), "http://a.test/docs/page", MARKDOWN)
    assert content.markdown is not None
    return content.markdown.partition("This sentence")[0].strip()


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        ("<h1>Title<a class=headerlink href='#t'>¶</a></h1>", "# Title"),
        ("<h2>Use <code>a_b()</code></h2>", "## Use `a_b()`"),
        ("<p>A <b>bold</b>, an <i>italic</i>, and <code>x*y</code>.</p>", "A **bold**, an *italic*, and `x*y`."),
        (
            "<p>See <a href='../other?a=1#b'>the (other) page</a>.</p>",
            "See [the (other) page](http://a.test/other?a=1#b).",
        ),
        ("<p>One<br>two</p>", "One  \ntwo"),
        ("<ul><li>one<ul><li>inner</li></ul></li><li>two</li></ul>", "- one\n  - inner\n- two"),
        ("<ol><li>first</li><li>second</li></ol>", "1. first\n2. second"),
        ("<blockquote><p>Somebody said this.</p></blockquote>", "> Somebody said this."),
        ("<dl><dt>term</dt><dd>its meaning</dd></dl>", "**term**\n\nits meaning"),
    ],
)
def test_markdown_of(main: str, expected: str) -> None:
    assert markdown(main) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 * 2 * 3 and __init__ and snake_case", r"1 \* 2 \* 3 and \_\_init\_\_ and snake_case"),
        ("# no heading", r"\# no heading"),
        ("1. no list", r"1\. no list"),
        ("- no list", r"\- no list"),
        ("&lt;b&gt; and a &lt; b", r"\<b> and a < b"),
        ("&amp;amp; stays", r"\&amp; stays"),
        ("[a](b) and [c]", r"[a\](b) and [c]"),
        ("a `tick` and C:\\dir\\*", r"a \`tick\` and C:\dir\\\*"),
        ("C:\\<b>dir</b>", r"C:\\**dir**"),
        ("a | b<br>--- | ---", "a | b  \n\\--- | ---"),
    ],
)
def test_what_the_page_wrote_is_not_read_as_markup(text: str, expected: str) -> None:
    assert markdown(f"<p>{text}</p>") == expected


CODE = "def f(x):\n\n    if x:\n        return  '*'   # two  blanks\n\tend"


@pytest.mark.parametrize(
    "html",
    [
        f"<pre>{CODE}</pre>",
        f"<pre><code>{CODE}</code></pre>",
        f'<div class="highlight"><pre><span></span><span class="k">def</span>{CODE.removeprefix("def")}\n</pre></div>',
        '<table class="highlighttable"><tr><td class="linenos"><pre>1\n2\n3</pre></td><td class="code"><pre>'
        + CODE
        + "</pre></td></tr></table>",
        "<pre>" + CODE.replace("\n", "<br>") + "</pre>",
        f"<figure class=highlight><pre>{CODE}</pre></figure>",
        f"<code><pre>{CODE}</pre></code>",
        f"<div><tt><pre>{CODE}</pre></tt></div>",
        f'<div class="code-toolbar"><div><pre>{CODE}</pre></div><div class=toolbar><button>Copy</button></div></div>',
    ],
)
def test_code_is_unchanged(html: str) -> None:
    assert markdown(html) == f"```\n{CODE}\n```"


def test_code_names_its_language_and_its_fence_is_longer_than_those_in_it() -> None:
    assert markdown('<pre><code class="language-md">```\nx\n```</code></pre>') == "````md\n```\nx\n```\n````"
    assert markdown('<div class="highlight-python3 notranslate"><div class="highlight"><pre>x</pre></div></div>') == (
        "```python3\nx\n```"
    )


def test_code_in_a_figure_keeps_its_caption() -> None:
    html = "<figure><figcaption>shop.py</figcaption><pre>x = 1</pre></figure>"
    assert markdown(html) == "shop.py\n\n```\nx = 1\n```"


def test_code_in_a_list_stays_in_its_item() -> None:
    assert markdown("<ul><li><p>Run:</p><pre>a\n\n  b</pre></li></ul>") == "- Run:\n\n  ```\n  a\n\n    b\n  ```"


def test_a_table_is_whole() -> None:
    html = (
        "<table><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr><td>1 | 2</td><td><code>x|y</code></td></tr>"
        "<tr><td>3</td><td><p>one</p><p>two</p></td></tr></tbody></table>"
    )
    assert markdown(html) == "| A | B |\n| --- | --- |\n| 1 \\| 2 | `x\\|y` |\n| 3 | one<br>two |"


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("see <ul><li>one</li><li>two <b>x</b></li></ul> end", "see<br>- one<br>- two **x**<br>end"),
        ("<p>one</p> two <div>three</div> four", "one<br>two<br>three<br>four"),
        ("<ul><li>one<ul><li>two</li></ul>x</li></ul>", "- one<br>- two<br>x"),
        ("<ul><li><p>one</p><p>more</p></li><li>two</li></ul>", "- one<br>more<br>- two"),
        ("<dl><dt>term</dt><dd>meaning</dd></dl>", "term<br>meaning"),
        (r"a\|b", r"a\\\|b"),
        (r"<code>a\|b</code>", r"`a\\|b`"),
    ],
)
def test_no_text_of_a_cell_is_lost(cell: str, expected: str) -> None:
    html = f"<table><tr><th>A</th><th>B</th></tr><tr><td>{cell}</td><td>1</td></tr></table>"
    assert markdown(html) == f"| A | B |\n| --- | --- |\n| {expected} | 1 |"


def test_a_caption_stands_before_its_table() -> None:
    html = "<table><caption>Prices</caption><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>"
    assert markdown(html) == "Prices\n\n| A | B |\n| --- | --- |\n| 1 | 2 |"


def test_a_table_of_a_short_page_is_a_table() -> None:
    rows = "<tr><th rowspan=2>x</th><td>1</td><td>2</td></tr><tr><td colspan=2>3</td></tr>"
    table = f"<table><tr><th>A</th><th>B</th><th>C</th></tr>{rows}</table>"
    content, _ = extract_content(f"<main>{table}</main>", "http://a.test/", MARKDOWN)
    assert content.markdown == "| A | B | C |\n| --- | --- | --- |\n| x | 1 | 2 |\n|  | 3 |  |"
    around = f"<main><table><tr><td><p>Beside it.</p></td><td>{table}</td></tr></table></main>"
    content, _ = extract_content(around, "http://a.test/", MARKDOWN)
    assert content.markdown == "Beside it.\n\n| A | B | C |\n| --- | --- | --- |\n| x | 1 | 2 |\n|  | 3 |  |"


def test_nothing_of_a_page_that_nests_deeply_is_lost() -> None:
    assert markdown("<div>" * 1000 + "<p>In the depth.</p>" + "</div>" * 1000 + "<p>After it.</p>") == (
        "In the depth.\n\nAfter it."
    )
    content, _ = extract_content(page("<div>" * 3000 + "lost" + "</div>" * 3000), "http://a.test/", MARKDOWN)
    assert (content.error, content.markdown) == (ContentError.COMPLEX, None)


@pytest.mark.parametrize("character", ["\x01", "\x0c", "\x1b", "\ufffe", "&#1;", "&#x1F;", "&#0", "&#xfffe;", "\ud800"])
def test_no_character_loses_the_page(character: str) -> None:
    found = markdown(f"<p>one {character} two</p><pre>a {character} b</pre>")
    assert re.fullmatch(r"one\W+two\n\n```\na\W+b\n```", found)


@pytest.mark.parametrize("url", ["", "file:///page.html", "no URL"])
def test_a_page_without_a_valid_url_has_text_without_links(url: str) -> None:
    content, _ = extract_content(page(f"<p>{'Words around ' * 20}<a href='/x'>a link</a>.</p>"), url, MARKDOWN)
    assert content.markdown is not None
    assert " a link." in content.markdown


def test_plain_text_has_no_escapes() -> None:
    content, _ = extract_content(page("<p>Wow!<a href='/x'>[1]</a> C:\\<b>dir</b></p>"), "http://a.test/", TEXT)
    assert content.text is not None
    assert content.text.startswith("Wow![1] C:\\dir\n")


def test_text_has_the_same_words_without_marks() -> None:
    main = f"<h1>Title<a href='#t'>¶</a></h1><p>A <b>bold</b> * star.</p><pre>{CODE}</pre>"
    table = "<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>"
    content, _ = extract_content(page(main + table), "http://a.test/", TEXT)
    assert content.markdown is None
    assert content.text is not None
    assert content.text.startswith(f"Title\n\nA bold * star.\n\n{CODE}\n\nA | B\n1 | 2")
    assert "Menu" not in content.text
    assert "Imprint" not in content.text


FACTS = """<title>The page | The site</title><meta property="og:title" content="The page">
<meta name="author" content="Ann Author"><meta property="article:published_time" content="2026-03-04T10:00:00Z">"""
LINKED = """<title>x</title><script type="application/ld+json">{"@graph": [{"@type": "Article",
"headline": "From JSON-LD", "author": [{"name": "A"}, {"name": "B"}], "datePublished": "2025-01-02"}]}</script>"""


@pytest.mark.parametrize(
    ("head", "attributes", "facts"),
    [
        (FACTS, "lang=en-GB", ("The page", "Ann Author", "2026-03-04", "en-GB")),
        (LINKED, "", ("From JSON-LD", "A; B", "2025-01-02", "")),
        (
            "<title>Only a title</title><meta name=date content='5 March 2024'>",
            "",
            ("Only a title", "", "2024-03-05", ""),
        ),
        ("<meta name=date content='04/03/2026'>", "lang=''", ("", "", "", "")),
        ('<script type="application/ld+json">' + "[" * 5000 + "</script>", "", ("", "", "", "")),
    ],
)
def test_title_author_date_and_language(head: str, attributes: str, facts: tuple[str, ...]) -> None:
    content, _ = extract_content(page("", head, attributes), "http://a.test/", MARKDOWN)
    assert (content.title, content.author, content.date, content.language) == facts


@pytest.mark.parametrize("html", ["", " ", "<!-- x -->", "<html><body></body></html>", "\0\0", "<svg/>"])
def test_a_page_without_text_says_so(html: str) -> None:
    content, chunks = extract_content(html, "http://a.test/", MARKDOWN)
    assert content.error == ContentError.EMPTY
    assert content.markdown is None
    assert chunks is None


SECTIONS = "".join(
    f'<div class="section"><div class="titlepage"><div><h2><a name="s{n}"></a>Section {n}</h2></div></div>{FILLER}'
    f"<pre>code {n}</pre></div>"
    for n in range(3)
)


@pytest.mark.parametrize("frame", ["<main>{}</main>", "<div class=document><div>{}</div></div>", "{}"])
def test_headings_lists_and_code_stay_whatever_the_page_calls_its_main_part(frame: str) -> None:
    navigation = "<div class=menu><ul><li><a href='/a'>Home</a></li><li><a href='/b'>Menu</a></li></ul></div>"
    body = frame.format(f"<h1>Manual</h1>{FILLER}<ul><li>one item of a list</li></ul>{SECTIONS}")
    html = f"<html><head><title>x</title></head><body>{navigation}{body}</body></html>"
    content, _ = extract_content(html, "http://a.test/", MARKDOWN)
    assert content.markdown is not None
    lines = content.markdown.split("\n")
    assert [line for line in lines if line.startswith("#")] == ["# Manual", *(f"## Section {n}" for n in range(3))]
    assert "- one item of a list" in lines
    assert [line for line in lines if line.startswith("code")] == [f"code {n}" for n in range(3)]
    assert "Menu" not in content.markdown


def test_a_short_page_keeps_its_heading() -> None:
    html = "<html><body><div role=main><h1>Short</h1><p>Only this.</p></div></body></html>"
    content, _ = extract_content(html, "http://a.test/", MARKDOWN)
    assert content.markdown == "# Short\n\nOnly this."


def test_sections_in_list_items_are_sections() -> None:
    assert markdown("<ul><li><h2>One</h2><p>First text.</p></li><li><h2>Two</h2><p>Second text.</p></li></ul>") == (
        "## One\n\nFirst text.\n\n## Two\n\nSecond text."
    )


SHORT = (
    "<h1>Title here</h1><p>A paragraph with <b>bold</b> text, long enough to be one.</p><h2>List</h2>"
    "<ul><li>one item</li><li>two items</li></ul><ol><li>first</li></ol><blockquote><p>quoted</p></blockquote>"
    "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
    "<dl><dt>term</dt><dd>meaning</dd></dl><pre>x = 1\n  y</pre>"
)


def short(body: str, options: ContentOptions = MARKDOWN) -> str:
    content, _ = extract_content(f"<html><body>{body}</body></html>", "http://a.test/", options)
    assert content.error == ""
    return content.markdown or content.text or ""


@pytest.mark.parametrize("options", [MARKDOWN, TEXT])
@pytest.mark.parametrize(
    "frame",
    [
        "article", "section", "article section", "main section div", "main article section section", "main center",
        "main span", "main custom-element", "main search", "main hgroup", "main figure", "main details", "main font",
        "main ins", "article header", "div section", "main div custom-element span",
    ],
)  # fmt: skip
def test_a_short_page_keeps_its_structure_whatever_is_around_it(frame: str, options: ContentOptions) -> None:
    names = frame.split()
    framed = "".join(f"<{name}>" for name in names) + SHORT + "".join(f"</{name}>" for name in reversed(names))
    assert short(framed, options) == short(SHORT, options)


def test_parts_of_a_short_page_are_on_lines_of_their_own() -> None:
    parts = "<section>one</section><section>two</section><span>three</span> <x-y>four</x-y><aside>five</aside>"
    assert short(f"<main><article>{parts}<p>six</p></article></main>") == "one\n\ntwo\n\nthree four\n\nsix"


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        ("<a href=/x><h3>Card</h3><p>Its text</p></a>", "### [Card](http://a.test/x)\n\nIts text"),
        ("<a href=/x><div><em><p>deep</p></em></div></a><p>x</p>", "[*deep*](http://a.test/x)\n\nx"),
        ("<em><p>one</p><p>two</p></em>", "*one*\n\n*two*"),
        ("<ul><li><a href=/x><div>item</div></a></li></ul>", "- [item](http://a.test/x)"),
        ("<a href=/x><pre>code</pre><p>text</p></a>", "```\ncode\n```\n\n[text](http://a.test/x)"),
        ("<tt><p>one *</p></tt>", r"one \*"),
        (
            "<table><tr><th>a</th><th>b</th></tr><tr><td><a href=/x><p>1</p><p>2</p></a></td><td>3</td></tr></table>",
            "| a | b |\n| --- | --- |\n| [1](http://a.test/x)<br>2 | 3 |",
        ),
    ],
)
def test_links_and_formatting_around_blocks(main: str, expected: str) -> None:
    assert short(f"<main>{main}<p>The end of it.</p></main>") == f"{expected}\n\nThe end of it."
