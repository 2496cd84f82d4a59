"""How fast sites are fetched, live: one domain, the default, or all of it at once."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from gossamer.api import openapi as describe
from gossamer.api.context import ApiContext, Given
from gossamer.api.openapi import Limit, ResponseModel, refusals
from gossamer.api.problems import Problem, bad_request
from gossamer.api.reading import check_known, decoded, media_type, read_object
from gossamer.control.domains import (
    DEFAULT_POLICY,
    dump_policies,
    load_policies,
    merge_policies,
    parse_domain,
    parse_policy,
    policy_fields,
)
from gossamer.errors import PoliciesChanged, RequestRejected
from gossamer.model.crawl import BUILT_IN_POLICY, DomainPolicy

YAML = "application/yaml"
_YAMLS = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")
_ATTEMPTS = 20
_TELLING = ("version", "cursor")
"""Of a page, beside the policies."""

router = APIRouter(prefix="/v1/domains", tags=["domains"])

_encode = msgspec.json.Encoder(order="sorted").encode


class PolicyModel(ResponseModel):
    """What is set; a field that is missing is not set, and the next level's counts: the default, then the built-in."""

    hits: int | None = Field(None, ge=1, le=1_000_000, examples=[10])
    window: float | None = Field(None, ge=0.001, le=604800, examples=[60])
    """Seconds. At most `hits` in any window of this length"""
    scale: float | None = Field(None, ge=0, le=1)
    """Multiplies hits; 0 pauses"""
    moderated: bool | None = None
    """Hits are spaced evenly, too"""
    elastic: bool | None = None
    """After a stall it catches up"""
    scope: str | None = Field(None, examples=["domain"])
    """What shares the budget: `domain`, `type`, `ip` or `type+ip`"""
    concurrency: int | None = Field(None, ge=1, le=10_000)
    """Requests in flight"""
    blacklisted: bool | None = None
    """Not fetched"""
    when_blacklisted: str | None = Field(None, examples=["held"])
    """What becomes of requests while it is blacklisted: `held` or `dropped`"""


class DomainModel(ResponseModel):
    """A domain's policy, and what it comes to."""

    domain: str = Field(examples=["example.com"])
    """`*`: the default"""
    policy: PolicyModel
    in_force: PolicyModel


class PolicyPage(ResponseModel):
    """All policies, or a page of them."""

    version: int = 0
    """Raised by every change of any policy; the ETag. Not heeded where it is sent"""
    default: PolicyModel | None = None
    domains: dict[str, PolicyModel] | None = None
    cursor: str = ""
    """Where the next page begins; empty at the end"""


class PoliciesReplaced(ResponseModel):
    """All policies were put in the place of what there was."""

    version: int
    domains: int


_POLICY_BODY = {
    "application/json": {"schema": {"$ref": f"{describe.SCHEMAS}Policy"}, "example": {"hits": 10, "window": 60}}
}
_EXAMPLE_YAML = (
    "default: {hits: 2, window: 1}\ndomains:\n  example.com: {hits: 10, window: 60}\nblacklist: [bad.example]\n"
)
_ETAG = {"ETag": {"description": "For If-Match", "schema": {"type": "string"}}}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": "The ETag of what was edited: refused with 412 when it was changed since",
}


def _documented(description: str, **content: Any) -> dict[str, Any]:
    return {**describe.body(content.get("content", _POLICY_BODY), description), "parameters": [_IF_MATCH]}


