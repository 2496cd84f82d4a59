"""Texts in HTML are escaped once, by one function."""

from jinja2 import Environment
from markupsafe import Markup

from gossamer.web.html import Html, html_of


def test_a_text_is_escaped_for_elements_and_for_attributes() -> None:
    assert html_of("<a href=\"x\" id='y'>&amp;") == "&lt;a href=&quot;x&quot; id=&#x27;y&#x27;&gt;&amp;amp;"
    assert html_of(5) == "5"
    assert html_of(None) == ""


def test_html_is_not_escaped_again() -> None:
    made = Html("<b>x</b>")
    assert html_of(made) is made
    assert html_of(html_of("<")) == "&lt;"
    assert Environment(autoescape=True).from_string("{{ x }}{{ y }}").render(x=made, y="<") == "<b>x</b>&lt;"
    assert Markup("<i>{}</i>").format(made) == "<i><b>x</b></i>"
