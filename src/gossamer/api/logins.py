"""Endpoints for the logins that crawl requests name. Secrets are written, and never shown.

Fixed: paths and fields, which clients send and read; those of a request are the fields of a session file.
"""

import os
import time
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from gossamer.api import openapi as describe
from gossamer.api.audit import begin
from gossamer.api.context import ApiContext, Context, read_object
from gossamer.api.openapi import ResponseModel, refusals
from gossamer.api.problems import not_found
from gossamer.control.logins import (
    LOGIN_DAYS,
    MOST_LOGIN_DAYS,
    LoginState,
    check_stored,
    login_fields,
    login_states,
    stored_login,
)
from gossamer.errors import BadInput
from gossamer.net.paths import path_of

router = APIRouter(prefix="/v1/logins", tags=["logins"])

_LOGIN_PATH = "/{login:name}"
PathLogin = Annotated[str, Path(description="Name of the login, as requests have it", examples=["shop"])]


class LoginModel(ResponseModel):
    """A login, without its secrets."""

    name: str = Field(examples=["shop"])
    site: str = Field(examples=["example.com"])
    """Registered domain"""
    accounts: list[str]
    """Names of the accounts"""
    budget: str = Field(examples=["site"])
    """`site` or `account`: what has the rate of the site for itself"""
    expires: float
    """Epoch seconds at which the login and its secrets are forgotten"""
    failed: dict[str, str]
    """Accounts that no worker uses because the login has failed, with the reason"""


class LoginList(ResponseModel):
    """All logins, by name."""

    items: list[LoginModel]


class LoginRetried(ResponseModel):
    """Result of a retry."""

    name: str
    retried: bool
    """True: an account had failed"""


_BODY = {
    "application/json": {
        "schema": {"type": "object", "required": ["accounts"]},
        "example": {
            "accounts": {"alice": {"user": "alice@example.com", "password": "wonderland"}},
            "login": {"form": "https://shop.example.com/login", "fields": {"email": "user", "pass": "password"}},
        },
    }
}


@router.get(
    "",
    operation_id="list_logins",
    summary="List logins",
    response_model=LoginList,
    responses=refusals(503),
)
async def list_logins(context: Context) -> LoginList:
    """Secrets are not shown."""
    return LoginList(items=[LoginModel(**login_fields(state)) for state in await login_states(context.frontier)])


@router.put(
    _LOGIN_PATH,
    operation_id="put_login",
    summary="Store a login",
    openapi_extra=describe.body(
        _BODY,
        "The fields of a session file, with the secrets themselves in place of `env` and `file`, and the text of a "
        "file of cookies in place of its name",
    ),
    responses={
        200: {"description": "Workers use it within seconds", "model": LoginModel},
        **refusals(400, 408, 413, 503),
    },
)
async def put_login(
    context: Context,
    login: PathLogin,
    request: Request,
    days: Annotated[
        int, Query(description="Days until the login and its secrets are forgotten", ge=1, le=MOST_LOGIN_DAYS)
    ] = LOGIN_DAYS,
) -> LoginModel:
    """Replaces one of the same name, which begins anew: without cookies, and with all accounts. It is encrypted with
    the key in GOSSAMER_SECRET_KEYS or GOSSAMER_SECRET_KEYS_FILE of the service, which the workers need, too."""
    from gossamer.session.session_file import login_of_request  # imported late: few services have logins

    now = time.time()
    found = login_of_request(await read_object(request), now=now)
    stored = stored_login(login, found, os.environ, now=now, days=days)
    # Not the body: it has the secrets.
    await begin(request, "login.put", path_of(login), site=stored.site, accounts=list(stored.accounts), days=days)
    await context.frontier.logins.put(login, stored)
    return LoginModel(**login_fields(LoginState(login, stored, {})))


@router.post(
    f"{_LOGIN_PATH}/retry",
    operation_id="retry_login",
    summary="Use the accounts of a login that have failed again",
    response_model=LoginRetried,
    responses=refusals(404, 503),
)
async def retry_login(context: Context, login: PathLogin) -> LoginRetried:
    """For a fault of the site. Store the login again to correct a password."""
    await _check_stored(context, login)
    return LoginRetried(name=login, retried=await context.frontier.logins.retry(login))


@router.delete(
    _LOGIN_PATH,
    operation_id="delete_login",
    summary="Delete a login with its secrets",
    status_code=204,
    responses={204: {"description": "Workers send nothing more by it within seconds"}, **refusals(404, 503)},
)
async def delete_login(context: Context, login: PathLogin) -> Response:
    """Its crawls wait until a login of this name is stored again."""
    await _check_stored(context, login)
    await context.frontier.logins.delete(login)
    return Response(status_code=204)


async def _check_stored(context: ApiContext, name: str) -> None:
    """Raise Problem for a login that is not stored."""
    try:
        await check_stored(context.frontier, name)
    except BadInput as error:
        raise not_found(error.detail) from None