def _with_etag(model: type[ResponseModel], description: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": description, "model": model, "headers": _ETAG}}


# --- all of them ------------------------------------------------------------------------------------------------------


@router.get(
    "",
    operation_id="list_domains",
    summary="All policies",
    responses={
        200: {
            "description": "A page; with Accept: application/yaml all of them",
            "model": PolicyPage,
            "headers": _ETAG,
            "content": {YAML: {"schema": {"type": "string"}, "example": _EXAMPLE_YAML}},
        },
        **refusals(400, 503),
    },
)
async def domains(
    parts: Given,
    request: Request,
    cursor: describe.Cursor = "",
    limit: Limit = 1000,
    blacklisted: Annotated[bool | None, Query(description="Only those that are, or are not, on the blacklist")] = None,
) -> Response:
    """The ETag is the version of all policies: while it stays the same, so do all pages."""
    default, policies, version = await _snapshot(parts)
    if any(kind in request.headers.get("accept", "") for kind in _YAMLS):
        return Response(dump_policies(default, policies), media_type=YAML, headers=_etag(version))
    names = sorted(
        name
        for name, policy in policies.items()
        if name > cursor and (blacklisted is None or bool(policy.blacklisted) is blacklisted)
    )
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
    summary="Put all policies in the place of what there is",
    openapi_extra=_documented(
        "YAML as Scrapy Cluster's file of throttles, ours added, or the same as JSON (what GET answers will do)",
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
    responses={**_with_etag(PoliciesReplaced, "In force within a second"), **refusals(400, 408, 412, 413, 428, 503)},
)
async def replace(parts: Given, request: Request) -> Response:
    """If-Match must name the version that was edited (`*`: whichever it is), so that no two editors lose an update."""
    wanted = _if_match(request)
    if wanted is None:
        raise Problem(428, "Precondition required", "send If-Match with the ETag that GET /v1/domains gave, or *")
    text = await request.body()
    if media_type(request) not in _YAMLS:
        text = _as_policies(text)
    # In a thread: a long text takes the parser seconds.
    default, policies = await asyncio.to_thread(load_policies, text)
    for _ in range(_ATTEMPTS):
        version = await parts.frontier.policies_version()
        if wanted and _tag(version) not in wanted:
            break
        try:
            version = await parts.frontier.replace_policies(default, policies, expected_version=version)
        except PoliciesChanged:
            continue
        return _json({"version": version, "domains": len(policies)}, _etag(version))
    raise PoliciesChanged


async def _snapshot(parts: ApiContext) -> tuple[DomainPolicy, dict[str, DomainPolicy], int]:
    """Policies and the version that they have together."""
    while True:
        version = await parts.frontier.policies_version()
        default, policies = await parts.frontier.domain_policies()
        if version == await parts.frontier.policies_version():
            return default, policies, version


def _as_policies(text: bytes) -> bytes:
    found = decoded(text)
    if not isinstance(found, dict):
        raise RequestRejected("the body must be a JSON object")
    if found.get("cursor"):
        raise bad_request("this is a page of the policies; put all of them", where="cursor")
    return _encode({name: part for name, part in found.items() if name not in _TELLING})


# --- one of them ------------------------------------------------------------------------------------------------------

_ONE = "/{domain:name}"
DomainName = Annotated[str, Path(description="A registered domain; `*`: the default", examples=["example.com"])]


@router.get(
    _ONE,
    operation_id="show_domain",
    summary="One domain's policy",
    responses={**_with_etag(DomainModel, "What is set, and what it comes to"), **refusals(400, 503)},
)
async def domain(parts: Given, domain: DomainName) -> Response:
    """Every domain has one; where nothing is set it is empty, and the default's."""
    name = _checked(domain)
    return await _shown(parts, name, await parts.frontier.domain_policy(name))


@router.put(
    _ONE,
    operation_id="set_domain",
    summary="Set one domain's policy",
    openapi_extra=_documented("The whole policy: what is not in it is not set any more"),
    responses={**_with_etag(DomainModel, "In force within a second"), **refusals(400, 408, 412, 413, 503)},
)
async def put(parts: Given, domain: DomainName, request: Request) -> Response:
    """If-Match is heeded where it is sent."""
    given = await read_object(request)
    check_known(given, tuple(PolicyModel.model_fields))
    policy = parse_policy(given, where=domain)
    return await _edited(parts, request, domain, lambda _: policy)


@router.patch(
    _ONE,
    operation_id="change_domain",
    summary="Change parts of one domain's policy",
    openapi_extra=_documented("Fields to set; null: not set any more (RFC 7396). `blacklisted` is the blacklist"),
    responses={**_with_etag(DomainModel, "In force within a second"), **refusals(400, 408, 412, 413, 503)},
)
async def patch(parts: Given, domain: DomainName, request: Request) -> Response:
    """Two editors at once both get what they asked for, unless they change the same field."""
    given = await read_object(request)
    check_known(given, tuple(PolicyModel.model_fields))
    changes = parse_policy(given, where=domain)
    gone = [field for field, value in given.items() if value is None]

    def changed(before: DomainPolicy) -> DomainPolicy:
        fields = {
            field: value for field, value in policy_fields(merge_policies(before, changes)).items() if field not in gone
        }
        return parse_policy(fields, where=domain)

    return await _edited(parts, request, domain, changed)


@router.delete(
    _ONE,
    operation_id="remove_domain",
    summary="Forget one domain's policy",
    status_code=204,
    openapi_extra={"parameters": [_IF_MATCH]},
    responses={204: {"description": "Nothing is set any more, the blacklist included"}, **refusals(400, 412, 503)},
)
async def delete(parts: Given, domain: DomainName, request: Request) -> Response:
    """May be repeated."""
    await _edited(parts, request, domain, lambda _: DomainPolicy())
    return Response(status_code=204)


async def _edited(
    parts: ApiContext, request: Request, domain: str, change: Callable[[DomainPolicy], DomainPolicy]
) -> Response:
    name = _checked(domain)
    wanted = _if_match(request)
    for _ in range(_ATTEMPTS):
        before = await parts.frontier.domain_policy(name)
        if wanted and _tag(policy_fields(before)) not in wanted:
            break
        after = change(before)
        try:
            await parts.frontier.set_domain_policy(name, None if after == DomainPolicy() else after, expected=before)
        except PoliciesChanged:
            continue
        return await _shown(parts, name, after)
    raise PoliciesChanged


async def _shown(parts: ApiContext, name: str | None, policy: DomainPolicy) -> Response:
    default = policy if name is None else await parts.frontier.domain_policy(None)
    in_force = merge_policies(merge_policies(BUILT_IN_POLICY, default), policy)
    return _json(
        {"domain": name or DEFAULT_POLICY, "policy": policy_fields(policy), "in_force": policy_fields(in_force)},
        _etag(policy_fields(policy)),
    )


def _checked(domain: str) -> str | None:
    return None if domain == DEFAULT_POLICY else parse_domain(domain)


# --- versions ---------------------------------------------------------------------------------------------------------


def _tag(state: int | Mapping[str, Any]) -> str:
    if isinstance(state, int):
        return f'"{state}"'
    return f'"{hashlib.blake2b(_encode(state), digest_size=8).hexdigest()}"'


def _etag(state: int | Mapping[str, Any]) -> dict[str, str]:
    return {"ETag": _tag(state)}


def _if_match(request: Request) -> list[str] | None:
    """The tags that will do; empty: any. None: the header is not there."""
    header = request.headers.get("if-match")
    if header is None:
        return None
    tags = [tag.strip() for tag in header.split(",")]
    return [] if tags == ["*"] else tags


def _json(value: object, headers: dict[str, str]) -> Response:
    return Response(_encode(value), headers=headers, media_type="application/json")
