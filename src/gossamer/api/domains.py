"""Endpoints for domain policies: of one domain, the default policy, or all of them at once.

A policy limits the speed of all crawls on a domain, and may blacklist it. The frontier, the cluster's queue of
requests, stores it. Clients read and send the fields, so none may be renamed or removed. Every edit reads, compares
with If-Match, and writes only if nothing has changed since the read: this order keeps concurrent edits from being lost.
docs/reference/openapi.json, which is generated, contains the texts below.
"""

import asyncio
import bisect
import hashlib
import itertools
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from gossamer.api import openapi as describe
from gossamer.api.audit import begin
from gossamer.api.context import ApiContext, Context, check_fields, media_type, parse_json, read_object
from gossamer.api.openapi import Limit, ResponseModel, refusals
from gossamer.api.problems import bad_request
from gossamer.control.domains import (
    DEFAULT_POLICY,
    EDIT_ATTEMPTS,
    dump_policies,
    load_policies,
    merge_policies,
    parse_domain,
    parse_policy,
    policy_fields,
)
from gossamer.errors import PoliciesChanged, RequestRejected
from gossamer.model.crawl import (
    BUILT_IN_POLICY,
    CONCURRENCY_RANGE,
    HITS_RANGE,
    SCALE_RANGE,
    WINDOW_SECONDS_RANGE,
    DomainPolicy,
)
from gossamer.net.paths import path_of
from gossamer.web.audit import operation_action
from gossamer.web.problems import Problem

# Media types that mean YAML. More may be added; clients send those that are here.
YAML = "application/yaml"
_YAML_TYPES = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")

_AUDITED_DOMAINS = 100
"""Domains whose policies an entry of the audit has, of those that one request changes."""
_PAGE_FIELDS = ("version", "cursor")
"""Fields of PolicyPage that are not policies; PUT ignores them, so that an edited answer of GET can be sent back."""

router = APIRouter(prefix="/v1/domains", tags=["domains"])

# Sorted, so that equal policies have equal text and thereby equal ETags.
_encode = msgspec.json.Encoder(order="sorted").encode


class PolicyModel(ResponseModel):
    """A domain policy. Where a field is missing, the default policy applies, and then the built-in one."""

    hits: int | None = Field(None, ge=HITS_RANGE.low, le=HITS_RANGE.high, examples=[10])
    """Most requests in any window"""
    window: float | None = Field(None, ge=WINDOW_SECONDS_RANGE.low, le=WINDOW_SECONDS_RANGE.high, examples=[60])
    """Length of the window in seconds"""
    scale: float | None = Field(None, ge=SCALE_RANGE.low, le=SCALE_RANGE.high)
    """Factor for `hits`; 0 pauses the domain"""
    moderated: bool | None = None
    """Space requests evenly over the window"""
    elastic: bool | None = None
    """Catch up after a stall"""
    scope: str | None = Field(None, examples=["domain"])
    """Requests that share one budget: `domain` (all), `type` (of one spider), `ip` (from one address) or `type+ip`"""
    concurrency: int | None = Field(None, ge=CONCURRENCY_RANGE.low, le=CONCURRENCY_RANGE.high)
    """Concurrent requests"""
    blacklisted: bool | None = None
    """Do not fetch the domain"""
    when_blacklisted: str | None = Field(None, examples=["held"])
    """`held` or `dropped`: treatment of requests while the domain is blacklisted"""


class DomainModel(ResponseModel):
    """A domain's policy, and the policy that results from it and the defaults."""

    domain: str = Field(examples=["example.com"])
    """`*`: the default policy"""
    policy: PolicyModel
    in_force: PolicyModel


class PolicyPage(ResponseModel):
    """All policies, or a page of them."""

    version: int = 0
    """Version of all policies together, as in the ETag. Ignored in requests"""
    default: PolicyModel | None = None
    domains: dict[str, PolicyModel] | None = None
    cursor: str = ""
    """Start of the next page; empty if this is the last one"""


