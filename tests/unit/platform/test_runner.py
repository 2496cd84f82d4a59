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


def test_counters_that_json_lacks_cost_no_item_and_no_report(tmp_path: Path) -> None:
    project, folder = tmp_path / "project", tmp_path / "job"
    project.mkdir()
    folder.mkdir()
    (project / "scrapy.cfg").write_text("[settings]\ndefault = settings_of_it\n")
    (project / "settings_of_it.py").write_text("SPIDER_MODULES = ['spiders_of_it']\n")
    (project / "spiders_of_it.py").write_text(SPIDER)
    items = folder / "items.jl"
    job = {"artefact": str(project), "settings_module": "", "spider": "counting", "items": str(items)}
    (folder / "job.json").write_text(json.dumps({**job, "settings": {"TELNETCONSOLE_ENABLED": "0"}, "arguments": {}}))

    ended = subprocess.run(
        [sys.executable, runner.__file__, "crawl", str(folder)], capture_output=True, text=True, timeout=60
    )

    assert ended.returncode == 0, ended.stderr
    assert [json.loads(line) for line in items.read_text().splitlines()] == [{"url": "data:,page"}]
    report = json.loads((folder / "report.json").read_text())
    assert (report["finish_reason"], report["fault"]) == ("finished", "")
    assert report["stats"]["('shop', 1)"] == 1
