"""Files of the dashboard: texts, templates, and files of others."""

import ast
import hashlib
import itertools
import re
import tomllib
from pathlib import Path
from string import Formatter

import pytest

from gossamer.dashboard.request_form import form_fields
from gossamer.dashboard.sessions import SESSION_SECONDS, Sessions
from gossamer.dashboard.texts import _SENTENCES, LANGUAGES, Texts, language_for, texts_of
from gossamer.web.html import Templates
from gossamer_platform.outcome import _MEANINGS, meaning_of

FOLDER = Path(__file__).parents[3] / "src/gossamer/dashboard"
PLATFORM = Path(__file__).parents[3] / "src/gossamer_platform/dashboard"
TEMPLATES = [*(FOLDER / "templates").glob("*.html"), *(PLATFORM / "templates").glob("*.html")]


def values_of(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_each_language_has_every_text_with_the_same_values(language: str) -> None:
    """Also a help for each field of the form, which English has from the schema of requests."""
    first, other = texts_of(LANGUAGES[0]), texts_of(language)
    helps = {f"field_help.{field.name}" for field in form_fields()}
    assert other.keys() == first.keys() | helps
    assert {key: values_of(other[key]) for key in first} == {key: values_of(text) for key, text in first.items()}
    same = {key: re.sub(r"\{\w+\}", "", text) for key, text in first.items() if text == other[key]}
    assert [key for key, text in same.items() if len(re.findall(r"\w{3,}", text)) > 2] == []


def sentences(path: Path, calls: dict[str, int]) -> set[str]:
    """The sentences of a module that are arguments of these calls (by name and position), or that its functions of
    these names return (position -1). Values stand as 7, and parts that are texts as each of these."""
    module = ast.parse(path.read_text())
    found: set[str] = set()

    def all_of(node: ast.expr, scope: ast.AST) -> list[str]:
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=parts):
                return ["".join(part) for part in itertools.product(*(all_of(each, scope) for each in parts))]
            case ast.FormattedValue(value=value):
                return all_of(value, scope) or ["7"]
            case ast.IfExp(body=one, orelse=other):
                return all_of(one, scope) + all_of(other, scope)
            case ast.BoolOp(values=values):
                return [text for value in values for text in all_of(value, scope)]
            case ast.Name(id=name):
                return [
                    text
                    for place in (scope, *module.body)
                    for each in (ast.walk(place) if place is scope else [place])
                    if isinstance(each, ast.Assign) and name in [getattr(target, "id", "") for target in each.targets]
                    for text in all_of(each.value, scope)
                ]
        return []

    for function in [node for node in module.body if isinstance(node, ast.FunctionDef)]:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and (at := calls.get(getattr(node.func, "id", ""))) is not None:
                found.update(all_of(node.args[at], function))
            if isinstance(node, ast.Return) and node.value is not None and calls.get(function.name) == -1:
                found.update(all_of(node.value, function))
    return found


@pytest.mark.parametrize("language", LANGUAGES[1:])
@pytest.mark.parametrize(
    ("file", "calls", "least"),
    [
        ("gossamer/policy/diagnosis.py", {"Advice": 0, "_Case": 2}, 43),
        ("gossamer_platform/state/dispatch.py", {"waits_for": -1, "_node_wanted": -1}, 13),
    ],
)
def test_each_language_has_every_sentence_of_programs(
    language: str, file: str, calls: dict[str, int], least: int
) -> None:
    made = sentences(FOLDER.parents[1] / file, calls)
    assert len(made) >= least
    texts = Texts(language)
    assert {sentence for sentence in made if texts.told(sentence) == sentence} == set()
    english = re.compile(r"\b(the|is|of|with|and|sites?|to)\b")
    assert {told for told in map(texts.told, made) if english.search(told)} <= set()


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_each_language_has_the_meaning_of_each_reason_of_a_failed_job(language: str) -> None:
    meanings = [meaning_of(f"{reason}: 7".replace(": 2: 7", ": 2")) for reason in _MEANINGS]
    assert len(set(meanings)) == len(meanings) >= 15
    assert "the exit code 7." in meaning_of("exit_code: 7")
    assert "A setting or an argument" in meaning_of("exit_code: 2")
    assert meaning_of("start_failed: no such file") == meaning_of("") == ""
    assert {meaning for meaning in meanings if Texts(language).told(meaning) == meaning} == set()


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_each_language_has_the_reasons_for_which_a_form_is_refused(language: str) -> None:
    """Those of the schemas, in their own words or by the keyword that failed."""
    schemas = FOLDER.parent / "model/messages/schemas"
    texts = "".join((schemas / f"{name}.json").read_text() for name in ("crawl", "domain"))
    reasons = {*re.findall(r'"x-means": "([^"]*)"', texts)}
    reasons |= {f"must be at {which} 7" for which in ("least", "most")}
    reasons |= {f"must have at {which} 7 characters" for which in ("least", "most")}
    reasons |= {f"must be a{kind}" for kind in ("n integer", " number", " string", "n object", "n array", " boolean")}
    told = Texts(language)
    assert len(reasons) > 15
    assert {reason for reason in reasons if told.told(reason) == reason} == set()
    one, other = sorted(reasons)[:2]
    both = told.fault(f"first: {one}; second: {other}", "invalid-request")
    assert both == f"first: {told.told(one)}; second: {told.told(other)}"
    assert told.fault("nobody knows this.", "not-found").endswith(": nobody knows this.")
    assert told.fault("nobody knows this", "unknown").endswith(": nobody knows this")
    refused = "this needs a token with the scope run; Anna has read"
    for language, words in (
        ("en", ("run jobs and crawls (run)", "look only (read)")),
        ("de", ("starten (run)", "(read)")),
    ):
        shown = Texts(language).told(refused)
        assert all(word in shown for word in words), shown
        assert shown == Texts(language).scope_fault("run", "Anna", "read")
    assert Texts("en").fault("nobody knows this", "not-found") == "nobody knows this"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_text_of_its_own(path: Path) -> None:
    """Every word that people read is in the catalogue. Examples, and names that are the same everywhere, are not."""
    text = re.sub(r"\{[{%#].*?[}%#]\}", " ", path.read_text(), flags=re.DOTALL)
    shown = re.sub(r"<[^>]*>", " ", text) + " ".join(re.findall(r'(?:alt|title|aria-label)="([^"]*)"', text))
    words = set(re.findall(r"[A-Za-z]{3,}", shown))
    assert words <= {"Gossamer", "robots", "txt", "PID", "gossamer", "deploy", "middot", "nbsp"}


