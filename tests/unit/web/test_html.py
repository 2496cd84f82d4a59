"""Texts in pages are escaped by the templates, and by nothing else."""

import sys
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from gossamer.web.html import Templates


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Templates:
    """Templates of a package of two."""
    folder = tmp_path / "pages_of_test" / "templates"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "page.html.j2").write_text('<a title="{{ text }}">{{ text|loud }}</a>\n')
    (folder / "plain.txt.j2").write_text("{{ text }}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pages_of_test", raising=False)
    return Templates("pages_of_test", filters={"loud": str.upper})


def test_a_text_is_escaped_for_elements_and_for_attributes(templates: Templates) -> None:
    page = templates.render("page.html.j2", text="<i id=\"x\" lang='y'>&amp;")
    assert page == (
        '<a title="&lt;i id=&#34;x&#34; lang=&#39;y&#39;&gt;&amp;amp;">'
        "&lt;I ID=&#34;X&#34; LANG=&#39;Y&#39;&gt;&amp;AMP;</a>\n"
    )


def test_every_template_escapes_whatever_its_name_ends_with(templates: Templates) -> None:
    assert templates.render("plain.txt.j2", text="<") == "&lt;"
    assert templates.render("plain.txt.j2", text=Markup("<b>")) == "<b>"


def test_a_value_that_is_missing_is_an_error(templates: Templates) -> None:
    with pytest.raises(UndefinedError, match="text"):
        templates.render("plain.txt.j2")
