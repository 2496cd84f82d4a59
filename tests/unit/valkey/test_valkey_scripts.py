"""Loading scripts: what is included, and when."""

import re
import sys
from pathlib import Path

import pytest

import gossamer
from gossamer.valkey.scripts import Script, Scripts
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


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of assembled scripts of `tmp_path / "scripts"`."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (tmp_path / "scripts").mkdir()
    return tmp_path / "scripts" / "__pycache__"


def test_an_assembled_script_is_kept_for_other_processes(kept: Path) -> None:
    folder = write(kept.parent, "-- include b\na\n", b="b\n")
    first = Scripts(folder)["a"]
    [file] = kept.iterdir()
    state, _, _ = file.read_text().partition(" ")
    other = Script("a", "other\n")
    file.write_text(f"{state} {other.sha.decode()}\nother\n")
    assert (first.source, Scripts(folder)["a"].source) == ("b\na\n", "other\n")


def test_a_kept_script_is_assembled_again_after_a_change_of_any_file(kept: Path) -> None:
    folder = write(kept.parent, "-- include b\na\n", b="b\n")
    assert Scripts(folder)["a"].source == "b\na\n"
    (folder / "include" / "b.lua").write_text("bb\n")
    assert Scripts(folder)["a"].source == "bb\na\n"


def test_a_kept_script_that_was_not_written_to_its_end_is_assembled_again(kept: Path) -> None:
    folder = write(kept.parent, "-- include b\na\n", b="b\n")
    assert Scripts(folder)["a"].source == "b\na\n"
    [file] = kept.iterdir()
    for length in range(len(file.read_text())):
        file.write_text(file.read_text()[:length])
        assert Scripts(folder)["a"].source == "b\na\n"


def test_nothing_is_kept_where_python_keeps_no_modules(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert Scripts(write(kept.parent, "a\n"))["a"].source == "a\n"
    assert not kept.exists()


def test_functions_and_tables_that_nothing_uses_are_left_out(tmp_path: Path) -> None:
    """Neither is what only they use."""
    shared = (
        "local function low()\n  return alone\nend\nlocal kept, gone = {}, nil\nlocal alone = {}\n"
        "local function high()\n  return low() + alone\nend\nlocal function used()\n  return kept\nend\n"
    )
    scripts = Scripts(write(tmp_path, "-- include b\nreturn used()\n", b=shared))
    used = "local function used()\n  return kept\nend\n"
    assert scripts["a"].source == f"local kept, gone = {{}}, nil\nreturn (function()\n{used}return used()\nend)()\n"


def test_what_a_script_needs_first_stays_first(tmp_path: Path) -> None:
    first = "local BASE = KEYS[1]\nif not BASE then\n  return 0\nend\n"
    scripts = Scripts(
        write(tmp_path, "#!lua\n-- include b\n-- include c\nreturn f()\n", b=first,
              c="local function f()\n  return BASE\nend\nlocal x = {} -- why\nx[1] = f\n")
    )  # fmt: skip
    assert scripts["a"].source == (
        f"#!lua\n{first}local x = {{}} -- why\nreturn (function()\n"
        "local function f()\n  return BASE\nend\nx[1] = f\nreturn f()\nend)()\n"
    )


def test_the_names_of_functions_that_several_others_use_come_first(tmp_path: Path) -> None:
    """Before the function of everything else, so that no definition searches for them."""
    functions = "local function used()\n  return x\nend\n" + "".join(
        f"local function {name}()\n  return used()\nend\n" for name in ("one", "two")
    )
    scripts = Scripts(write(tmp_path, "-- include b\nreturn one() + two()\n", b=f"local x = {{}}\n{functions}"))
    assert scripts["a"].source == (
        "local x = {}\nlocal used\nreturn (function()\n"
        f"{functions.removeprefix('local ')}return one() + two()\nend)()\n"
    )


def test_constants_are_replaced_by_their_values(tmp_path: Path) -> None:
    """But not in longer names, and not values that are computed."""
    constants = (
        'local FIRST, SECOND = 1, -2 -- places\nlocal BIG = 2 ^ 36\nlocal NAME = "a.b"\nlocal SUM = FIRST + BIG\n'
    )
    command = "-- include b\nreturn { FIRST, SECOND, BIG, NAME, SUM, x.FIRST_OF, FIRST }\n"
    scripts = Scripts(write(tmp_path, command, b=constants))
    assert scripts["a"].source == (
        'local SUM = 1 + (2 ^ 36)\nreturn { 1, (-2), (2 ^ 36), "a.b", SUM, x.FIRST_OF, 1 }\n'
    )


SELDOM = (
    "local function part()\n  return 1\nend\nlocal function both()\n  return 2\nend\n"
    "local function rare()\n  return part() + both()\nend\nlocal function often()\n  return both()\nend\n"
)


def test_functions_that_are_seldom_needed_are_defined_by_the_first_call_of_one(tmp_path: Path) -> None:
    """With what only they use."""
    command = "-- include b\n-- seldom: rare\nif KEYS[1] then\n  return rare()\nend\nreturn often()\n"
    both, often = "local function both()\n  return 2\nend\n", "local function often()\n  return both()\nend\n"
    assert Scripts(write(tmp_path, command, b=SELDOM))["a"].source == (
        "local define_seldom, seldom = nil, {}\nreturn (function()\n"
        "local function rare(...) if not seldom.rare then define_seldom() end return seldom.rare(...) end\n"
        f"{both}define_seldom = function()\nlocal function part()\n  return 1\nend\n"
        f"local function rare()\n  return part() + both()\nend\nseldom.rare = rare\nend\n{often}"
        "if KEYS[1] then\n  return rare()\nend\nreturn often()\nend)()\n"
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("-- include b\n-- seldom: rare, none\nreturn rare()\n", "not a function that is used: none"),
        (
            "-- include b\n-- seldom: rare, late\nrare()\nlocal function late()\n  return 1\nend\nreturn late()\n",
            "a seldom function is called before late is defined",
        ),
    ],
)
def test_seldom_functions_that_could_not_be_called_are_refused(tmp_path: Path, command: str, message: str) -> None:
    scripts = Scripts(write(tmp_path, command, b=SELDOM))
    with pytest.raises(ValueError, match=message):
        scripts["a"]


