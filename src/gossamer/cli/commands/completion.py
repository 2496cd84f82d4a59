"""`gossamer completion`: the scripts of bash, zsh and fish, made from the commands and their options.

A script is complete in itself: pressing Tab runs no Python, and names of crawls are those of the notes in the data
directory. The wheel of a release contains the scripts, because the start files of shells run this command, and making
a script loads every command, which takes a second. Where it came from a checkout, each call makes its script.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, get_args

from gossamer.cli import terminal
from gossamer.cli.app import COMMANDS, find
from gossamer.cli.parser import CommandGroup, ProgramCommand, argument
from gossamer.errors import BadInput
from gossamer.model import DATA_DIR
from gossamer.settings import OPTIONS

SHELLS = ("bash", "zsh", "fish")
SCRIPTS = Path(__file__).parents[1] / "completion"
"""Folder of the scripts in an installed wheel. Must be where `hatch_build.py` puts them."""

_WORDS = re.compile(r"[a-z0-9+.-]+(?:\|[a-z0-9+.-]+)+")
"""Name of a value that lists what may be written: `domain|host|path|any`."""


def completion(
    shell: Annotated[str, argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)],
) -> None:
    """Print the script by which a shell completes commands. It also completes options and names of crawls.

    Write this line into ~/.bashrc, or with zsh into ~/.zshrc after compinit; for fish, save the script once as
    ~/.config/fish/completions/gossamer.fish.

    source <(gossamer completion bash)
    """
    if shell not in SHELLS:
        raise BadInput(f"there is no completion for {shell!r:.50}. Write {', '.join(SHELLS[:-1])} or {SHELLS[-1]}.")
    name = f"gossamer.{shell}"
    built = SCRIPTS / name
    text = built.read_text(encoding="utf-8") if built.is_file() else completion_scripts()[name]
    terminal.print_result(text.rstrip("\n"))


@dataclass(frozen=True)
class CompletedOption:
    """An option, or an argument (without flags), and what can be written for it."""

    flags: tuple[str, ...]
    help: str
    kind: str
    """flag: no value; words; file; crawl: name of a crawl; text: anything else."""
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompletedCommand:
    """A command with its full name (`crawls show`), or a group of commands."""

    name: str
    help: str
    options: list[CompletedOption]
    arguments: list[CompletedOption]
    inner: dict[str, str] = field(default_factory=dict)
    """Commands of a group, with their help lines."""

    @property
    def completed_argument(self) -> CompletedOption | None:
        """The first argument that a shell can complete; None: there is none."""
        return next((one for one in self.arguments if one.kind != "text"), None)


@cache
def commands() -> list[CompletedCommand]:
    """Return all commands and groups of commands."""
    found = []
    for name in COMMANDS:
        command = find(name)
        lines = {key: _line(one.paragraphs[0]) for key, one in command.commands.items()}
        found.append(CompletedCommand(name, _line(COMMANDS[name][1]), *_parameters(command), lines))
        found += [CompletedCommand(one.name, lines[key], *_parameters(one)) for key, one in command.commands.items()]
    return found


def _parameters(command: ProgramCommand | CommandGroup) -> tuple[list[CompletedOption], list[CompletedOption]]:
    """Return the options and the arguments of a command."""
    options, arguments = [CompletedOption(("--help",), "Show the help and exit.", "flag")], []
    for one in command.parameters:
        kind, words = ("flag", ()) if one.is_flag else _kind(one.name, one.metavar.strip("[]."))
        if one.is_argument:
            arguments.append(CompletedOption((), "", kind, words))
        else:
            options.append(CompletedOption(one.flags, _line(one.help), kind, words))
    return options, arguments


def _kind(name: str, metavar: str) -> tuple[str, tuple[str, ...]]:
    """Return the kind of a value, and its words."""
    if metavar == "LEVEL":
        return "words", get_args(OPTIONS["log_level"][1].kind)
    if metavar == "KIND":
        from gossamer.fakeweb.benchmark import PIPELINES  # late: an installed script does without it

        return "words", tuple(PIPELINES)
    if _WORDS.fullmatch(metavar):
        return "words", tuple(metavar.split("|"))
    if name in ("crawl_id", "crawlid") or metavar == "CRAWL":
        return "crawl", ()
    return ("file" if re.search(r"FILE|PATH|DIR", metavar) else "text"), ()


def _line(text: str) -> str:
    """Return the first sentence of a help text, without markup."""
    return re.split(r"(?<=[a-z0-9)])[.:;] ", " ".join(text.split()))[0].rstrip(".")


def completion_scripts() -> dict[str, str]:
    """Return the scripts by the names of their files."""
    return {"gossamer.bash": _bash(), "gossamer.zsh": _zsh(), "gossamer.fish": _fish()}


_MADE = "# Completion of gossamer. Made by `gossamer completion`; do not edit."


def _top() -> dict[str, str]:
    """Return the commands and groups that follow `gossamer`, with their help lines."""
    return {command.name: command.help for command in commands() if " " not in command.name}


_CASES = """
    for ((i = {first}; i < {end}; i++)); do
        [[ {word} == -* ]] && continue
        if [[ -z $command ]]; then
            command={word}
            case $command in {groups}) ;; *) break ;; esac
        else
            command="$command {word}"
            break
        fi
    done
    case "$command $prev" in
{values}
    esac
    case $command in
