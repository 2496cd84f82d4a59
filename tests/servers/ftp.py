"""A real FTP server in a process of its own, for tests."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FTP_SERVER = """
import logging, sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
logging.disable()
users = DummyAuthorizer()
users.add_user("user", "secret", sys.argv[1], perm="elradfmwMT")
FTPHandler.authorizer = users
server = FTPServer(("127.0.0.1", int(sys.argv[2])), FTPHandler)
print(server.address[1], flush=True)
server.serve_forever()
"""
"""Program of the server; its arguments are the folder and the port, 0 for a free one, which it prints."""


@contextlib.contextmanager
def ftp_server(folder: Path) -> Iterator[str]:
    """Make the folder, and yield the address of a server whose files are there."""
    folder.mkdir()
    command = [sys.executable, "-W", "ignore", "-c", FTP_SERVER, str(folder), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield f"ftp://user:secret@127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()
