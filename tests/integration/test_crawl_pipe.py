"""Standard output as the output, with a reader that goes away."""

import os
import subprocess
from pathlib import Path

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.sinks.jsonl import read_records
from gossamer_fakeweb import graph
from tests.servers.crawling import command, gossamer, resolving

SPEC = WebSpec(hosts=1, pages=200)


def test_a_reader_that_goes_away_ends_the_crawl_and_loses_nothing(tmp_path: Path) -> None:
    with FakeWeb.start(SPEC) as web:
        flags = [*resolving(web.resolve_overrides()), "--rate", "1000/1", "--crawl-id", "piped"]
        reading, writing = os.pipe()
        with subprocess.Popen(
            command("crawl", *web.seeds(), *flags, "-o", "-"), cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE
        ) as process:
            os.close(writing)
            with os.fdopen(reading, "rb") as pages:
                for _ in range(60):
                    pages.readline()
            _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert b"The reader closed the output" in said
        ended = gossamer("crawl", *web.seeds(), *flags, "-o", "rest.jsonl", cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert 0 < len(list(read_records(tmp_path / "rest.jsonl"))) < len(graph(web.site))