@pytest.mark.parametrize("line", ["local SIZE = 1\n", "local rows = {}\n"])
def test_two_files_may_not_declare_the_same(tmp_path: Path, line: str) -> None:
    function = "local function f()\n  return rows\nend\n"
    scripts = Scripts(write(tmp_path, "-- include b\n-- include c\nreturn f(rows)\n", b=function + line, c=line))
    with pytest.raises(ValueError, match=r"two constants that are called SIZE|declared twice: rows"):
        scripts["a"]


PACKAGE = Path(gossamer.__file__).parent
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.lua") if path.parent.name != "include"})
SCRIPTS = [scripts[name] for scripts in map(Scripts, FOLDERS) for name in scripts.names()]


def test_all_folders_with_scripts_are_found() -> None:
    assert len(FOLDERS) == 6


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_declares_the_names_that_it_uses(script: Script) -> None:
    assert undeclared(script.source) == set()


def test_no_text_of_a_script_has_the_name_of_a_constant() -> None:
    """It would be replaced there, too."""
    for folder in FOLDERS:
        sources = {path: path.read_text() for path in folder.rglob("*.lua")}
        declared = re.findall(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = ", "".join(sources.values()), re.MULTILINE)
        names = {name for line in declared for name in line.split(", ")}
        for path, source in sources.items():
            texts = " ".join(re.findall(r'"[^"\n]*"', re.sub(r"^ *--.*", "", source, flags=re.MULTILINE)))
            assert names.isdisjoint(re.findall(r"[A-Z_]+", texts)), path


def test_no_function_is_written_in_one_line() -> None:
    """The end of a function is recognised by its own line."""
    for folder in FOLDERS:
        for path in folder.rglob("*.lua"):
            assert not re.search(r"^local function .*\bend *(?:--.*)?$", path.read_text(), re.MULTILINE), path


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
