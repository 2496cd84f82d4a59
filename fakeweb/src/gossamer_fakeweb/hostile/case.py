"""One way to be hostile: a name that is also a host's, and what is answered there."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gossamer.fakeweb.answer import Answer, plain


class Asked(NamedTuple):
    """A request, and where its web is."""

    host: str
    path: str
    """With the query."""
    copy: int
    """The number of the host where a case has many (`bad-NAME-7.test`); 0: the one without a number."""
    port: int
    """Port of this web."""
    private_port: int
    """Where links to private addresses lead."""

    def base(self, host: str | None = None) -> str:
        """`http://host:port` of a hostile host, this one unless named."""
        return f"http://{host or self.host}:{self.port}"


Answering = Callable[[Asked], Answer]


class Case(NamedTuple):
    """One hostile host."""

    about: str
    """Description for people."""
    answer: Answering
    """To any path but /robots.txt."""
    robots: Answering | None = None
    """To /robots.txt; None: there is none."""


Cases = Mapping[str, Case]
"""By name: letters and single hyphens."""

_NO_ROBOTS = plain("Not found.\n", status=404)


def always(about: str, answer: Answer) -> Case:
    """Return a case that gives one answer to every path."""
    return Case(about, lambda asked: answer)


def page(body: bytes, *headers: tuple[str, str], content_type: str | None = "text/html") -> Answer:
    """A page as bytes."""
    typed = (("Content-Type", content_type),) if content_type is not None else ()
    return Answer(headers=(*typed, *headers), body=body)


def links(*urls: str) -> Answer:
    """A page with these links."""
    return page("\n".join(f'<a href="{url}">{number}</a>' for number, url in enumerate(urls)).encode())


def robots_of(case: Case, asked: Asked) -> Answer:
    """The answer to /robots.txt."""
    return case.robots(asked) if case.robots else _NO_ROBOTS
