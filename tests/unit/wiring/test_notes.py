"""What `why` is told of a crawl that was begun here."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gossamer.model.crawl import Crawl, CrawlId, Run, Terms
from gossamer.wiring.frontier import CrawlNote, known_crawls, read_note, write_note

NOTE = CrawlNote(
    run=Run(Crawl(id=CrawlId("cli", "ours/1")), number=1, generation=2),
    terms=Terms(cookie="secret"),
    spider="link",
    outputs=("a.jsonl",),
)


def test_commands_that_begin_one_crawl_together_do_not_disturb_each_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: write_note(tmp_path, NOTE), range(400)))
    assert read_note(tmp_path, "ours/1") == NOTE
    assert known_crawls(tmp_path) == ["ours%2F1"]
    left = [path.name for path in (tmp_path / "crawls").iterdir()]
    assert left == ["ours%2F1.json"]


def test_a_note_is_for_its_owner_only(tmp_path: Path) -> None:
    write_note(tmp_path, NOTE)
    assert os.stat(tmp_path / "crawls" / "ours%2F1.json").st_mode & 0o077 == 0
