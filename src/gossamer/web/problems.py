"""Form of errors of every HTTP interface: problem+json (RFC 9457).

Fixed, because clients read them: the names of problems, and thereby the titles from which some are derived.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from gossamer.model.json_codec import encode_value

PROBLEM_TYPE_PREFIX = "urn:gossamer:problem:"
"""Beginning of a problem's `type`, before its name. Fixed: programs compare the whole."""
PROBLEM_MEDIA_TYPE = "application/problem+json"
"""Fixed by RFC 9457."""


@dataclass(eq=False)
class Problem(Exception):
    """A request cannot be served. `title` names the kind of problem in a few words, `detail` explains this case."""

    status: int
    title: str
    detail: str = ""
    kind: str = ""
    """Stable name for programs; empty: derived from the title (`Not found` becomes `not-found`). To reword a title,
    pass its old name here."""
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[Mapping[str, str], ...] = ()
    """Invalid fields, each with `field` and `reason`."""

    @classmethod
    def named(cls, status: int, kind: str, detail: str, **more: Any) -> "Problem":
        """Return a problem whose title is derived from its name: `not-found` becomes `Not found`."""
        return cls(status, kind.replace("-", " ").capitalize(), detail, kind, **more)

    def body(self) -> dict[str, Any]:
        """Return the body of the response, as RFC 9457 defines it."""
        kind = self.kind or self.title.lower().replace(" ", "-")
        body: dict[str, Any] = {"type": PROBLEM_TYPE_PREFIX + kind, "title": self.title, "status": self.status}
        if self.detail:
            body["detail"] = self.detail
        if self.errors:
            body["errors"] = list(self.errors)
        return body


def internal_error() -> Problem:
    """Return the problem for a bug in Gossamer. Only the log has the details, because clients must not see them."""
    return Problem(500, "Internal error", "This is a bug in Gossamer. The log of the process has the details.")


def problem_json(problem: Problem) -> Response:
    """Return the response for a problem."""
    content = encode_value(problem.body())
    return Response(content, problem.status, headers=dict(problem.headers), media_type=PROBLEM_MEDIA_TYPE)


Answer = Callable[[Problem, str], Response]
"""Type of a function that returns the response for a problem on a path, in the form that the path's clients know."""


def problem_answer(problem: Problem, _path: str) -> Response:
    """Return the response for a problem, in the same form on every path."""
    return problem_json(problem)
