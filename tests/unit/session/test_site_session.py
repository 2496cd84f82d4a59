"""A session at a site: which requests get what a login has given, and which responses belong to it."""

import asyncio

import msgspec
import pytest

from gossamer.fetch.exchange import FetchRequest, FetchResponse, Timings
from gossamer.session.login_client import LoginClient
from gossamer.session.session_file import Account, LoggedOutSigns, LoginSteps, SiteLogin
from gossamer.session.site_session import SiteSession


async def send_nothing(request: FetchRequest) -> FetchResponse:
    """Basic auth logs in without a request."""
    raise AssertionError(request.url)


async def test_a_password_that_went_over_tls_does_not_go_without() -> None:
    """A site that is only there without TLS gets it all the same."""
    account = Account("me", {"user": "me", "password": "secret"})
    login = SiteLogin("shop.test", (account,), LoginSteps(basic=True), LoggedOutSigns(), (), "site")
    session = SiteSession("shop.test", None, login, account)
    await session.prepare(FetchRequest, send_nothing)
    urls = ("http://shop.test/1", "https://www.shop.test/2", "http://shop.test/3", "https://shop.test/4")
    requests = [FetchRequest(url) for url in (*urls, "https://other.test/")]
    for request in requests:
        session.add_to(request)
    carried = [any(name == "Authorization" for name, _ in request.headers) for request in requests]
    assert carried == [True, True, False, True, False]


def page(body: str, url: str) -> FetchResponse:
    lines = [("Content-Type", "text/html")]
    return FetchResponse(
        url, 200, "OK", "1.1", lines, b"", b"", body.encode(), None, False, "127.0.0.1", 443, False, Timings(), 0
    )


LOGIN_PAGE = "https://shop.test/login"
FORM = '<form action="/in" method="post"><input name="u"><input type="password" name="p"></form>'


class Spider:
    """Logs in by the same form."""

    async def login(self, session: LoginClient) -> None:
        values = {"u": session.account, "p": session.values["password"]}
        await session.submit(await session.get(LOGIN_PAGE), values)


async def logged_in(spider: Spider | None = None, **signs: bool) -> SiteSession:
    """A session that has begun by the form."""

    async def send(request: FetchRequest) -> FetchResponse:
        body = FORM if request.method == "GET" else "<h1>Welcome</h1>"
        return page(body, request.url)

    account = Account("me", {"user": "me", "password": "secret"})
    by_form = LoginSteps(form=LOGIN_PAGE, fields={"u": "user", "p": "password"})
    steps = LoginSteps(spider=True) if spider else by_form
    login = SiteLogin("shop.test", (account,), steps, LoggedOutSigns(**signs), (), "site", spider)
    session = SiteSession("shop.test", None, login, account)
    await session.prepare(FetchRequest, send)
    return session


@pytest.mark.parametrize(
    ("body", "is_out"),
    [
        (f"<p>Please log in</p>{FORM}", True),
        (FORM.replace("/in", "https://shop.test/in?back=/p/1"), True),
        (FORM.replace("/in", "/in;jsessionid=1"), True),
        (FORM.replace("/in", "/login"), True),
        (FORM.replace("/in", ""), True),
        (f"<form action=/password><input type=password name=p></form>{FORM}", True),
        (FORM.replace("/in", "/profile"), False),
        ('<form action="/in" method=post><input type=password name=p><input type=password name=new></form>', False),
        ("<form action=/in method=post><input name=u></form>", False),
        ("<form action=/password method=post><input type=password name=old><input type=password name=p></form>", False),
        ("<p>Write type=password into the form</p>", False),
        ("<h1>Page</h1>", False),
    ],
)
async def test_a_page_with_the_form_of_the_login_is_that_of_a_visitor(body: str, is_out: bool) -> None:
    """Not one with another form for a password."""
    url = "https://shop.test/p/1"
    for session in (await logged_in(), await logged_in(Spider())):
        assert session.is_logged_out(page(body, url), url=url, requested=url) is is_out
    assert not (await logged_in(form=False)).is_logged_out(page(body, url), url=url, requested=url)


async def test_a_page_whose_script_leads_to_the_login_is_that_of_a_visitor() -> None:
    session, url = await logged_in(), "https://shop.test/p/1"
    for target, is_out in ((f"{LOGIN_PAGE}?next=/p/1", True), ("https://shop.test/p/2", False)):
        moved = msgspec.structs.replace(page("", url), moved_to=target)
        assert session.is_logged_out(moved, url=url, requested=url) is is_out


def setting(cookie: str) -> FetchResponse:
    """A response that sets a cookie."""
    return msgspec.structs.replace(page("", "https://shop.test/p/1"), headers=[("Set-Cookie", f"{cookie}; Path=/")])


async def test_responses_to_requests_of_the_login_before_leave_the_new_session_alone() -> None:
    """They come while the login is in progress, or after it. No page is sent meanwhile."""
    session, url, waiting = await logged_in(), "https://shop.test/p/1", []
    session.on_page()
    script = {"name": "sid", "value": "guest", "domain": "shop.test", "path": "/", "expires": -1, "secure": False}

    async def send(request: FetchRequest) -> FetchResponse:
        assert session.receive(url, setting("sid=guest"), number=1)
        session.receive_from_scripts((), url, [script], number=1)
        waiting.append(asyncio.ensure_future(session.prepare(FetchRequest, send_nothing)))
        await asyncio.sleep(0)
        assert not waiting[-1].done()
        if request.method == "GET":
            assert "Cookie" not in dict(request.headers)
            return page(FORM, request.url)
        return msgspec.structs.replace(page("", request.url), headers=setting("sid=good").headers)

    assert await session.renew(1, FetchRequest, send, status=200)
    await asyncio.gather(*waiting)
    assert session.receive(url, setting("sid=guest"), number=1)
    assert session.receive(url, setting("theme=dark"), number=2)
    session.receive_from_scripts((), url, [script], number=1)
    request = FetchRequest(url)
    session.add_to(request)
    assert dict(request.headers)["Cookie"] == "sid=good; theme=dark"
