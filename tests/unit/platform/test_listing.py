"""Listings of folders with files that are not as a job writes them."""

import os
from pathlib import Path

from gossamer_platform.scrapyd.config import load
from gossamer_platform.scrapyd.frame import PageFrame
from gossamer_platform.scrapyd.listing import PageRequest, serve


def test_a_strange_file_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text("x")
    with open(os.fsencode(tmp_path) + b"/bad\xff.log", "w"):
        pass
    (tmp_path / "loop").symlink_to("loop")
    answer = serve(tmp_path, "", PageRequest("/logs/", "GET", {}, PageFrame(load([], {}), "")))
    assert answer is not None
    page = bytes(answer.body).decode()
    assert ">good.log<" in page
    assert 'href="bad%FF.log">bad\\xff.log<' in page
    assert "loop" not in page
    assert serve(tmp_path, "loop", PageRequest("/logs/loop", "GET", {}, PageFrame(load([], {}), ""))) is None
