"""Commands of the page about rendering run as they are printed. See test_printed_commands.py."""

import re
from pathlib import Path

from tests.servers.printed import Shell
from tests.servers.printed_pages import check, commands_of, runs
from tests.servers.program import require
from tests.servers.valkey import free_ports


@runs("howto/render.md")
def test_the_page_about_rendering(page: str, tmp_path: Path) -> None:
    require("chromium-headless-shell")
    [port] = free_ports(1)
    swaps = {"https://example.com": f"http://site0.test:{port}", ":8080/": f":{port}/"}
    shell = Shell(tmp_path, swaps, {"GOSSAMER_FETCH__RESOLVE": '{"site0.test": "127.0.0.1"}'})
    web = f"python -m gossamer.fakeweb --scripted 200 --port {port} --hosts 1 --pages 6 --page-bytes 2000"
    with shell.started(web):
        printed = [check(shell, typed) for typed in commands_of(page)]
    assert re.search(r"^  200 pages, .*; 193 items$", printed[-1], re.MULTILINE), printed[-1]