class PoliciesReplaced(ResponseModel):
    """Result of replacing all policies."""

    version: int
    domains: int


_POLICY_BODY = {
    "application/json": {"schema": {"$ref": f"{describe.SCHEMAS}Policy"}, "example": {"hits": 10, "window": 60}}
}
_EXAMPLE_YAML = (
    "default: {hits: 2, window: 1}\ndomains:\n  example.com: {hits: 10, window: 60}\nblacklist: [bad.example]\n"
)
_ETAG = {"ETag": {"description": "Version, for If-Match", "schema": {"type": "string"}}}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": "ETag of the version that was edited. If the resource has changed since, the answer is 412",
}


def _documented_edit(description: str, content: Mapping[str, Mapping[str, Any]] = _POLICY_BODY) -> dict[str, Any]:
    """Describe the body of an edit and its header If-Match, for an endpoint's `openapi_extra`."""
    return {**describe.body(content, description), "parameters": [_IF_MATCH]}


def _with_etag(model: type[ResponseModel], description: str) -> dict[int | str, dict[str, Any]]:
    """Describe a successful response with an ETag, for an endpoint's `responses`."""
    return {200: {"description": description, "model": model, "headers": _ETAG}}


# --- all policies -----------------------------------------------------------------------------------------------------


@router.get(
    "",
    operation_id="list_domains",
    summary="List policies",
    responses={
        200: {
            "description": "A page of policies; with Accept: application/yaml, all policies",
            "model": PolicyPage,
            "headers": _ETAG,
            "content": {YAML: {"schema": {"type": "string"}, "example": _EXAMPLE_YAML}},
        },
        **refusals(400, 503),
    },
)
async def list_domains(
    request: Request,
    cursor: describe.Cursor = "",
    limit: Limit = 1000,
    blacklisted: Annotated[
        bool | None, Query(description="Only domains that are, or are not, on the blacklist")
    ] = None,
) -> Response:
    """The ETag is the version of all policies together. While it stays the same, so do all pages."""
    default, policies, in_order, version = await request.app.state.policies.read()
    if any(kind in request.headers.get("accept", "") for kind in _YAML_TYPES):
        return Response(dump_policies(default, policies), media_type=YAML, headers=_etag(version))
    # The cursor is the last name of the page before; clients store it, so the order of names is fixed.
    wanted = (
        name
        for name in itertools.islice(in_order, bisect.bisect_right(in_order, cursor), None)
        if blacklisted is None or bool(policies[name].blacklisted) is blacklisted
    )
    names = list(itertools.islice(wanted, limit + 1))
    page = names[:limit]
    return _json(
        {
            "version": version,
            "default": policy_fields(default),
            "domains": {name: policy_fields(policies[name]) for name in page},
            "cursor": page[-1] if len(names) > limit else "",
        },
        _etag(version),
    )


@router.put(
    "",
    operation_id="replace_domains",
    summary="Replace all policies",
    openapi_extra=_documented_edit(
        "All policies: YAML in the format of Scrapy Cluster's throttle file with more fields, or JSON in the format of "
        "GET",
        content={
            YAML: {"schema": {"type": "string"}, "example": _EXAMPLE_YAML},
            "application/json": {
                "schema": {"$ref": f"{describe.SCHEMAS}Policies"},
                "example": {
                    "default": {"hits": 2, "window": 1},
                    "domains": {"example.com": {"hits": 10, "window": 60}},
                },
            },
        },
    ),
    responses={
        **_with_etag(PoliciesReplaced, "The change is in force within a second"),
        **refusals(400, 408, 412, 413, 428, 503),
    },
)
async def replace_domains(context: Context, request: Request) -> Response:
    """If-Match must name the version that was edited (`*`: any version), so that concurrent edits are not lost."""
    accepted_tags = _if_match(request)
    if accepted_tags is None:
        raise Problem(428, "Precondition required", "send the header If-Match with the ETag of GET /v1/domains, or *")
    text = await request.body()
    if media_type(request) not in _YAML_TYPES:
        text = _without_page_fields(text)
    # In a thread, because parsing a long text takes seconds.
    default, policies = await asyncio.to_thread(load_policies, text)
    changed = await _changed_policies(request, default, policies)
    await begin(request, "domains.replace", DEFAULT_POLICY, **changed)
    for _ in range(EDIT_ATTEMPTS):
        version = await context.frontier.policies_version()
        if accepted_tags and _tag(version) not in accepted_tags:
            break
        try:
            version = await context.frontier.replace_policies(default, policies, expected_version=version)
        except PoliciesChanged:
            continue  # if the client accepts any version, its edit is repeated on the new one
        return _json({"version": version, "domains": len(policies)}, _etag(version))
    raise PoliciesChanged


