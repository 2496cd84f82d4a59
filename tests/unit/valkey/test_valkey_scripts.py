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


def test_a_file_that_cannot_be_read_is_not_called_missing(tmp_path: Path) -> None:
    """For example because too many files are open."""
    (tmp_path / "folder.lua").mkdir()
    with pytest.raises(IsADirectoryError):
        Scripts(tmp_path)["folder"]


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
    assert scripts["a"].source == f"local kept, gone = {{}}, nil\n{used}return used()\n"


MANY = [f"f{number}" for number in range(10)]
"""Names of as many functions as a script has to have to be arranged."""


def functions(*names: str) -> str:
    """Definitions of functions, each of which calls the last one."""
    return "".join(f"local function {name}()\n  return {names[-1]}()\nend\n" for name in names)


def in_table(*names: str) -> str:
    """The same as fields of the table of functions."""
    return "".join(f"{name} = function()\n  return functions.{names[-1]}()\nend,\n" for name in names)


CALLS = " + ".join(f"{name}()" for name in MANY)
TABLE_CALLS = CALLS.replace("f", "functions.f")


def test_functions_are_defined_in_a_table_behind_variables_and_what_a_script_needs_first(tmp_path: Path) -> None:
    first = "local BASE = KEYS[1]\nif not BASE then\n  return 0\nend\n"
    second = functions(*MANY) + "local x, y = {}, { nil, nil } -- why\nx[1] = f1\nlocal TEN = { 10, BASE }\n"
    command = f"#!lua\n-- include b\n-- include c\nredis.call(x, y, TEN)\nreturn {CALLS}\n"
    assert Scripts(write(tmp_path, command, b=first, c=second))["a"].source == (
        f"#!lua\n{first}local x, y = {{}}, {{ nil, nil }} -- why\nlocal TEN = {{ 10, BASE }}\n"
        f"local functions, steps = nil, 0 return (function()\nfunctions = {{ {in_table(*MANY)}}}\n"
        f"x[1] = functions.f1\ncall(x, y, TEN)\nreturn {TABLE_CALLS}\nend)()\n"
    )


def test_a_function_that_uses_a_variable_of_the_text_above_stays_there(tmp_path: Path) -> None:
    bound = "local function bound()\n  return f0() + size\nend\n"
    command = f"-- include b\nlocal size = #KEYS\n{bound}return bound() + {CALLS}\n"
    assert Scripts(write(tmp_path, command, b=functions(*MANY)))["a"].source.endswith(
        f"local size = #KEYS\n{bound.replace('f0', 'functions.f0')}return bound() + {TABLE_CALLS}\nend)()\n"
    )


def test_a_function_of_the_table_may_not_call_one_that_has_to_stay_where_it_is(tmp_path: Path) -> None:
    command = (
        "-- include b\nlocal size = #KEYS\nlocal function bound()\n  return size\nend\n"
        f"local function free()\n  return bound()\nend\nreturn free() + {CALLS}\n"
    )
    with pytest.raises(ValueError, match="free uses bound, which uses variables that are declared behind free"):
        Scripts(write(tmp_path, command, b=functions(*MANY)))["a"]


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
    "local part_count = {}\nlocal function part()\n  return part_count\nend\n"
    "local function both()\n  return 2\nend\nlocal function rare()\n  return part() + both()\nend\n"
    "local function rarer()\n  return rare() + both()\nend\n"
)


def test_functions_that_are_seldom_needed_are_defined_by_the_first_call_of_one(tmp_path: Path) -> None:
    """With what only they use. Those of the second line are defined after those of the first."""
    command = f"-- include b\n-- seldom: rare\n-- seldom: rarer\nreturn KEYS[1] and rarer() or both() + {CALLS}\n"
    assert Scripts(write(tmp_path, command, b=functions(*MANY) + SELDOM))["a"].source == (
        "local functions, steps = nil, 0 return (function()\n"
        f"functions = {{ {in_table(*MANY)}both = function()\n  return 2\nend,\n}}\n"
        "setmetatable(functions, { __index = function(_, name) steps = steps + 1\nif steps == 1 then\n"
        "local part_count = {}\nfunctions.part = function()\n  return part_count\nend\n"
        "functions.rare = function()\n  return functions.part() + functions.both()\nend\n"
        "elseif steps == 2 then\nfunctions.rarer = function()\n  return functions.rare() + functions.both()\nend\n"
        "else return nil end return functions[name] end })\n"
        f"return KEYS[1] and functions.rarer() or functions.both() + {TABLE_CALLS}\nend)()\n"
    )


@pytest.mark.parametrize(
    ("line", "function", "message"),
    [
        ("rare, none", "", "not a function that is used: none"),
        ("late", "local late_size = 1\nlocal function late()\n  return late_size\nend\nlate()\n", "late, which"),
    ],
)
def test_seldom_functions_that_could_not_be_called_are_refused(
    tmp_path: Path, line: str, function: str, message: str
) -> None:
    command = f"-- include b\n-- seldom: {line}\n{function}return rare() + {CALLS}\n"
    scripts = Scripts(write(tmp_path, command, b=functions(*MANY) + SELDOM))
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
