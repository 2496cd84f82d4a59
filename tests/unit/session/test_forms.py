"""Forms of logins: what a browser would send, and the signs of logins that only a person can do."""

from urllib.parse import parse_qsl

import pytest

from gossamer.session.form import asks_second_factor, find_form

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
    ("field", "asks"),
    [
        ("<input autocomplete=one-time-code>", True),
        ("<input name=otp>", True),
        ("<input name=user_2fa_code>", True),
        ("<input name=q>", False),
        ("<input name=zip_code>", False),
    ],
)
def test_a_second_factor_is_known_by_its_field(field: str, asks: bool) -> None:
    assert asks_second_factor(f"<form>{field}</form>".encode(), "utf-8") is asks
