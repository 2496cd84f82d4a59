"""Section of the dashboard about the platform, and what puts it beside an API: in this process, or in another one."""

from typing import Final
from urllib.parse import unquote

from starlette.types import ASGIApp

from gossamer.dashboard.crawl_section import crawl_section
from gossamer.dashboard.sections import Connect, DashboardSection, NavigationEntry, OverviewPart, PageRoute, SubjectLink
from gossamer.dashboard.service import ApiClient, InProcessClient
from gossamer.dashboard.visitors import ADMIN, DEPLOY, RUN, Visitor
from gossamer_platform.dashboard import groups, jobs, nodes, overview, projects, schedules, tokens
from gossamer_platform.dashboard.remote import RemoteApi, RemoteAudit, RemoteClient
from gossamer_platform.manager.operations import Manager

ROUTES: Final = {
    "/jobs": PageRoute("GET", jobs.show_list),
    "/jobs/new": PageRoute("GET", jobs.show_form, RUN),
    "/jobs/create": PageRoute("POST", jobs.create, RUN),
    "/job": PageRoute("GET", jobs.show),
    "/job/log": PageRoute("GET", jobs.show_log),
    "/job/log.txt": PageRoute("GET", jobs.read_log),
    "/job/items": PageRoute("GET", jobs.show_items),
    "/job/export": PageRoute("GET", jobs.export_items),
    "/job/cancel": PageRoute("POST", jobs.cancel, RUN),
    "/job/again": PageRoute("POST", jobs.run_again, RUN),
    "/projects": PageRoute("GET", projects.show_list),
    "/project": PageRoute("GET", projects.show),
    "/project/deploy": PageRoute("POST", projects.deploy, DEPLOY, projects.MAX_UPLOAD),
    "/project/pin": PageRoute("POST", projects.pin, DEPLOY),
    "/project/version/delete": PageRoute("POST", projects.delete_version, DEPLOY),
    "/project/variable": PageRoute("POST", projects.set_variable, DEPLOY),
    "/project/change": PageRoute("POST", projects.change, ADMIN),
    "/schedules": PageRoute("GET", schedules.show_list),
    "/schedules/new": PageRoute("GET", schedules.show_form, RUN),
    "/schedules/create": PageRoute("POST", schedules.create, RUN),
    "/schedules/preview": PageRoute("POST", schedules.preview, RUN),
    "/schedule": PageRoute("GET", schedules.show),
    "/schedule/edit": PageRoute("GET", schedules.show_edit, RUN),
    "/schedule/save": PageRoute("POST", schedules.edit, RUN),
    "/schedule/change": PageRoute("POST", schedules.change, RUN),
    "/groups": PageRoute("GET", groups.show_list),
    "/group": PageRoute("GET", groups.show),
    "/group/cancel": PageRoute("POST", groups.cancel, RUN),
    "/nodes": PageRoute("GET", nodes.show_list),
    "/node/change": PageRoute("POST", nodes.change, ADMIN),
    "/tokens": PageRoute("GET", tokens.show_list, ADMIN),
    "/tokens/make": PageRoute("POST", tokens.make, ADMIN),
    "/tokens/revoke": PageRoute("POST", tokens.revoke, ADMIN),
}
_NAVIGATION: Final = (
    NavigationEntry("/jobs", "nav.jobs"),
    NavigationEntry("/projects", "nav.projects"),
    NavigationEntry("/schedules", "nav.schedules"),
    NavigationEntry("/groups", "nav.groups"),
    NavigationEntry("/nodes", "nav.nodes", is_for_all=True),
    NavigationEntry("/tokens", "nav.tokens", ADMIN),
)


def _subject_link(action: str, subject: str) -> SubjectLink | None:
    (kind, _, verb), first = action.partition("."), subject.split(" ")[0]
    if kind == "crawl":
        return _crawl_link(subject)
    if verb == "delete" and kind not in ("version", "variable"):
        return None
    if kind in ("job", "schedule", "group") and first.isdigit():
        return SubjectLink(f"/{kind}", {"id": first})
    if kind == "project":  # its name may have blanks
        return SubjectLink("/project", {"project": subject.partition(" {")[0]})
    if action == "version.unpin":
        return SubjectLink("/project", {"project": subject})
    return SubjectLink("/project", {"project": subject.rpartition(" ")[0]}) if kind in ("version", "variable") else None


def _crawl_link(path: str) -> SubjectLink | None:
    """Return the page about a change in a crawl service, of which the audit has the path in its API."""
    kind, *names = map(unquote, path.removeprefix("/v1/").split("/"))
    if kind == "crawls" and len(names) >= 2:
        return SubjectLink("/crawl", {"appid": names[0], "crawlid": names[1]})
    return SubjectLink("/domain", {"domain": names[0]}) if kind == "domains" and names else None


def platform_section(connect: Connect) -> DashboardSection:
    """Return the section about the platform whose clients `connect` returns."""
    return DashboardSection(
        name="platform",
        connect=connect,
        routes=ROUTES,
        navigation=_NAVIGATION,
        overview=OverviewPart("overview_platform_attention.html", "overview_platform.html", overview.platform_values),
        subject_link=_subject_link,
        package="gossamer_platform.dashboard",
    )


def own_section(v1: ASGIApp, principal_name: str) -> DashboardSection:
    """Return the section about the API of this process. `principal_name`: name in the state of a request under which
    the API finds its sender."""

    def connect(visitor: Visitor, client: tuple[str, int] | None) -> ApiClient:
        return InProcessClient(v1, client=client, state={principal_name: visitor.principal})

    return platform_section(connect)


def remote_section(url: str, token: str) -> DashboardSection:
    """Return the section about a platform in another process, for the dashboard of a crawl service."""
    api = RemoteApi(url.rstrip("/"), token, what="platform")
    return platform_section(lambda _visitor, _client: RemoteClient(api))


def crawls_section(url: str, token: str, manager: Manager) -> DashboardSection:
    """Return the section about a crawl service in another process, for the dashboard of a manager, whose audit has each
    change."""
    api = RemoteApi(url.rstrip("/"), token, what="crawl service")

    def connect(visitor: Visitor, client: tuple[str, int] | None) -> ApiClient:
        return RemoteClient(api, RemoteAudit(manager.audit, visitor.name, client[0] if client else ""))

    return crawl_section(connect)
