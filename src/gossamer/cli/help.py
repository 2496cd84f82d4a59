"""The help of commands, as a terminal shows it: usage, paragraphs, and a panel for each group of options."""

import os
import sys
import textwrap
from collections.abc import Mapping, Sequence

from gossamer.cli.parser import OPTIONS_PANEL, CommandGroup, Description, Parameter, ProgramCommand

_MOST_COLUMNS = 120
"""Width of the help on a wide terminal."""
_LEAST_TEXT = 20
"""Minimum number of columns for help texts, even if lines become longer than a narrow terminal."""
_BOLD, _VALUE, _DIM, _END = "\033[1;36m", "\033[33m", "\033[2m", "\033[0m"
_CommandLines = Sequence[tuple[str, str]]
"""Names of commands and their lines."""
_HELP = Parameter(
    name="help",
    description=Description(
        flags=("--help", "-h"), help="Show this message and exit.", metavar=None, panel=OPTIONS_PANEL,
        show_default=False, least=None, most=None, belongs_to="",
    ),
    kind=bool,
    many=False,
    default=False,
)  # fmt: skip


def help_of(command: ProgramCommand | CommandGroup) -> str:
    """Return the help of a command, or of a group of commands."""
    arguments = "".join(f" {_usage(one)}" for one in command.parameters if one.is_argument)
    usage = " COMMAND [ARGS]..." if isinstance(command, CommandGroup) else arguments
    panels: dict[str, list[tuple[str, str, str, str]]] = {}
    for one in command.parameters:
        panels.setdefault(one.description.panel, []).append(_row(one))
        if one.is_argument:  # the panel of the options comes next, whatever the first option is
            panels.setdefault(OPTIONS_PANEL, [])
    panels.setdefault(OPTIONS_PANEL, []).append(_row(_HELP))
    lines = [(name, one.paragraphs[0]) for name, one in command.commands.items()]
    return _page(f"{command.path} [OPTIONS]{usage}", command.paragraphs, panels, {"Commands": lines} if lines else {})


def list_of_commands(
    usage: str, paragraphs: list[str], options: list[Parameter], groups: Mapping[str, _CommandLines], end: str
) -> str:
    """Return the help of the program: its options, and a line for each command, in groups with a title."""
    panels = {OPTIONS_PANEL: [_row(one) for one in (*options, _HELP)]}
    return f"{_page(usage, paragraphs, panels, groups)}\n\n {end}"


def _page(
    usage: str, paragraphs: list[str], panels: dict[str, list[tuple[str, str, str, str]]],
    groups: Mapping[str, _CommandLines],
) -> str:  # fmt: skip
    width = _columns()
    parts = [f"\n Usage: {usage}", *(_paragraph(text, width) for text in paragraphs)]
    boxes = [_panel(title, rows, width) for title, rows in panels.items()]
    longest = max((len(name) for lines in groups.values() for name, _ in lines), default=0)
    for title, lines in groups.items():
        boxes.append(_panel(title, [(name.ljust(longest), "", "", text) for name, text in lines], width))
    return "\n\n".join(parts) + "\n\n" + "\n".join(boxes)


def _columns() -> int:
    """Return the width of the help in columns."""
    try:
        return max(40, min(_MOST_COLUMNS, int(os.environ.get("COLUMNS", "")) or 80))
    except ValueError:
        pass
    try:
        return max(40, min(_MOST_COLUMNS, os.get_terminal_size(sys.stdout.fileno()).columns or 80))
    except (OSError, ValueError):
        return 80


def is_command_line(text: str) -> bool:
    """Return whether a paragraph is a command, perhaps with variables before it, and not a sentence."""
    program = next((word for word in text.split() if "=" not in word), "")
    return program == "gossamer" or text.startswith("source <(gossamer ")


def _paragraph(text: str, width: int) -> str:
    """Return a paragraph, wrapped. A command line stays as it is, so that it can be copied."""
    if is_command_line(text):
        return f" {text}"
    return textwrap.fill(
        text, width - 1, initial_indent=" ", subsequent_indent=" ", break_on_hyphens=False, break_long_words=False
    )


def _usage(one: Parameter) -> str:
    """Return an argument as the usage line shows it: in brackets if it may be left out."""
    return one.metavar if one.is_required or one.metavar.startswith("[") else f"[{one.metavar}]"


def _row(one: Parameter) -> tuple[str, str, str, str]:
    """Return long flags, short flags, the name of the value, and the help."""
    described = one.description
    if one.is_argument:
        return one.metavar, "", "", f"{one.help} [required]" if one.is_required else one.help
    long = [flag for flag in described.flags if flag.startswith("--")]
    short = [flag for flag in described.flags if not flag.startswith("--")]
    return ", ".join(long), ", ".join(short), one.metavar, one.help


def _panel(title: str, rows: list[tuple[str, str, str, str]], width: int) -> str:
    """Return rows in a frame."""
    names = [max(len(row[at]) for row in rows) for at in range(3)]
    used = sum(length + 2 for length in names if length)
    room = max(_LEAST_TEXT, width - 4 - used)
    lines = []
    for row in rows:
        text = textwrap.wrap(row[3], room, break_on_hyphens=False) or [""]
        cells = [_styled(row[at].ljust(names[at]), _VALUE if at == 2 else _BOLD) + "  " for at in range(3) if names[at]]
        lines.append("".join(cells) + text[0].ljust(room))
        lines += [" " * used + one.ljust(room) for one in text[1:]]
    edge = _styled("│", _DIM)
    top = _styled(f"╭─ {title} ".ljust(used + room + 3, "─") + "╮", _DIM)
    return "\n".join([top, *(f"{edge} {line} {edge}" for line in lines), _styled(f"╰{'─' * (used + room + 2)}╯", _DIM)])


def _styled(text: str, style: str) -> str:
    """Return a text in a colour if standard output is a terminal that shows it."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return text if plain else f"{style}{text}{_END}"
