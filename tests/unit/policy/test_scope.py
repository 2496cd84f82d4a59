"""Which links a crawl follows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import BadInput
from gossamer.policy.scope import DENIED_EXTENSIONS, Refusal, compile_scope


def reason(url: str, **filters: object) -> str | None:
    refusal = compile_scope(**filters).refusal(url)  # type: ignore[arg-type]
    return None if refusal is None else refusal.reason


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://example.com/", None),
        ("https://www.example.com:8443/x", None),
        ("http://EXAMPLE.com./", None),
        ("http://notexample.com/", "offsite"),
        ("http://example.com.evil.test/", "offsite"),
        ("http://example.com@evil.test/", "offsite"),
        ("http://evil.test/?http://example.com/", "offsite"),
        ("http://xn--bcher-kva.test/", None),
        ("http://10.0.0.1/", None),
        ("http://0x0a.1/", None),
        ("http://1.10.0.0.1/", "bad_url"),
        ("http://[::1]/", None),
    ],
)
def test_allowed_domains_mean_their_subdomains_too(url: str, wanted: str | None) -> None:
    domains = ["*.Example.com", ".bücher.test", "10.0.0.1", "::1"]
    assert reason(url, allowed_domains=domains) == wanted


def test_a_host_is_that_host_on_any_port() -> None:
    scope = compile_scope(allowed_hosts=["www.example.com"])
    assert scope.refusal("http://www.example.com:81/x") is None
    assert scope.refusal("http://a.www.example.com/") == Refusal("offsite", "allowed hosts: www.example.com")
    assert scope.refusal("http://example.com/") is not None


def test_a_prefix_holds_for_http_and_https() -> None:
    filters = {"allowed_prefixes": ["http://example.com/docs/"]}
    assert reason("http://example.com/docs/", **filters) is None
    assert reason("https://example.com/docs/a/b?c", **filters) is None
    assert reason("http://example.com/docs", **filters) == "offsite"
    assert reason("http://example.com/docs/../x", **filters) == "offsite"
    assert reason("http://example.com:81/docs/", **filters) == "offsite"
    assert reason("http://www.example.com/docs/", **filters) == "offsite"


def test_domains_hosts_and_prefixes_add_up() -> None:
    scope = compile_scope(allowed_domains=["a.test"], allowed_hosts=["b.test"], allowed_prefixes=["http://c.test/x/"])
    for url in ("http://www.a.test/", "http://b.test/", "http://c.test/x/y"):
        assert scope.refusal(url) is None
    for url in ("http://www.b.test/", "http://c.test/"):
        assert scope.refusal(url) is not None


def test_without_rules_everything_is_inside() -> None:
    assert reason("http://anywhere.test/") is None
    assert reason("http://anywhere.test/", allowed_domains=[], allow_regex=[]) is None


def test_deny_wins() -> None:
    filters = {"allow_regex": [r"/docs/"], "deny_regex": [r"(?i)/PRIVATE/", r"x=1$"]}
    assert reason("http://a.test/docs/", **filters) is None
    assert reason("http://a.test/other/", **filters) == "allow_regex"
    assert reason("http://a.test/docs/private/", **filters) == "deny_regex"
    refusal = compile_scope(**filters).refusal("http://a.test/docs/?x=1")
    assert refusal == Refusal("deny_regex", "denied by: x=1$")


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/a.pdf", "extension"),
        ("/a.PDF?x=1", "extension"),
        ("/a.pdf;jsessionid=1", "extension"),
        ("/a.tar.gz", "extension"),
        ("/a.html", None),
        ("/a.pdf/", None),
        ("/x?file=a.pdf", None),
        ("/v1.0/page", None),
        ("/a.", None),
        ("/", None),
        ("/example.com", None),
    ],
)
def test_default_extensions(path: str, wanted: str | None) -> None:
    assert reason(f"http://media.zip.test{path}") == wanted


def test_own_extensions_replace_the_default() -> None:
    filters = {"deny_extensions": [".HTML", "tar.gz"]}
    assert reason("http://a.test/a.pdf", **filters) is None
    assert reason("http://a.test/a.html", **filters) == "extension"
    wanted = Refusal("extension", "denied extension: tar.gz")
    assert compile_scope(**filters).refusal("http://a.test/a.tar.gz") == wanted
    assert reason("http://a.test/a.gz", **filters) is None
    assert reason("http://a.test/a.pdf", deny_extensions=[]) is None


def test_the_default_list_is_tidy() -> None:
    assert all(extension == extension.lower() and extension.isalnum() for extension in DENIED_EXTENSIONS)
    assert not DENIED_EXTENSIONS & {"html", "htm", "xhtml", "php", "asp", "aspx", "jsp", "xml", "txt", "json", "com"}
    assert {"pdf", "jpg", "zip", "mp4", "css", "docx", "exe", "woff2"} <= DENIED_EXTENSIONS


def test_scheme_and_length() -> None:
    assert reason("ftp://a.test/") == "scheme"
    assert reason("http://a.test/", schemes=["https"]) == "scheme"
    assert reason("http://a.test/" + "x" * 9000) == "too_long"
    assert reason("http://a.test/xxxxxxxxx", max_length=20) == "too_long"
    assert reason("nonsense") == "bad_url"


@pytest.mark.parametrize(
    "filters",
    [
        {"allow_regex": ["("]},
        {"deny_regex": ["a{99999999999999999999}"]},
        {"deny_regex": ["(" * 400 + ")" * 400 + "("]},
        {"deny_regex": ["x" * 1001]},
        {"deny_regex": ["x"] * 101},
        {"allowed_domains": ["http://a.test/"]},
        {"allowed_domains": ["a.test/x"]},
        {"allowed_domains": [""]},
        {"allowed_domains": ["a b"]},
        {"allowed_hosts": ["a.test:80"]},
        {"allowed_prefixes": ["http://a.test/x"]},
        {"allowed_prefixes": ["a.test/"]},
        {"deny_extensions": ["."]},
        {"deny_extensions": ["a/b"]},
        {"schemes": ["ftp"]},
    ],
)
def test_bad_filters_say_so(filters: dict[str, list[str]]) -> None:
    with pytest.raises(BadInput):
        compile_scope(**filters)  # type: ignore[arg-type]


@given(st.text(max_size=60))
def test_an_expression_is_compiled_or_bad_input(text: str) -> None:
    try:
        scope = compile_scope(deny_regex=[text])
    except BadInput:
        return
    assert scope.refusal("http://a.test/") in (None, Refusal("deny_regex", f"denied by: {text}"))


@given(st.text(max_size=100))
def test_refusal_never_raises(text: str) -> None:
    scope = compile_scope(allowed_domains=["a.test"], allowed_prefixes=["http://b.test/"], deny_regex=["x"])
    for url in (text, f"http://a.test/{text}", f"http://{text}/"):
        scope.refusal(url)


def test_many_hosts_do_not_pile_up() -> None:
    scope = compile_scope(allowed_domains=["a.test"])
    for number in range(25_000):
        assert scope.reason(f"http://{number}.b.test/") == "offsite"
    assert len(scope._known_origins) <= 10_000
