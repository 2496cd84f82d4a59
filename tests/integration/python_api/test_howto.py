"""Programs in docs/howto/python.md, run as they stand against a web of ours."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.program import python

ROOT = Path(__file__).parents[3]
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto/python.md").read_text(), re.DOTALL)


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 6


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs_as_it_stands(program: str, tmp_path: Path) -> None:
    """But for the site, which is a small one on this machine, at full speed."""
    with FakeWeb.start(WebSpec(hosts=1, pages=15)) as web:
        (seed,) = web.seeds()
        script = tmp_path / "program.py"
        script.write_text(program.replace("https://example.com", seed).replace("rate=5,", "rate=1000,"))
        addresses = ",".join(f'"{host}":"{address}"' for host, address in _pairs(web))
        done = subprocess.run(
            [python(), script.name],
            cwd=tmp_path,
            env={**os.environ, "GOSSAMER_CRAWL__RATE": "1000/1", "GOSSAMER_FETCH__RESOLVE": f"{{{addresses}}}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def _pairs(web: FakeWeb) -> list[tuple[str, str]]:
    """Return the addresses of the web's hosts."""
    return [(host, address) for host, _, address in (text.partition(":") for text in web.resolve_overrides())]
