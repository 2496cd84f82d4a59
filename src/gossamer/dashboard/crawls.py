"""Crawls: their list, one crawl with its pages and failures, and the form that submits one."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.request_form import command_of, form_fields, requests_of, texts_of
from gossamer.dashboard.service import BUS_SECONDS, ApiCall, ApiRefused, crawl_path
from gossamer.web.mounts import FRAMED_POLICY

_STATES = ("running", "finished", "stopped", "expired", "lost")
_A_PAGE = 50
_RECORDS = 20
_PRIORITIES_SHOWN = 20
_REASONS_SHOWN = 20
"""Reasons of failures, and those of requests that were not fetched. The commonest come first."""
_SEEDS = 100
"""URLs of one form. More make it long to read."""
_UNAVAILABLE = 503
_CLOSED = ("stopped", "expired")
"""States in which a crawl takes no requests: one like it needs a name of its own."""
_CHANGES_SHOWN = 10
_ANY_DEPTH = "wandering"
"""Spider that follows links at any depth, whatever `maxdepth` says."""
_BODY_SHOWN = 20_000
"""Characters of a body that a preview shows."""


async def show_list(page: DashboardPage) -> Response:
    """Return the crawls that fit the filter in the address."""
    query = page.query
    found = await page.service.get(
        "/v1/crawls",
        appid=query.get("appid") or None,
        state=query.get("state") or None,
        text=query.get("text") or None,
        domain=query.get("domain") or None,
        cursor=query.get("cursor"),
        limit=_A_PAGE,
    )
    return page.render(
        "crawls.html",
        crawls=found["items"],
        cursor=found["cursor"],
        remembered=found["remembered"],
        history_error=found["history_error"],
        frontier_error=found["frontier_error"],
        states=_STATES if found["remembered"] else _STATES[:-1],
    )


async def show(page: DashboardPage) -> Response:
    """Return one crawl."""
    appid, crawlid = _names(page, page.query)
    crawl, reasons, pace = await asyncio.gather(
        page.service.get(crawl_path(appid, crawlid)),
        page.service.get(crawl_path(appid, crawlid, "reasons")),
        page.known(page.service.get(crawl_path(appid, crawlid, "pace")), None),
    )
    past: dict[str, Any] = {"rates": [], "ends": []}
    has_no_depth, kept = False, None
    if not page.part:  # read once: it changes slowly
        has_no_depth, kept = await asyncio.gather(_ended_without_depth(page, crawl), _kept(page, appid, crawlid))
        if reasons["remembered"]:
            found = await asyncio.gather(*(_past(page, name) for name in past))
            past = dict(zip(past, found, strict=True))
    total = crawl["total"]
    return page.render(
        "crawl.html",
        crawl=crawl,
        reasons=reasons["items"],
        remembered=reasons["remembered"],
        history_error=reasons["history_error"],
        **past,
        refused=_by_count(crawl.get("refused", {})),
        dropped=_by_count(total["dropped"]),
        retried=_by_count(total["retried"]),
        reasons_shown=_REASONS_SHOWN,
        priorities=_by_priority(crawl["queued_by_priority"]),
        pace=pace,
        has_no_depth=has_no_depth,
        kept=kept,
        retried_now=_count(page.query.get("retried", "")),
    )


async def _kept(page: DashboardPage, appid: str, crawlid: str) -> Mapping[str, Any] | None:
    """Return how up to date a crawl's pages are, with their latest changes, newest first. None: it is not kept up to
    date, or that is not known now."""
    try:
        found = await page.known(page.service.get(crawl_path(appid, crawlid, "freshness")), None)
        if found is None:
            return None
        since = max(0, found["cursor"] - _CHANGES_SHOWN)
        changes = await page.service.get(crawl_path(appid, crawlid, "changes"), since=since, limit=_CHANGES_SHOWN)
    except ApiRefused:
        return None
    return {**found, "changes": changes["items"][::-1]}


async def _ended_without_depth(page: DashboardPage, crawl: Mapping[str, Any]) -> bool:
    """Return whether a crawl has finished that follows no links, as far as the frontier still knows its options."""
    if crawl["state"] != "finished" or not crawl["total"]["fetched"]:
        return False
    try:
        template = await page.service.get(crawl_path(crawl["appid"], crawl["crawlid"], "request"))
    except ApiRefused:
        return False
    request = template["request"]
    is_shallow = request.get("maxdepth") == 0 and request.get("spiderid") != _ANY_DEPTH
    return is_shallow and bool(template["submissions"] == 1)


async def _past(page: DashboardPage, name: str) -> list[Any]:
    """Return the rates or the ends of a crawl. While the history is away, there are none."""
    try:
        found = await page.service.get(crawl_path(*_names(page, page.query), name))
    except ApiRefused as error:
        if error.status != _UNAVAILABLE:
            raise
        return []
    items: list[Any] = found["items"]
    return items


async def show_records(page: DashboardPage) -> Response:
    """Return pages, failures or items of a crawl, those that were published last first."""
    appid, crawlid = _names(page, page.query)
    kind = page.query.get("kind", "pages")
    if kind not in ("pages", "failures", "items"):
        kind = "pages"
    reason = page.query.get("reason", "") if kind == "failures" else ""
    url = page.query.get("url", "") if kind != "items" else ""
    query = {"cursor": page.query.get("cursor"), "reason": reason or None, "url": url or None}
    found, has_failed = await asyncio.gather(
        page.service.call(
            "GET",
            crawl_path(appid, crawlid, kind),
            query={**query, "limit": _RECORDS, "latest_first": True},
            seconds=BUS_SECONDS,
        ),
        _has_failed(page, kind, reason),
    )
    return page.render(
        "records.html",
        appid=appid,
        crawlid=crawlid,
        kind=kind,
        reason=reason,
        url=url,
        has_failed=has_failed,
        records=[_shown(record) for record in found["items"]],
        cursor=found["cursor"] if found["more"] else "",
    )


async def _has_failed(page: DashboardPage, kind: str, reason: str) -> bool:
    """Return whether a crawl has failed requests that can be retried, where its failures are shown: any, or those of a
    reason. While that is not known, it has none."""
    if kind != "failures":
        return False
    crawl = await page.known(page.service.get(crawl_path(*_names(page, page.query))), None)
    return bool(crawl and crawl.get("kept_failed") and (not reason or crawl["total"]["failed"].get(reason)))


async def show_report(page: DashboardPage) -> Response:
    """Return the page that shows the report of a crawl in a frame: it comes at once, and the report when it is made."""
    appid, crawlid = _names(page, page.query)
    return page.render("report.html", appid=appid, crawlid=crawlid)


async def make_report(page: DashboardPage) -> Response:
    """Return the report of a crawl, which is a page of its own; or why there is none, for the frame."""
    appid, crawlid = _names(page, page.query)
    try:
        await page.service.get("/readyz")  # the report itself may take long
    except ApiRefused:
        return _without_report(page, page.texts("crawl.report_away"), 503)
    try:
        answer = await page.service.stream(ApiCall("GET", crawl_path(appid, crawlid, "report")))
    except ApiRefused as error:
        return _without_report(page, page.detail(error), error.status)
    return page.pass_on(answer, "content-security-policy")


def _without_report(page: DashboardPage, detail: str, status: int) -> Response:
    """Return the page in place of a report that cannot be made, for the frame."""
    missing = page.render("report_missing.html", detail=detail, status_code=status)
    missing.headers["Content-Security-Policy"] = FRAMED_POLICY
    return missing


async def explain(page: DashboardPage) -> Response:
    """Return the state of one URL in a crawl."""
    appid, crawlid = _names(page, page.query)
    url, state, fault = page.query.get("url", ""), None, ""
    if url:
        try:
            state = await page.service.get(crawl_path(appid, crawlid, "url"), url=url)
        except ApiRefused as error:
            if error.status != 400:
                raise
            fault = page.detail(error)
    return page.render("why.html", appid=appid, crawlid=crawlid, url=url, state=state, fault=fault)


async def retry(page: DashboardPage) -> Response:
    """Retry failed requests of a crawl: all, those of a reason, or one URL. Then show the crawl."""
    appid, crawlid = _names(page, page.form)
    query = {name: page.form.get(name) or None for name in ("reason", "url")}
    answer = await page.service.call("POST", crawl_path(appid, crawlid, "retry"), query=query)
    return page.go("/crawl", appid=appid, crawlid=crawlid, retried=str(answer["retried"]))


async def stop(page: DashboardPage) -> Response:
    """Stop a crawl, and show it."""
    appid, crawlid = _names(page, page.form)
    await page.service.call("DELETE", crawl_path(appid, crawlid))
    return page.go("/crawl", appid=appid, crawlid=crawlid)


async def show_form(page: DashboardPage, refused: ApiRefused | None = None) -> Response:
    """Return the form for a request: as it was sent, with why it was refused, or filled with names for a new crawl.
    With `like` in the address, it has the options of that crawl."""
    given: Mapping[str, str] = page.form or {**_new_names(), **page.query}
    left_out: list[str] = []
    has_more_seeds = is_renamed = False
    if page.query.get("like") and not page.form:
        given, left_out, has_more_seeds = await _like(page)
        is_renamed = given["crawlid"] != page.query["crawlid"]
    return page.render(
        "crawl_form.html",
        fields=form_fields(),
        given=given,
        has_more_fields=any(given.get(field.name) for field in form_fields() if not field.is_first),
        left_out=left_out,
        has_more_seeds=has_more_seeds,
        is_renamed=is_renamed,
        field_faults=page.field_faults(refused),
        status_code=400 if refused else 200,
        **_equivalents(given),
    )


def _new_names() -> dict[str, str]:
    """Return names for a new crawl, which a person may change."""
    return {"appid": "dashboard", "crawlid": _dated("crawl")}


def _dated(name: str) -> str:
    """Return a name for a new crawl that begins with this one."""
    return f"{name}-{datetime.now(UTC):%m%d-%H%M%S}"


async def _like(page: DashboardPage) -> tuple[dict[str, str], list[str], bool]:
    """Return the filled form for a crawl that exists, the fields that it lacks, and whether there may be more seeds
    than it has. `like` is `again`, to fetch all of it again, or `further`, to follow links one step deeper. Where the
    crawl takes no requests, the form has a new name."""
    appid, crawlid = _names(page, page.query)
    crawl, template, seeds = await asyncio.gather(
        page.service.get(crawl_path(appid, crawlid)),
        page.service.get(crawl_path(appid, crawlid, "request")),
        page.service.get(crawl_path(appid, crawlid, "seeds"), limit=_SEEDS),
    )
    request = {**template["request"], "url": "\n".join(seeds["items"])}
    if page.query.get("like") != "again":
        request["maxdepth"] = request.get("maxdepth", 0) + 1
    elif crawl["state"] not in _CLOSED:
        request["fresh"] = True
    if crawl["state"] in _CLOSED:
        request["crawlid"] = _dated(crawlid)
    empty = [name for name, value in request.items() if value == []]  # the form takes an empty list for none
    return texts_of(request), [*template["left_out"], *empty], seeds["more"]


async def preview(page: DashboardPage) -> Response:
    """Return the command and the JSON that stand for the filled form."""
    return page.render("crawl_form_equivalents.html", **_equivalents(page.form))


async def submit(page: DashboardPage) -> Response:
    """Send the requests of the form, and show their crawl. The first one alone: it may begin a new run, to which the
    others belong."""
    first, *others = requests_of(page.form)
    if len(others) >= _SEEDS:
        return await _refuse_urls(page, page.texts("form.too_many_urls", count=_SEEDS))
    try:
        answer = await page.service.call("POST", "/v1/crawls", body=first)
        batch = await page.service.call("POST", "/v1/crawls", body=others) if others else {"items": []}
    except ApiRefused as error:
        return await show_form(page, error)
    if not answer["added"] and answer["reason"] != "duplicate":
        return await show_form(page, ApiRefused(400, answer["reason"], "any"))
    refused = [
        f"{request['url']}: {page.texts.told(result['reason'])}"
        for request, result in zip(others, batch["items"], strict=True)
        if result["status"] >= 400
    ]
    if refused:
        return await _refuse_urls(page, page.texts("form.some_refused", urls="; ".join(refused)))
    return page.go("/crawl", appid=answer["appid"], crawlid=answer["crawlid"])


async def _refuse_urls(page: DashboardPage, reason: str) -> Response:
    """Return the form with what is wrong with its addresses."""
    return await show_form(page, ApiRefused(400, reason, errors=[("url", reason)]))


def _equivalents(form: Any) -> dict[str, Any]:
    """Return the command and the JSON for a filled form, and whether it asks for no links to be followed."""
    requests = requests_of(form)
    text = msgspec.json.format(msgspec.json.encode(requests if len(requests) > 1 else requests[0]), indent=2).decode()
    has_no_depth = not requests[0].get("maxdepth") and requests[0].get("spiderid") != _ANY_DEPTH
    return {"command": command_of(requests), "json": text, "has_no_depth": has_no_depth}


def _names(page: DashboardPage, given: Mapping[str, str]) -> tuple[str, str]:
    """Return application and crawl of a page's address or form. Raises ApiRefused where one is missing."""
    names = given.get("appid", ""), given.get("crawlid", "")
    if not all(names):
        raise ApiRefused(404, page.texts("problem.no_crawl"))
    return names


