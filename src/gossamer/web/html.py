"""Pages from templates, whose texts are escaped."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


class Templates:
    """Templates of one package, in its folder `templates`. A page is made when it is first asked for, not before."""

    def __init__(self, package: str, *, filters: dict[str, Callable[..., Any]] | None = None) -> None:
        """`filters`: functions for texts, by their names in templates."""
        self._package = package
        self._filters = filters or {}

    @cached_property
    def _environment(self) -> Environment:
        environment = Environment(
            loader=PackageLoader(self._package),
            extensions=["jinja2.ext.do"],
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            auto_reload=False,
        )
        environment.filters.update(self._filters)
        return environment

    def render(self, name: str, **values: Any) -> str:
        """Return the page that a template makes of these values."""
        return self._environment.get_template(name).render(values)
