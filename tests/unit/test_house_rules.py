"""Rules for the source that no linter checks: names, circular imports, the form of docstrings, the size of functions.

`python tests/unit/test_house_rules.py [FOLDER ...]` lists every place that breaks one. For reviewers, it also lists
files of more than 700 lines. Such a length is a question (is this one noun?), not a failure.
"""

import ast
import graphlib
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp

SOURCE = Path(__file__).parents[2] / "src"
WRITTEN = (SOURCE, *(SOURCE.parent / name for name in ("bench", "examples", "fakeweb", "tools")))
"""Folders of what engineers read to change the packages, or to measure them."""
LONG_FILE_LINES = 700
FUNCTION_LINES_AT_MOST = 60
PARAMETERS_AT_MOST = 8
"""Commands and wiring have one parameter for each option or part, so they are free of this rule."""
COMPATIBLE_NAMES = {"Scheduler", "LinkSpider", "WanderingSpider"}
"""Class names that occur more than once: users of Scrapy Cluster and scrapy-redis write them into their settings."""
_VAGUE = re.compile(r"\b(somebody|nobody|whoever|somebody's|whosever)\b", re.IGNORECASE)
_ODD_BEGINNING = re.compile(r"(What|Whether|How|Who|Whose|Whom|Which|Why|Of|The same|Not)\b(?! is not)")


def modules(root: Path = SOURCE) -> list[Path]:
    """All Python files of the packages."""
    return sorted(root.rglob("*.py"))


def written_modules() -> list[Path]:
    """All Python files that engineers read."""
    return [path for root in WRITTEN for path in modules(root)]


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE.parent))


def _strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every docstring, those of attributes included: line and text."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                value = statement.value.value
                if isinstance(value, str):
                    yield statement.lineno, value


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    found = function.args
    return sum(a.arg not in ("self", "cls") for a in (*found.posonlyargs, *found.args, *found.kwonlyargs))


def long_files(path: Path) -> Iterator[str]:
    """Files that a reviewer should look at."""
    lines = len(path.read_text().splitlines())
    if lines > LONG_FILE_LINES:
        yield f"{_name(path)}: {lines} lines"


def long_functions(path: Path) -> Iterator[str]:
    """Functions that are too long."""
    for function in _functions(ast.parse(path.read_text())):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines >= FUNCTION_LINES_AT_MOST:
            yield f"{_name(path)}:{function.lineno}: {function.name} has {lines} lines"


def wide_functions(path: Path) -> Iterator[str]:
    """Functions with too many parameters."""
    if {"cli", "commands", "wiring"} & set(path.relative_to(SOURCE.parent).parts[2:3]):
        return
    for function in _functions(ast.parse(path.read_text())):
        if _parameters(function) > PARAMETERS_AT_MOST:
            yield f"{_name(path)}:{function.lineno}: {function.name} has {_parameters(function)} parameters"


def vague_sentences(path: Path) -> Iterator[str]:
    """Sentences whose actor has no name."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if _VAGUE.search(line):
            yield f"{_name(path)}:{number}: {line.strip()}"


def odd_docstrings(path: Path) -> Iterator[str]:
    """Docstrings that do not begin with a noun phrase or a verb."""
    for line, text in _strings(ast.parse(path.read_text())):
        if _ODD_BEGINNING.match(text):
            yield f"{_name(path)}:{line}: {text.splitlines()[0]}"


def orphaned_docstrings(path: Path) -> Iterator[str]:
    """Docstrings right behind another one: the line that they describe has moved."""
    for node in ast.walk(ast.parse(path.read_text())):
        body = getattr(node, "body", [])
        for before, statement in itertools.pairwise(body if isinstance(body, list) else []):
            match before, statement:
                case ast.Expr(ast.Constant(str())), ast.Expr(ast.Constant(str())):
                    yield f"{_name(path)}:{statement.lineno}"


def repeated_class_names() -> Iterator[str]:
    """Names that more than one class has."""
    where = defaultdict(list)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name not in COMPATIBLE_NAMES:
                where[node.name].append(_name(path))
    for name, paths in where.items():
        if len(paths) > 1:
            yield f"class {name}: {', '.join(paths)}"


RULES = (long_functions, wide_functions, vague_sentences, odd_docstrings, orphaned_docstrings)


def test_no_function_is_too_long() -> None:
    assert not [fault for path in modules() for fault in long_functions(path)]


def test_no_function_has_too_many_parameters() -> None:
    assert not [fault for path in modules() for fault in wide_functions(path)]


def test_every_actor_has_a_name() -> None:
    assert not [fault for path in written_modules() for fault in vague_sentences(path)]


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    assert not [fault for path in written_modules() for fault in odd_docstrings(path)]


def test_each_docstring_stands_behind_what_it_describes() -> None:
    assert not [fault for path in written_modules() for fault in orphaned_docstrings(path)]


def test_no_imports_are_circular() -> None:
    graph = grimp.build_graph("gossamer", "gossamer_platform", exclude_type_checking_imports=True)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        graphlib.TopologicalSorter(imported).prepare()
    except graphlib.CycleError as error:
        raise AssertionError(f"circular: {' -> '.join(error.args[1])}") from None


def test_each_class_name_stands_once() -> None:
    assert not list(repeated_class_names())


def _list(folders: list[str]) -> None:
    found = [path for folder in folders or [SOURCE] for path in modules(Path(folder).resolve())]
    for rule in (*RULES, long_files):
        faults = [fault for path in found for fault in rule(path)]
        print(f"{rule.__name__}: {len(faults)}")
        print(*(f"  {fault}" for fault in faults), sep="\n")
    print(*repeated_class_names(), sep="\n")
    print(f"{len(found)} modules")


if __name__ == "__main__":
    _list(sys.argv[1:])