def _count(text: str) -> int | None:
    """Return a count in an address; None: there is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _by_priority(counts: Mapping[str, int]) -> list[tuple[int, int]]:
    """Return the highest priorities with their waiting requests, in the order in which they are fetched."""
    return sorted(((int(name), count) for name, count in counts.items() if count), reverse=True)[:_PRIORITIES_SHOWN]


def _by_count(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Return reasons with their counts, the commonest first."""
    return sorted(counts.items(), key=lambda pair: -pair[1])


def _text(value: object) -> str:
    """Return a field of a record as a text; empty: the record has none."""
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def _links(links: object) -> list[dict[str, str]]:
    """Return the links of a record."""
    given = links if isinstance(links, list) else []
    return [{name: _text(one.get(name)) for name in ("url", "text")} for one in given if isinstance(one, dict)]


def _headers(headers: object) -> dict[str, list[str]]:
    """Return the headers of a record: lists of values by name."""
    given = headers if isinstance(headers, dict) else {}
    return {name: list(map(_text, values if isinstance(values, list) else [values])) for name, values in given.items()}


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a record. Its body is a text, never a part of the page. Programs other than Gossamer
    may publish records, too, with fields of any kind."""
    body = str(record.get("body") or "")
    if record.get("item") is not None:
        body = msgspec.json.format(msgspec.json.encode(record["item"]), indent=2).decode()
    return {
        "url": _text(record.get("url")),
        "status": record.get("status_code") or "",
        "reason": record.get("reason", ""),
        "exception": record.get("exception", ""),
        "depth": record.get("depth", ""),
        "timestamp": record.get("timestamp", ""),
        "content_type": _text(record.get("content_type")),
        "links": _links(record.get("links")),
        "body": body[:_BODY_SHOWN],
        "is_cut": len(body) > _BODY_SHOWN,
        "headers": _headers(record.get("response_headers")),
    }
