"""Names of projects and versions, and the parameters of requests."""

import pytest
from starlette.datastructures import Headers

from gossamer_platform.names import UnsafeName, check_file_name, file_stem, in_order, means_version, sanitized
from gossamer_platform.scrapyd.forms import parse_body, parse_query
from gossamer_platform.state.tokens import Principal, TokenScope
from gossamer_platform.v1.access import AccessControl, Login, NotPermitted, Unauthorized


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "another folder"),
        ("..", "another folder"),
        ("a/b", "slash"),
        ("/", "slash"),
        ("a\0b", "NUL"),
        ("ä" * 101, "202 bytes; 200 are allowed"),
    ],
)
def test_a_name_that_is_no_name_of_a_file_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(UnsafeName, match=f"'shown' cannot be used: .*{reason}"):
        check_file_name(name, "shown")


@pytest.mark.parametrize("name", ["a", "...", "a b", "ä", "-x", ".hidden", "a\\b"])
def test_a_name_of_a_file(name: str) -> None:
    check_file_name(name, "shown")


def test_versions_in_order() -> None:
    assert in_order([("1.10", 1), ("1.9", 2), ("1.9rc1", 3)]) == ["1.9rc1", "1.9", "1.10"]
    assert in_order([("1.10", 1), ("branch", 3), ("1.9", 2)]) == ["1.10", "1.9", "branch"]
    assert in_order([]) == []


def test_names_that_scrapyd_stores_as_one() -> None:
    assert sanitized("1.0+é") == "1_0__"
    assert means_version("1_0", "1.0")
    assert not means_version("1.0", "1_0")
    assert not means_version("10", "1.0")
    assert not means_version("版本二", "版本一")


def test_versions_of_two_names_have_two_files() -> None:
    assert file_stem("1.0", is_taken=False) == "1_0"
    taken = [file_stem(name, is_taken=True) for name in ("1.0+x", "1.0_x", "版本一", "版本二")]
    assert len(set(taken)) == 4
    assert all(sanitized(stem) == stem for stem in taken)


def test_a_query_is_bytes() -> None:
    assert parse_query(b"a=1;b=%C3%A4+x&a=2&none&e=") == {b"a": [b"1", b"2"], b"b": ["ä x".encode()], b"e": [b""]}
    assert parse_query(b"egg=" + b"".join(b"%%%02x" % byte for byte in range(256)))[b"egg"] == [bytes(range(256))]


def test_a_form_with_files() -> None:
    body = (
        b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b\r\ncontent-disposition: form-data; "
        b'filename="x"; name=egg\r\nContent-Type: application/zip\r\n\r\n\r\n--\r\n\x00\xff\r\n--b--\r\n'
    )  # fmt: skip
    assert parse_body("multipart/form-data; boundary=b", body) == {b"a": [b"1"], b"egg": [b"\r\n--\r\n\x00\xff"]}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"--b--"),
        ("multipart/form-data; boundary=b", b"nothing"),
        ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\ncut off"),
        ("multipart/form-data; boundary=b", b"--b\r\nno end of head\r\n--b--"),
    ],
)
def test_a_broken_form_with_files_is_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(ValueError, match="multipart"):
        parse_body(content_type, body)


def test_other_bodies_have_no_parameters() -> None:
    assert parse_body("application/json", b'{"a": 1}') == {}
    assert parse_body("", b"a=1") == {}


@pytest.mark.parametrize("header", ["", "Basic", "Basic %", "Bearer abc", "Basic YTpi", "basic dTpwOg=="])
async def test_a_wrong_password(header: str) -> None:
    with pytest.raises(Unauthorized):
        await _principal(header)


async def test_a_right_password() -> None:
    assert (await _principal("basic dTpwOnc=")).name == "u"


async def test_a_token_is_accepted_as_bearer_and_as_the_password_of_any_name() -> None:
    for header in ("Bearer secret", "bearer  secret ", "Basic eDpzZWNyZXQ=", "Basic OnNlY3JldA=="):
        assert (await _principal(header)).name == "program"


async def _principal(header: str) -> Principal:
    """The sender of a request with this Authorization header; the server's login is `u` and `p:w`."""

    async def find(secret: str) -> Principal | None:
        return Principal("program", TokenScope.READ) if secret == "secret" else None

    sent = Headers({"authorization": header})
    return await AccessControl(Login("u", "p:w"), find).principal(sent, client="127.0.0.1")


async def test_requests_without_a_password() -> None:
    """`tests/unit/web/test_access.py` has all cases."""

    async def find(secret: str) -> None:
        raise AssertionError

    access = AccessControl(Login("u", ""), find)
    local, foreign = (Headers({"host": host}) for host in ("localhost:6800", "a.localhost:6800"))
    for principal in (access.principal, access.principal_of_key):
        assert (await principal(local, client="127.0.0.1")).name == "local"
        assert (await principal(foreign, client=None)).name == "local"
        with pytest.raises(NotPermitted, match=r"addressed to a\.localhost:6800.*Set username and password"):
            await principal(foreign, client="127.0.0.1")
        with pytest.raises(NotPermitted, match=r"comes from 192\.0\.2\.7.*Set username and password"):
            await principal(local, client="192.0.2.7")
    with pytest.raises(NotPermitted):
        access.local_principal(local, client="192.0.2.7")
