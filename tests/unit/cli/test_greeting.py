"""What `gossamer up` and `gossamer serve` tell to try works as it stands."""

from pathlib import Path
from typing import Any

import pytest

from gossamer.cli.commands.up import greeting
from gossamer.settings import Settings
from gossamer.settings.service import TopicSettings

API = "http://127.0.0.1:5343"


@pytest.mark.parametrize(
    ("named", "flags"),
    [
        ({"bus": "streams"}, ""),
        ({"bus": "streams", "frontier": "redis://f.test:6379"}, " --frontier redis://f.test:6379"),
        ({"bus": "streams", "data_dir": Path("my crawls")}, " --data-dir 'my crawls'"),
        ({"bus": "kafka://b.test:9092", "frontier": "redis://f"}, " --frontier redis://f --bus kafka://b.test:9092"),
        ({"bus": "streams", "topics": TopicSettings(prefix="news")}, " --prefix news"),
    ],
)
def test_commands_to_try_name_the_cluster(named: dict[str, Any], flags: str) -> None:
    lines = greeting(Settings(**named), API, "demo.crawled_firehose", with_workers=True).splitlines()
    [feed] = [line for line in lines if line.startswith("  gossamer feed")]
    [dump] = [line for line in lines if line.startswith("  gossamer dump")]
    assert feed.endswith("}'" + flags)
    assert dump.endswith(" --no-body" + flags)


@pytest.mark.parametrize("bus", ["streams", "kafka://b.test:9092"])
def test_a_worker_to_start_is_told_the_bus(bus: str) -> None:
    said = greeting(Settings(bus=bus, frontier="redis://f"), API, "demo.crawled_firehose", with_workers=False)
    assert f"gossamer worker --frontier redis://f --bus {bus}\n" in said
