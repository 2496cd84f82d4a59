"""Form of a schedule: its fields as texts, and the fields of the API that they stand for."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from gossamer.cron import check_zone
from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.service import ApiRefused
from gossamer.errors import BadInput
from gossamer_platform.dashboard.jobs import number_of, pairs_of

RULES: Final = ("cron", "every", "at")
"""Fields of which exactly one is filled in."""
_RULE_NAMES: Final = {"cron": "schedules.rule_cron", "every": "schedules.rule_every", "at": "schedules.rule_at"}
OF_JOBS: Final = ("spider", "version", "arguments", "settings", "priority", "if_running")
"""Fields that only schedules of jobs have."""
_FIELDS: Final = ("time_zone", *RULES, "start", "end", "jitter", "missed", "crawl", *OF_JOBS)
_PAIRS: Final = ("arguments", "settings")
_NUMBERS: Final = ("jitter", "priority")
_TIMES: Final = ("at", "start", "end")
_MINUTE: Final = 60.0


def texts_of(schedule: Mapping[str, Any]) -> dict[str, str]:
    """Return the filled form for a schedule of the API. Times are in its own time zone.

    A start that has passed is left out: it only anchors an interval. Arguments and settings whose values have several
    lines are left out, too, because the form has one line for each."""
    zone = _zone_or_utc(schedule["time_zone"])
    kind, rule = schedule["kind"], schedule["rule"]
    start = datetime.fromisoformat(schedule["start"])
    texts = {name: schedule[name] or "" for name in ("spider", "version", "time_zone", "missed", "if_running")}
    texts |= {name: f"{schedule[name]:.15g}" if schedule[name] else "" for name in _NUMBERS}
    texts["cron"] = rule if kind == "cron" else ""
    texts["every"] = f"{float(rule) / _MINUTE:.15g}" if kind == "every" else ""
    texts["at"] = _local(start, zone) if kind == "once" else ""
    texts["start"] = _local(start, zone) if kind != "once" and start > datetime.now(UTC) else ""
    texts["end"] = _local(datetime.fromisoformat(schedule["end"]), zone) if schedule["end"] else ""
    texts["crawl"] = msgspec.json.format(msgspec.json.encode(schedule["crawl"])).decode() if schedule["crawl"] else ""
    for name in _PAIRS:
        lines = [f"{key}={value}" for key, value in schedule[name].items()]
        if all(_is_line(key, value) for key, value in schedule[name].items()):
            texts[name] = "\n".join(lines)
    return texts


def fields_of(page: DashboardPage) -> dict[str, Any]:
    """Return the fields of a new schedule. Raises ApiRefused for a text that stands for none."""
    zone = _zone_of(page, page.form)
    _check_rule(page, page.form)
    return _given(page, page.form, _FIELDS, zone)


def changes_of(page: DashboardPage, schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a schedule that the form changes. A field whose text is as it was stays as it is, so that
    no time is computed anew without need. Raises ApiRefused for a text that stands for none."""
    form, before = page.form, texts_of(schedule)
    zone = _zone_of(page, form)
    _check_rule(page, form)
    changed = [name for name in before if name in form and _lines(form[name]) != _lines(before[name])]
    if "time_zone" in changed and form.get("at", "").strip() and "at" not in changed:
        changed.append("at")  # the same time of the day elsewhere
    found = {name: _field(page, form, name, zone) for name in changed if name not in RULES or form[name].strip()}
    if schedule["kind"] == "once" and ("cron" in found or "every" in found):
        found.setdefault("start", None)  # it was the only time
    return found


def times_query(page: DashboardPage, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the query for the times that a filled form stands for; empty: it has no rule yet. Raises ApiRefused."""
    if not any(form.get(name, "").strip() for name in RULES):
        return {}
    _check_rule(page, form)
    # An interval is counted from the schedule's start, which the form may not show.
    anchor = {"start": form["anchor"]} if form.get("anchor") and form.get("every", "").strip() else {}
    return anchor | _given(page, form, ("time_zone", *RULES, "start", "end"), _zone_of(page, form))


def _given(page: DashboardPage, form: Mapping[str, str], names: Sequence[str], zone: ZoneInfo) -> dict[str, Any]:
    """Return the values of those fields that are filled in. Raises ApiRefused."""
    return {name: _field(page, form, name, zone) for name in names if form.get(name, "").strip()}


def _check_rule(page: DashboardPage, form: Mapping[str, str]) -> None:
    """Raise ApiRefused unless a form has exactly one rule."""
    given = [page.texts(_RULE_NAMES[name]) for name in RULES if form.get(name, "").strip()]
    if not given:
        raise ApiRefused(400, page.texts("schedules.one_rule"))
    if len(given) > 1:
        raise ApiRefused(400, page.texts("schedules.several_rules", names=", ".join(given)))


def _field(page: DashboardPage, form: Mapping[str, str], name: str, zone: ZoneInfo) -> Any:
    """Return the value that the text of a field stands for. Raises ApiRefused."""
    text = form.get(name, "").strip()
    if name in _PAIRS:
        return pairs_of(page, form, name)
    if name in _NUMBERS:
        return number_of(page, form, name) or 0.0
    if name == "every":
        return round((number_of(page, form, name) or 0.0) * _MINUTE, 6)
    if name in _TIMES:
        return _instant(page, name, text, zone) if text else None
    if name == "crawl":
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ApiRefused(400, page.texts("schedules.no_json", reason=str(error))) from None
    return text or (None if name == "version" else "UTC" if name == "time_zone" else text)


def _zone_of(page: DashboardPage, form: Mapping[str, str]) -> ZoneInfo:
    """Return a form's time zone. Raises ApiRefused if there is none of its name."""
    name = form.get("time_zone", "").strip() or "UTC"
    try:
        check_zone(name)
    except BadInput as error:
        raise ApiRefused(400, page.texts.fault(f"time_zone: {error.detail}", "invalid-request")) from None
    return ZoneInfo(name)


def _zone_or_utc(name: str) -> ZoneInfo:
    """Return a time zone, or UTC if this machine has none of its name."""
    try:
        check_zone(name)
    except BadInput:
        return ZoneInfo("UTC")
    return ZoneInfo(name)


def _instant(page: DashboardPage, name: str, text: str, zone: ZoneInfo) -> str:
    """Return a time of the form in ISO 8601. Raises ApiRefused."""
    try:
        given = datetime.fromisoformat(text)
        return (given if given.tzinfo else given.replace(tzinfo=zone)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        raise ApiRefused(400, page.texts("schedules.no_time", name=name, value=text[:100])) from None


def _local(instant: datetime, zone: ZoneInfo) -> str:
    """Return a time as a browser's field for times has it."""
    return instant.astimezone(zone).replace(tzinfo=None, microsecond=0).isoformat()


def _is_line(key: str, value: str) -> bool:
    """Return whether `pairs_of` reads KEY=VALUE as it is."""
    return len(f"{key}={value}".splitlines()) == 1 and (key.strip(), value.strip()) == (key, value) and "=" not in key


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()
