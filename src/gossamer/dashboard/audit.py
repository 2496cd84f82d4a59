"""The audit: who changed what, in every API that the dashboard asks, in one list, the latest change first."""

import asyncio
import heapq
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.sections import DashboardSection, SubjectLink
from gossamer.dashboard.service import ApiRefused

_A_PAGE: Final = 100
_CHOSEN: Final = ("actor", "action", "subject")
"""Parameters of the page, and of each API, that choose entries."""


class ShownEntry(msgspec.Struct, frozen=True):
    """An entry as the page shows it."""

    section: str
    """Name of the section whose API has it."""
    id: int
    at: float
    facts: Mapping[str, Any]
    """The entry as the API returns it."""
    details: Mapping[str, str]
    link: SubjectLink | None


async def show(page: DashboardPage) -> Response:
    """Return a page of the audit."""
    sections = page.site.sections
    answers = await asyncio.gather(*(_entries(page, section) for section in sections))
    faults = {section.name: fault for section, (_, fault) in zip(sections, answers, strict=True) if fault}
    entries = list(heapq.merge(*(found for found, _ in answers), key=lambda entry: -entry.at))
    shown = entries[:_A_PAGE]
    ends = {entry.section: str(entry.id) for entry in shown}  # of each section the last one
    return page.render(
        "audit.html",
        entries=shown,
        faults=faults,
        has_sections=len(sections) > 1,
        unknown=[name for name in page.query if name not in {*_CHOSEN, "part", *(each.name for each in sections)}],
        chosen=_CHOSEN,
        is_chosen=any(page.query.get(name) for name in _CHOSEN),
        more=page.address(**ends) if len(entries) > len(shown) else "",
    )


async def _entries(page: DashboardPage, section: DashboardSection) -> tuple[list[ShownEntry], str]:
    """Return the next entries of a section; or none, and why its API cannot be asked."""
    position = page.query.get(section.name)
    chosen = {name: page.query.get(name) or None for name in _CHOSEN}
    try:
        # One API calls the position `cursor`, the other one `after`; each ignores the other name.
        found = await page.clients[section.name].get(
            "/v1/audit", cursor=position, after=position, limit=_A_PAGE + 1, **chosen
        )
    except ApiRefused as error:
        return [], page.detail(error)
    return [_entry(section, facts) for facts in (found["items"] if isinstance(found, dict) else found)], ""


def _entry(section: DashboardSection, facts: Mapping[str, Any]) -> ShownEntry:
    at, status = facts["at"], facts.get("status", 200) or 0  # 0: no outcome is known
    return ShownEntry(
        section=section.name,
        id=facts["id"],
        at=datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at,
        facts=facts,
        details={name: _text(value) for name, value in facts.get("details", {}).items()},
        link=section.subject_link(facts["action"], facts["subject"]) if 200 <= status < 300 else None,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def crawl_link(action: str, subject: str) -> SubjectLink | None:
    """Return the page about what a change of the crawl service was about. None: there is none."""
    kind, _, _ = action.partition(".")
    names: Sequence[str] = [unquote(name) for name in subject.split("/")]
    if kind in ("crawl", "changes") and len(names) == 2 and " " not in subject:
        return SubjectLink("/crawl", {"appid": names[0], "crawlid": names[1]})
    if kind in ("domain", "blacklist"):
        return SubjectLink("/domain", {"domain": unquote(subject)})
    return SubjectLink("/bus") if kind == "dead_letter" else None