"""


def _cases(complete: Callable[[str, tuple[str, ...]], str], *, word: str, first: int, end: str) -> str:
    """Return what bash and zsh write alike: the loop that finds the command, the `case` that completes the value of an
    option, and the beginning of the one that completes commands, options and arguments.

    `complete`: returns the shell's code that completes a value, from its kind and its words. `word`: the word number
    `i` of the line, whose words after `gossamer` begin at `first`; `end`: the number of the one that is typed."""
    groups = "|".join(command.name for command in commands() if command.inner)
    rows = []
    for command in commands():
        flags_by_value: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for option in command.options:
            if option.kind != "flag":
                flags_by_value.setdefault((option.kind, option.words), []).extend(option.flags)
        for (kind, words), flags in flags_by_value.items():
            patterns = "|".join(f"'{command.name} {flag}'" for flag in flags)
            rows.append(f"    {patterns}) {complete(kind, words)}; return ;;")
    text = _CASES.format(word=word, first=first, end=end, groups=groups, values="\n".join(rows))
    return text.strip("\n")


# --- bash -------------------------------------------------------------------------------------------------------------

_BASH = """
_gossamer_crawls() {{  # names of crawls of the data directory; compgen -W would run a $(...) in one
    local folder={folder} i path name
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${{COMP_WORDS[i]}} == --data-dir ]] && folder=${{COMP_WORDS[i + 1]}}
    done
    for path in "$folder"/crawls/*.json; do
        [[ -e $path ]] || continue
        path=${{path##*/}}
        printf -v name %q "${{path%.json}}"
        [[ $name == "$cur"* ]] && COMPREPLY+=("$name")
    done
}}

_gossamer_files() {{
    compopt -o filenames 2>/dev/null
    local IFS=$'\\n'
    COMPREPLY=($(compgen -f -- "$1"))
}}

_gossamer() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} command= i
    COMPREPLY=()
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
{cases}
    '') COMPREPLY=($(compgen -W '{top} --help --version' -- "$cur")) ;;
{commands}
    esac
}}

