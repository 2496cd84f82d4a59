"""From the paths a person names to sinks."""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gossamer.errors import BadInput, SinkError
from gossamer.sinks.append import FileSink, Missing
from gossamer.sinks.base import Fanout, Sink
from gossamer.sinks.formats import JSONL_ZST, kind_of
from gossamer.sinks.ledger import Ledger
from gossamer.sinks.parquet import build_parquet, check_parquet, require_parquet
from gossamer.sinks.remote import RemoteFile
from gossamer.sinks.spool import SpooledSink, concatenate, finish_local, finish_remote
from gossamer.sinks.stdout import StdoutSink

_HEAD = 64


def check_outputs(paths: Sequence[str]) -> None:
    """Whether these outputs can be opened, as far as one can tell without writing; once, before anything starts.

    A remote one is asked too. `BadInput`: unknown ending or protocol, not installed, not writable, a directory,
    contents of another kind, named twice, not reachable.
    """
    if not paths:
        raise BadInput("no output is named; try -o pages.jsonl")
    seen: set[str] = set()
    for path in paths:
        same = _place(path)
        if same in seen:
            raise BadInput(f"the output {path} is named twice")
        seen.add(same)
        if path != "-":
            if _is_url(path):
                _check_remote(path)
            else:
                _check_local(_local(path))


def missing_folders(paths: Sequence[str]) -> list[Path]:
    """The folders of local outputs that are not there yet; they are made, with all above them, at the first write."""
    folders = (_local(path).parent for path in paths if path != "-" and not _is_url(path))
    return [folder for folder in dict.fromkeys(folders) if not folder.exists()]


def open_sinks(
    paths: Sequence[str], *, spool_dir: Path, run: str = "", on_missing: Missing | None = None
) -> list[Sink]:
    """One sink a path, for this process, unlocked and unopened until the first write; `-` is standard output.

    `spool_dir`: where locks, and what is not finished yet, may wait; the same for all processes of a crawl and when it
    is resumed. Opening and closing without a write finishes what an earlier run left there. `BadInput` for an unknown
    ending or a missing extra; the rest is what `check_outputs` is for.

    `on_missing` is told of records that vanish from a local file that is appended to. `run`: a name of the run, under
    which its records are counted for all processes and when it is resumed; empty: this process counts for itself.
    """
    return [_open_sink(path, spool_dir, run, on_missing) for path in paths]


def forget_ledgers(paths: Sequence[str], *, spool_dir: Path, run: str) -> None:
    """The run is finished: it is not resumed, and what becomes of its outputs is no concern any more."""
    for path in paths:
        _ledger(_folder(path, spool_dir), run).forget()


def open_output(paths: Sequence[str], *, spool_dir: Path) -> Sink:
    """All of `open_sinks` as one sink."""
    sinks = open_sinks(paths, spool_dir=spool_dir)
    return sinks[0] if len(sinks) == 1 else Fanout(sinks)


def _open_sink(path: str, spool_dir: Path, run: str = "", on_missing: Missing | None = None) -> Sink:
    if path == "-":
        return StdoutSink(spool_dir)
    kind = kind_of(path)
    if kind is None:
        require_parquet()
    folder = _folder(path, spool_dir)
    if _is_url(path):
        remote = RemoteFile(path)
        remote.require()
        build = build_parquet if kind is None else concatenate(kind.framing())
        return SpooledSink(remote.shown, folder, kind or JSONL_ZST, partial(finish_remote, remote, build))
    if kind is None:
        return SpooledSink(path, folder, JSONL_ZST, partial(finish_local, _local(path)))
    ledger = _ledger(folder, run) if on_missing is not None else None
    return FileSink(_local(path), kind, ledger=ledger, on_missing=on_missing)


def _folder(path: str, spool_dir: Path) -> Path:
    return spool_dir / "outputs" / hashlib.sha256(os.fsencode(_place(path))).hexdigest()[:16]


def _ledger(folder: Path, run: str) -> Ledger:
    return Ledger(folder / f"{hashlib.sha256(run.encode()).hexdigest()[:16]}.ledger" if run else None)


def _is_url(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def _local(path: str) -> Path:
    return Path(unquote(urlsplit(path).path) if path.startswith("file://") else path)


def _place(path: str) -> str:
    """The same text for two spellings of one output."""
    return path if path == "-" or _is_url(path) else os.path.realpath(_local(path))


def _check_remote(url: str) -> None:
    kind = kind_of(url)
    if kind is None:
        require_parquet()
    remote = RemoteFile(url)
    remote.require()
    try:
        head = remote.head(_HEAD)
    except SinkError as exc:
        raise BadInput(f"the output cannot be reached: {exc.detail}") from exc
    begins = kind.framing().begins if kind else b"PAR1".startswith
    if head is not None and not begins(head if kind else head[:4]):
        raise BadInput(f"the output {remote.shown} exists and its contents are of another kind; name another file")


def _check_local(path: Path) -> None:
    kind = kind_of(str(path))
    if kind is None:
        require_parquet()
    if path.is_dir():
        raise BadInput(f"the output {path} is a directory; name a file in it")
    if path.exists():
        if not path.is_file():
            raise BadInput(f"the output {path} is not a regular file")
        try:
            with path.open("r+b") as stream:
                head = stream.read(_HEAD)
        except OSError as exc:
            raise BadInput(f"the output {path} may not be written: {exc.strerror}") from exc
        if kind is None:
            check_parquet(path)
        elif not kind.framing().begins(head):
            raise BadInput(f"the output {path} exists and its contents are of another kind; name another file")
    if not path.exists() or kind is None:
        _check_folder(path)


def _check_folder(path: Path) -> None:
    """Whether a file can be made there, and the folders it lacks."""
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise BadInput(f"the output {path} cannot be made: {folder} is not a directory")
    try:
        tempfile.TemporaryFile(
            dir=folder
        ).close()  # nameless where the file system can; permission bits do not tell all
    except OSError as exc:
        raise BadInput(f"the output {path} cannot be made: {folder} may not be written ({exc.strerror})") from exc
