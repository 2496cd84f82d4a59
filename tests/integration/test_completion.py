"""Completion in real shells: commands, options, their values, files, and the names of a folder's crawls."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from gossamer.cli.commands.completion import SHELLS, commands, completion_scripts
from tests.servers.crawling import gossamer

ROOT = Path(__file__).parents[2]
CASES = [
    ("gossamer cra", {"crawl", "crawls"}, {"fetch"}),
    ("gossamer crawl --sc", {"--scope"}, {"--depth"}),
    ("gossamer crawl -q --scope ", {"domain", "host", "path", "any"}, {"--depth"}),
    ("gossamer crawl https://a.test/ --crawl-id ", {"shop-1a2b", "news"}, set()),
    ("gossamer crawls ", {"list", "show", "delete"}, {"fetch"}),
    ("gossamer crawls delete ", {"shop-1a2b", "news"}, {"seeds.txt"}),
    ("gossamer crawls delete --data-dir other ", {"elsewhere"}, {"news"}),
    ("gossamer crawl --seeds se", {"seeds.txt"}, set()),
    ("gossamer domains set --sc", {"--scope", "--scale"}, {"--frontier"}),
    ("gossamer completion ", {"bash", "zsh", "fish"}, {"crawl"}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for crawl in (".gossamer/crawls/shop-1a2b", ".gossamer/crawls/news", "other/crawls/elsewhere"):
        path = tmp_path / f"{crawl}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (tmp_path / "seeds.txt").write_text("")
    return tmp_path


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the scripts."""
    place = tmp_path_factory.mktemp("scripts")
    for name, text in completion_scripts().items():
        (place / name).write_text(text)
    return place


def in_bash(line: str, folder: Path, scripts: Path) -> set[str]:
    words = line.split(" ")
    program = (
        f"source {scripts}/gossamer.bash; COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}; "
        'complete -p gossamer >/dev/null || exit 1; _gossamer; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return set(_run("bash", "--noprofile", "--norc", "-c", program, folder=folder))


def in_fish(line: str, folder: Path, scripts: Path) -> set[str]:
    found = _run("fish", "--no-config", "-c", f"source {scripts}/gossamer.fish; complete -C {line!r}", folder=folder)
    return {row.partition("\t")[0] for row in found}


def in_zsh(line: str, folder: Path, scripts: Path) -> set[str]:
    """The words on the screen of an interactive zsh after two Tabs."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb", "PS1": "ready> ", "COLUMNS": "200"})
    try:
        _read(terminal, until="ready> ")
        setup = f"autoload -U compinit && compinit -u -d {folder}/dump && source {scripts}/gossamer.zsh; LISTMAX=0"
        os.write(terminal, f"{setup}; print set''up\n".encode())
        _read(terminal, until="setup\r\n")
        os.write(terminal, f"{line}\t\t".encode())
        return set(_read(terminal).split())
    finally:
        os.close(terminal)
        os.waitpid(process, 0)


def _read(terminal: int, *, until: str = "") -> str:
    """Return what the shell writes until a text, or until it has been silent for a second."""
    text = ""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (not until or until not in text):
        readable, _, _ = select.select([terminal], [], [], 30 if until or not text else 1)
        if not readable:
            break
        text += os.read(terminal, 65536).decode(errors="replace")
    return text


def _run(*command: str, folder: Path) -> list[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()


@pytest.mark.parametrize(("line", "wanted", "unwanted"), CASES, ids=[line for line, *_ in CASES])
@pytest.mark.parametrize("shell", [in_bash, in_fish, in_zsh])
def test_a_shell_completes(
    shell: Callable[[str, Path, Path], set[str]],
    line: str,
    wanted: set[str],
    unwanted: set[str],
    folder: Path,
    scripts: Path,
) -> None:
    if shutil.which(shell.__name__.removeprefix("in_")) is None:
        pytest.skip("the shell is not installed")
    found = shell(line, folder, scripts)
    if shell is in_zsh and len(wanted) == 1:  # it is written into the line
        found |= {word for word in wanted if any(word.endswith(part) for part in found if len(part) > 2)}
    assert wanted <= found
    assert found.isdisjoint(unwanted)


def test_the_name_of_a_crawl_is_not_run_as_code(folder: Path, scripts: Path) -> None:
    (folder / ".gossamer/crawls/$(touch hit).json").write_text("{}")
    assert in_bash("gossamer crawls delete ", folder, scripts) == {"shop-1a2b", "news", r"\$\(touch\ hit\)"}
    assert not (folder / "hit").exists()


def test_a_wheel_has_the_scripts_as_the_code_makes_them(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "dist"],
        cwd=ROOT, timeout=110, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = (tmp_path / "dist").iterdir()
    with ZipFile(wheel) as files:
        found = {name: files.read(f"gossamer/cli/completion/{name}").decode() for name in completion_scripts()}
    assert found == completion_scripts()


def test_every_option_of_every_command_is_in_the_table() -> None:
    table = {command.name: {flag for one in command.options for flag in one.flags} for command in commands()}
    assert {"--depth", "--contact", "-o", "--verbose", "--items", "--help"} <= table["crawl"]
    assert {"--yes", "-y", "--stop", "--frontier"} <= table["crawls delete"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell: str, scripts: Path, tmp_path: Path) -> None:
    done = gossamer("completion", shell, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (scripts / f"gossamer.{shell}").read_text()


def test_an_unknown_shell_is_refused(tmp_path: Path) -> None:
    done = gossamer("completion", "tcsh", cwd=tmp_path)
    assert done.returncode == 2
    assert "Write bash, zsh or fish." in done.stderr
