"""Browsers of these tests have their sandbox, except on a system without the user namespaces that it needs."""

import os
import subprocess

import pytest

from gossamer.render.program import browser_user


@pytest.fixture(autouse=True, scope="session")
def _sandbox() -> None:
    user = browser_user("")
    as_user = {"user": user.uid, "group": user.gid, "extra_groups": []} if user else {}
    if subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False, **as_user).returncode:
        os.environ["GOSSAMER_BROWSER__SANDBOX"] = "no"
