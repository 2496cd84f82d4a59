"""Reads eggs and wheels: checks what a client sent, and tells what such a file contains. Runs no code of it.

An egg or a wheel is a zip. The manager checks one before it keeps it, and a node unpacks one; both see the same limits,
because a small zip may contain an immense file, and a name in it may lead out of the folder.

Fixed: the message for a file that is no zip, which clients of Scrapyd compare; and that sizes are checked by what the
zip announces before anything is read, and again while it is unpacked.
"""

import os
import re
import shutil
import stat
import struct
import uuid
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Final

from gossamer.errors import GossamerError

MAX_UNPACKED_BYTES: Final = 1024 * 1024 * 1024
"""Largest sum of the sizes of all files in an artefact."""
_MAX_FILES: Final = 50_000
"""Largest number of files in an artefact. Up to 65,534: a zip with more has another format."""
_MAX_DIRECTORY_BYTES: Final = 16 * 1024 * 1024
"""Largest table of contents of a zip, which is read into memory at once."""
_RATIO_BYTES: Final = 64 * 1024 * 1024
"""Unpacked size from which the ratio counts."""
_MAX_RATIO: Final = 100
"""Largest ratio of unpacked to packed size. Code is compressed to a quarter or so."""
_MAX_METADATA_BYTES: Final = 1024 * 1024
"""Largest file with metadata that is read."""
_END: Final = struct.Struct("<4s4H2LH")
"""Last record of a zip. The format's: fixed, as is the next."""
_END_MARK, _LONG_END_MARK, _LONG_END_BYTES = b"PK\5\6", b"PK\6\7", 20
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError)
"""Errors of zipfile for a file that is damaged, or forged."""
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_DIST_INFO: Final = re.compile(r"[^/]+\.dist-info/(METADATA|WHEEL|requirements\.txt)", re.ASCII)


class NotAnArtefact(GossamerError):
    """The upload is neither an egg nor a wheel that may be run."""

    only_detail = True


def check_package(content: IO[bytes]) -> bool:
    """Check the zip. Return True if it is a wheel, False for an egg. Raises NotAnArtefact with the reason."""
    with _opened(content) as packed:
        files = packed.infolist()
        for entry in files:
            _check_entry(entry)
        size = content.seek(0, os.SEEK_END)
        if not all(0 <= entry.header_offset < size for entry in files):
            raise NotAnArtefact("the egg or wheel is damaged. Build it anew")
        unpacked = sum(entry.file_size for entry in files)
        if unpacked > MAX_UNPACKED_BYTES:
            raise NotAnArtefact(f"the egg or wheel is {unpacked} bytes when unpacked; {MAX_UNPACKED_BYTES} are allowed")
        if unpacked > _RATIO_BYTES and unpacked > _MAX_RATIO * size:
            raise NotAnArtefact(
                f"the egg or wheel has {size} bytes and would have {unpacked} when unpacked, more than {_MAX_RATIO} "
                "times as many: this is how a zip bomb looks. Leave out what is so compressible"
            )
        if sum(entry.compress_size for entry in files) > size:
            raise NotAnArtefact("files in the egg or wheel overlap: this is how a zip bomb looks. Build it anew")
        return _is_wheel(packed)


def _opened(content: IO[bytes]) -> zipfile.ZipFile:
    # zipfile and Scrapyd accept a zip with anything before it, and so does this.
    if not zipfile.is_zipfile(content):
        raise NotAnArtefact("egg is not a ZIP file (if using curl, use egg=@path not egg=path)")
    _check_directory(content)
    try:
        return zipfile.ZipFile(content)
    except _BROKEN as error:
        raise NotAnArtefact(f"the egg or wheel cannot be read: {error}. Build it anew") from None


def _check_directory(content: IO[bytes]) -> None:
    """Raise NotAnArtefact for a long table of contents, before zipfile reads it."""
    size = content.seek(0, os.SEEK_END)
    content.seek(max(0, size - 65536 - _END.size - _LONG_END_BYTES))
    tail = content.read()
    # As zipfile does: a record at the very end without a comment counts first.
    place = len(tail) - _END.size
    if not (tail[place : place + 4] == _END_MARK and tail.endswith(b"\0\0")):
        place = tail.rfind(_END_MARK)
    if place < 0 or len(tail) - place < _END.size:
        raise NotAnArtefact("the egg or wheel is cut off. Send it again")
    _, _, _, _, count, directory_bytes, _, _ = _END.unpack_from(tail, place)
    is_long = tail[max(0, place - _LONG_END_BYTES) : place].startswith(_LONG_END_MARK)
    if is_long or count > _MAX_FILES or directory_bytes > _MAX_DIRECTORY_BYTES:
        raise NotAnArtefact(
            f"the egg or wheel has more than {_MAX_FILES} files, or a table of contents that is too long"
        )


def _check_entry(entry: zipfile.ZipInfo) -> None:
    name = entry.filename
    parts = PurePosixPath(name).parts
    shown = ascii(name[:200])
    # Both names, because the part that is cut off may be what keeps a name in the folder.
    if not parts or _leads_out(name) or _leads_out(_installed_name(name)):
        raise NotAnArtefact(f"the name {shown} in the egg or wheel leads out of its folder. Build it anew")
    if len(name.encode(errors="replace")) > 1000 or any(len(part.encode(errors="replace")) > 255 for part in parts):
        raise NotAnArtefact(f"the name {shown} in the egg or wheel is too long")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise NotAnArtefact(f"{shown} in the egg or wheel is a link or a device. Only files and folders are allowed")
    if entry.flag_bits & 0x1:
        raise NotAnArtefact(f"{shown} in the egg or wheel is encrypted")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NotAnArtefact(f"{shown} in the egg or wheel is compressed in a way that Python cannot import")


