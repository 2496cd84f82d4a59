"""CSS and XPath selectors of fields."""

import random

import pytest
from lxml import html as lxml_html
from selectolax.lexbor import LexborHTMLParser

from gossamer.errors import BadInput
from gossamer.extract.selectors import MAX_SELECTOR_LENGTH, compile_css, compile_xpath

PAGE = """<html><body><div id=o class=x>own <p>first</p><section><ul class=c><li>1</li><li title=two>2</li></ul>
</section>tail</div><a href="/q?a=1">link</a></body></html>"""


def values(selector: str, page: str = PAGE) -> list[str]:
    root = LexborHTMLParser(page).root
    assert root is not None
    return [" ".join(value.split()) for value in compile_css(selector).values(root)]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("li::text", ["1", "2"]),
        ("li", ["<li>1</li>", '<li title="two">2</li>']),
        ("li::attr(title)", ["two"]),
        ("a::attr( HREF )", ["/q?a=1"]),
        ("div::text", ["own", "", "tail"]),
        ("div ::text", ["own", "first", "1", "2", "tail"]),
        ("ul > ::text", ["1", "2"]),
        ("p::text, li::text", ["first", "1", "2"]),
        ("li, li[title], ul li", ["<li>1</li>", '<li title="two">2</li>']),  # each once, although it matches thrice
        ('a[href="/q?a=1"]::text', ["link"]),
        ('a[href*=","]::text, p::text', ["first"]),
        ("div:has(ul, table)::attr(id)", ["o"]),
        ("div:has(*:is(ul, table))::attr(id)", ["o"]),
        ("li:nth-child(2 of li)::text", ["2"]),
        ("li:not(:first-child)::text", ["2"]),
        ("li:nth-child(2n + 1)::text", ["1"]),
        ("body div ul li::text", ["1", "2"]),
        ("body > div section > ul > li::text", ["1", "2"]),
        ("html body li + li::text", ["2"]),
        ("body section li ~ li::text", ["2"]),
        ("body div li, body div p, html div ul li", ["<p>first</p>", "<li>1</li>", '<li title="two">2</li>']),
        ("body div > li", []),
        ("body ul > ul li", []),
        ("html html body p", []),
        ("body div ::attr(title)", ["two"]),
        ("div:has(> p) li:is(section li)::text", ["1", "2"]),
    ],
)
def test_a_selector_returns_what_it_asks_for(selector: str, found: list[str]) -> None:
    assert [value for value in values(selector) if value] == [value for value in found if value]


@pytest.mark.parametrize(
    "selector", [":is(div) li::text", ":is(div, p) > :is(section) li::text", ":not(p) ul :is(li)::text"]
)
def test_a_function_at_the_beginning_of_a_compound_finds_descendants(selector: str) -> None:
    assert values(selector) == ["1", "2"]