complete -F _gossamer gossamer
"""


def _bash() -> str:
    """Return the script for bash."""
    rows = []
    for command in commands():
        flags_text = " ".join(flag for option in command.options for flag in option.flags)
        if command.inner:
            rows.append(
                f"    '{command.name}') COMPREPLY=($(compgen -W '{' '.join(command.inner)} --help' -- \"$cur\")) ;;"
            )
            continue
        other = command.completed_argument
        words = f"COMPREPLY=($(compgen -W '{flags_text}' -- \"$cur\"))"
        if other is None:
            rows.append(f"    '{command.name}') {words} ;;")
        else:
            rows.append(f"    '{command.name}')")
            rows.append(
                f"        if [[ $cur == -* ]]; then {words}; else {_bash_value(other.kind, other.words)}; fi ;;"
            )
    cases = _cases(_bash_value, word="${COMP_WORDS[i]}", first=1, end="COMP_CWORD")
    text = _BASH.format(folder=DATA_DIR, cases=cases, top=" ".join(_top()), commands="\n".join(rows))
    return _MADE + "\n" + text


def _bash_value(kind: str, words: tuple[str, ...]) -> str:
    """Return the code that completes a value."""
    if kind == "file":
        return '_gossamer_files "$cur"'
    if kind == "crawl":
        return "_gossamer_crawls"
    return f"COMPREPLY=($(compgen -W '{' '.join(words)}' -- \"$cur\"))"


# --- zsh --------------------------------------------------------------------------------------------------------------

_ZSH = """
_gossamer_crawls() {{
    local folder={folder} i
    for ((i = 1; i < CURRENT; i++)); do
        [[ $words[i] == --data-dir ]] && folder=$words[i+1]
    done
    local -a names
    names=($folder/crawls/*.json(N:t:r))
    compadd -a names
}}

_gossamer() {{
    local command= i prev=$words[CURRENT-1]
    local -a entries
{cases}
    '') entries=({top}); _describe command entries; return ;;
{commands}
    *) return 1 ;;
    esac
    _describe -o option entries
}}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _gossamer "$@"
else
    compdef _gossamer gossamer
fi
"""


def _zsh() -> str:
    """Return the script for zsh."""
    rows = []
    for command in commands():
        rows.append(f"    '{command.name}')")
        if command.inner:
            rows.append(f"        entries=({_entries(command.inner)}); _describe command entries; return ;;")
            continue
        other = command.completed_argument
        if other is not None:
            rows.append(f"        [[ $words[CURRENT] != -* ]] && {{ {_zsh_value(other.kind, other.words)}; return; }}")
        rows.append(
            f"        entries=({_entries({flag: one.help for one in command.options for flag in one.flags})}) ;;"
        )
    cases = _cases(_zsh_value, word="$words[i]", first=2, end="CURRENT")
    text = _ZSH.format(folder=DATA_DIR, cases=cases, top=_entries(_top()), commands="\n".join(rows))
    return "#compdef gossamer\n" + _MADE + "\n" + text


def _entries(lines: dict[str, str]) -> str:
    """Return words with their help lines, as `_describe` of zsh takes them."""
    return " ".join(shlex.quote(f"{name}:{text.replace(':', ' ')}") for name, text in lines.items())


def _zsh_value(kind: str, words: tuple[str, ...]) -> str:
    """Return the code that completes a value. A text is not completed: zsh shows that a value follows."""
    if kind == "file":
        return "_files"
    return "_gossamer_crawls" if kind == "crawl" else f"compadd -- {' '.join(words)}" if words else "_message value"


# --- fish -------------------------------------------------------------------------------------------------------------

_FISH = """
function __gossamer_at  # is this the command whose options or arguments are typed?
    set -l typed
    for word in (commandline -opc)[2..-1]
        string match -q -- '-*' $word; or set -a typed $word
    end
    set -l depth (count $argv)
    test $depth -eq 0; and test (count $typed) -eq 0; and return 0
    test $depth -gt 0; and test (count $typed) -ge $depth; and test "$typed[1..$depth]" = "$argv"
end

function __gossamer_crawls
    set -l folder DATA_DIR
    set -l words (commandline -opc)
    if set -l place (contains -i -- --data-dir $words)
        set folder $words[(math $place + 1)]
    end
    for path in $folder/crawls/*.json
        string replace -r '.*/(.*)\\.json$' '$1' $path
    end
end

complete -c gossamer -f
"""


def _fish() -> str:
    """Return the script for fish."""
    rows = [f"complete -c gossamer -n __gossamer_at -a {name} -d {_quoted(text)}" for name, text in _top().items()]
    rows.append("complete -c gossamer -n __gossamer_at -l version -d 'Show the version and exit'")
    for command in commands():
        at = f"complete -c gossamer -n '__gossamer_at {command.name}'"
        rows += [f"{at} -a {name} -d {_quoted(text)}" for name, text in command.inner.items()]
        if command.inner:
            continue
        for option in command.options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
            rows.append(f"{at} {flags}{_fish_value(option)} -d {_quoted(option.help)}")
        rows += [
            f"{at}{_fish_value(one).replace(' -x', '').replace(' -r', '')}"
            for one in command.arguments
            if one.kind != "text"
        ]
    return _MADE + "\n" + _FISH.replace("DATA_DIR", DATA_DIR) + "\n".join(rows) + "\n"


def _fish_value(option: CompletedOption) -> str:
    """Return the options of fish's `complete` for a value; empty: there is none."""
    match option.kind:
        case "flag":
            return ""
        case "file":
            return " -r -F"
        case "crawl":
            return " -x -a '(__gossamer_crawls)'"
        case "words":
            return f" -x -a '{' '.join(option.words)}'"
    return " -x"


def _quoted(text: str) -> str:
    """Return a text in quotes for fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
