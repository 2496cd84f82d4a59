"""Loading scripts: what is included, and when."""

from pathlib import Path

import pytest

from gossamer.valkey.client import Script, load


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.lua").write_text(text)
    return folder


def test_included_once_each_where_first_named(tmp_path: Path) -> None:
    scripts = load(write(tmp_path, a="-- include b\n-- include c\na\n", b="-- include c\nb\n", c="c\n"))
    assert [line for line in scripts["a"].source.splitlines() if line] == ["c", "b", "a"]


def test_the_name_is_the_servers_own(tmp_path: Path) -> None:
    assert Script("one", "return 1").sha == b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"


def test_a_shebang_stays_first(tmp_path: Path) -> None:
    scripts = load(write(tmp_path, a="#!lua flags=allow-oom\n-- include b\n", b="b\n"))
    assert scripts["a"].source.startswith("#!lua flags=allow-oom\nb")


def test_a_missing_include_names_both(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="script a includes gone"):
        load(write(tmp_path, a="-- include gone\n"))


def test_a_circle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="include each other: a -> b -> a"):
        load(write(tmp_path, a="-- include b\n", b="-- include a\n"))
