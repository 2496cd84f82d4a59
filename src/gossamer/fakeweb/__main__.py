"""`python -m gossamer.fakeweb`: serve a fake web until it is stopped.

Fixed: the options, which `gossamer.fakeweb.control` and people's scripts use, the exit codes, and that the first line
of output comes when the server listens and ends with its address.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn

from gossamer.errors import BadInput, FakeWebFailed
from gossamer.fakeweb.serving import serve
from gossamer.fakeweb.site import ADDRESS
from gossamer.fakeweb.spec import MEMBERS, WebSpec, add_spec_arguments, spec_from
from gossamer.policy.words import counted

_DESCRIPTION = f"""\
Serve a synthetic web on {ADDRESS}: many hosts (site0.test, site1.test ...) on one port, told apart by the Host header.
The same options give the same web, byte for byte. Prints one line with the address when it is ready; SIGINT or SIGTERM
ends it. Point a crawler at it with a resolver override, for example:

  python -m gossamer.fakeweb --port 8080 --hosts 5 --pages 1000
  gossamer crawl http://site0.test:8080/ --resolve site0.test:{ADDRESS}
  curl --resolve site0.test:8080:{ADDRESS} http://site0.test:8080/p/1
"""
_EPILOG = """\
The host _fakeweb.test answers about the web itself:
GET /spec, /stats, /hostile, /log?from=N&limit=M; POST /reset, /mount.
  curl -H 'Host: _fakeweb.test' http://127.0.0.1:8080/stats
"""


def main(argv: list[str] | None = None) -> int:
    """Serve the web. Returns the exit code: 0 stopped, 1 could not be served, 2 invalid arguments."""
    parser = _Parser(
        prog="python -m gossamer.fakeweb",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    group = parser.add_argument_group("the server")
    group.add_argument("--port", type=int, default=0, metavar="N", help="0: any free port (default: 0)")
    group.add_argument("--tls", action="store_true", help="HTTPS, with a certificate for each host name")
    group.add_argument(
        "--ca-file", type=Path, metavar="F", help="write the certificate that clients must trust here (PEM)"
    )
    group.add_argument("--log", type=Path, metavar="F", help="append every request to this file, as JSON lines")
    group.add_argument("--port-file", type=Path, metavar="F", help="write the port here once it listens")
    group.add_argument("--until-stdin-closes", action="store_true", help="end when standard input ends, too")
    add_spec_arguments(parser)
    arguments = parser.parse_args(argv)
    try:
        _runner()(_serve(spec_from(arguments), arguments))
    except BadInput as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except (FakeWebFailed, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(spec: WebSpec, arguments: argparse.Namespace) -> None:
    """Serve until a signal, or the end of standard input, asks to stop."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serve(spec, port=arguments.port, tls=arguments.tls, log_file=arguments.log) as web:
        if arguments.ca_file and web.ca_path:
            arguments.ca_file.write_bytes(web.ca_path.read_bytes())
        if arguments.port_file:
            # A process that waits for the file must never read it half-written.
            fresh = arguments.port_file.with_name(arguments.port_file.name + ".new")
            fresh.write_text(f"{web.port}\n")
            fresh.replace(arguments.port_file)
        total = spec.hosts * spec.pages
        hosts = counted(spec.hosts, "host")
        estate = (
            f"; estate agent {web.scheme}://localhost:{web.port}/properties/index_00000.html" if spec.estate else ""
        )
        scripted = f"; built by scripts {web.scheme}://scripted.test:{web.port}/" if spec.scripted else ""
        accounts = ", ".join(f"{user} with password {password}" for user, password in MEMBERS.items())
        members = f"; members {web.scheme}://members.test:{web.port}/ ({accounts})" if spec.members else ""
        # The address stays last: programs read it there.
        print(
            f"{hosts}, {total:,} pages; first {web.url()}{estate}{scripted}{members}; "
            f"as a proxy {web.scheme}://{ADDRESS}:{web.port}",
            flush=True,
        )
        watching = None
        if arguments.until_stdin_closes:
            watching, _ = await loop.connect_read_pipe(lambda: _UntilClosed(stop.set), sys.stdin)
        await stop.wait()
        if watching:
            watching.close()


class _Parser(argparse.ArgumentParser):
    """Parser that reports a mistake in one line, without a list of all options above it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")


class _UntilClosed(asyncio.Protocol):
    """Calls `closed` when the other end of a pipe is closed, for example because its process died."""

    def __init__(self, closed: Callable[[], object]) -> None:
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Return the function that runs the server: uvloop's where it is installed, for about twice the requests a
    second."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


if __name__ == "__main__":
    sys.exit(main())
