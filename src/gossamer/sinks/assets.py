"""A folder of assets, the files that pages embed or link: each content once, and a manifest with a line for each URL.

A file is named by the SHA-256 of its content (`ab/abcd….png`), so equal contents are one file. `manifest.jsonl` says
which URL has which file. Fixed: the names of files, by which a later crawl finds contents that are there; the fields of
a line of the manifest, which users read (fields may be added); and that a file gets its name, and its line, only when
its content is on the disk, because a process may be killed between any two steps.
"""

import hashlib
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gossamer.errors import BadInput
from gossamer.model.assets import file_ending
from gossamer.model.json_codec import encode_value
from gossamer.model.record import Output, PageRecord
from gossamer.option_names import named
from gossamer.sinks.append import (
    FileSink,
    Ledger,
    OnMissing,
    check_folder,
    translate_os_errors,
)
from gossamer.sinks.framing import FileFormat, PlainLines
from gossamer.storage.files import flush, flush_folder, make_folder

MANIFEST = "manifest.jsonl"
"""Name of the list of assets in their folder. Fixed."""
_GROUP_DIGITS = 2
"""Digits of a digest that name the folder of a file, so that no folder has too many. Fixed: `_NAME` matches it."""
_PART = "."
"""Beginning of the names of files that are being written. No finished file may have it; what killed processes have left
under another one stays."""


def manifest_of(folder: str) -> str:
    """Return the path of the manifest of a folder."""
    return str(Path(folder) / MANIFEST)


class AssetFolder:
    """Sink that writes the bodies of assets to files, and takes no notice of other outputs. Several processes may write
    to one folder. Nothing is created before the first asset. Implements Sink (sinks/base.py)."""

    wants_wire = False
    wants_text = False

    def __init__(self, folder: Path, *, ledger: Ledger | None, on_missing: OnMissing | None) -> None:
        """`ledger` counts the lines of the manifest; None: lost lines are not noticed."""
        self._files = _Files(folder)
        manifest = FileFormat(".jsonl", PlainLines, self._files.store)
        self.manifest = FileSink(folder / MANIFEST, manifest, ledger=ledger, on_missing=on_missing)

    async def write(self, outputs: Sequence[Output]) -> None:
        await self.manifest.write([output for output in outputs if output.asset is not None])

    async def close(self) -> None:
        await self.manifest.close()


def check_asset_folder(path: str) -> None:
    """Check that assets can be written to a folder that a user names. Raises BadInput."""
    if path == "-" or "://" in path:
        raise BadInput(f"{path} is no folder on this machine. Name one, for example assets.", option="assets_to")
    folder, fault = check_folder(Path(path))
    if fault:
        raise BadInput(f"{folder} {fault}. Name another folder.", option="assets_to")


class ManifestLine(msgspec.Struct):
    """A line of a manifest, as far as it is read."""

    file: str
    crawlid: str
    url: str = ""
    response_url: str = ""
    success: bool = False
    reason: str = ""


def manifest_lines(folder: Path, crawl_id: str) -> "Iterator[ManifestLine]":
    """Yield the lines of one crawl in the manifest of a folder. Raises BadInput if no crawl wrote it."""
    return (line for line in _lines(folder) if line.crawlid == crawl_id)


_NAME = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{62}(?:\.[a-z0-9]+)?")
"""Names that `_Files` gives. Must match nothing else: `empty_folder` deletes such files, and a manifest can be changed
by anybody."""


def crawls_in(folder: Path) -> set[str]:
    """Return the names of the crawls in the manifest of a folder. Raises BadInput if no crawl wrote it."""
    return {line.crawlid for line in _lines(folder)}


def empty_folder(folder: Path) -> None:
    """Delete the files that the manifest of a folder names, and the lines of the manifest. All other files stay. No
    sink may have the folder open. Raises SinkError, and BadInput as `crawls_in`."""
    with translate_os_errors(folder):
        groups = set()
        for line in _lines(folder):
            if _NAME.fullmatch(line.file):
                (folder / line.file).unlink(missing_ok=True)
                groups.add((folder / line.file).parent)
        for group in groups:
            with suppress(OSError):  # it has other files
                group.rmdir()
        with suppress(FileNotFoundError):
            os.truncate(folder / MANIFEST, 0)  # last: after a kill, the manifest still names what is left


def _lines(folder: Path) -> Iterator[ManifestLine]:
    """Yield the lines of a manifest but an unfinished last one, which a kill may leave."""
    decode = msgspec.json.Decoder(ManifestLine).decode
    with suppress(FileNotFoundError), (folder / MANIFEST).open("rb") as manifest:
        for line in manifest:
            if line.endswith(b"\n"):
                try:
                    yield decode(line)
                except msgspec.DecodeError as error:
                    raise BadInput(
                        f"{folder / MANIFEST} is not the manifest of a crawl ({error}). Name another folder with "
                        f"{named('assets_to')}, or delete it."
                    ) from None


class _Files:
    """Files of a folder, by their content. Blocking; for one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def store(self, outputs: Sequence[Output]) -> list[bytes]:
        """Write the bodies of these assets, and return their lines of the manifest as one unit. Raises SinkFull and
        SinkError."""
        with translate_os_errors(self._folder):
            return [b"".join(self._line(output) for output in outputs)]

    def _line(self, output: Output) -> bytes:
        """Return the line of an asset, whose file is on the disk then."""
        record, asset = output.record, output.asset
        assert isinstance(record, PageRecord)
        assert asset is not None
        file = digest = ""
        if record.success:
            digest = hashlib.sha256(output.body).hexdigest()
            file = self._place(output.body, digest, file_ending(record.content_type, record.response_url))
        return (
            encode_value(
                {
                    "url": record.url,
                    "response_url": record.response_url,
                    "referrer": asset.referrer,
                    "kind": asset.kind,
                    "file": file,
                    "sha256": digest,
                    "bytes": len(output.body) if file else 0,
                    "content_type": record.content_type,
                    "status_code": record.status_code,
                    "success": record.success,
                    "reason": record.reason,
                    "exception": record.exception,
                    "timestamp": record.timestamp,
                    "appid": record.appid,
                    "crawlid": record.crawlid,
                    "request_id": record.request_id,
                }
            )
            + b"\n"
        )

    def _place(self, body: bytes, digest: str, ending: str) -> str:
        """Return the file with this content, relative to the folder; it is written unless it is there, under whatever
        ending."""
        group = self._folder / digest[:_GROUP_DIGITS]
        make_folder(group)
        with os.scandir(group) as entries:
            for entry in entries:
                if entry.name.startswith(_PART):
                    _delete_if_left(Path(entry.path))
                elif entry.name.partition(".")[0] == digest:
                    return f"{group.name}/{entry.name}"
        self._count += 1
        part = group / f"{_PART}{socket.gethostname()}@{os.getpid()}-{self._count}"
        try:
            with part.open("wb") as stream:
                stream.write(body)
                stream.flush()
                flush(stream.fileno())
            part.rename(group / f"{digest}{ending}")
        finally:
            part.unlink(missing_ok=True)  # of a full disk: each attempt has another name
        flush_folder(group)
        return f"{group.name}/{digest}{ending}"


def _delete_if_left(part: Path) -> None:
    """Delete a file that a killed process of this machine was writing."""
    host, _, rest = part.name.removeprefix(_PART).rpartition("@")
    process = rest.partition("-")[0]
    if host == socket.gethostname() and process.isdecimal() and not _is_alive(int(process)):
        part.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    """Return whether a process of this machine runs. `process`: its number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
