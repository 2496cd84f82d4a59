"""Session files: what they say, where secrets come from, and errors that name the file and what to write."""

import json
from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer.model.crawl import Terms
from gossamer.model.logouts import NEVER_FOLLOWED
from gossamer.policy.scope import scope_of
from gossamer.session.session_file import read_cookies, read_session_file

NOW = 1_800_000_000.0
FORM = {"form": "https://www.shop.test/login", "fields": {"email": "user", "pass": "password"}}
ME = {"user": "me", "password": {"env": "SECRET"}}


def written(folder: Path, document: object, name: str = "session.yaml") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_secrets_come_from_the_environment_and_from_files(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("hidden\n")
    document = {"accounts": {"me": ME, "you": {"user": "you", "password": {"file": "pw"}}}, "login": FORM}
    login = read_session_file(written(tmp_path, document), {"SECRET": "s3cret"}, now=NOW)
    assert login.site == "shop.test"
    assert [account.values["password"] for account in login.accounts] == ["s3cret", "hidden"]
    assert "s3cret" not in repr(login)
    assert "hidden" not in repr(login)


def test_it_may_be_toml(tmp_path: Path) -> None:
    text = 'site = "shop.test"\n[login]\nbasic = true\n[accounts.me]\nuser = "me"\npassword = {env = "SECRET"}\n'
    login = read_session_file(written(tmp_path, text, "s.toml"), {"SECRET": "x"}, now=NOW)
    assert login.steps is not None
    assert login.steps.basic


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("accounts: [", "line 1: is not valid YAML"),
        (
            {"acounts": {}},
            "unknown field `acounts`. The fields are site, accounts, login, logged_out_when, never_follow",
        ),
        ({"login": {"from": "x"}}, "unknown field `from` - at `$.login`. The fields are form, request, basic, spider,"),
        ({"logged_out_when": {"path": "x"}}, "`$.logged_out_when`. The fields are selector, status, redirect, form."),
        ({"login": FORM}, "name an account"),
        ({"accounts": {"me": ME}}, "name the site"),
        ({"site": "shop.test", "accounts": {"me": {"user": "me"}}}, "me has no way to log in"),
        ({"accounts": {"me": {"user": "me"}}, "login": FORM}, "me has no value password"),
        ({"accounts": {"a|b": ME}, "login": FORM}, "cannot use the name 'a|b'"),
        ({"accounts": {"me": {"user": "me", "password": "x"}}, "login": FORM}, "a secret may not stand in the file"),
        ({"accounts": {"me": {"user": "me", "password": {}}}, "login": FORM}, "write either {env: NAME}"),
        ({"accounts": {"me": {**ME, "password": {"env": "NONE"}}}, "login": FORM}, "variable NONE is not set"),
        ({"accounts": {"me": {**ME, "password": {"file": "none"}}}, "login": FORM}, "No such file"),
        ({"site": "other.test", "accounts": {"me": ME}, "login": FORM}, "does not belong to the site other.test"),
        ({"accounts": {"me": ME}, "login": {**FORM, "basic": True}}, "write one of form: URL"),
        ({"accounts": {"me": ME}, "login": {"form": FORM["form"]}}, "name the fields"),
        ({"accounts": {"me": ME}, "login": {"spider": True}}, "name the site"),
        ({"accounts": {"me": ME}, "login": {"basic": True}}, "name the site"),
        ({"accounts": {"me": ME}, "login": {**FORM, "form": "ftp://x"}}, "Only http and https"),
        ({"accounts": {"me": ME}, "login": {**FORM, "select": "form[["}}, "select: "),
        ({"accounts": {"me": ME}, "login": FORM, "logged_out_when": {"selector": "a[["}}, "selector: "),
        ({"accounts": {"me": ME}, "login": {**FORM, "token": "t", "header": "X: y"}}, "header has no {token}"),
        *(
            ({"accounts": {"me": ME}, "login": {**FORM, "token": "t", "header": header}}, words)
            for header, words in (
                ("Ho st: {token}", "login: header: 'Ho st' is not a valid header name"),
                ("{token}", "login: header: '{token}' is not a valid header name"),
                ("Content-Length: {token}", "is set by the client itself"),
                ("X: {token}\r\nY: 1", "contains invalid characters"),
                ("{token}: {token}", "is not a valid header name"),
            )
        ),
        ({"site": "shop.test", "accounts": {"me": {"cookies": "c.txt"}}}, "has no valid cookie of shop.test"),
    ],
)
def test_a_mistake_is_named_with_the_file(tmp_path: Path, document: object, words: str) -> None:
    (tmp_path / "c.txt").write_text("shop.test\tFALSE\t/\tTRUE\t1\tsid\told\n")
    path = written(tmp_path, document)
    with pytest.raises(BadInput) as raised:
        read_session_file(path, {"SECRET": "s3cret"}, now=NOW)
    assert str(tmp_path) in str(raised.value)
    assert words in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "exported",
    [
        "# Netscape HTTP Cookie File\n#HttpOnly_.shop.test\tTRUE\t/\tTRUE\t1900000000\tsid\tabc\n",
        json.dumps([{"name": "sid", "value": "abc", "domain": ".shop.test", "secure": True, "expirationDate": 1.9e9}]),
        json.dumps({"cookies": [{"name": "sid", "value": "abc", "domain": "shop.test", "secure": 1, "expires": -1}]}),
    ],
)
def test_cookies_of_a_browser_are_read(tmp_path: Path, exported: str) -> None:
    (tmp_path / "cookies").write_text(exported)
    document = {"site": "shop.test", "accounts": {"me": {"cookies": "cookies"}}}
    [account] = read_session_file(written(tmp_path, document), {}, now=NOW).accounts
    [cookie] = account.cookies
    assert cookie.text == "sid=abc"
    assert cookie.goes_to("https://shop.test/x")
    assert not cookie.goes_to("http://shop.test/x")


