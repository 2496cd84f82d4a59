"""Files of the dashboard: texts, templates, and files of others."""

import hashlib
import re
import tomllib
from pathlib import Path
from string import Formatter

import pytest

from gossamer.dashboard.sessions import SESSION_SECONDS, Sessions
from gossamer.dashboard.texts import LANGUAGES, language_for, texts_of
from gossamer.web.html import Templates

FOLDER = Path(__file__).parents[3] / "src/gossamer/dashboard"
PLATFORM = Path(__file__).parents[3] / "src/gossamer_platform/dashboard"
TEMPLATES = [*(FOLDER / "templates").glob("*.html"), *(PLATFORM / "templates").glob("*.html")]


def values_of(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_each_language_has_every_text_with_the_same_values(language: str) -> None:
    first, other = texts_of(LANGUAGES[0]), texts_of(language)
    assert other.keys() == first.keys()
    assert {key: values_of(text) for key, text in other.items()} == {
        key: values_of(text) for key, text in first.items()
    }


def test_every_text_is_used_and_every_used_text_exists() -> None:
    sources = "".join(path.read_text() for path in [*TEMPLATES, *FOLDER.glob("*.py"), *PLATFORM.glob("*.py")])
    literal = set(re.findall(r"""\b(?:t|texts)\(["']([a-z_.]+)["'][,)]""", sources))
    beginnings = tuple(re.findall(r"""\b(?:t|t\.get)\(["']([a-z_.]+)["'] ~""", sources))
    assert literal <= texts_of("en").keys()
    named = set(re.findall(r"""["']([a-z]+\.[a-z_]+)["']""", sources))
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