async def _changed_policies(
    request: Request, default: DomainPolicy, policies: Mapping[str, DomainPolicy]
) -> dict[str, Any]:
    """Return what new policies change, for the audit: of some domains, with the number of all."""
    old_default, old, _, _ = await request.app.state.policies.read()
    before, after = {DEFAULT_POLICY: old_default, **old}, {DEFAULT_POLICY: default, **policies}
    none = DomainPolicy()
    names = sorted(name for name in before | after if before.get(name, none) != after.get(name, none))
    return {
        "changed": len(names),
        "before": {name: policy_fields(before.get(name, none)) for name in names[:_AUDITED_DOMAINS]},
        "after": {name: policy_fields(after.get(name, none)) for name in names[:_AUDITED_DOMAINS]},
    }


def _without_page_fields(text: bytes) -> bytes:
    """Return the JSON text of all policies without `_PAGE_FIELDS`. Raises Problem for a page that has a next one: to
    replace all policies with it would delete those of the other pages."""
    given = parse_json(text)
    if not isinstance(given, dict):
        raise RequestRejected("the body must be a JSON object")
    if given.get("cursor"):
        raise bad_request("this is one page of the policies; send all of them", where="cursor")
    return _encode({name: part for name, part in given.items() if name not in _PAGE_FIELDS})


# --- one policy -------------------------------------------------------------------------------------------------------

_DOMAIN_PATH = "/{domain:name}"
PathDomain = Annotated[str, Path(description="A registered domain; `*`: the default policy", examples=["example.com"])]


@router.get(
    _DOMAIN_PATH,
    operation_id="show_domain",
    summary="Return a domain's policy",
    responses={
        **_with_etag(DomainModel, "The policy, and the policy that results from it and the defaults"),
        **refusals(400, 503),
    },
)
async def show_domain(context: Context, domain: PathDomain) -> Response:
    """Every domain has a policy. It is empty if nothing was set; then the default policy applies."""
    name = _policy_name(domain)
    return await _show(context, name, await context.frontier.domain_policy(name))


@router.put(
    _DOMAIN_PATH,
    operation_id="set_domain",
    summary="Replace a domain's policy",
    openapi_extra=_documented_edit("The whole policy. Fields that are missing are unset"),
    responses={
        **_with_etag(DomainModel, "The change is in force within a second"),
        **refusals(400, 408, 412, 413, 503),
    },
)
async def set_domain(context: Context, domain: PathDomain, request: Request) -> Response:
    """If-Match is optional."""
    given = await read_object(request)
    check_fields(given, tuple(PolicyModel.model_fields))
    policy = parse_policy(given, where=domain)
    return await _edit(context, request, domain, lambda _: policy)


@router.patch(
    _DOMAIN_PATH,
    operation_id="change_domain",
    summary="Change fields of a domain's policy",
    openapi_extra=_documented_edit(
        "Fields to set; null unsets a field (RFC 7396). `blacklisted` adds the domain to the blacklist or removes it"
    ),
    responses={
        **_with_etag(DomainModel, "The change is in force within a second"),
        **refusals(400, 408, 412, 413, 503),
    },
)
async def change_domain(context: Context, domain: PathDomain, request: Request) -> Response:
    """Two concurrent changes both succeed, unless they change the same field."""
    given = await read_object(request)
    check_fields(given, tuple(PolicyModel.model_fields))
    changes = parse_policy(given, where=domain)
    fields_to_unset = [field for field, value in given.items() if value is None]

    def changed(before: DomainPolicy) -> DomainPolicy:
        fields = policy_fields(merge_policies(before, changes))
        for field in fields_to_unset:
            fields.pop(field, None)
        return parse_policy(fields, where=domain)

    return await _edit(context, request, domain, changed)


