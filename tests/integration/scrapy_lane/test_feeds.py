"""Feeds of plain Scrapy projects are never half-written under their names."""

import contextlib
import ftplib
import gzip
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from gossamer.scrapy import feeds
from tests.integration.scrapy_lane.test_pipelines import SPIDERS, program_settings
from tests.servers.ftp import ftp_server
from tests.servers.nursery import SCRAPY, Reared
from tests.servers.program import until
from tests.servers.s3 import S3Server, s3_server
from tests.servers.scraping import ROOT

ITEMS = [{"number": number, "price": 1.0} for number in range(300)]


def begin(folder: Path, *options: str, feeds: dict[str, Any] | None = None, **settings: Any) -> Reared:
    """A `scrapy runspider` of a project with the add-on."""
    (folder / "items.json").write_text(json.dumps(ITEMS))
    given = {"ADDONS": {"gossamer.scrapy.WholeFeeds": 0}, "FEEDS": feeds or {}, **settings}
    (folder / "shop_settings.py").write_text("".join(f"{name} = {value!r}\n" for name, value in given.items()))
    arguments = ["runspider", str(SPIDERS), "-a", f"file={folder / 'items.json'}", *options]
    environment = {
        **{name: value for name, value in os.environ.items() if name != "SCRAPY_JOB"},
        "PYTHONPATH": f"{ROOT}:{folder}",
        "SCRAPY_SETTINGS_MODULE": "shop_settings",
    }
    return Reared(SCRAPY, arguments, environment=environment, log=folder / "log", folder=folder, appends=True)


def finish(folder: Path, *options: str, **settings: Any) -> None:
    with begin(folder, *options, **settings) as process:
        assert process.wait(60) == 0, (folder / "log").read_text()


def numbers(path: Path) -> list[int]:
    return sorted(json.loads(line)["number"] for line in path.read_text().splitlines())


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "out"
    feeds = {f"{out}/%(batch)s_%(name)s_%(time)s.jl": {"format": "jsonlines"}}
    (tmp_path / "hang-1").touch()
    halting = {
        **program_settings(tmp_path, TIMEOUT="600", START_SECONDS="600"),
        "ITEM_PIPELINES": {"gossamer.scrapy.pipelines.ProgramPipeline": 1},
    }
    with begin(tmp_path, "-a", "batch=b1", feeds=feeds, **halting) as process:
        # One program hangs with the first item; the feed has the others.
        until(lambda: process.poll() is not None or any(out.glob(".*.part")), "the hidden file")
        process.kill()
    assert not [*out.glob("b1*")]
    (hidden,) = out.iterdir()
    assert re.fullmatch(r"\.b1_items_.*\.jl\.\w+\.part", hidden.name)

    finish(tmp_path, "-a", "batch=b1", feeds=feeds)
    (whole,) = out.glob("b1*")
    assert re.fullmatch(r"b1_items_\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\+00-00\.jl", whole.name)
    assert numbers(whole) == [*range(300)]
    assert {*out.iterdir()} == {hidden, whole}

    finish(tmp_path, feeds=feeds)
    assert len([*out.glob("all_items_*.jl")]) == 1


def test_a_feed_that_is_appended_to_keeps_its_content(tmp_path: Path) -> None:
    out = tmp_path / "out.jl"
    for _ in range(2):
        finish(tmp_path, "-o", f"{out}:jsonlines")
    assert numbers(out) == sorted([*range(300)] * 2)
    finish(tmp_path, "-O", f"{out}:jsonlines")
    assert numbers(out) == [*range(300)]
    assert not [*tmp_path.glob(".*.part")]


