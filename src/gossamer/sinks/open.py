"""Sinks from the output paths that a person names (`-o`): checked before a crawl, opened in each worker.

Safe to change: the checks and their messages. Fixed: the suffixes, which people write, and the names of the folders in
which an interrupted crawl has left a spool (a local file that collects records for an output) or a ledger.
"""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gossamer.errors import BadInput, SinkError
from gossamer.sinks.append import FileSink, Ledger, OnMissing
from gossamer.sinks.base import Sink
from gossamer.sinks.framing import FileFormat, GzipMembers, PlainLines, ZstdFrames
from gossamer.sinks.jsonl import json_units
from gossamer.sinks.remote import RemoteFile
from gossamer.sinks.spool import (
    SpooledSink,
    build_parquet,
    check_parquet,
    concatenate,
    finish_local,
    finish_remote,
    require_parquet,
)
from gossamer.sinks.stdout import StdoutSink
from gossamer.sinks.warc import WarcRecords, warc_units, warcinfo_units

_HEAD_BYTES = 64
"""Bytes at the beginning of an existing output from which its format is recognised. May be larger, but not smaller:
each framing needs its whole magic number, and JSON Lines a few characters."""

_NAME_CHARACTERS = 16
"""Characters of a hash that name a folder or a ledger. Fixed, like the names."""

JSONL_ZST = FileFormat(".jsonl.zst", ZstdFrames, json_units)
"""Also the format of the spools of Parquet files."""

# Suffixes are documented names and must not change. The format of a remote file's spool must not change either: an
# interrupted crawl may have left such a spool. New formats may be added in any order, if no suffix ends with another.
FORMATS = (
    FileFormat(".jsonl", PlainLines, json_units),
    FileFormat(".jsonl.gz", GzipMembers, json_units),
    JSONL_ZST,
    FileFormat(".warc", WarcRecords, warc_units, warcinfo_units, wants_wire=True),
    FileFormat(".warc.gz", GzipMembers, warc_units, warcinfo_units, wants_wire=True),
)

_PARQUET_MAGIC = b"PAR1"  # fixed by the format
PARQUET = ".parquet"
"""Suffix of the format that cannot be appended to: its records are collected in a spool (see `spool.py`). A documented
name, like the suffixes above: it must not change."""


def format_of(path: str) -> FileFormat | None:
    """Return the format by the ending of a path or URL; None for Parquet. Raises `BadInput` for an unknown ending."""
    ending = path.lower()
    if ending.endswith(PARQUET):
        return None
    for file_format in FORMATS:
        if ending.endswith(file_format.suffix):
            return file_format
    known = " ".join([file_format.suffix for file_format in FORMATS] + [PARQUET])
    raise BadInput(f"the output {path} has an unknown ending; known are {known}, and - for standard output")


def check_outputs(paths: Sequence[str]) -> None:
    """Check, once before a crawl starts, whether these outputs can be written, as far as can be told without writing.

    This also contacts remote servers. Raises `BadInput` for an unknown ending or protocol, a missing library, a path
    that is not writable or a directory, a file of another format, an output that is named twice, or an unreachable
    server.
    """
    if not paths:
        raise BadInput("no output is named; try -o pages.jsonl")
    seen: set[str] = set()
    for path in paths:
        key = _output_key(path)
        if key in seen:
            raise BadInput(f"the output {path} is named twice")
        seen.add(key)
        if path != "-":
            if _is_url(path):
                _check_remote(path)
            else:
                _check_local(_local_path(path))


def missing_folders(paths: Sequence[str]) -> list[Path]:
    """Return the folders of local outputs that do not exist yet. The first write makes them and their parents."""
    folders = (_local_path(path).parent for path in paths if path != "-" and not _is_url(path))
    return [folder for folder in dict.fromkeys(folders) if not folder.exists()]


def open_sinks(
    paths: Sequence[str], *, spool_dir: Path, run: str = "", on_missing: OnMissing | None = None
) -> list[Sink]:
    """Return a sink for each path, for this process; `-` is standard output. Files are opened at the first write.

    `spool_dir`: folder for lock files and spools. It must be the same for all processes of a crawl, and when the crawl
    is resumed. Opening and closing a sink without a write finishes the spool that an earlier run left there.

    `on_missing` is called when records that were written are missing from a local file. They are noticed by a ledger: a
    file in `spool_dir` that counts the records written to one output. `run`: name of the run whose processes share a
    ledger, also when the run is resumed; empty: each process counts only its own records, in memory. Raises `BadInput`
    for an unknown ending or a missing library; `check_outputs` finds other problems.
    """
    return [_open_sink(path, spool_dir, run, on_missing) for path in paths]


