"""No secret of an address is shown, however carelessly it was written, and what is no secret stays readable."""

import shlex
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossamer.net import credentials
from gossamer.net.credentials import has_password, hide_secrets, hide_secrets_in, hide_secrets_of, without_secrets

SECRET = "Qz7"
"""Part of each generated password. Nothing else contains it."""
_pieces = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x17F), max_size=6)
passwords = st.builds(lambda before, after: f"{before}{SECRET}{after}", _pieces, _pieces)
users = st.text("abcXYZ0189-_+%", max_size=8)
schemes = st.sampled_from(
    [
        *("http", "https", "socks5", "socks5h", "ftp", "s3", "s3a", "redis", "rediss", "redis+cluster", "valkey"),
        *("postgresql", "postgresql+psycopg", "mysql", "opensearch", "git+https", "sftp", "unix", "kafka", "memory"),
    ]
)
hosts = st.sampled_from(["h", "localhost", "db.example", "db.example:5432", "[::1]", "[::1]:6379", "h1:1,h2:2", ""])
tails = st.sampled_from(["", "/", "/d?table=a&key=url", "/a:b.jsonl", "?db=1"])


@given(schemes, users, passwords, hosts, tails)
@example("s3", "key", "se/cret" + SECRET, "bucket", "/x.jsonl")
@example("redis", "u", "Aa9a/Bb8b" + SECRET, "h", "")
@example("http", "u", "12/34" + SECRET, "proxy.example:3128", "")
@example("redis", "", "@@//::??## " + SECRET, "h", "/0")
def test_a_password_is_hidden_whatever_characters_it_has(
    scheme: str, user: str, password: str, host: str, tail: str
) -> None:
    address = f"{scheme}://{user}:{password}@{host}{tail}"
    assert SECRET not in hide_secrets(address)
    assert hide_secrets(address).endswith(f"***@{host}{tail}")
    assert has_password(address)
    assert SECRET not in hide_secrets_in(shlex.join(["gossamer", "crawl", f"--proxy={address}", "-o", address]))
    assert hide_secrets(hide_secrets(address)) == hide_secrets(address)
    if not any(character.isspace() for character in password):
        assert SECRET not in hide_secrets_in(f"The crawl's bus ({address}) cannot be reached: {address}, and so on")


@given(schemes, users, passwords, hosts, tails)
def test_no_part_of_a_password_stays_in_the_message_of_a_library(
    scheme: str, user: str, password: str, host: str, tail: str
) -> None:
    address = f"{scheme}://{user}:{password}@{host}{tail}"
    bucket = address.partition("://")[2].partition("/")[0]
    for words in (
        f"no bucket {bucket}",
        f"the port {password!r}",
        f"login {user}:{password}",
        f"host {password}@{host}",
    ):
        assert SECRET not in hide_secrets_of(address, words)


