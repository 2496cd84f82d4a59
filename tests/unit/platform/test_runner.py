"""The program that runs a Scrapy job, over spiders that need no network."""

import json
import subprocess
import sys
from pathlib import Path

from gossamer_platform.node import runner

SPIDER = """
import scrapy

class Counting(scrapy.Spider):
    name = "counting"
    start_urls = ["data:,page"]

    def parse(self, response):
        loop = {(1, 2): 3}
        loop["itself"] = loop
        self.crawler.stats.inc_value(("shop", 1))
        self.crawler.stats.set_value("loop", loop)
        yield {"url": response.url}
"""


def make_job(place: Path) -> Path:
    """A folder with the job of a project, as a node makes it."""
    project, folder = place / "project", place / "job"
    project.mkdir()
    folder.mkdir()
    (project / "scrapy.cfg").write_text("[settings]\ndefault = settings_of_it\n")
    (project / "settings_of_it.py").write_text("SPIDER_MODULES = ['spiders_of_it']\n")
    (project / "spiders_of_it.py").write_text(SPIDER)
    job = {"artefact": str(project), "settings_module": "", "spider": "counting", "items": str(folder / "items.jl")}
    (folder / "job.json").write_text(json.dumps({**job, "settings": {"TELNETCONSOLE_ENABLED": "0"}, "arguments": {}}))
    return folder


def test_counters_that_json_lacks_cost_no_item_and_no_report(tmp_path: Path) -> None:
    folder = make_job(tmp_path)

    ended = subprocess.run(
        [sys.executable, runner.__file__, "crawl", str(folder)], capture_output=True, text=True, timeout=60
    )

    assert ended.returncode == 0, ended.stderr
    assert [json.loads(line) for line in (folder / "items.jl").read_text().splitlines()] == [{"url": "data:,page"}]
    report = json.loads((folder / "report.json").read_text())
    assert (report["finish_reason"], report["fault"]) == ("finished", "")
    assert report["stats"]["('shop', 1)"] == 1


def test_the_end_is_reported_when_it_can_be_written(tmp_path: Path) -> None:
    folder = make_job(tmp_path)
    for name in ("report", "progress"):  # neither can be written, as on a full disk
        (folder / f"{name}.json.new").mkdir()

    with subprocess.Popen(
        [sys.executable, runner.__file__, "crawl", str(folder)], stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        said = next(line for line in running.stderr if "cannot be reported" in line)
        (folder / "report.json.new").rmdir()
        rest = running.stderr.read()

    assert "The end of the job cannot be reported yet" in said
    assert running.returncode == 0
    assert "Traceback" not in rest
    assert json.loads((folder / "report.json").read_text())["finish_reason"] == "finished"
