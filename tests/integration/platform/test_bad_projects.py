"""A project may do anything while its spiders are listed: that breaks its version with the reason, and nothing else."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.servers.scrapyd import Scrapyd, egg, scrapyd, spider, until

_LIMIT = 3
_HANGING: dict[str, str | int] = {"project": "shop", "version": "0", "wait_seconds": 0}
_FORKS = """
import subprocess, sys
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)  # forked by settings'], start_new_session=True)
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)  # forked by settings'], env={})
"""
_NONSENSE = """
import os, sys
with open(os.path.join(sys.argv[2], 'spiders.json'), 'w') as file:
    file.write({text!r})
os._exit(0)
"""
_BROKEN = {
    "settings that exit": ("import sys\nsys.exit(0)", "left no list of names"),
    "settings that exit with a message": ("import sys\nsys.exit('no licence')", "no licence"),
    "settings that print without end": (
        "import sys\nwhile True:\n    print('x' * 100000)\n    print('y' * 1000000, file=sys.stderr)",
        "yyyy",
    ),
    "settings that kill the lister": ("import os\nos.kill(os.getppid(), 9)\nimport time\ntime.sleep(600)", "shim_lost"),
    "settings that write another list": (_NONSENSE.format(text='{"a": 1}'), "left no list of names"),
    "settings that write a list of something else": (_NONSENSE.format(text="[1, [2]]"), "left no list of names"),
    "settings that write no JSON": (_NONSENSE.format(text="[" * 100_000), "left no list of names"),
    "settings that write an immense list": (_NONSENSE.format(text='["x"' + " " * 5_000_000 + "]"), "left no list"),
    "settings that are no Python": ("SPIDER_MODULES = [", "SyntaxError"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapyd]:
    with scrapyd(tmp_path_factory.mktemp("bad")) as running:
        assert running.deploy(egg(spider("good")), version="1")["status"] == "ok"
        yield running


def _is_unchanged(server: Scrapyd) -> bool:
    spiders = server.get("listspiders", project="shop")["spiders"]
    files = os.listdir(server.folder / "eggs/shop")
    # The folder is deleted after the answer.
    until(lambda: not os.listdir(server.folder / "dbs/gossamer/node/attempts"), what=server.said)
    return (spiders, files) == (["good"], ["1.egg"])


@pytest.mark.parametrize("what", _BROKEN)
def test_settings_that_do_harm_break_their_version_only(server: Scrapyd, what: str) -> None:
    settings, reason = _BROKEN[what]
    answer = server.deploy(egg(spider("good"), settings=settings), version="2")
    assert answer["status"] == "error"
    assert reason in answer["message"], answer["message"][-500:]
    assert len(answer["message"]) < 20_000
    assert _is_unchanged(server)


def test_settings_that_hang_are_ended_while_the_server_answers(tmp_path: Path) -> None:
    with scrapyd(tmp_path, conf=f"listing_timeout = {_LIMIT}") as server:
        began = time.monotonic()
        content = egg(spider("good"), settings="import time\ntime.sleep(600)")
        assert server.client.post("/v1/versions", params=_HANGING, content=content).json()["state"] == "building"
        assert server.get("listprojects")["projects"] == []
        answer = server.deploy(content)
        assert f"listing the spiders took more than {_LIMIT} seconds" in answer["message"]
        assert time.monotonic() - began < 60
        assert not os.listdir(server.folder / "eggs")


def test_what_settings_fork_is_gone_with_them(server: Scrapyd) -> None:
    """They leave their group, and one of them its environment, too."""
    assert server.deploy(egg(spider("good"), settings=_FORKS), project="forks")["spiders"] == 1
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if "forked by settings" in line]


def test_two_spiders_of_one_name_and_a_broken_module_are_reported(server: Scrapyd) -> None:
    twice = spider("same") + spider("same").replace("class Same", "class Other")
    answer = server.deploy(egg(twice), project="twice")
    assert answer["spiders"] == 1
    assert "several spiders with the same name" in answer["warnings"][0]
    assert "Same named 'same'" in answer["warnings"][0]
    assert "Other named 'same'" in answer["warnings"][0]

    modules = "SPIDER_MODULES = ['shop.spiders', 'shop.nothing']\nSPIDER_LOADER_WARN_ONLY = True"
    answer = server.deploy(egg(spider("good"), settings=modules), project="partly")
    assert answer["spiders"] == 1
    assert "No module named 'shop.nothing'" in answer["warnings"][0]
    [version] = server.client.get("/v1/versions", params={"project": "partly"}).json()
    assert (version["state"], version["warnings"]) == ("ready", answer["warnings"])


def test_a_page_shows_the_traceback_of_a_refused_upload_as_it_is(server: Scrapyd) -> None:
    form = {"data": {"project": "traced"}, "files": {"artefact": ("a.egg", egg("raise RuntimeError('<boom>')"))}}
    page = server.client.post("/ui/project/deploy", **form)
    shown = re.findall(r'<div class="fault" role="alert">(.*?)<pre[^>]*>(.*?)</pre>', page.text, re.DOTALL)
    assert len(shown) == 1, page.text
    assert "&lt;boom&gt;" in shown[0][0]
    assert re.search(r"\n  File .*\n", shown[0][1])


@pytest.mark.parametrize("name", ["../up", "a/b", "..", "x" * 300, "a\0b"])
def test_names_that_are_no_file_names_are_refused(server: Scrapyd, name: str) -> None:
    for names in ({"project": name, "version": "1"}, {"project": "names", "version": name}):
        if names["version"] in ("../up", "a/b", "..", "a\0b"):  # Scrapyd replaces what is unsafe in versions
            continue
        said = "project is invalid: it has a NUL" if "\0" in name else "DirectoryTraversalError"
        said = "the name '" if len(name) > 200 else said
        assert server.deploy(egg(spider("good")), **names)["message"].startswith(said), names
        refused = server.client.post("/v1/versions", params=names, content=egg(spider("good")))
        assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (400, "invalid-request"), names
    assert sorted(os.listdir(server.folder / "eggs")) == sorted(server.get("listprojects")["projects"])


def test_a_page_whose_name_is_too_long_does_not_exist(server: Scrapyd) -> None:
    for path in ("x" * 300, f"shop/{'x' * 300}.log", "x/" * 5000):
        assert server.client.get(f"/logs/{path}").status_code == 404


def test_an_upload_that_is_refused_leaves_nothing(server: Scrapyd, tmp_path: Path) -> None:
    before = set(os.listdir(server.folder / "dbs/gossamer/uploads"))
    for content in (b"", b"nothing", egg(spider("good"))[:-30]):
        refused = server.client.post("/v1/versions", params={"project": "bad", "version": "1"}, content=content)
        assert refused.status_code == 400
        assert server.deploy(content, project="bad")["message"].startswith("egg is not a ZIP file")
        form = {"data": {"project": "bad", "version": "7"}, "files": {"artefact": ("a.egg", content or b"x")}}
        page = server.client.post("/ui/project/deploy", **form)
        assert (page.status_code, "Choose the file ending in .egg" in page.text, "curl" in page.text) == (
            400,
            True,
            False,
        )
        assert 'name="version" value="7"' in page.text
    assert set(os.listdir(server.folder / "dbs/gossamer/uploads")) == before
    assert "bad" not in [each["name"] for each in server.client.get("/v1/projects").json()]
