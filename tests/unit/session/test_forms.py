"""Forms of logins: what a browser would send, and the signs of logins that only a person can do."""

from urllib.parse import parse_qsl

import pytest

from gossamer.session.form import find_form
from gossamer.session.second_factor import asks_second_factor

URL = "https://shop.test/a/login?x=1"


def sent(inner: str, values: dict[str, str], attributes: str = 'method="post"') -> list[tuple[str, str]]:
    form = find_form(f"<form {attributes}>{inner}<input type=password name=pw></form>".encode(), URL, "utf-8")
    assert form is not None
    return parse_qsl(form.filled({"pw": "s", **values}), keep_blank_values=True)


@pytest.mark.parametrize(
    ("inner", "pairs"),
    [
        ('<input type="hidden" name="csrf" value="t&amp;1">', [("csrf", "t&1")]),
        ("<input name=user value=old>", [("user", "me")]),
        ("<input type=checkbox name=keep checked><input type=checkbox name=no>", [("keep", "on")]),
        ("<input type=radio name=r value=1><input type=radio name=r value=2 checked>", [("r", "2")]),
        ("<select name=s><option value=1>a<option selected>b</select>", [("s", "b")]),
        ("<textarea name=t>x</textarea>", [("t", "x")]),
        ("<input name=off value=1 disabled><input type=file name=f><input value=nameless>", []),
        ("<button name=go value=1>Go</button><button name=other value=2>No</button>", [("go", "1")]),
        ("<input type=submit value=Go><button name=other value=2>No</button>", []),
        ("<button type=button name=js value=1></button><input type=submit name=ok value=2>", [("ok", "2")]),
    ],
)
def test_a_form_is_sent_as_a_browser_sends_it(inner: str, pairs: list[tuple[str, str]]) -> None:
    values = {"user": "me"} if "user" in inner else {}
    assert sent(inner, values) == [*pairs, ("pw", "s")]


@pytest.mark.parametrize(
    ("attributes", "head", "action"),
    [
        ("", "", URL),
        ('action=""', "", URL),
        ('action="/in"', "", "https://shop.test/in"),
        ("action=in", "", "https://shop.test/a/in"),
        ("action=in", "<base href=/b/>", "https://shop.test/b/in"),
        ('action="https://evil.test/"', "", "https://evil.test/"),
        ('action="javascript:x()"', "", ""),
    ],
)
def test_where_a_form_is_sent(attributes: str, head: str, action: str) -> None:
    form = find_form(f"{head}<form {attributes}><input type=Password name=p></form>".encode(), URL, "utf-8")
    assert form is not None
    assert form.action == action
    assert form.method == "GET"


def test_the_form_with_a_password_is_found_or_the_one_that_is_named() -> None:
    page = b"<form id=search><input name=q></form><form id=in method=POST><input type=password name=p></form>"
    found, named = find_form(page, URL, "utf-8"), find_form(page, URL, "utf-8", selector="#search input")
    assert found is not None
    assert found.names == {"p"}
    assert named is not None
    assert named.names == {"q"}
    assert find_form(b"<p>none</p>", URL, "utf-8") is None


@pytest.mark.parametrize(
    ("page", "has"),
    [
        ("<div class=g-recaptcha></div>", True),
        ("<div class=cf-turnstile data-sitekey=x></div>", True),
        ("<input name=captcha_code>", True),
        ("<iframe src='https://www.google.com/recaptcha/api2'></iframe>", True),
        ("<input name=user>", False),
    ],
)
def test_a_captcha_counts_only_in_the_form(page: str, has: bool) -> None:
    inside = find_form(f"<form>{page}<input type=password name=p></form>".encode(), URL, "utf-8")
    outside = find_form(f"{page}<form><input type=password name=p></form>".encode(), URL, "utf-8")
    assert inside is not None
    assert outside is not None
    assert (inside.has_captcha, outside.has_captcha) == (has, False)


@pytest.mark.parametrize(
    ("page", "pairs"),
    [
        ("<form id=a method=post><input name=x></form><input form=a type=password name=p>", ["x", "p"]),
        ("<input form=a name=x value=1><form id=a><input type=password name=p></form>", ["p", "x"]),
        ("<form id=a><input type=password name=p><input name=x form=b></form><form id=b></form>", ["p"]),
        ("<form id=b></form><form><input type=password name=p></form><input name=x form=b>", ["p"]),
    ],
)
def test_fields_belong_to_the_form_that_they_name(page: str, pairs: list[str]) -> None:
    form = find_form(page.encode(), URL, "utf-8")
    assert form is not None
    assert [name for name, _ in form.fields] == pairs


@pytest.mark.parametrize(
    ("head", "inner", "headers"),
    [
        ("<meta name=csrf-token content=t1>", "", (("X-CSRF-Token", "t1"),)),
        ("<meta name=_csrf content=t1>", "", (("X-CSRF-Token", "t1"),)),
        ("<meta name=CSRF-Token content=t1>", "<input type=hidden name=_token value=t1>", ()),
        ("<meta name=csrf-token content='t1\r\nX: y'>", "", ()),
        ("<meta name=csrf-param content=authenticity_token>", "", ()),
        ("<meta name=description content=t1>", "", ()),
    ],
)
def test_a_token_of_the_page_goes_into_a_header(head: str, inner: str, headers: tuple[tuple[str, str], ...]) -> None:
    form = find_form(f"{head}<form>{inner}<input type=password name=p></form>".encode(), URL, "utf-8")
    assert form is not None
    assert form.headers == headers


@pytest.mark.parametrize(
    ("fields", "url", "asks"),
    [
        ("<input autocomplete=one-time-code>", "/", True),
        ("<input autocomplete='section-a one-time-code' type=tel>", "/", True),
        *((f"<input name={name}>", "/", True) for name in (
            "otp", "user_2fa_code", "user[otp_attempt]", "authcode", "authCode", "passcode", "tfa_code", "wfls-token",
            "one_time_code", "OneTimeCode", "verification_code", "VerificationCode", "user2FACode", "mfaCode", "OTP",
            "totpPin", "two_factor_code", "twoFactorToken", "auth_code", "secondFactor", "login2fa",
        )),
        *((f"<input name={name}>", "/", False) for name in (
            "q", "zip_code", "footprint", "photoprint", "verification", "code", "promo_code", "token", "laptops",
            "option", "authenticity_token", "pin", "country_code", "hotplate",
        )),
        ("<input type=hidden name=__RequestVerificationToken>", "/", False),
        ("<input type=hidden name=otp><input type=submit name=otp>", "/", False),
        ("<input name=code>", "/2fa", True),
        ("<input name=code>", "/login/two-factor?x", True),
        ("<input name=code>", "/mfa/verify", True),
        ("<input name=code>", "/mfast", False),
        ("<input name=q>", "/2fa", False),
        ("<p>Enter the code of your authenticator app</p><input name=code>", "/", True),
        ("<input name=code placeholder='Verification code'>", "/", True),
        ("<p>Have a voucher?</p><input name=code>", "/", False),
    ],
)  # fmt: skip
def test_a_second_factor_is_known_by_what_a_person_types(fields: str, url: str, asks: bool) -> None:
    page = f"<form>{fields}</form>".encode()
    assert asks_second_factor(page, "utf-8", url=f"https://shop.test{url}") is asks
