"""Section about a crawl service: its crawls, domains and workers."""

from typing import Final

from gossamer.dashboard import audit, bus, crawls, domains, overview, workers
from gossamer.dashboard.sections import Connect, DashboardSection, NavigationEntry, OverviewPart, PageRoute
from gossamer.dashboard.visitors import ADMIN, RUN

ROUTES: Final = {
    "/crawls": PageRoute("GET", crawls.show_list),
    "/crawls/new": PageRoute("GET", crawls.show_form, RUN),
    "/crawls/preview": PageRoute("POST", crawls.preview, RUN),
    "/crawls/submit": PageRoute("POST", crawls.submit, RUN),
    "/crawl": PageRoute("GET", crawls.show),
    "/crawl/pages": PageRoute("GET", crawls.show_records),
    "/crawl/report": PageRoute("GET", crawls.show_report),
    "/crawl/report/page": PageRoute("GET", crawls.make_report),
    "/crawl/why": PageRoute("GET", crawls.explain),
    "/crawl/stop": PageRoute("POST", crawls.stop, RUN),
    "/crawl/retry": PageRoute("POST", crawls.retry, RUN),
    "/domains": PageRoute("GET", domains.show_list),
    "/domain": PageRoute("GET", domains.show),
    "/domain/preview": PageRoute("POST", domains.preview, ADMIN),
    "/domain/change": PageRoute("POST", domains.change, ADMIN),
    "/workers": PageRoute("GET", workers.show),
    # Rejected requests are shown whole, with the cookies and passwords of their headers.
    "/bus": PageRoute("GET", bus.show, ADMIN),
    # A message may do whatever the topic permits, also change a policy.
    "/bus/replay": PageRoute("POST", bus.replay, ADMIN),
}
_NAVIGATION: Final = (
    NavigationEntry("/crawls", "nav.crawls", is_for_all=True),
    NavigationEntry("/domains", "nav.domains", is_for_all=True),
    NavigationEntry("/workers", "nav.workers", is_for_all=True),
    NavigationEntry("/bus", "nav.bus", ADMIN, is_for_all=True),
)


def crawl_section(connect: Connect) -> DashboardSection:
    """Return the section about the crawl service whose clients `connect` returns."""
    return DashboardSection(
        name="crawls",
        connect=connect,
        routes=ROUTES,
        navigation=_NAVIGATION,
        overview=OverviewPart("overview_crawls_attention.html", "overview_crawls.html", overview.crawl_values),
        subject_link=audit.crawl_link,
        package="gossamer.dashboard",
        is_for_all=True,
    )
