"""The commands, one module for each or for a few; and `gossamer completion`, which loads none of them.

Safe to change: the help. Fixed: the names of the shells, and that the script goes to standard output, because the start
files of shells run this command. The scripts are made by `python -m tools.reference`.
"""

from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli import terminal
from gossamer.errors import BadInput

SHELLS = ("bash", "zsh", "fish")
"""May be extended; each needs a script `cli/completion/gossamer.SHELL`."""


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)],
) -> None:
    """Print the script with which a shell completes commands, options and names of crawls.

    Write this line into ~/.bashrc, or with zsh into ~/.zshrc after compinit; for fish, save the script once as
    ~/.config/fish/completions/gossamer.fish.

    source <(gossamer completion bash)
    """
    if shell not in SHELLS:
        raise BadInput(f"there is no completion for {shell!r:.50}. Write {', '.join(SHELLS[:-1])} or {SHELLS[-1]}.")
    script = Path(__file__).parents[1] / "completion" / f"gossamer.{shell}"
    terminal.print_result(script.read_text(encoding="utf-8").rstrip("\n"))