@pytest.mark.parametrize(
    ("selector", "told"),
    [
        ("div:has(:is(ul, table))", ":is(…) at the beginning of a part of :has(…)"),
        ("div:has(:where(ul))", ":where(…)"),
        ("div:has(:not(p))", ":not(…)"),
        ("div:has(p :is(ul))", ":is(…)"),
        ("div:has(p, :IS(ul))", ":is(…)"),
        ("div:not(:has(:not(p)))", ":not(…)"),
        ("div:has(:has(li))", ":has(…)"),
        ("input:enabled", ":enabled"),
        ("input:ENABLED", "not([disabled])"),
        ("option:not(:disabled)", "write [disabled]"),
    ],
)
def test_a_selector_that_lexbor_answers_wrongly_is_refused_by_name(selector: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        compile_css(selector)
    assert told in str(caught.value)
    assert selector in str(caught.value)


@pytest.mark.parametrize(
    ("selector", "told"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("p,", "empty"),
        (",p", "empty"),
        ("p:contains('x')", ":lexbor-contains"),
        ("p:first", "takes the first match"),
        ("p:eq(2)", "takes the first match"),
        ("a[href=/q?a=1]", "quote the value"),
        ("> p", "relative already"),
        (":scope > p", "relative already"),
        ("[a", "lacks a closing ]"),
        ("p:not(.a", "lacks a closing )"),
        ("p)", "nothing opens"),
        ("p::first-line", "only ::text and ::attr(name)"),
        ("p::attr", "only ::text and ::attr(name)"),
        ("p::text b", "must come last"),
        ("p::text, b", "must end with the same"),
        ("p:not(b::text)", "inside brackets"),
        ("p!", "cannot parse"),
        ("\ud800", "cannot parse"),
        (":has(a):has(b):has(c):has(d)", "too long"),
        ("a ~ b ~ c", "more than one ~"),
        ("a:has(b c)", "a descendant inside :has(…)"),
        ("a:has(b ~ c)", "~ inside :has(…)"),
        ("a:not(b c):is(d e)", "more than one space or ~ inside functions"),
        ("p" * (MAX_SELECTOR_LENGTH + 1), "characters"),
    ],
)
def test_a_selector_that_does_not_parse_is_explained(selector: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        compile_css(selector)
    assert told in str(caught.value)


def test_a_dot_selects_the_element_itself() -> None:
    node = LexborHTMLParser(PAGE).css_first("li")
    assert [match.mem_id for match in compile_css(".").select(node)] == [node.mem_id]


def test_css_agrees_with_another_engine_on_random_selectors() -> None:
    """cssselect is the other engine. It has no `:where()`, and some of its releases answer `:not(:has())` wrongly."""
    from cssselect import HTMLTranslator

    drawn = random.Random(20261122)
    pages = [
        f"<html><head><title>x</title></head><body>{_random_element(drawn, 0)}{_random_element(drawn, 0)}</body></html>"
        for _ in range(6)
    ]
    translator = HTMLTranslator()
    compared = 0
    for _ in range(400):
        selector = ", ".join(_random_selector(drawn, 0) for _ in range(drawn.choice((1, 1, 2))))
        try:
            css = compile_css(selector)
        except BadInput:
            continue  # refused, as it may be
        xpath = translator.css_to_xpath(selector)
        for page in pages:
            root = LexborHTMLParser(page).root
            assert root is not None
            found = [match.attributes["id"] for match in css.select(root) if "id" in match.attributes]
            tree = lxml_html.document_fromstring(page)
            expected = [element.get("id") for element in tree.xpath(xpath) if element.get("id")]
            assert found == expected, (selector, page)
            compared += bool(expected)
    assert compared > 250


def _random_element(drawn: random.Random, depth: int) -> str:
    inner = "".join(_random_element(drawn, depth + 1) for _ in range(drawn.randrange(4) if depth < 4 else 0))
    name = drawn.choice(("div", "section", "article"))
    return f"<{name} id=i{drawn.getrandbits(40)} class='{drawn.choice(('c', 'd', 'c d', 'e'))}'>{inner}</{name}>"


def _random_selector(drawn: random.Random, depth: int) -> str:
    parts = [_random_compound(drawn, depth) for _ in range(drawn.choice((1, 1, 2, 3, 4)))]
    return "".join(
        part if at == 0 else drawn.choice((" ", " > ", " + ", " ~ ")) + part for at, part in enumerate(parts)
    )


def _random_compound(drawn: random.Random, depth: int) -> str:
    simple = drawn.choice(("div", "section", "article", ".c", ".d", "*"))
    if depth == 2 or drawn.random() < 0.5:
        return simple
    inner = drawn.choice((".c", ".d", "div", "article.c"))
    pseudo = drawn.choice((":is({})", ":not({})", ":first-child", ":nth-child(2)", ":last-child", ":empty"))
    return drawn.choice((simple, "")) + pseudo.format(inner)


# --- XPath ------------------------------------------------------------------------------------------------------------


def test_xpath_returns_elements_texts_and_numbers() -> None:
    root = lxml_html.document_fromstring(PAGE)
    assert compile_xpath("//li/text()").select(root) == ["1", "2"]
    assert [element.text for element in compile_xpath("//li").select(root)] == ["1", "2"]
    assert compile_xpath("count(//li)").select(root) == ["2"]
    assert compile_xpath("count(//li) > 1").select(root) == ["true"]
    assert compile_xpath("string(//nothing)").select(root) == []


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("//a[", "cannot parse"),
        ("", "cannot parse"),
        ("//x:a", "cannot parse"),
        ("nothing()", "cannot parse"),
        ("re:test('a', 'b')", "cannot parse"),  # its backtracking could stop a worker
        ("//*[//*[//*[//*[//*]]]]", "too long"),
        ("/" * (MAX_SELECTOR_LENGTH + 1), "characters"),
        ("//a\0", "cannot parse"),
    ],
)
def test_an_xpath_that_does_not_parse_is_explained(expression: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        compile_xpath(expression)
    assert told in str(caught.value)


def test_an_xpath_that_fails_on_a_page_finds_nothing() -> None:
    root = lxml_html.document_fromstring(PAGE)
    assert compile_xpath("//li[substring(., 1 div 0)]").select(root) == []


@pytest.mark.parametrize(
    "selector", ["b div div i", "b div div div div i", "b div:not(.x) i", "b div:has(i) i", "b div i ~ i"]
)
def test_nested_elements_take_no_time_that_explodes(selector: str) -> None:
    """lexbor alone takes minutes to days for these."""
    root = LexborHTMLParser("<div>" * 2000 + "<i></i>" * 2000).root
    assert root is not None
    assert compile_css(selector).select(root) == []
    assert len(compile_css(selector.replace("b ", "html ", 1)).select(root)) in (1999, 2000)