def delete_ledgers(paths: Sequence[str], *, spool_dir: Path, run: str) -> None:
    """Delete the ledgers (see `open_sinks`) of a finished run, which will not be resumed."""
    for path in paths:
        _ledger(_folder(path, spool_dir), run).delete()


def _open_sink(path: str, spool_dir: Path, run: str, on_missing: OnMissing | None) -> Sink:
    if path == "-":
        return StdoutSink(spool_dir)
    file_format = format_of(path)
    if file_format is None:
        require_parquet()
    folder = _folder(path, spool_dir)
    if _is_url(path):
        remote = RemoteFile(path)
        remote.require_driver()
        build = build_parquet if file_format is None else concatenate(file_format.framing())
        return SpooledSink(remote.display_url, folder, file_format or JSONL_ZST, partial(finish_remote, remote, build))
    if file_format is None:
        return SpooledSink(path, folder, JSONL_ZST, partial(finish_local, _local_path(path)))
    ledger = _ledger(folder, run) if on_missing is not None else None
    return FileSink(_local_path(path), file_format, ledger=ledger, on_missing=on_missing)


def _folder(path: str, spool_dir: Path) -> Path:
    """Return the folder of an output's spool, lock and ledgers.

    Its name must not change: unfinished spools of earlier crawls lie there.
    """
    return spool_dir / "outputs" / hashlib.sha256(os.fsencode(_output_key(path))).hexdigest()[:_NAME_CHARACTERS]


def _ledger(folder: Path, run: str) -> Ledger:
    """Return the ledger of a run for one output. Its name must not change: a run that is resumed looks for it."""
    name = hashlib.sha256(run.encode()).hexdigest()[:_NAME_CHARACTERS]
    return Ledger(folder / f"{name}.ledger" if run else None)


def _is_url(path: str) -> bool:
    """Return whether the output is remote."""
    return "://" in path and not path.startswith("file://")


def _local_path(path: str) -> Path:
    return Path(unquote(urlsplit(path).path) if path.startswith("file://") else path)


def _output_key(path: str) -> str:
    """Return a text that is the same for two spellings of one output. Fixed: the name of its folder depends on it."""
    return path if path == "-" or _is_url(path) else os.path.realpath(_local_path(path))


def _check_remote(url: str) -> None:
    file_format = format_of(url)
    if file_format is None:
        require_parquet()
    remote = RemoteFile(url)
    remote.require_driver()
    try:
        head = remote.head(_HEAD_BYTES)
    except SinkError as exc:
        raise BadInput(f"the output cannot be reached: {exc.detail}") from exc
    if head is None:
        return
    if not (file_format.framing().accepts(head) if file_format else _PARQUET_MAGIC.startswith(head[:4])):
        raise BadInput(
            f"the output {remote.display_url} exists and its contents are of another kind; name another file"
        )


def _check_local(path: Path) -> None:
    file_format = format_of(str(path))
    if file_format is None:
        require_parquet()
    if path.is_dir():
        raise BadInput(f"the output {path} is a directory; name a file in it")
    if path.exists():
        if not path.is_file():
            raise BadInput(f"the output {path} is not a regular file")
        try:
            with path.open("r+b") as stream:
                head = stream.read(_HEAD_BYTES)
        except OSError as exc:
            raise BadInput(f"the output {path} may not be written: {exc.strerror}") from exc
        if file_format is None:
            check_parquet(path)
        elif not file_format.framing().accepts(head):
            raise BadInput(f"the output {path} exists and its contents are of another kind; name another file")
    if not path.exists() or file_format is None:
        _check_folder(path)


def _check_folder(path: Path) -> None:
    """Check that the file, and the folders that it lacks, can be made. Raises `BadInput`."""
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise BadInput(f"the output {path} cannot be made: {folder} is not a directory")
    try:
        # Permission bits are not proof, so create a temporary file (without a name, where the file system can do that).
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as exc:
        raise BadInput(f"the output {path} cannot be made: {folder} may not be written ({exc.strerror})") from exc
