"""Loading scripts: what is included, and when."""

from pathlib import Path

import pytest

from gossamer.valkey.client import Script, load_scripts


def write(folder: Path, command: str, **includes: str) -> Path:
    """A folder with one command, `a`, and these includes."""
    (folder / "include").mkdir()
    (folder / "a.lua").write_text(command)
    for name, text in includes.items():
        (folder / "include" / f"{name}.lua").write_text(text)
    return folder


def test_included_once_each_where_first_named(tmp_path: Path) -> None:
    scripts = load_scripts(write(tmp_path, "-- include b\n-- include c\na\n", b="-- include c\nb\n", c="c\n"))
    assert list(scripts) == ["a"]
    assert scripts["a"].source == "c\nb\na\n"


def test_comments_and_empty_lines_are_left_out(tmp_path: Path) -> None:
    scripts = load_scripts(write(tmp_path, "#!lua\n-- what it does\n\nlocal a = 1 -- one\n  -- why\nreturn a\n"))
    assert scripts["a"].source == "#!lua\nlocal a = 1 -- one\nreturn a\n"


def test_the_name_is_the_servers_own(tmp_path: Path) -> None:
    assert Script("one", "return 1").sha == b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"


def test_a_shebang_stays_first(tmp_path: Path) -> None:
    scripts = load_scripts(write(tmp_path, "#!lua flags=allow-oom\n-- include b\n", b="b\n"))
    assert scripts["a"].source.startswith("#!lua flags=allow-oom\nb")


def test_a_missing_include_names_both(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="script a includes gone, which does not exist"):
        load_scripts(write(tmp_path, "-- include gone\n"))


def test_a_circle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="include each other: a -> b -> c -> b"):
        load_scripts(write(tmp_path, "-- include b\n", b="-- include c\n", c="-- include b\n"))
