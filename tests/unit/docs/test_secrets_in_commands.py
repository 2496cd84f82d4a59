"""No command that the documentation, a README or a help text shows has a secret among its arguments.

Every user of a machine can read those. Secrets come from the environment, a file or standard input."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
_COMMAND = re.compile(
    r"^\s*(?:\$ )?(?P<assigned>(?:[A-Z_0-9]+=(?:'[^']*'|\"[^\"]*\"|\S*)\s+)*)"
    r"(?P<program>gossamer|scrapy|scrapyd|curl|python3?|valkey-server|redis-server|docker|kubectl)\s(?P<arguments>.*)$"
)
_SECRET = re.compile(
    r"://[^\s/@'\"]*:[^\s/@'\"]+@"  # a user and a password in an address
    r"|\s-u \S+:\S"  # curl
    r"|-H ['\"](?:Proxy-)?Authorization:"
    r"|--(?:cookie|token|password|requirepass)[ =]"
)
_PRACTICE = "python -m pyftpdlib "
"""A server for trials that takes its password on the command line only."""


def _commands() -> Iterator[tuple[Path, str, str]]:
    """Yield the file, the whole command and its arguments, of each command in a block of code or a help text."""
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")):
        is_code = False
        for line in re.sub(r"\\\n\s*", " ", path.read_text()).splitlines():
            if line.lstrip().startswith("```"):
                is_code = not is_code
            elif is_code and (found := _COMMAND.match(line)):
                yield path, line, found["arguments"]


def test_no_command_has_a_secret_among_its_arguments() -> None:
    commands = list(_commands())
    assert len(commands) > 200
    shown = [f"{path.relative_to(ROOT)}: {line}" for path, line, arguments in commands if _SECRET.search(arguments)]
    assert [line for line in shown if _PRACTICE not in line] == []
