"""The code of the page about pipelines runs, and names settings and classes that exist."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.misc import load_object

from gossamer.scrapy.pipelines.lookup import LOOKUP_SETTINGS
from gossamer.scrapy.pipelines.programs import PROGRAM_SETTINGS
from gossamer.scrapy.pipelines.workers import WORKER_SETTINGS

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "pipelines.md"
_KNOWN = {
    *LOOKUP_SETTINGS,
    *PROGRAM_SETTINGS,
    *WORKER_SETTINGS,
    "MYSQL_PIPELINE_URL",
    "ITEM_PIPELINES",
    "ADDONS",
    "FEEDS",
}


def test_the_code_runs_and_its_settings_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("100\n"))  # of the program for `ProgramPipeline`
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    made: dict[str, Any] = {}
    for block in blocks:
        exec(block, made)
    assert capsys.readouterr().out == "120.0\n"
    settings = {name for name in made if name.isupper()}
    assert settings
    assert settings <= _KNOWN
    assert all(load_object(path) for path in {**made["ITEM_PIPELINES"], **made["ADDONS"]})
    assert made["VatPipeline"].parse(None, {"rates": [19]}) == 19
    assert made["WordsPipeline"].compute({"description": "a b"})["words"] == 2


def test_settings_in_the_text_exist() -> None:
    named = re.findall(r"`((?:GEO|PROGRAM|THREAD|PROCESS|REDIS)_PIPELINE_[A-Z_]+)", PAGE.read_text())
    assert named
    assert {*named} <= _KNOWN
