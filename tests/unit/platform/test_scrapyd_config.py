"""Scrapyd's configuration files and variables."""

from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer_platform.scrapyd.config import SERVICES, load


def _load(tmp_path: Path, *texts: str, **environment: str) -> object:
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"{number}.conf")
        files[-1].write_text(text)
    return load([str(file) for file in files], environment)


def test_the_defaults_are_those_of_scrapyd() -> None:
    config = load([], {})
    assert (config.bind_address, config.http_port, config.eggs_dir) == ("127.0.0.1", 6800, "eggs")
    assert (config.logs_dir, config.items_dir, config.dbs_dir) == ("logs", "", "dbs")
    assert (config.jobs_to_keep, config.finished_to_keep, config.slots % 4) == (5, 100, 0)
    assert config.services == frozenset(SERVICES)
    assert config.node_name


def test_a_later_file_takes_precedence_and_a_variable_over_all(tmp_path: Path) -> None:
    first = "[scrapyd]\nhttp_port = 1\nmax_proc = 3\nusername = a\n"
    second = "[scrapyd]\nhttp_port = 2\nlogs_dir =\n"
    config = load_two(tmp_path, first, second)
    assert (config.http_port, config.slots, config.username, config.logs_dir) == (2, 3, "a", "")
    config = load_two(tmp_path, first, second, SCRAPYD_HTTP_PORT="3", SCRAPYD_USERNAME="b", SCRAPYD_MAX_PROC="9")
    assert (config.http_port, config.username, config.slots) == (3, "b", 3)  # the last has no variable in Scrapyd


def load_two(tmp_path: Path, first: str, second: str, **environment: str):  # type: ignore[no-untyped-def]
    """The configuration of two files."""
    return _load(tmp_path, first, second, **environment)


def test_scrapyds_own_defaults_are_accepted(tmp_path: Path) -> None:
    text = "[scrapyd]\nrunner = scrapyd.runner\njobstorage = scrapyd.jobstorage.SqliteJobStorage\npoll_interval = 1\n"
    services = "".join(f"{name} = {path}\n" for name, path in SERVICES.items())
    assert load_two(tmp_path, text, f"[services]\n{services}").services == frozenset(SERVICES)


def test_an_endpoint_is_switched_off(tmp_path: Path) -> None:
    assert "cancel.json" not in load_two(tmp_path, "[services]\ncancel.json =\n", "").services


def test_items_at_an_address_are_not_local(tmp_path: Path) -> None:
    config = load_two(tmp_path, "[scrapyd]\nitems_dir = s3://bucket/items\n", "")
    assert not config.has_local_items
    assert load_two(tmp_path, "[scrapyd]\nitems_dir = file:///srv/items\n", "").items_folder == "/srv/items"


@pytest.mark.parametrize(
    "option",
    ["application", "spiderqueue", "poller", "launcher", "runner", "webroot", "eggstorage", "jobstorage"],
)
def test_a_class_that_is_not_scrapyds_default_is_refused_by_name(tmp_path: Path, option: str) -> None:
    with pytest.raises(BadInput, match=f"{option} = my.own.Class: .*remove the option"):
        load_two(tmp_path, f"[scrapyd]\n{option} = my.own.Class", "")


@pytest.mark.parametrize("name", [*SERVICES, "mine.json"])
def test_a_service_that_is_not_scrapyds_default_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} = my.own.Service: .*remove the line"):
        load_two(tmp_path, f"[services]\n{name} = my.own.Service", "")


@pytest.mark.parametrize(
    ("variable", "value", "option"),
    [
        ("SCRAPYD_BIND_ADDRESS", "0.0.0.0", "bind_address"),
        ("SCRAPYD_HTTP_PORT", "6999", "http_port"),
        ("SCRAPYD_UNIX_SOCKET_PATH", "/run/scrapyd.sock", "unix_socket_path"),
        ("SCRAPYD_USERNAME", "admin", "username"),
        ("SCRAPYD_PASSWORD", "pa:ss", "password"),
        ("SCRAPYD_DATABASE_URL", "postgresql+psycopg://a@/b", "database_url"),
    ],
)
def test_a_variable_takes_precedence_over_the_files(tmp_path: Path, variable: str, value: str, option: str) -> None:
    text = f"[scrapyd]\n{option} = {'1' if option == 'http_port' else 'other'}\n"
    assert str(getattr(load_two(tmp_path, text, "", **{variable: value}), option)) == value
    assert str(getattr(load_two(tmp_path, text, "", **{variable: ""}), option)) != value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[scrapyd]\nhttp_port = 70000", "http_port"),
        ("[scrapyd]\nmax_proc = many", "max_proc"),
        ("[scrapyd]\nstop_grace = inf", "stop_grace"),
        ("[scrapyd]\ndebug = perhaps", "debug"),
        ("[scrapyd]\ntrusted_proxies = proxy", "trusted_proxies .*'proxy' is not a network"),
        ("nonsense", "cannot be read"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        load_two(tmp_path, text, "")


def test_proxies_whose_clients_are_counted(tmp_path: Path) -> None:
    text = "[scrapyd]\ntrusted_proxies = 10.0.0.0/8, ::1\n"
    assert load([], {}).trusted_proxies == ()
    assert list(map(str, load_two(tmp_path, text, "").trusted_proxies)) == ["10.0.0.0/8", "::1/128"]
    variable = {"SCRAPYD_TRUSTED_PROXIES": "127.0.0.1"}
    assert list(map(str, load_two(tmp_path, text, "", **variable).trusted_proxies)) == ["127.0.0.1/32"]


def test_the_settings_that_may_be_given_to_jobs(tmp_path: Path) -> None:
    def names(value: str) -> object:
        return load_two(tmp_path, f"[scrapyd]\nrun_settings = {value}\n", "").run_settings

    assert load([], {}).run_settings is None
    assert names("all") is None
    assert names("none") == frozenset()
    assert names("LOG_LEVEL, DOWNLOAD_DELAY") == {"LOG_LEVEL", "DOWNLOAD_DELAY"}
    for wrong in ("FEEDS={}", "log_level", "none LOG_LEVEL"):
        with pytest.raises(BadInput, match=r"run_settings of Scrapyd's configuration: .*write names of settings"):
            names(wrong)
