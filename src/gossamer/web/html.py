"""Pages from templates, whose texts are escaped."""

from collections.abc import Callable
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined


class Templates:
    """Templates in the folders `templates` of packages. Their texts are read at once, so that an upgrade under a
    running server does not mix the templates of two versions. A template is compiled when it is first asked for."""

    def __init__(self, *packages: str, filters: dict[str, Callable[..., Any]] | None = None) -> None:
        """`packages`: a template is that of the first package that has one of its name. `filters`: functions for
        texts, by their names in templates."""
        self._texts = {file.name: file.read_text("utf-8") for package in reversed(packages) for file in _files(package)}
        self._filters = filters or {}

    @cached_property
    def _environment(self) -> Environment:
        environment = Environment(
            loader=DictLoader(self._texts),
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


def _files(package: str) -> list[Traversable]:
    return [file for file in (files(package) / "templates").iterdir() if file.is_file()]
