"""The integration tests of Scrapyd 1.6.0 itself, unchanged, pass against `gossamer scrapyd`."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.servers.pip_programs import program, source
from tests.servers.scrapyd import scrapyd

_TESTS = 31
"""Number of the tests in that release."""
_OPTIONS = ("-p", "elsewhere", "-p", "no:cacheprovider", "-q")
_LOGIN = "username = hello12345\npassword = 67890world\n"
"""What the tests expect in the server's configuration."""


def test_scrapyds_own_integration_tests_pass(tmp_path: Path, state_database: str) -> None:
    folder = source("scrapyd")
    with scrapyd(tmp_path, conf=f"{_LOGIN}{state_database}") as server:
        # Alone in its folder, because modules beside it could hide those of the standard library.
        (tmp_path / "plugins").mkdir()
        shutil.copy("tests/servers/elsewhere.py", tmp_path / "plugins")
        plugins = {"PYTHONPATH": str(tmp_path / "plugins"), "GOSSAMER_TEST_PORT": str(server.port)}
        done = subprocess.run(
            # Not with the options of Scrapyd's developers, which need plugins.
            [program("clients", "pytest"), "-c", os.devnull, "--rootdir", ".", *_OPTIONS, "integration_tests"],
            cwd=folder,
            env={**os.environ, **plugins},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"\b{_TESTS} passed in ", done.stdout), done.stdout
