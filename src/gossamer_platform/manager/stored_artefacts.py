"""Artefacts in the platform's storage, for managers whose storage is an fsspec address.

    artefacts/DIGEST     objects of the storage

An artefact is named by its digest and never changes, so it is kept from its upload on, and deleted when no version
needs it. Each manager has copies in a local folder, from which it sends them to nodes. The methods wait for the disk or
the network: call them in a thread.
"""

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from gossamer.storage.objects import ObjectMissing, ObjectStorage, StorageUnavailable
from gossamer_platform.manager.artefacts import ArtefactStore, FoundArtefact

_FOLDER: Final = "artefacts"
"""First part of the names of objects. Fixed."""
_COPY_BYTES: Final = 1024**3
"""Bytes of copies from which on the oldest are deleted."""
_UNWANTED_SECONDS: Final = 3600.0
"""Time for which no version may have needed an artefact before it is deleted: a version is added some seconds after the
upload."""


class StoredArtefacts(ArtefactStore):
    """Artefacts by digest."""

    def __init__(self, storage: ObjectStorage, copies: Path) -> None:
        """`copies`: folder of this manager alone."""
        super().__init__(copies, copies)
        self._storage = storage
        self._copies = copies
        self._unwanted: dict[str, tuple[float, float]] = {}
        """Time, of the monotonic clock, since which no version has needed an object, and the time of its last upload by
        the storage's clock."""
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        """One artefact at a time is in memory."""

    def upload(self, digest: str, file: str, content: IO[bytes]) -> None:
        """Keep an artefact, as in a folder. Raises StorageUnavailable."""
        self._unwanted.pop(f"{_FOLDER}/{digest}", None)
        with self._sending:
            content.seek(0)
            self._storage.put(f"{_FOLDER}/{digest}", content.read())

    def path(self, digest: str, file: str) -> Path:
        """Return where the copy is, if there is one."""
        return self._copies / digest

    def fetch(self, digest: str, file: str) -> Path | None:
        """Return the copy, which is made if there is none. None: there is no such artefact."""
        copy = self._copies / digest
        if copy.exists():
            with contextlib.suppress(OSError):
                os.utime(copy)
            return copy
        new = self._copies / f".{uuid.uuid4().hex}"
        try:
            self._storage.download(f"{_FOLDER}/{digest}", new)
            os.replace(new, copy)
        except ObjectMissing:
            return None
        except OSError as error:
            raise StorageUnavailable(f"{self._copies}: {error.strerror}") from None
        finally:
            new.unlink(missing_ok=True)
        self._bound_copies(keep=copy)
        return copy

    def _bound_copies(self, *, keep: Path) -> None:
        with self._lock:
            found = []
            for path in self._copies.iterdir():
                with contextlib.suppress(FileNotFoundError):  # made by another thread, which renames it now
                    status = path.stat()
                    found.append((status.st_mtime, path, status.st_size))
            size = 0
            for _, path, length in sorted(found, reverse=True):
                size += length
                if size > _COPY_BYTES and path != keep and not path.name.startswith("."):
                    path.unlink(missing_ok=True)  # one that is being sent is open, and goes on

    def publish(self, digest: str, file: str) -> None:
        """Do nothing: an artefact stays where it was uploaded."""

    def delete(self, file: str) -> None:
        """Do nothing: `clean` deletes what no version needs."""

    def found(self) -> Iterator[FoundArtefact]:
        """Return nothing: no other program puts artefacts into the storage."""
        return iter(())

    def modified_at(self, file: str) -> float | None:
        """Return 0.0: artefacts never change."""
        return 0.0

    def clean(self, building: set[str], wanted: set[str]) -> None:
        """Delete what no version has needed for a while, and no manager has uploaded again meanwhile. `wanted`: digests
        of all versions that may be needed."""
        now = time.monotonic()
        names = [name for name in self._storage.names(_FOLDER) if name.rpartition("/")[2] not in wanted | building]
        unwanted: dict[str, tuple[float, float]] = {}
        for name in names:
            try:
                uploaded_at = self._storage.modified_at(name)
            except ObjectMissing:  # another manager has deleted it
                continue
            since, known = self._unwanted.get(name, (now, uploaded_at))
            unwanted[name] = (since if uploaded_at == known else now, uploaded_at)
            if now - unwanted[name][0] > _UNWANTED_SECONDS:
                self._storage.delete(name)
        self._unwanted = unwanted
