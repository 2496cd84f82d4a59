"""Addresses of stores: what they mean, and what is said of a wrong one."""

import pytest

from gossamer.errors import BadInput
from gossamer.model.record import Destination
from gossamer.sinks.open import check_outputs, ending_of
from gossamer.sinks.stores.address import StoreAddress, is_store
from gossamer.sinks.tables import TableOptions


def test_the_parts_of_an_address() -> None:
    address = StoreAddress.parse("postgresql://me:p%40ss@db.example/shop?table=offers&key=shop,url&tls=true")
    assert (address.kind, address.host, address.port, address.user, address.password) == (
        "postgresql", "db.example", 5432, "me", "p@ss",
    )  # fmt: skip
    assert (address.database, address.table, address.key, address.tls) == ("shop", "offers", ("shop", "url"), True)
    index = StoreAddress.parse("elasticsearch://[::1]:9201/offers?key=url")
    assert (index.kind, index.host, index.port, index.table, index.key) == (
        "opensearch",
        "::1",
        9201,
        "offers",
        ("url",),
    )
    assert StoreAddress.parse("mariadb://h/d").kind == "mysql"
    found = StoreAddress.parse("valkeys://:p@h/3?table=shop:offers&key=url&expire=60")
    assert (found.kind, found.port, found.database, found.password) == ("redis", 6379, "3", "p")
    assert (found.table, found.key, found.tls, found.expire_seconds) == ("shop:offers", ("url",), True, 60)
    assert StoreAddress.parse("redis://h?table=a").database == "0"


@pytest.mark.parametrize(
    ("variable", "address"),
    [
        ("PGPASSWORD", "postgresql://h/d"),
        ("MYSQL_PWD", "mysql://h/d"),
        ("OPENSEARCH_PASSWORD", "opensearch://me@h"),
        ("REDISCLI_AUTH", "redis://h/0?table=a"),
    ],
)
def test_the_password_may_be_in_the_environment(variable: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "s3cret")
    assert StoreAddress.parse(address).password == "s3cret"
    assert StoreAddress.parse(address.replace("//", "//you:own@").replace("own@me@", "own@")).password == "own"


@pytest.mark.parametrize(
    "address",
    ["mysql://me:s3cret@h/d", "mysql://me:s3cret/5@h/d", "mysql://me:s3cret@5@h/d", "postgres://:s3cret@h:1/d?key=a"],
)
def test_an_address_is_shown_without_its_password(address: str) -> None:
    try:
        shown = str(StoreAddress.parse(address))
    except BadInput as error:
        shown = str(error)
    assert "s3cret" not in shown
    assert ":***@h" in shown


@pytest.mark.parametrize(
    "address", ["ftp://me:se/cret@h/pages.unknown", "pgsql://me:se?cret@h/d", "s3://me:secret@b/x"]
)
def test_an_output_that_is_refused_is_shown_without_its_password(address: str) -> None:
    with pytest.raises(BadInput) as raised:
        check_outputs([Destination(address)])
    assert "cret" not in str(raised.value)
    assert address.partition(":")[0] in str(raised.value)


@pytest.mark.parametrize(
    "address",
    [
        "redis://me:12/s3cret@h/0?table=a",  # read as the host me, the port 12 and the database s3cret@h/0
        "redis://me:s3cret/1@h/0?table=a",
        "opensearch://me:1/S3cret@h",
        "mysql://me:1?s3cret=5@h/d",
        "postgresql://me:1#s3cret@h/d?tabel=x",
    ],
)
def test_no_part_of_a_password_that_is_not_encoded_is_shown(address: str) -> None:
    with pytest.raises(BadInput) as raised:
        StoreAddress.parse(address)
    assert "3cret" not in str(raised.value)
    assert "me:***@h" in str(raised.value)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("postgresql://me:s3cret@h", "names no database. Write postgresql://USER@HOST:5432/DATABASE?table=NAME."),
        ("mysql://me:s3cret@h/d?tabel=x", "unknown option tabel; known are host, key, table, tls"),
        ("mysql://me:s3cret@h/d?tls=perhaps", "tls is true or false"),
        ("mysql://me:s3cret@h/d?table=a-b", "cannot be the name of a table"),
        ("mysql://me:s3cret@h:x/d", "cannot read the address"),
        ("mysql://me:s3cret@h..example/d", "cannot read the address"),
        (f"redis://:s3cret@{'h' * 64}/0?table=a", "cannot read the address"),
        ("opensearch://me:s3cret@h/Shop", "cannot be the name of an index"),
        ("opensearch://h/a?table=b", "the index is the path, and not the option table"),
        ("redis://:s3cret@h/0", "names no hash. Write redis://HOST:6379/0?table=NAME."),
        ("redis://:s3cret@h/shop?table=a", "a database of Redis is a number, not 'shop'"),
        ("redis://:s3cret@h/0?table=a%20b", "cannot be the name of a hash"),
        ("redis://:s3cret@h/0?table=a&expire=0", "expire is a number of seconds from 1 to"),
        ("mysql://me:s3cret@h/d?expire=5", "unknown option expire"),
        ("postgresql://h/d?host=elsewhere", "is not the path of a socket"),
        ("postgresql://me:s3cret@h/d?table=", "the option table has no value; write table=VALUE, or leave it out"),
        ("mysql://me:s3cret@h/d?table=a&key=", "the option key has no value"),
        ("redis://:s3cret@h/0?table=a&expire=", "the option expire has no value"),
        ("redis://:s3cret@h/0?table=a&table=b", "the option table is there twice"),
    ],
)
def test_a_wrong_address_is_refused_in_one_line(address: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        StoreAddress.parse(address)
    message = str(raised.value)
    assert words in message
    assert "s3cret" not in message
    assert "\n" not in message


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(
        BadInput, match="is no database that is supported, whose addresses begin with postgresql, postgres, mysql"
    ) as raised:
        check_outputs(["cassandra://me:s3cret@h/d"])
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["mongodb", "mongodb+srv", "mongo"])
def test_mongodb_is_refused_with_the_databases_that_are_supported(scheme: str) -> None:
    with pytest.raises(
        BadInput, match=r"MongoDB is not supported\. Addresses of the databases that are supported begin with"
    ) as raised:
        check_outputs([f"{scheme}://me:s3cret@h/shop"])
    assert "unknown ending" not in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_pages_and_items_need_two_tables() -> None:
    from gossamer.model.record import Destination

    with pytest.raises(BadInput, match="cannot hold both pages and items"):
        check_outputs([Destination("mysql://h/d?table=x", "all")], tables=TableOptions(has_items=True))


def test_other_outputs_are_no_stores() -> None:
    for path in ("pages.jsonl", "s3://b/x.jsonl", "ftp://h/x.csv", "-", "file:///mysql.db"):
        assert not is_store(path)
    assert ending_of("ftp://h/x.csv") == ".csv"
