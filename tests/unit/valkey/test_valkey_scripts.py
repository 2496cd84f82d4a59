"""Loading scripts: what is included, and when."""

import re
from pathlib import Path

import pytest

import gossamer
from gossamer.valkey.client import Script, Scripts
from tests.unit.valkey.lua_names import undeclared


def write(folder: Path, command: str, **includes: str) -> Path:
    """A folder with one command, `a`, and these includes."""
    (folder / "include").mkdir()
    (folder / "a.lua").write_text(command)
    for name, text in includes.items():
        (folder / "include" / f"{name}.lua").write_text(text)
    return folder


def test_included_once_each_where_first_named(tmp_path: Path) -> None:
    scripts = Scripts(write(tmp_path, "-- include b\n-- include c\na\n", b="-- include c\nb\n", c="c\n"))
    assert scripts.names() == ["a"]
    assert scripts["a"].source == "c\nb\na\n"


def test_comments_and_empty_lines_are_left_out(tmp_path: Path) -> None:
    scripts = Scripts(write(tmp_path, "#!lua\n-- what it does\n\nlocal a = 1 -- one\n  -- why\nreturn a\n"))
    assert scripts["a"].source == "#!lua\nlocal a = 1 -- one\nreturn a\n"


def test_the_name_is_the_servers_own(tmp_path: Path) -> None:
    assert Script("one", "return 1").sha == b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"


def test_a_shebang_stays_first(tmp_path: Path) -> None:
    scripts = Scripts(write(tmp_path, "#!lua flags=allow-oom\n-- include b\n", b="b\n"))
    assert scripts["a"].source.startswith("#!lua flags=allow-oom\nb")


def test_a_missing_include_names_both(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="script a includes gone, which does not exist"):
        Scripts(write(tmp_path, "-- include gone\n"))["a"]


def test_a_circle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="include each other: a -> b -> c -> b"):
        Scripts(write(tmp_path, "-- include b\n", b="-- include c\n", c="-- include b\n"))["a"]


PACKAGE = Path(gossamer.__file__).parent
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.lua") if path.parent.name != "include"})
SCRIPTS = [scripts[name] for scripts in map(Scripts, FOLDERS) for name in scripts.names()]


def test_all_folders_with_scripts_are_found() -> None:
    assert len(FOLDERS) == 6


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_declares_the_names_that_it_uses(script: Script) -> None:
    assert undeclared(script.source) == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_no_function_has_too_many_parameters(script: Script) -> None:
    found = re.findall(r"function *\w*\(([^)]*)\)", script.source)
    assert [parameters for parameters in found if parameters.count(",") >= 8] == []


def test_a_name_that_is_declared_nowhere_is_found() -> None:
    source = "local a, b = 1, { c = 2, d }\nlocal function f(x)\n  return x.y + z:w(function(v) return v end)\nend\n"
    assert undeclared(source) == {"d", "z"}


def test_every_script_is_called() -> None:
    for folder in FOLDERS:
        python = "".join(path.read_text() for path in folder.parent.glob("*.py"))
        assert [name for name in Scripts(folder).names() if f'"{name}"' not in python] == []
