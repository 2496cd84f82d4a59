"""Objects that the endpoints of the platform's API share, and the checks that each of them makes of its client.

An endpoint names the permission that it needs by the type of its parameter: `Reader`, `Runner`, `Deployer` or `Admin`.
A request that may change something has an entry in the audit from then on.
What concerns all projects needs `OperatorReader`, `Operator` or `NodeClient`, which no token for one project gives.
Fixed: that a client of one project gets the same answer for a project it may not see as for one that does not exist.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeVar

from fastapi import Depends, Request

from gossamer.net.credentials import hide_secrets_in
from gossamer.storage.audit import AuditedChange, shown
from gossamer.web.access import SAFE_METHODS
from gossamer.web.audit import RequestAudit, audit_of, operation_action, origin_of
from gossamer_platform.delivery.crawls import CrawlService
from gossamer_platform.manager.chunk_store import ChunkStore
from gossamer_platform.manager.files import JobFiles
from gossamer_platform.manager.nodes import NodeOperations
from gossamer_platform.manager.operations import Manager, NotFound
from gossamer_platform.manager.wakeups import WakeUps
from gossamer_platform.state.tokens import Principal, TokenScope
from gossamer_platform.v1.access import NotPermitted
from gossamer_platform.wire import PREFIX

_SUBJECT: Final = ("project", "version", "spider", "name")
"""Parameters and fields that name what a request changes."""
_ACTIONS: Final = {
    "roll_back": "version.rollback",
    "rotate_secrets": "secret.rotate",
    "renew_secret": "webhook.secret",
    "try_webhook": "webhook.test",
    "send_again": "webhook.again",
}
"""Actions of operations that are not named by a verb and the noun."""
PRINCIPAL: Final = "principal"
"""Name in the state of a request under which its sender is. `RequestGuard` puts it there."""
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    400: {"description": "The request is not valid"},
    401: {"description": "The token or the password is missing or wrong"},
    403: {"description": "The token does not permit it, or the request comes from another site or machine"},
    404: {"description": "It does not exist, or the token is for another project"},
}
"""Responses of every endpoint that is described."""


class _OfProject(Protocol):
    @property
    def project(self) -> str | None: ...


R = TypeVar("R", bound=_OfProject)


class RemoteNodes(NamedTuple):
    """Parts that a manager needs for nodes on other machines."""

    operations: NodeOperations
    wake_ups: WakeUps
    files: ChunkStore
    """Takes the logs and items of their jobs."""


class PlatformContext(NamedTuple):
    """Objects of the server."""

    manager: Manager
    files: JobFiles
    find_principal: Callable[[Request], Awaitable[Principal]]
    """Returns the sender of a request. Raises Unauthorized or NotPermitted."""
    crawl_service: CrawlService = CrawlService("")
    """Crawl service to which schedules submit requests."""
    nodes: RemoteNodes | None = None
    """Parts for nodes on other machines. None: there are no such nodes."""


class Client(NamedTuple):
    """The sender of a request, who has the scope that the endpoint needs."""

    context: PlatformContext
    principal: Principal
    entry: RequestAudit
    """Entry of the request in the audit, which has begun if the request may change something."""

    def require_scope(self, scope: TokenScope) -> None:
        """Raise NotPermitted if the client lacks a scope that only some requests to the endpoint need."""
        if not self.principal.scope.includes(scope):
            raise NotPermitted(
                f"this needs a token with the scope {scope}; {self.principal.name} has {self.principal.scope}"
            )

    def check_project(self, project: str) -> None:
        """Raise NotFound if the client may not see the project, so that it cannot learn which projects exist."""
        if not self.principal.sees(project):
            raise NotFound(f"project '{project}' not found")

    def listed_project(self, project: str) -> str:
        """Return the project whose entries a list has; empty: all. `project`: that of the request; empty: none. Raises
        NotFound."""
        if project:
            self.check_project(project)
        return project or self.principal.project

    def visible(self, row: R | None, name: str) -> R:
        """Return a row that the client may see. Raises NotFound for others, and None, so that it cannot learn which
        exist. `name`: what the row is, with its number."""
        if row is None or not self.principal.sees(row.project):
            raise NotFound(f"{name} not found")
        return row

    def check_settings(self, settings: Iterable[str]) -> None:
        """Raise SettingNotPermitted if the client may not give these settings to a job."""
        self.context.manager.check_settings(settings, self.principal.scope)

    def require_all_projects(self) -> None:
        """Raise NotPermitted if the client's token is for one project."""
        if self.principal.project:
            raise NotPermitted(
                f"this concerns all projects; the token of {self.principal.name} is for {self.principal.project} only"
            )

    def name_change(self, action: str, subject: str) -> None:
        """Name the change in the audit more exactly than was possible before it was made."""
        self.entry.note(action=action, subject=hide_secrets_in(subject))


async def _begin_entry(request: Request, client: Client) -> None:
    """Add the entry of a request that may change something to the audit."""
    route = request.scope["route"]
    if request.method in SAFE_METHODS or route.path.startswith(PREFIX):
        return
    names = [*request.path_params.values(), *(request.query_params.get(name) for name in _SUBJECT)]
    if route.body_field is not None:  # its body was read, and is JSON
        with contextlib.suppress(ValueError, RecursionError):
            body = await request.json()
            names += [body.get(name) for name in _SUBJECT] if isinstance(body, dict) else []
    action = _ACTIONS.get(route.name) or operation_action(route.name)
    subject = " ".join(str(shown(name)) for name in names if name)
    who = client.principal.name
    await client.entry.begin(AuditedChange(actor=who, origin=origin_of(request), action=action, subject=subject))


def _client(scope: TokenScope, *, for_all_projects: bool = False) -> Callable[[Request], Awaitable[Client]]:
    async def check(request: Request) -> Client:
        context: PlatformContext = request.app.state.context
        principal: Principal = getattr(request.state, PRINCIPAL)
        client = Client(context, principal, audit_of(request))
        client.require_scope(scope)
        if for_all_projects:
            client.require_all_projects()
        await _begin_entry(request, client)
        return client

    return check


Reader = Annotated[Client, Depends(_client(TokenScope.READ))]
Runner = Annotated[Client, Depends(_client(TokenScope.RUN))]
Deployer = Annotated[Client, Depends(_client(TokenScope.DEPLOY))]
Admin = Annotated[Client, Depends(_client(TokenScope.ADMIN))]
OperatorReader = Annotated[Client, Depends(_client(TokenScope.READ, for_all_projects=True))]
Operator = Annotated[Client, Depends(_client(TokenScope.ADMIN, for_all_projects=True))]
NodeClient = Annotated[Client, Depends(_client(TokenScope.NODE, for_all_projects=True))]
