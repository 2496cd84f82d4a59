"""Domains: how fast each may be fetched, and which are on the blacklist."""

from typing import Any

import msgspec
from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.service import ApiRefused
from gossamer.net.paths import path_of

_FIELDS = ("hits", "window", "scale", "concurrency", "blacklisted")
"""Fields of a policy that the form changes."""


async def show_list(page: DashboardPage) -> Response:
    """Return the list of policies."""
    wanted = page.query.get("domain", "").strip()
    if wanted:
        return page.go("/domain", domain=wanted)
    found = await page.service.get("/v1/domains", cursor=page.query.get("cursor"), limit=50)
    return page.render("domains.html", policies=found["domains"] or {}, cursor=found["cursor"])


async def show(page: DashboardPage, *, fault: str = "") -> Response:
    """Return one domain's policy, with the form that changes it."""
    domain = page.query.get("domain") or page.form.get("domain", "")
    found = await page.service.get(_path(domain))
    return page.render("domain.html", domain=domain, policy=found["policy"], in_force=found["in_force"], fault=fault)


async def change(page: DashboardPage) -> Response:
    """Set the fields of the form, or remove the policy, and show the policy that is in force then."""
    domain = page.form.get("domain", "")
    if page.form.get("remove"):
        await page.service.call("DELETE", _path(domain))
        return page.go("/domain", domain=domain)
    changes: dict[str, Any] = {}
    for name in _FIELDS:
        text = page.form.get(name, "").strip()
        if name == "blacklisted":
            changes[name] = bool(text)
        elif text:
            try:
                changes[name] = msgspec.json.decode(text)
            except msgspec.DecodeError:
                return await show(page, fault=page.texts("form.no_number", name=name, value=text[:100]))
    try:
        await page.service.call("PATCH", _path(domain), body=changes)
    except ApiRefused as error:
        return await show(page, fault=error.detail)
    return page.go("/domain", domain=domain)


def _path(domain: str) -> str:
    return f"/v1/domains/{path_of(domain)}"