def test_a_pipe_is_written_itself(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with begin(tmp_path, "-O", f"{pipe}:jsonlines") as process:
        assert numbers(pipe) == [*range(300)]
        assert process.wait(60) == 0
    assert pipe.is_fifo()


@pytest.fixture
def ftp(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address and folder of an FTP server."""
    with ftp_server(tmp_path / "ftp") as address:
        yield address, tmp_path / "ftp"


def test_an_upload_by_ftp_is_renamed_when_it_is_complete(tmp_path: Path, ftp: tuple[str, Path]) -> None:
    address, stored = ftp
    (stored / "a").mkdir()
    (stored / "a" / "b1_items.jl").write_text("of an earlier attempt")
    finish(tmp_path, "-a", "batch=b1", feeds={f"{address}/a/%(batch)s_%(name)s.jl": {"format": "jsonlines"}})
    assert numbers(stored / "a" / "b1_items.jl") == [*range(300)]
    assert [path.name for path in (stored / "a").iterdir()] == ["b1_items.jl"]


@pytest.mark.parametrize("addon", ["Addon", "WholeFeeds"])
def test_the_log_has_no_password_of_a_feed_by_ftp(tmp_path: Path, ftp: tuple[str, Path], addon: str) -> None:
    address, stored = ftp
    assert ":secret@" in address
    alone = {"ADDONS": {f"gossamer.scrapy.{addon}": 0}, "SCHEDULER": "scrapy.core.scheduler.Scheduler"}
    finish(tmp_path, feeds={f"{address}/items.jl": {"format": "jsonlines"}}, **alone)
    assert len(numbers(stored / "items.jl")) == 300
    if addon == "Addon":  # the other one tries a failed upload again, much later
        (stored / "a").write_text("a file where a folder has to be")
        finish(tmp_path, feeds={f"{address}/a/items.jl": {"format": "jsonlines"}}, **alone)
        assert "Error storing jsonlines feed (300 items) in: " in (tmp_path / "log").read_text()
    log = (tmp_path / "log").read_text()
    shown = address.replace(":secret@", ":***@")
    assert f"Stored jsonlines feed (300 items) in: {shown}/items.jl" in log
    assert "secret" not in log


class OnWarning(logging.Handler):
    """Runs something at the first warning of the feeds."""

    def __init__(self, action: Any) -> None:
        super().__init__(logging.WARNING)
        self._actions = [action]

    def emit(self, record: logging.LogRecord) -> None:
        while self._actions:
            self._actions.pop()()


@pytest.mark.parametrize("recovers", [True, False])
def test_a_failed_upload_by_ftp_is_repeated_and_at_last_the_local_file_is_kept(
    tmp_path: Path,
    ftp: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    recovers: bool,
) -> None:
    address, stored = ftp
    (stored / "a").write_text("a file where a folder has to be")
    (tmp_path / "local").mkdir()
    monkeypatch.setattr(feeds, "_PAUSES", (0.0, 0.0))
    handler = OnWarning((stored / "a").unlink if recovers else lambda: None)
    monkeypatch.setattr(feeds.log, "handlers", [handler])
    crawler = get_crawler(settings_dict={"FEED_TEMPDIR": str(tmp_path / "local")})
    storage = feeds.WholeFTPStorage(f"{address}/a/items.jl")
    file = storage.open(crawler._create_spider("items"))
    file.write(b"content")
    with contextlib.nullcontext() if recovers else pytest.raises(ftplib.error_perm):
        storage._store_in_thread(file)
    kept = [*(tmp_path / "local").iterdir()]
    levels = [record.levelname for record in caplog.records if record.name == feeds.log.name]
    if recovers:
        assert (levels, kept) == (["WARNING"], [])
        assert {path.name: path.read_text() for path in (stored / "a").iterdir()} == {"items.jl": "content"}
    else:
        assert levels == ["WARNING", "WARNING", "ERROR"]
        assert [path.read_text() for path in kept] == ["content"]
        assert str(kept[0]) in caplog.records[-1].getMessage()


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def test_a_feed_in_s3_is_whole(tmp_path: Path, s3: S3Server) -> None:
    import s3fs

    address = f"http://127.0.0.1:{s3.port}"
    settings = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION_NAME": "us-east-1",
    }
    feeds = {"s3://platform/%(batch)s_%(name)s.jl": {"format": "jsonlines"}}
    finish(tmp_path, "-a", "batch=b1", feeds=feeds, **settings)
    files = s3fs.S3FileSystem(key="key", secret="secret", endpoint_url=address, use_listings_cache=False)
    assert [json.loads(line)["number"] for line in files.cat("platform/b1_items.jl").splitlines()] == [*range(300)]


def test_every_format_and_plugin_writes_whole_feeds(tmp_path: Path) -> None:
    out = tmp_path / "out"
    feeds: dict[str, Any] = {f"{out}/items.{name}": {"format": name} for name in ("json", "csv", "xml", "pickle")}
    feeds[f"{out}/items.jl.gz"] = {
        "format": "jsonlines",
        "postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"],
    }
    feeds[f"{out}/part-%(batch_id)d.jl"] = {"format": "jsonlines", "batch_item_count": 100}
    finish(tmp_path, feeds=feeds)
    assert sorted(item["number"] for item in json.loads((out / "items.json").read_text())) == [*range(300)]
    assert len((out / "items.csv").read_text().splitlines()) == 301
    assert (out / "items.xml").read_text().count("<number>") == 300
    assert len(gzip.decompress((out / "items.jl.gz").read_bytes()).splitlines()) == 300
    parts = [numbers(out / f"part-{number}.jl") for number in (1, 2, 3)]
    assert sorted(number for part in parts for number in part) == [*range(300)]
    assert not [*out.glob(".*")]
