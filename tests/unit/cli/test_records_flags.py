"""--items and --pages belong to the -o before them, however it is written."""

import pytest

from gossamer.cli.app import find
from gossamer.cli.options import destinations, load_settings
from gossamer.errors import BadInput
from gossamer.model.record import Destination
from gossamer.settings import Settings, load


def read(line):
    """The outputs of a command line, as the command gets them."""
    return list(destinations(find("crawl").read(line.split())["output"]))


def test_each_output_gets_its_own_records():
    assert read("URL -o items.csv --items -o pages.jsonl --pages -o all.jsonl") == [
        Destination("items.csv", "items"),
        Destination("pages.jsonl", "pages"),
        Destination("all.jsonl"),
    ]
    assert read("-o a.sqlite --items --depth 3 --pages") == [Destination("a.sqlite", "all")]


@pytest.mark.parametrize("written", ["-oa.csv", "-o=a.csv", "-qoa.csv", "--output=a.csv", "--output a.csv"])
def test_every_spelling_of_the_option_is_known(written):
    assert read(f"{written} --items") == [Destination("a.csv", "items")]


def test_flags_without_an_output_stay_and_are_refused():
    before = find("crawl").read(["URL", "--items", "-o", "a.csv"])
    assert (before["items"], before["output"]) == (True, ["a.csv"])
    behind = find("crawl").read(["-o", "a", "--", "--items"])
    assert (behind["items"], behind["output"], behind["urls"]) == (None, ["a"], ["--items"])
    with pytest.raises(BadInput, match="--items belongs to the -o before it"):
        load_settings({"config": None, "items": True, "pages": None})


@pytest.mark.parametrize(
    "value",
    [
        "items.csv",
        ["items.csv"],
        [Destination("items.csv")],
        [{"path": "items.csv"}],
        {"path": "items.csv"},
    ],
)
def test_the_setting_takes_paths_and_tables(value):
    assert load({"crawl.output": value}).crawl.output == (Destination("items.csv"),)


def test_the_setting_takes_records(monkeypatch, tmp_path):
    expected = (Destination("a.csv", "items"), Destination("b.jsonl", "pages"))
    assert load({"crawl.output": {"a.csv": "items", "b.jsonl": "pages"}}).crawl.output == expected
    config = tmp_path / "gossamer.toml"
    config.write_text(
        '[crawl]\noutput = [{path = "a.csv", records = "items"}, {path = "b.jsonl", records = "pages"}]\n'
    )
    settings = load(config=config)
    assert settings.crawl.output == expected
    assert Settings.from_json(settings.as_json()).crawl.output == expected  # as worker processes get it
    monkeypatch.setenv("GOSSAMER_CRAWL__OUTPUT", "a.csv, b.jsonl")
    assert load().crawl.output_paths == ("a.csv", "b.jsonl")
    with pytest.raises(BadInput, match="records"):
        load({"crawl.output": {"a.csv": "nonsense"}})
