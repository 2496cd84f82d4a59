"""`make test ROOM=…`: every package of the crawler and of the platform has tests."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = sorted(
    {path.parent.name for name in ("gossamer", "gossamer_platform") for path in ROOT.glob(f"src/{name}/*/__init__.py")}
)


def files_of(room: str, folder: Path) -> list[str]:
    """Return the files that the script gives to pytest. A pytest that prints its arguments stands in `folder`."""
    for name in ("src", "tests"):
        (folder / name).symlink_to(ROOT / name)
    program = folder / ".venv" / "bin" / "pytest"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(["bash", "tests/room", room], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [word for word in done.stdout.splitlines() if word.startswith("tests/")]


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_has_tests(room: str, tmp_path: Path) -> None:
    found = files_of(room, tmp_path)
    assert found
    assert all((ROOT / path).is_file() for path in found)


@pytest.mark.parametrize(
    ("room", "file"),
    [
        ("crawling", "tests/integration/test_crawl_early.py"),
        ("dashboard", "tests/contract/platform/test_platform_pages.py"),
        ("fetch", "tests/integration/test_fetch_tls.py"),
        ("fetch", "tests/unit/fetch/test_budget.py"),
        ("node", "tests/unit/platform/test_environment_store.py"),
        ("scrapy", "tests/integration/scrapy_lane/test_addon.py"),
        ("settings", "tests/unit/test_settings.py"),
        ("v1", "tests/integration/platform/test_platform_v1.py"),
    ],
)
def test_tests_of_a_room_are_found_by_name_and_by_import(room: str, file: str, tmp_path: Path) -> None:
    assert file in files_of(room, tmp_path)


def test_a_room_with_tests_of_its_own_has_no_others(tmp_path: Path) -> None:
    assert all("policy" in path for path in files_of("policy", tmp_path))


def test_a_room_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"no tests have this name. Rooms: api bus .* worker"):
        files_of("kitchen", tmp_path)
