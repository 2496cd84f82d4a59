"""Store of artefacts in a folder, under Scrapyd's names, so that Scrapyd can take the folder over again.

    EGGS/PROJECT/VERSION.egg      ready versions; wheels end in .whl, which Scrapyd overlooks
    UPLOADS/DIGEST-PLACE.egg      versions that are being built; PLACE is a hash of the name below EGGS

Fixed: the names below EGGS, which are Scrapyd's; and that a file appears there only when its version is ready, so that
a broken deployment replaces nothing.
"""

import hashlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from gossamer.storage.files import write_whole
from gossamer.storage.objects import StorageUnavailable
from gossamer_platform.names import check_file_name, sanitized
from gossamer_platform.packages import check_package

_UPLOAD_SECONDS: Final = 3600.0
"""Age from which an upload that no version needs for its build is deleted. A version is added some seconds after its
upload."""


class FoundArtefact(NamedTuple):
    """An artefact in the folder."""

    project: str
    version: str
    """Name of the version as the file has it."""
    file: str
    modified_at: float


def check_artefact(project: str, version: str, content: IO[bytes]) -> str:
    """Return the ending of a version's file, `.egg` or `.whl`. Raises UnsafeName or NotAnArtefact."""
    check_file_name(project, project)
    check_file_name(version and sanitized(version), f"{project}/{version}")
    return ".whl" if check_package(content) else ".egg"


def digest_of(content: IO[bytes]) -> str:
    """Return the SHA-256 of an artefact, as hexadecimal digits."""
    content.seek(0)
    return hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]


class ArtefactStore:
    """Artefacts below two folders. The methods wait for the disk: call them in a thread."""

    def __init__(self, eggs: Path, uploads: Path) -> None:
        self._eggs = eggs
        self._uploads = uploads

    def temporary_file(self) -> IO[bytes]:
        """Return a new file without a name, on the disk of the uploads."""
        self._uploads.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self._uploads)

    def upload(self, digest: str, file: str, content: IO[bytes]) -> None:
        """Keep an artefact that is to be built, and was checked. `file`: name of the version's file below the folder of
        eggs. May be repeated. Raises StorageUnavailable if the disk is full, say."""
        self._uploads.mkdir(parents=True, exist_ok=True)
        _write(self._upload(digest, file), content)

    def path(self, digest: str, file: str) -> Path:
        """Return where the artefact is: among the uploads, or among the eggs."""
        uploaded = self._upload(digest, file)
        return uploaded if uploaded.exists() else self._eggs / file

    def fetch(self, digest: str, file: str) -> Path | None:
        """Return the artefact as a file of this machine. None: there is no such artefact."""
        path = self.path(digest, file)
        return path if path.exists() else None

    def publish(self, digest: str, file: str) -> None:
        """Move an upload to its place among the eggs. May be repeated: then nothing happens."""
        uploaded = self._upload(digest, file)
        if not uploaded.exists():
            return
        target = self._eggs / file
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(uploaded, target)
        except OSError:  # another file system
            new = target.with_name(f".{uuid.uuid4().hex}")
            shutil.copyfile(uploaded, new)
            os.replace(new, target)
            uploaded.unlink()
        for suffix in (".egg", ".whl"):  # the version was an egg before, and is a wheel now, or the other way round
            if suffix != target.suffix:
                target.with_suffix(suffix).unlink(missing_ok=True)

    def _upload(self, digest: str, file: str) -> Path:
        return self._uploads / f"{digest}-{hashlib.sha256(file.encode()).hexdigest()[:16]}.egg"

    def delete(self, file: str) -> None:
        """Delete an artefact, and the folder of its project if that is empty now."""
        path = self._eggs / file
        path.unlink(missing_ok=True)
        try:
            path.parent.rmdir()
        except OSError:
            return  # other versions, or files of others

    def found(self) -> Iterator[FoundArtefact]:
        """Yield the artefacts among the eggs."""
        if not self._eggs.is_dir():
            return
        for folder in sorted(self._eggs.iterdir()):
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                if path.suffix in (".egg", ".whl") and not path.name.startswith("."):
                    file = f"{folder.name}/{path.name}"
                    yield FoundArtefact(folder.name, path.stem, file, path.stat().st_mtime)

    def modified_at(self, file: str) -> float | None:
        """Return when an artefact among the eggs was last written. None: there is no such file."""
        try:
            return (self._eggs / file).stat().st_mtime
        except FileNotFoundError:
            return None

    def digest(self, file: str) -> str:
        """Return the digest of an artefact among the eggs. Empty: there is no such file."""
        if not (self._eggs / file).exists():
            return ""
        with (self._eggs / file).open("rb") as content:
            return digest_of(content)

    def clean(self, building: set[str], wanted: set[str]) -> None:
        """Delete old uploads of versions that are not being built any more. `wanted`: digests of all versions that may
        be needed."""
        if self._uploads.is_dir():
            for path in self._uploads.iterdir():
                if path.stem.partition("-")[0] not in building and time.time() - path.stat().st_mtime > _UPLOAD_SECONDS:
                    path.unlink(missing_ok=True)


def _write(path: Path, content: IO[bytes]) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        raise StorageUnavailable(f"the artefact cannot be kept: {path.parent}: {error.strerror or error}") from None