SHOWN = [
    # What stays is enough to recognize the address.
    ("ftp://me:secret@ftp.test/pages.jsonl", "ftp://me:***@ftp.test/pages.jsonl"),
    ("redis://:secret@h:6379/0", "redis://:***@h:6379/0"),
    ("redis+cluster://u:secret@h1:1,h2:2", "redis+cluster://u:***@h1:1,h2:2"),
    ("unix://u:secret@/run/valkey.sock?db=1", "unix://u:***@/run/valkey.sock?db=1"),
    ("pgsql://me:s3/cret@h/d", "pgsql://me:***@h/d"),
    ("ftp://me:s3@cret@h/pages.jsonl", "ftp://me:***@h/pages.jsonl"),
    ("ftp://me:my sec#ret?@h/d", "ftp://me:***@h/d"),
    ("s3://KEY:SECRET@bucket/x.jsonl", "s3://KEY:***@bucket/x.jsonl"),
    ("s3:/KEY:SECRET@bucket/x.jsonl", "s3:/KEY:***@bucket/x.jsonl"),
    # In an address of the web, the user may be the secret.
    ("http://u:p@w.test:3128", "http://***@w.test:3128"),
    ("https://TOKEN@host.test/x", "https://***@host.test/x"),
    ("git+https://TOKEN:x-oauth-basic@git.test/x", "git+https://***@git.test/x"),
    ("http:u:p@h", "http:***@h"),
    ("http:\\\\u:p@h", "http:\\\\***@h"),
    # Options.
    ("postgresql://me@h/d?password=s3cret&table=a", "postgresql://me@h/d?password=***&table=a"),
    ("mysql://h/d?user=me&passwd=s3cret", "mysql://h/d?user=me&passwd=***"),
    ("mysql://h/d?password=a&b#c d&table=x", "mysql://h/d?password=***&table=x"),
    ("mysql://h/d?pass%77ord=a", "mysql://h/d?pass%77ord=***"),
    # No secrets.
    ("postgresql://me@h/d?table=a&key=url", "postgresql://me@h/d?table=a&key=url"),
    ("http://a.test/x:y@z", "http://a.test/x:y@z"),
    ("http://a.test:8080/@me", "http://a.test:8080/@me"),
    ("http://localhost:8080/@me", "http://localhost:8080/@me"),
    ("http://[::1]:8080/@me", "http://[::1]:8080/@me"),
    ("redis://[::1]:6379/a@b", "redis://[::1]:6379/a@b"),
    ("kafka://b1:9092,b2:9092", "kafka://b1:9092,b2:9092"),
    ("s3://bucket/a:b@c.jsonl", "s3://bucket/a:b@c.jsonl"),
    ("file:///a:b@c", "file:///a:b@c"),
    ("sqlite:////data@x/a:b@c", "sqlite:////data@x/a:b@c"),
    ("a:b@c.jsonl", "a:b@c.jsonl"),
    ("pages.jsonl", "pages.jsonl"),
    ("http://a.test/?design=1&author=2&keyword=3&passage=", "http://a.test/?design=1&author=2&keyword=3&passage="),
    ("", ""),
]


@pytest.mark.parametrize(("address", "shown"), SHOWN)
def test_an_address_without_its_secrets(address: str, shown: str) -> None:
    assert hide_secrets(address) == shown
    assert has_password(address) == ("***@" in shown)
    if " " not in address:
        assert hide_secrets_in(address) == shown