def _leads_out(name: str) -> bool:
    """Return whether a file of this name would be outside the folder into which it is unpacked. Empty: that folder."""
    return (
        "//" in name
        or name.startswith("/")
        or ".." in name.split("/")
        or "\\" in name
        or _DRIVE.match(name) is not None
    )


def _is_wheel(packed: zipfile.ZipFile) -> bool:
    names = set(packed.namelist())
    return "EGG-INFO/PKG-INFO" not in names and any(name.endswith(".dist-info/WHEEL") for name in names)


class PackageFile:
    """An egg or a wheel on this machine. The methods read the disk: call them in a thread."""

    def __init__(self, path: Path) -> None:
        """Raises NotAnArtefact."""
        self.path = path
        with path.open("rb") as content:
            self.is_wheel = check_package(content)
            with zipfile.ZipFile(content) as packed:
                names = set(packed.namelist())
                self._texts = {name: _text(packed, name) for name in names if _is_metadata(name)}
        self.needs_folder = self.is_wheel or "EGG-INFO/not-zip-safe" in names
        """True: the code is imported from a folder. Python imports from a zip, too, but no compiled module, and the
        code finds no files beside it."""

    def metadata(self) -> str:
        """Return the text of METADATA or PKG-INFO. Empty: there is none."""
        return self._first("METADATA") or self._texts.get("EGG-INFO/PKG-INFO", "")

    def tags(self) -> list[str]:
        """Return for which Pythons and platforms a wheel was built, as `py3-none-any`. Empty: it does not say so."""
        lines = self._first("WHEEL").splitlines()
        return [line.partition(":")[2].strip() for line in lines if line.lower().startswith("tag:")]

    def egg_requirements(self) -> str:
        """Return the text of an egg's `requires.txt`."""
        return self._texts.get("EGG-INFO/requires.txt", "")

    def requirements_text(self) -> str:
        """Return the text of the file `requirements.txt`: of the top folder, or beside the metadata."""
        names = ("requirements.txt", "EGG-INFO/requirements.txt")
        return next((self._texts[name] for name in names if name in self._texts), self._first("requirements.txt"))

    def _first(self, name: str) -> str:
        found = sorted(path for path in self._texts if path.endswith(f".dist-info/{name}"))
        return self._texts[found[0]] if found else ""

    def unpack(self, folder: Path) -> None:
        """Unpack it into a new folder, read-only. Raises NotAnArtefact."""
        left = MAX_UNPACKED_BYTES
        folder.mkdir(parents=True)
        try:
            with zipfile.ZipFile(self.path) as packed:
                for entry in packed.infolist():
                    left = _unpack_entry(packed, entry, folder, left)
            for place, folders, files in os.walk(folder, topdown=False):
                for name in (*folders, *files):
                    os.chmod(os.path.join(place, name), 0o555 if name in folders else 0o444)
            folder.chmod(0o555)
        except (*_BROKEN, NotADirectoryError, IsADirectoryError, FileExistsError) as error:
            raise NotAnArtefact(f"the egg or wheel cannot be unpacked: {error}. Build it anew") from None


def _unpack_entry(packed: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, left: int) -> int:
    """Unpack one file, and return how many bytes are left for the others."""
    path = folder / _installed_name(entry.filename)
    if entry.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        return left
    path.parent.mkdir(parents=True, exist_ok=True)
    with packed.open(entry) as source, path.open("wb") as target:
        while part := source.read(1024 * 1024):
            left -= len(part)
            if left < 0:
                raise NotAnArtefact(f"the egg or wheel has more than {MAX_UNPACKED_BYTES} bytes when unpacked")
            target.write(part)
    return left


def _installed_name(name: str) -> str:
    """Return where an installer would put a file of a wheel: code in NAME.data/purelib belongs to the top folder."""
    return re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", name)


def _is_metadata(name: str) -> bool:
    known = ("requirements.txt", "EGG-INFO/PKG-INFO", "EGG-INFO/requires.txt", "EGG-INFO/requirements.txt")
    return name in known or _DIST_INFO.fullmatch(name) is not None


def _text(packed: zipfile.ZipFile, name: str) -> str:
    try:
        with packed.open(name) as file:
            content = file.read(_MAX_METADATA_BYTES + 1)
    except _BROKEN as error:
        raise NotAnArtefact(f"{name} in the egg or wheel cannot be read: {error}. Build it anew") from None
    if len(content) > _MAX_METADATA_BYTES:
        raise NotAnArtefact(f"{name} in the egg or wheel is longer than {_MAX_METADATA_BYTES} bytes")
    return content.decode(errors="replace")


def remove_folder(folder: Path) -> None:
    """Delete a folder with read-only folders in it. Its name goes first, so that no half folder is left under it."""
    gone = folder.with_name(f".gone-{uuid.uuid4().hex}")
    try:
        os.rename(folder, gone)
    except FileNotFoundError:
        return
    for place, _, _ in os.walk(gone):
        os.chmod(place, 0o700)
    shutil.rmtree(gone, ignore_errors=True)
