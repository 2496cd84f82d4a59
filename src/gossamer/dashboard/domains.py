"""Domains: how fast each may be fetched, how much of that is used, and which are on the blacklist."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.service import ApiRefused
from gossamer.net.paths import path_of

_FIELDS = ("hits", "window", "scale", "concurrency", "blacklisted")
"""Fields of a policy that the form changes."""
_DEFAULT: Final = "*"
"""Name that the API has for the default policy, which counts for all domains without a policy of their own."""
_A_PAGE: Final = 50
_NO_USE: Final[Mapping[str, Any]] = {"items": [], "remembered": False}
_decode_number = msgspec.json.Decoder(int | float).decode


async def show_list(page: DashboardPage) -> Response:
    """Return the list of policies."""
    wanted = page.query.get("domain", "").strip()
    if wanted:
        return page.go("/domain", domain=wanted)
    cursor = page.query.get("cursor")
    found, default = await asyncio.gather(
        page.service.get("/v1/domains", cursor=cursor, limit=_A_PAGE), page.service.get(_path(_DEFAULT))
    )
    return page.render(
        "domains.html",
        policies=found["domains"] or {},
        default=None if cursor else default["in_force"],
        cursor=found["cursor"],
    )


async def show(page: DashboardPage, refused: ApiRefused | None = None) -> Response:
    """Return one domain: its policy with the form that changes it, what is used of its limits, its robots.txt. Of the
    default policy, there is only the form. `refused`: why a change was."""
    domain = page.query.get("domain") or page.form.get("domain", "")
    is_default = domain == _DEFAULT
    found, used = await asyncio.gather(
        page.service.get(_path(domain)), _no_use() if is_default else _used(page, domain)
    )
    return page.render(
        "domain.html",
        domain=domain,
        title=page.texts("domains.all_others") if is_default else domain,
        is_default=is_default,
        policy=found["policy"],
        in_force=found["in_force"],
        after=found["in_force"],
        changed=frozenset(),
        field_faults=page.field_faults(refused),
        fault="",
        **used,
    )


async def _no_use() -> dict[str, Any]:
    return {"load": None}


async def _used(page: DashboardPage, domain: str) -> dict[str, Any]:
    """Return what a page shows of the use of a domain's limits."""
    load = await page.service.get(_path(domain, "load"))
    uses = _NO_USE if page.part else await page.known(page.service.get(_path(domain, "use")), _NO_USE)
    return {
        "load": load,
        "narrowest": min(load["limits"], key=_hits_a_second),
        "uses": [{"at": each["at"], "used": each["used"], "allowed": each["hits"]} for each in uses["items"]],
        "remembered": uses["remembered"],
    }


def _hits_a_second(limit: Mapping[str, Any]) -> float:
    """Return how many requests a limit allows; one without a window allows none."""
    return float(limit["hits"] / limit["window"]) if limit["window"] else 0.0


async def preview(page: DashboardPage) -> Response:
    """Return the policy that is in force now, and the one that the filled form would make of it."""
    found = await page.service.get(_path(page.form.get("domain", "")))
    before, fault, changes = found["in_force"], "", {}
    try:
        changes = _changes(page)
    except ApiRefused as error:
        fault = page.detail(error)
    after = {**before, **changes}
    changed = frozenset(name for name in changes if before.get(name) != after[name] and (after[name] or name in before))
    return page.render("domain_preview.html", in_force=before, after=after, changed=changed, fault=fault)


async def change(page: DashboardPage) -> Response:
    """Set the fields of the form, or remove the policy, and show the policy that is in force then."""
    domain = page.form.get("domain", "")
    if page.form.get("remove"):
        await page.service.call("DELETE", _path(domain))
        return page.go("/domain", domain=domain, changed="yes")
    try:
        await page.service.call("PATCH", _path(domain), body=_changes(page))
    except ApiRefused as error:
        return await show(page, error)
    return page.go("/domain", domain=domain, changed="yes")


def _changes(page: DashboardPage) -> dict[str, Any]:
    """Return the fields of a policy that a form sets. Raises ApiRefused for one that is no number."""
    changes: dict[str, Any] = {}
    for name in _FIELDS:
        text = page.form.get(name, "").strip()
        if name == "blacklisted":
            # One that is as it was stays unset: the default policy decides about it.
            if bool(text) != bool(page.form.get("was_blacklisted")):
                changes[name] = bool(text)
        elif text:
            try:
                changes[name] = _decode_number(text)
            except msgspec.DecodeError:
                raise ApiRefused(400, page.texts("form.no_number", name=name, value=text[:100])) from None
    return changes


def _path(domain: str, *rest: str) -> str:
    return f"/v1/domains/{path_of(domain, *rest)}"
