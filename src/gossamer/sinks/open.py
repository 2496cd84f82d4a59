"""From the paths a person names to sinks."""

import os
from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import BadInput
from gossamer.sinks.base import Sink
from gossamer.sinks.frames import Frames
from gossamer.sinks.framing import Framing
from gossamer.sinks.jsonl import JsonLinesSink
from gossamer.sinks.lines import Lines
from gossamer.sinks.members import Members
from gossamer.sinks.stdout import StdoutSink

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")


def open_sinks(paths: Sequence[str], *, spool_dir: Path) -> list[Sink]:
    """One sink a path, for this process; `-` is standard output. Nothing is created before the first write.

    `spool_dir`: where locks and what is not finished yet may wait; the same for all processes of a crawl.
    `BadInput`: a path that cannot be written, twice the same, or of an unknown kind.
    """
    if not paths:
        raise BadInput("no output is named; try -o pages.jsonl")
    seen: set[str] = set()
    for path in paths:
        same = path if path == "-" else os.path.realpath(path)
        if same in seen:
            raise BadInput(f"the output {path} is named twice")
        seen.add(same)
    return [_open_sink(path, spool_dir) for path in paths]


def _open_sink(path: str, spool_dir: Path) -> Sink:
    if path == "-":
        return StdoutSink(spool_dir)
    return JsonLinesSink(_checked(Path(path), framing := _framing(path)), framing)


def _framing(path: str) -> Framing:
    if path.endswith(".jsonl"):
        return Lines()
    if path.endswith(".jsonl.gz"):
        return Members()
    if path.endswith(".jsonl.zst"):
        return Frames()
    raise BadInput(f"the output {path} has an unknown ending; known are {', '.join(SUFFIXES)}, and - (standard output)")


def _checked(path: Path, framing: Framing) -> Path:
    """The path, if it can be written to as far as one can tell without writing."""
    if path.is_dir():
        raise BadInput(f"the output {path} is a directory; name a file in it")
    if path.exists():
        if not path.is_file():
            raise BadInput(f"the output {path} is not a regular file")
        if not os.access(path, os.R_OK | os.W_OK):
            raise BadInput(f"the output {path} may not be written; check its permissions")
        with path.open("rb") as stream:
            if not framing.begins(stream.read(64)):
                raise BadInput(f"the output {path} exists and its contents are of another kind; name another file")
        return path
    folder = path.absolute().parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise BadInput(f"the output {path} lies under {folder}, which is not a directory")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"the output {path} cannot be created: {folder} may not be written")
    return path
