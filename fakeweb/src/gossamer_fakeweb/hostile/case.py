"""Building blocks of the hostile hosts. A case is one way to be hostile: a host's name and its answers.

Cases may be added freely, in the module of their kind. A name, once used, is fixed: it is part of the host's name
(`bad-NAME.test`), and tests/hostile lists what a crawler must record there. Names must not end in a number,
which would be taken for the number of a copy.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gossamer.fakeweb.answer import Answer, plain


class Asked(NamedTuple):
    """A request to a hostile host, and the ports of its web."""

    host: str
    path: str
    """Path and query."""
    copy: int
    """Number of the host where a case has many (`bad-NAME-7.test`); 0 also for the host without a number."""
    port: int
    """Port of this web."""
    private_port: int
    """Port in links to private addresses."""

    def base(self, host: str | None = None) -> str:
        """Return `http://host:port` of a hostile host; None: of this one."""
        return f"http://{host or self.host}:{self.port}"


Answering = Callable[[Asked], Answer]
"""Returns the answer to a request. It must depend on nothing else, so that every crawl meets the same web."""


class Case(NamedTuple):
    """One hostile host."""

    about: str
    """Description for people."""
    answer: Answering
    """Answers any path but /robots.txt."""
    robots: Answering | None = None
    """Answers /robots.txt; None: 404."""


Cases = Mapping[str, Case]
"""Cases by name: lower-case letters and single hyphens."""

_NO_ROBOTS = plain("Not found.\n", status=404)


def always(about: str, answer: Answer) -> Case:
    """Return a case that gives one answer to every path."""
    return Case(about, lambda asked: answer)


def page(body: bytes, *headers: tuple[str, str], content_type: str | None = "text/html") -> Answer:
    """Return an answer with this body and these headers. `content_type` None: no Content-Type."""
    typed = (("Content-Type", content_type),) if content_type is not None else ()
    return Answer(headers=(*typed, *headers), body=body)


def links(*urls: str) -> Answer:
    """Return a page with these links, as they are."""
    return page("\n".join(f'<a href="{url}">{number}</a>' for number, url in enumerate(urls)).encode())


def robots_of(case: Case, asked: Asked) -> Answer:
    """Return the answer of a case to /robots.txt."""
    return case.robots(asked) if case.robots else _NO_ROBOTS
