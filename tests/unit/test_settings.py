"""Settings come from flags, the environment and a file, in this order; what is wrong is said in one line."""

import ast
from pathlib import Path
from typing import get_args

import pytest

import gossamer
from gossamer.errors import BadInput
from gossamer.model import DATA_DIR
from gossamer.model.messages.reader import schema
from gossamer.settings import load
from gossamer.settings.crawl import CrawlSettings
from gossamer.settings.fetch import FetchSettings
from gossamer.settings.rows import rows


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gossamer.toml").write_text('prefix = "file"\n[crawl]\ndepth = 1\nmax_pages = 1\nrate = "9/1"\n')
    monkeypatch.setenv("GOSSAMER_CRAWL__DEPTH", "2")
    monkeypatch.setenv("GOSSAMER_CRAWL__MAX_PAGES", "2")
    settings = load({"crawl.depth": 3, "crawl.scope": None})
    assert (settings.crawl.depth, settings.crawl.max_pages, settings.crawl.rate) == (3, 2, "9/1")
    assert (settings.prefix, settings.crawl.scope) == ("file", "domain")


@pytest.mark.parametrize(
    "content", ["[crawl]\ndepht = 1\n", "[crawl]\ndepth = 'deep'\n", "crawl = 1\n", "[", "unknown = 1\n"]
)
def test_a_wrong_file_is_said_in_one_line(content: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(content)
    with pytest.raises(BadInput) as caught:
        load(config=config)
    assert "\n" not in str(caught.value)


def test_names_are_unique_and_every_setting_says_what_it_is() -> None:
    table = rows()
    assert len({name for name, *_ in table}) == len(table)
    assert all(meaning for *_, meaning in table)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("127.0.0.0/8,10.0.0.0/8", ("127.0.0.0/8", "10.0.0.0/8")),
        ("127.0.0.0/8", ("127.0.0.0/8",)),
        (" 127.0.0.0/8 , fd00::/8,", ("127.0.0.0/8", "fd00::/8")),
        ('["127.0.0.0/8"]', ("127.0.0.0/8",)),
        ("", ()),
    ],
)
def test_lists_in_the_environment(written: str, meant: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_ALLOW_NETWORKS", written)
    assert load().allow_networks == meant


def test_lists_of_words_in_options() -> None:
    """With commas, or the option several times; an expression keeps its commas."""
    words = {"fetch.accept_refused": ("same, empty", "login"), "browser.load": "images,fonts"}
    settings = load({**words, "crawl.deny": ("a{1,2}",)}, config=None)
    assert settings.fetch.accept_refused == ("same", "empty", "login")
    assert settings.browser.load == ("images", "fonts")
    assert settings.crawl.deny == ("a{1,2}",)


def test_an_expression_in_the_environment_keeps_its_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_CRAWL__DENY", "a{1,2}")
    assert load().crawl.deny == ("a{1,2}",)


def test_half_a_list_in_the_environment_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_ALLOW_NETWORKS", '["127.0.0.0/8"')
    with pytest.raises(BadInput) as caught:
        load()
    assert "\n" not in str(caught.value)
    assert "GOSSAMER_ALLOW_NETWORKS" in str(caught.value)


@pytest.mark.parametrize(
    ("group", "setting", "field"),
    [
        (CrawlSettings, "depth", "maxdepth"),
        (CrawlSettings, "domain_max_pages", "domain_max_pages"),
        (CrawlSettings, "domain_concurrency", "domain_concurrency"),
        (FetchSettings, "timeout", "timeout"),
        (FetchSettings, "retries", "retries"),
    ],
)
def test_commands_and_requests_to_a_service_accept_the_same_values(
    group: type[CrawlSettings] | type[FetchSettings], setting: str, field: str
) -> None:
    kind = group.fields[setting].kind
    limits = next(one for part in (kind, *get_args(kind)) for one in getattr(part, "__metadata__", ()))
    assert limits.le == schema("crawl")["properties"][field]["maximum"]


def test_a_variable_with_one_underscore_for_two_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_FETCH_TIMEOUT", "5")
    with pytest.raises(BadInput, match=r"^GOSSAMER_FETCH_TIMEOUT: .* Did you mean GOSSAMER_FETCH__TIMEOUT\?$"):
        load()


def test_a_variable_that_is_not_like_a_setting_belongs_to_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_CRAWL_ID", "5")
    load()


def test_the_default_data_directory_is_written_in_one_module() -> None:
    """So that no module looks elsewhere than the others. Texts for people, which have more words, may name it."""
    assert load().data_dir == Path(DATA_DIR)
    source = Path(gossamer.__file__).parent
    writers = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and str(node.value).split("/")[0] == DATA_DIR and " " not in str(node.value)
    }
    assert writers == {"model/__init__.py"}