@router.delete(
    _DOMAIN_PATH,
    operation_id="remove_domain",
    summary="Remove a domain's policy",
    status_code=204,
    openapi_extra={"parameters": [_IF_MATCH]},
    responses={
        204: {"description": "The policy is removed, and the domain is not on the blacklist"},
        **refusals(400, 412, 503),
    },
)
async def remove_domain(context: Context, domain: PathDomain, request: Request) -> Response:
    """May be repeated."""
    await _edit(context, request, domain, lambda _: DomainPolicy())
    return Response(status_code=204)


async def _edit(
    context: ApiContext, request: Request, domain: str, change: Callable[[DomainPolicy], DomainPolicy]
) -> Response:
    """Replace a policy by what `change` makes of it, and show the result. `change` is called again if another edit
    comes between, so it must do nothing else. Raises PoliciesChanged if If-Match names another version."""
    name = _policy_name(domain)
    accepted_tags = _if_match(request)
    action = operation_action(request.scope["route"].operation_id)
    for _ in range(EDIT_ATTEMPTS):
        before = await context.frontier.domain_policy(name)
        if accepted_tags and _tag(policy_fields(before)) not in accepted_tags:
            break
        after = change(before)
        facts = {"before": policy_fields(before), "after": policy_fields(after)}
        await begin(request, action, path_of(name or DEFAULT_POLICY), **facts)
        try:
            # None removes the policy: an empty one must not stay in the list of policies.
            await context.frontier.set_domain_policy(name, None if after == DomainPolicy() else after, expected=before)
        except PoliciesChanged:
            continue  # another edit came between
        return await _show(context, name, after)
    raise PoliciesChanged


async def _show(context: ApiContext, name: str | None, policy: DomainPolicy) -> Response:
    """Return the response that shows a policy. `name`: the domain; None: the default policy."""
    default = policy if name is None else await context.frontier.domain_policy(None)
    in_force = merge_policies(merge_policies(BUILT_IN_POLICY, default), policy)
    return _json(
        {"domain": name or DEFAULT_POLICY, "policy": policy_fields(policy), "in_force": policy_fields(in_force)},
        _etag(policy_fields(policy)),
    )


def _policy_name(domain: str) -> str | None:
    """Return the domain; None for the default policy. Raises BadInput."""
    return None if domain == DEFAULT_POLICY else parse_domain(domain)


# --- versions ---------------------------------------------------------------------------------------------------------

_TAG_BYTES = 8
"""Length of the digest in an ETag. May be longer; with fewer bytes two policies may have the same ETag, and an edit
would overwrite another one. After a change, clients get 412 once for the ETags that they hold."""


def _tag(state: int | Mapping[str, Any]) -> str:
    """Return the ETag of all policies (their version), or of one policy (its fields)."""
    if isinstance(state, int):
        return f'"{state}"'
    return f'"{hashlib.blake2b(_encode(state), digest_size=_TAG_BYTES).hexdigest()}"'


def _etag(state: int | Mapping[str, Any]) -> dict[str, str]:
    """Return the header with the ETag of `_tag`."""
    return {"ETag": _tag(state)}


def _if_match(request: Request) -> list[str] | None:
    """Return the ETags of If-Match; empty: any version is accepted. None: the header is missing."""
    header = request.headers.get("if-match")
    if header is None:
        return None
    tags = [tag.strip() for tag in header.split(",")]
    return [] if tags == ["*"] else tags


def _json(value: object, headers: dict[str, str]) -> Response:
    return Response(_encode(value), headers=headers, media_type="application/json")
