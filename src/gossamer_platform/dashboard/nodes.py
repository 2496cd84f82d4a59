"""Nodes: the machines that run jobs, and what each has."""

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.net.paths import path_of
from gossamer_platform.dashboard.latest import latest


async def show_list(page: DashboardPage) -> Response:
    """Return a page of nodes, the latest first."""
    nodes, after = await latest(page, "/v1/nodes")
    return page.render("nodes.html", nodes=nodes, after=after)


async def change(page: DashboardPage) -> Response:
    """Drain a node, end that, or forget one that is lost, and show all nodes."""
    path = f"/v1/nodes/{path_of(page.form.get('name', '') or '-')}"
    if page.form.get("action") == "forget":
        await page.platform.call("DELETE", path)
    else:
        await page.platform.call("PATCH", path, body={"draining": page.form.get("action") == "drain"})
    return page.go("/nodes")
