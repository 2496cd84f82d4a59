"""A short crawl of the hostile web; `test_judge.py` shows that its judge sees what is wrong."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_short_crawl_of_the_hostile_web(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.hostile", "--short", "--folder", str(tmp_path / "run")]
    ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
