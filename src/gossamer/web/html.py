"""Texts in HTML: they are escaped, unless they are HTML already."""

from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the text for templates, which escape other texts (Jinja, markupsafe)."""
        return self


def html_of(value: object) -> Html:
    """Return a value as HTML, for texts and for attributes in quotation marks. None: an empty text."""
    return value if isinstance(value, Html) else Html(escape("" if value is None else str(value)))
