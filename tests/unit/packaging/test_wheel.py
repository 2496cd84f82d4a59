"""`tests/servers/wheel` runs tests by their names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "tests" / "servers" / "wheel"


def test_every_test_that_the_wheel_runs_exists() -> None:
    text = PROGRAM.read_text()
    for name, path in re.findall(r"^(\w+)=(tests/\S+\.py)$", text, re.MULTILINE):
        text = text.replace(f"${name}", path)
    named = re.findall(r"(tests/\S+\.py)(?:::(\w+))?", text)
    assert len(named) > 5
    for path, test in named:
        line = f"def {test}(" if test else "def test_"
        assert line in (ROOT / path).read_text(), f"{path}::{test}"
