"""Pages from templates, whose texts are escaped."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


class Templates:
    """Templates in the folders `templates` of packages. A page is made when it is first asked for, not before."""

    def __init__(self, *packages: str, filters: dict[str, Callable[..., Any]] | None = None) -> None:
        """`packages`: a template is that of the first package that has one of its name. `filters`: functions for
        texts, by their names in templates."""
        self._packages = packages
        self._filters = filters or {}

    @cached_property
    def _environment(self) -> Environment:
        environment = Environment(
            loader=ChoiceLoader([PackageLoader(package) for package in self._packages]),
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

    def render(self, *names: str, **values: Any) -> str:
        """Return the page that a template makes of these values: the first of these names that exists."""
        return self._environment.select_template(names).render(values)