@pytest.mark.parametrize(
    ("address", "stripped"),
    [
        ("ftp://me:secret@ftp.test/blobs", "ftp://me@ftp.test/blobs"),
        ("ftp://me:s3@c/r:et@ftp.test/blobs", "ftp://me@ftp.test/blobs"),
        ("s3://KEY:SECRET@bucket/x", "s3://KEY@bucket/x"),
        ("redis://:secret@h:6379/0", "redis://h:6379/0"),
        ("https://TOKEN@host.test/x", "https://host.test/x"),
        ("https://u:p@host.test/x", "https://host.test/x"),
        ("webdav://h/d?token=a&x=1", "webdav://h/d?x=1"),
        ("webdav://h/d?token=a&sig=b&x=1&password=c", "webdav://h/d?x=1"),
        ("webdav://h/a&b?token=a", "webdav://h/a&b"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("file:///a:b@c", "file:///a:b@c"),
    ],
)
def test_an_address_for_others_has_no_trace_of_the_secrets(address: str, stripped: str) -> None:
    assert without_secrets(address) == stripped


@pytest.mark.parametrize(
    "name",
    [
        *("password", "passwd", "pass", "pwd", "pw", "PASSWORD", "passphrase", "secret", "client_secret", "token"),
        *("access_token", "X-Amz-Security-Token", "api_key", "api-key", "apikey", "apiKey", "x-api-key", "access_key"),
        *("AWSAccessKeyId", "AccountKey", "private_key", "sig", "signature", "X-Amz-Signature", "X-Goog-Credential"),
        *("auth", "authorization", "jwt", "hmac", "sas", "sharedKey", "session.key", "sasl.password"),
    ],
)
def test_a_secret_option_is_hidden(name: str) -> None:
    for before, after in (("?", ""), ("?a=b&", "&c=d"), ("?a=b;", ";c=d"), ("#", ""), ("/d?x&", "&y=1")):
        address = f"https://a.test/x{before}{name}=Qz7{after}"
        assert hide_secrets(address) == address.replace("Qz7", "***")
        assert hide_secrets_in(f"Look at {address} now") == f"Look at {address} now".replace("Qz7", "***")
    assert hide_secrets_in(f"GET /x?{name}=Qz7 was refused") == f"GET /x?{name}=*** was refused"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("user:secret@proxy.test:3128", "***@proxy.test:3128"),
        ("token@proxy.test", "***@proxy.test"),
        ("a.test:8080/@me", "a.test:8080/@me"),
        ("a.test/x:y@z", "a.test/x:y@z"),
        ("mailto:me@a.test", "***@a.test"),
    ],
)
def test_a_text_that_should_be_an_address_of_the_web(text: str, shown: str) -> None:
    assert hide_secrets(text, web=True) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "gossamer crawl http://a.test/ --proxy http://u:p@w.test:3128",
            "gossamer crawl http://a.test/ --proxy http://***@w.test:3128",
        ),
        (
            "the crawl's output 'ftp://u:a b@h/x' is for me@a.test",
            "the crawl's output 'ftp://u:***@h/x' is for me@a.test",
        ),
        ("-o 'ftp://u:it'\"'\"'s 1@h/x' -f", "-o 'ftp://u:***@h/x' -f"),
        ("--proxy='http://u:1 2@h' x@y", "--proxy='http://***@h' x@y"),
        (
            "the output ftp://u:my pass@h/x, http://a.test:80/, me@b",
            "the output ftp://u:***@h/x, http://a.test:80/, me@b",
        ),
        ("see http://a.test:8080, mail me@a.test", "see http://a.test:8080, mail me@a.test"),
        ("(http://127.0.0.1:5343/docs) me@a.test", "(http://127.0.0.1:5343/docs) me@a.test"),
        ("redis://h:6379, redis+cluster://h:1,h:2 or me@b", "redis://h:6379, redis+cluster://h:1,h:2 or me@b"),
        ("two\nlines of redis://:a b@h\nand no more@all", "two\nlines of redis://:***@h\nand no more@all"),
        ("--field 'x=a:first-child @href' -o x.csv", "--field 'x=a:first-child @href' -o x.csv"),
        ("--resolve '*.test:127.0.0.1' a@b", "--resolve '*.test:127.0.0.1' a@b"),
        ("http: nothing, https: me@a.test", "http: nothing, https: me@a.test"),
        ("shop @ git+https://TOKEN@git.test/shop", "shop @ git+https://***@git.test/shop"),
        ("no address, a=b, x@y: fine", "no address, a=b, x@y: fine"),
    ],
)
def test_the_addresses_in_a_text(text: str, shown: str) -> None:
    assert hide_secrets_in(text) == shown


def test_a_short_secret_is_hidden_where_it_is_a_word() -> None:
    said = "redis://u:***@h.in.bc: port 'in' of bc: interesting bcd"
    assert (
        hide_secrets_of("redis://u:in/bc@h.in.bc", said) == "redis://u:***@h.in.bc: port '***' of ***: interesting bcd"
    )
    assert hide_secrets_of("redis://u:p%40ss@h", "wrong: p@ss or p%40ss") == "wrong: *** or ***"


def test_a_long_text_takes_no_long_time() -> None:
    """Every scheme is found once: a text of 200 kB without blanks takes milliseconds, not minutes."""
    assert hide_secrets_in("a" * 200_000 + "://u:p@h").endswith("://u:***@h")
    assert hide_secrets_in("a.b-c+" * 40_000 + "=:") == "a.b-c+" * 40_000 + "=:"
    assert hide_secrets_in("?a=" * 60_000) == "?a=" * 60_000


def test_the_module_needs_only_the_standard_library() -> None:
    """The runner of jobs loads it where no Gossamer is installed."""
    code = f"import runpy; print(runpy.run_path({credentials.__file__!r})['hide_secrets_in']('ftp://u:p@h'))"
    said = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "ftp://u:***@h\n"