def test_every_text_is_used_and_every_used_text_exists() -> None:
    sources = "".join(path.read_text() for path in [*TEMPLATES, *FOLDER.glob("*.py"), *PLATFORM.glob("*.py")])
    literal = set(re.findall(r"""\b(?:t|texts)\(["']([a-z_.]+)["'][,)]""", sources))
    beginnings = tuple(re.findall(r"""\b(?:t|t\.get)\(["']([a-z_.]+)["'] ~""", sources))
    assert literal <= texts_of("en").keys()
    named = set(re.findall(r"""["']([a-z]+\.[a-z_]+)["']""", sources))
    beginnings += (*_SENTENCES, "problem_kind.")  # by Texts.told and Texts.fault
    assert {key for key in texts_of("en") if key not in named and not key.startswith(beginnings)} == set()


def test_files_of_others_are_unchanged_and_have_a_licence() -> None:
    named = tomllib.loads((FOLDER / "vendored/files.toml").read_text())["file"]
    for file in named:
        content = (FOLDER / "static" / file["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file["sha256"], file["name"]
        assert (FOLDER / "vendored" / f"{file['name'].partition('.')[0]}.LICENSE").is_file()
    own = {"dashboard.css", "live.js", "chart.js", "log.js", "gossamer.svg"}
    assert {path.name for path in (FOLDER / "static").iterdir()} == own | {file["name"] for file in named}


def test_files_of_others_that_tests_use_are_unchanged_and_have_a_licence() -> None:
    folder = Path(__file__).parents[2] / "vendored"
    named = tomllib.loads((folder / "files.toml").read_text())["file"]
    for file in named:
        assert hashlib.sha256((folder / file["name"]).read_bytes()).hexdigest() == file["sha256"], file["name"]
        assert (folder / f"{file['name'].partition('.')[0]}.LICENSE").is_file()


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_obeys_the_content_security_policy(path: Path) -> None:
    """No script, style or handler inside of a page: a strict policy refuses them."""
    text = path.read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]*src=)", text)
    assert "|safe" not in text


def test_templates_are_those_of_the_start_whatever_an_upgrade_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "upgraded" / "templates"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "page.html").write_text("old {% include 'part.html' %}")
    (folder / "part.html").write_text("part")
    monkeypatch.syspath_prepend(tmp_path)
    templates = Templates("upgraded")
    (folder / "page.html").write_text("new {{ a_value_that_the_old_code_has_not }}")
    (folder / "part.html").unlink()
    assert templates.render("page.html") == "old part"


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", "en"),
        ("de", "de"),
        ("de-CH,fr;q=0.5", "de"),
        ("fr, en;q=0.1, de;q=0.9", "de"),
        ("*;q=x, ;,,q", "en"),
        ("DE", "de"),
    ],
)
def test_the_language_is_the_one_that_a_browser_prefers(accepted: str, language: str) -> None:
    assert language_for(accepted) == language


def test_a_session_is_valid_for_its_token_and_its_time() -> None:
    cookie = Sessions("secret").begin(now=1000.5)
    assert Sessions("secret").is_valid(cookie, now=1000 + SESSION_SECONDS - 1)
    assert not Sessions("secret").is_valid(cookie, now=1000 + SESSION_SECONDS)
    assert not Sessions("other").is_valid(cookie, now=1001)
    assert cookie != Sessions("secret").begin(now=1000.5)
    for forged in ("", ".", "..", "9" * 20, cookie[:-1], cookie + "0", f"9{cookie}", "ä.ö.ü", "\udc80"):
        assert not Sessions("secret").is_valid(forged, now=1001)
