"""Commands that a page of the documentation prints, with what they print, and a shell that types them."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.valkey import wait_until

Done = subprocess.CompletedProcess[str]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_TYPED = frozenset({"", "console", "sh", "bash"})
"""Languages of blocks in which a reader finds commands."""
_HEREDOC = re.compile(r"<<'?(\w+)'?$", re.MULTILINE)
_ASSIGNED = re.compile(r"""^\w+=(?:'[^']*'|"[^"]*"|\$\([^)]*\)|\S*)\s*""")
_PROGRAM = re.compile(
    r"""(\S*/)?(
    apt-get | bash | cat | cd | chmod | cp | curl | dist | docker | echo | export | find | for | gossamer | grep |
    head | helm | install | jq | kubectl | logparser | ls | make | mariadb | mkdir | mvn | pip | pipx | printf | proxy |
    psql | pytest | python3? | redis-cli | rm | scrapy | scrapyd-deploy | sed | shub | source | sqlite3 | systemctl |
    \(umask | unset | useradd | uvx? | valkey-server | warcio)(\s|$)""",
    re.VERBOSE,
)
"""First words of commands. A block that has other lines, and no prompts, is no block of commands."""


@dataclass(frozen=True)
class Typed:
    """One command, and the lines that the page shows below it."""

    command: str
    shown: tuple[str, ...] = ()
    is_interrupted: bool = False
    """Whether the page shows that the reader presses Ctrl-C."""


def typed_commands(page: str) -> Iterator[Typed]:
    """Yield the commands of the blocks of a page, in their order.

    In a block with prompts (`$ `), the lines below a command are what it prints. In others, each line is a command.
    """
    for indent, kind, block in _BLOCK.findall(page):
        if kind not in _TYPED:
            continue
        before, *steps = re.split(r"^\$ ", re.sub(rf"^{indent}", "", block, flags=re.MULTILINE), flags=re.MULTILINE)
        yield from (Typed(line.strip()) for line in _complete(before) if line.strip() and not line.startswith("#"))
        for step in steps:
            command = _complete(step)[0]
            printed = step.removeprefix(command).splitlines()
            yield Typed(command.strip(), tuple(filter(_is_shown, printed)), is_interrupted="^C" in printed)


def _is_shown(line: str) -> bool:
    return line.strip() not in ("", "…", "^C")


def _complete(text: str) -> list[str]:
    """Return the lines of a block, those joined that are one command, and an empty text behind the last."""
    found, pending = [], ""
    for line in text.splitlines(keepends=True):
        pending += line
        opened = _HEREDOC.search(pending)
        if (opened and line.strip() != opened[1]) or pending.rstrip("\n").endswith("\\"):
            continue
        try:
            shlex.split(pending, comments=True)
        except ValueError:  # an open quotation mark
            continue
        found.append(pending)
        pending = ""
    return [*found, pending]


def is_command(line: str) -> bool:
    """Return whether the line assigns a variable, or begins with a program that the pages use."""
    while assigned := _ASSIGNED.match(line):
        if assigned.end() >= len(line.rstrip()):
            return True
        line = line[assigned.end() :]
    return _PROGRAM.match(line) is not None


def alike(line: str) -> str:
    """Return the line with every number, and the id of a crawl, as one sign, because they differ."""
    line = re.sub(r"(\.test|localhost)-[0-9a-f]{8}", r"\1-#", " ".join(line.split()))
    line = re.sub(r"\d{1,3}(?:,\d{3})+|\d+", "#", line)  # 977 and 1,649 pages a second are alike
    return re.sub(r"(# [a-z]{2,}?)s\b", r"\1", line)  # as are 1 round and 12 rounds


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class Shell:
    """A shell in a folder that keeps variables and the working folder from one command to the next.

    curl fails on an HTTP error, and crawls without a rate are fast.
    """

    def __init__(self, folder: Path, swaps: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        """`swaps`: texts of the page, such as ports, and what stands for them here."""
        self.folder = folder
        self._swaps = swaps
        self.printed = folder / ".printed"
        """What the running command has printed so far."""
        self._state = folder / ".shell"
        self._state.write_text("")
        (folder / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": path, "CURL_HOME": str(folder), "COLUMNS": "200", "TZ": "UTC", "GOSSAMER_CRAWL__RATE": "1000/1"}
        self._environment = {**os.environ, **own, **(environment or {})}

    def here(self, text: str) -> str:
        """Return a text of the page with what stands for its ports and addresses here."""
        for of_page, here in self._swaps.items():
            text = text.replace(of_page, here)
        return text

    @contextmanager
    def started(self, command: str, *, ready: str = "") -> Iterator[Path]:
        """Run a server from when it is ready to the end of the block, and yield the file of what it prints.

        `ready`: what it prints then. Empty: it listens at the port that the command names.
        """
        command = self.here(command)
        port = 0 if ready else int(re.findall(r"(?:--port|http\.server) (\d+)", command)[0])
        log = self.folder / f".server-{len([*self.folder.glob('.server-*')])}"
        with (
            log.open("wb") as output,
            subprocess.Popen(
                ["bash", "-c", f'set -a\n. {self._state}\ncd "$PWD"\nexec {command}'],
                cwd=self.folder,
                env={**self._environment, "PYTHONUNBUFFERED": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as server,
        ):

            def is_ready() -> bool:
                assert server.poll() is None, log.read_text()
                return ready in log.read_text() if ready else bool(log.stat().st_size) and _listens(port)

            try:
                wait_until(is_ready, f"{command} to be ready")
                yield log
            finally:
                server.terminate()

    def run(self, command: str, *, typed: str = "", until: Callable[[], bool] | None = None) -> Done:
        """Run a command to its end. `typed`: what it reads from standard input. `until`: when Ctrl-C is pressed."""
        script = (
            f'set -a\n. {self._state}\ncd "$PWD"\n{self.here(command)}\ncode=$?\nexport -p > {self._state}\nexit $code'
        )
        with (
            self.printed.open("w") as output,
            subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as process,
        ):
            try:
                if until is not None:
                    wait_until(until, f"the time to interrupt {command}")
                    os.killpg(process.pid, signal.SIGINT)
                _, errors = process.communicate(typed, timeout=300)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return Done(process.args, process.returncode, self.printed.read_text(), errors)

    def missing(self, typed: Typed, done: Done) -> list[str]:
        """Return the lines that the page shows and the command did not print."""
        printed = {alike(line) for line in (done.stdout + done.stderr).splitlines()}
        return [line for line in typed.shown if not printed & {alike(line), alike(self.here(line))}]
