"""One login at a site whose answers are written here: what its messages say, and what they must not."""

import base64
import html
from collections.abc import Callable
from urllib.parse import parse_qs, quote

import pytest

from gossamer.errors import BadResponse, FetchError, LoginFailed, LoginUnanswered
from gossamer.fetch.exchange import FetchRequest, FetchResponse, Timings
from gossamer.session.jar import CookieJar
from gossamer.session.login import LoginSession
from gossamer.session.login_client import LoginClient
from gossamer.session.session_file import Account, LoggedOutSigns, LoginSteps, SiteLogin

PASSWORD = "hunter2/s&cret"
ALICE = Account("alice", {"user": "alice", "password": PASSWORD})
BASE = "https://shop.test"
FORM = '<form action="/login" method="post"><input name="u"><input type="password" name="p"></form>'
SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda text: quote(text, safe=""),
    "entities": html.escape,
    "json": lambda text: "".join(f"\\u{ord(one):04x}" for one in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
}


def answer(
    url: str, body: str = "", *, status: int = 200, reason: str = "OK", headers: dict[str, str] | None = None
) -> FetchResponse:
    lines = [("Content-Type", "text/html; charset=utf-8"), *(headers or {}).items()]
    return FetchResponse(
        url, status, reason, "1.1", lines, b"", b"", body.encode(), None, False, "127.0.0.1", 443, False, Timings(), 0
    )


Site = Callable[[FetchRequest], FetchResponse]


class Spider:
    """Logs in by the form, and says what the page says."""

    def __init__(self, way: str = "fail") -> None:
        self.way = way

    async def login(self, session: LoginClient) -> None:
        page = await session.submit(await session.get(f"{BASE}/login"), {"p": session.values["password"]})
        if self.way == "fail":
            session.fail(page.text)
        if self.way == "submit":
            await session.submit(page, {})
        if self.way == "get":
            await session.get(page.text)
        if self.way == "own failure":
            raise LoginFailed(f"The page says: {page.text}")
        if self.way == "own fetch error":
            raise LoginUnanswered(page.text)
        raise ValueError(page.text)


async def log_in(
    site: Site, steps: LoginSteps | None = None, spider: Spider | None = None, *, account: Account = ALICE
) -> tuple[list[FetchRequest], tuple[tuple[str, str], ...]]:
    """Log in, and return the requests and the headers for pages."""
    sent: list[FetchRequest] = []

    async def send(request: FetchRequest) -> FetchResponse:
        sent.append(request)
        return site(request)

    steps = steps or LoginSteps(form=f"{BASE}/login", fields={"u": "user", "p": "password"})
    login = SiteLogin("shop.test", (account,), steps, LoggedOutSigns(), (), "site", spider)
    session = LoginSession(login, CookieJar("shop.test"), send, FetchRequest, 1_800_000_000.0)
    return sent, await session.log_in(account)


def after_the_form(*answers: FetchResponse | FetchError, form: str = FORM) -> Site:
    """A site that shows the form, and then answers so."""
    left = list(answers)

    def site(request: FetchRequest) -> FetchResponse:
        if request.url == f"{BASE}/login" and request.method == "GET":
            return answer(request.url, form)
        found = left.pop(0)
        if isinstance(found, FetchError):
            raise found
        return found

    return site