@pytest.mark.parametrize(
    ("exported", "hidden"),
    [
        ("#HttpOnly_shop.test\tFALSE\t/\tTRUE\t0\tsid\tabc\n", True),
        ("shop.test\tFALSE\t/\tTRUE\t0\tsid\tabc\n", False),
        (json.dumps([{"name": "sid", "value": "abc", "domain": "shop.test", "httpOnly": True}]), True),
        (json.dumps([{"name": "sid", "value": "abc", "domain": "shop.test", "httpOnly": False}]), False),
    ],
)
def test_cookies_that_a_browser_hides_from_scripts_stay_hidden(exported: str, hidden: bool) -> None:
    [cookie] = read_cookies(None, exported, site="shop.test", now=NOW)
    assert cookie.http_only is hidden


@pytest.mark.parametrize(
    "changed",
    [
        {"value": "a\r\nX: y"}, {"value": "a\nb"}, {"name": "a\rb"}, {"value": "a; b=c"}, {"name": "a=b"},
        {"value": "x" * 5000}, {"name": "", "value": ""},
    ],
)  # fmt: skip
def test_a_cookie_that_no_header_may_have_is_refused_when_it_is_read(changed: dict[str, str]) -> None:
    exported = json.dumps([{"name": "sid", "value": "abc", "domain": "shop.test", **changed}])
    with pytest.raises(BadInput, match="has a character that no cookie has") as raised:
        read_cookies(None, exported, site="shop.test", now=NOW)
    assert "abc" not in str(raised.value)


@pytest.mark.parametrize(
    ("path", "followed"),
    [
        ("/logout", False),
        ("/Logout?next=/", False),
        ("/user/log-out/", False),
        ("/account/sign_out.php", False),
        ("/index.php?action=logout", False),
        ("/?do=logoff&x=1", False),
        ("/session/signout#x", False),
        ("/abmelden", False),
        ("/oauth/end_session", False),
        ("/account/delete-account", False),
        *(
            (path, False)
            for path in (
                "/userLogout",
                "/doLogout",
                "/doLogOut",
                "/logoutAll",
                "/logout!",
                "/logout,1",
                "/~logout",
                "/logout~",
                "/(logout)",
                "/api:logout",
                "/x;logout",
                "/x?logout",
                "/x?u=%2Flogout",
                "/%C2%ADlogout",
                "/logout%20",
                "/log%6Fut",
                "/%4Cogout",
                "/LogoutServlet",
                "/account/signOutEverywhere",
                "/Logout.aspx",
                "/LOGOUT",
                "/x?action=user.logout",
                "/log.out",
                "/log_me_out",
                "/users/log_out",
                "/user/LogOff2",
                "/account/logout;jsessionid=12",
                "/d%C3%A9connexion",
                "/de%CC%81connexion",
                "/deconnexion",
                "/se-deconnecter",
                "/ausloggen",
                "/uitloggen",
                "/kil%C3%A9p%C3%A9s",
                "/cerrar-sesi%C3%B3n",
                "/session/destroy",
                "/sessions/end?x",
                "/Session/Delete/",
            )
        ),
        *(
            (path, True)
            for path in (
                "/catalogOutlet",
                "/blogOutage",
                "/LogOutput",
                "/logoutput",
                "/signoffice",
                "/designOffice",
                "/SignOffice",
                "/analogOutput",
                "/session/destroyer",
                "/sessions/12",
                "/obsession/end",
                "/abmelden-tipps",
                "/logo/ut",
                "/Blogoffensive",
                "/LogoUtility",
                "/login/out",
                "/docs/session/destroy-hooks",
            )
        ),
        ("/blog/catalogout-of-stock", True),
        ("/lookout/point", True),
        ("/login", True),
        ("/", True),
        ("/signature", True),
        ("/blog/how-to-log-outages", True),
    ],
)
def test_links_that_log_out_are_told_from_others(path: str, followed: bool) -> None:
    scope = scope_of(Terms(deny_regex=NEVER_FOLLOWED, regex_from_host=True))
    for host in ("shop.test", "www.sign-off.test", "logout.shop.test"):
        assert (scope.refusal(f"https://{host}{path}") is None) is followed
        assert (scope_of(Terms(deny_regex=NEVER_FOLLOWED)).refusal(f"https://{host}{path}") is None) is followed