def echoes(text: str) -> dict[str, tuple[Site, Spider | None]]:
    """Sites, and spiders, that show a text of a login that fails."""
    url = f"{BASE}/in"
    moved = {"Location": f"/welcome?pw={text}"}
    broken = BadResponse(f"it begins with {text[:10]!r}")
    broken.response = answer(url, text)
    return {
        "reason": (after_the_form(answer(url, status=401, reason=text)), None),
        "busy": (after_the_form(answer(url, status=503, reason=text)), None),
        "page": (after_the_form(answer(f"{url}?{text}", FORM + text)), None),
        "host": (after_the_form(answer(url, status=302, headers={"Location": f"https://{text}.test/"})), None),
        "subdomain": (after_the_form(answer(f"https://{text}.shop.test/", status=403)), None),
        "no page": (after_the_form(answer(url, status=302, headers={"Location": f"mailto:{text}"})), None),
        "no tls": (after_the_form(answer(url, status=308, headers={"Location": f"http://shop.test/{text}"})), None),
        "broken": (after_the_form(broken), None),
        "loop": (after_the_form(*(answer(url, status=302, headers=moved) for _ in range(20))), None),
        "spider fails": (after_the_form(answer(url, text)), Spider()),
        "spider raises": (after_the_form(answer(url, text)), Spider("raise")),
        "spider raises a failed login": (after_the_form(answer(url, text)), Spider("own failure")),
        "spider raises an error of fetching": (after_the_form(answer(url, text)), Spider("own fetch error")),
        "spider submits": (after_the_form(answer(f"{url}?{text}", "")), Spider("submit")),
        "spider goes on": (after_the_form(answer(url, f"ftp://{text}")), Spider("get")),
        "spider leaves": (after_the_form(answer(url, f"https://{text}.test")), Spider("get")),
    }


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("way", echoes(""))
async def test_no_message_has_a_password_that_the_site_echoes(way: str, spelling: str) -> None:
    text = SPELLINGS[spelling](PASSWORD)
    site, spider = echoes(text)[way]
    with pytest.raises((LoginFailed, FetchError)) as raised:
        await log_in(site, LoginSteps(spider=True) if spider else None, spider)
    said = str(raised.value)
    assert [part for part in (text[:10], text[:10].lower(), PASSWORD[:7]) if part in said] == []
    assert getattr(raised.value, "response", None) is None


async def test_a_message_names_a_status_in_our_own_words() -> None:
    for status, words in ((401, "with 401 Unauthorized. Check"), (499, "with 499. Check")):
        with pytest.raises(LoginFailed, match=f"shop.test answers the login of alice {words}"):
            await log_in(after_the_form(answer(f"{BASE}/in", status=status, reason="no")))
    with pytest.raises(LoginUnanswered, match="503 Service Unavailable"):
        await log_in(after_the_form(answer(f"{BASE}/in", status=503, reason="no")))


async def test_the_fields_of_the_form_are_sent() -> None:
    sent, _ = await log_in(after_the_form(answer(f"{BASE}/", "<h1>Welcome</h1>")))
    assert parse_qs((sent[1].body or b"").decode()) == {"u": ["alice"], "p": [PASSWORD]}


@pytest.mark.parametrize(
    ("page", "passes"),
    [
        (FORM, False),
        (FORM.replace("/login", "/login?next=%2F"), False),
        (f"<form action=/search><input name=q></form>{FORM}", False),
        (FORM.replace("/login", "/profile"), True),
        ('<form action="/login" method=post><input type=password name=old><input type=password name=p></form>', True),
        ('<form action="/newsletter" method=post><input name=u><input type=password name=p></form>', True),
        ('<form action=/out><input type=hidden name="__RequestVerificationToken" value=x></form>', True),
        ("<h1>Welcome</h1>", True),
    ],
)
async def test_only_the_form_itself_means_that_the_login_has_failed(page: str, passes: bool) -> None:
    site = after_the_form(answer(f"{BASE}/home", page))
    if passes:
        await log_in(site)
    else:
        with pytest.raises(LoginFailed, match="shows the form again"):
            await log_in(site)


async def test_a_token_in_a_meta_of_the_page_is_sent_and_one_that_misses_is_named() -> None:
    form = '<meta name="csrf-token" content="tok">' + FORM
    sent, _ = await log_in(after_the_form(answer(f"{BASE}/", "in"), form=form))
    assert ("X-CSRF-Token", "tok") in sent[1].headers
    with pytest.raises(LoginFailed, match="with 419: it wants a token that the form at"):
        await log_in(after_the_form(answer(f"{BASE}/login", status=419)))
