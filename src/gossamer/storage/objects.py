"""Objects at an address: a folder, or any address that fsspec reaches, such as s3://bucket/prefix.

An object is written once under a name that nothing else uses, and is then read in parts, or deleted. There is no
append: object stores rewrite or cut off a file that is appended to. All methods wait for the disk or the network: call
them in a thread.

Fixed: an object whose `put` has returned survives a power cut; and whatever a driver raises becomes StorageUnavailable
or ObjectMissing, so that callers know whether to try again.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from gossamer.errors import BadInput, GossamerError
from gossamer.storage.files import make_folder, write_whole
from gossamer.storage.remote import OLD_SUFFIX, PART_SUFFIX, RemoteAddress

_CONNECT_SECONDS: Final = 5
"""Time limit for a connection to S3."""
_ANSWER_SECONDS: Final = 8
"""Longest silence of S3 within a call. Nodes repeat what is refused meanwhile."""
_ATTEMPTS: Final = 2
"""Times that a call of S3 is made before it counts as failed."""
MARKER: Final = "gossamer-storage.json"
"""Object that names the platform which an address belongs to. On users' disks: fixed."""
_PUT_ATTEMPTS: Final = 5
"""Times that a file is written whose folder another process deletes at the same time."""


class StorageUnavailable(GossamerError):
    """The storage of artefacts, logs and items cannot be used at present; the call may be repeated."""


class ObjectMissing(GossamerError):
    """There is no such object."""


class ObjectStorage(Protocol):
    """Objects by name. A name is a relative path with slashes."""

    @property
    def address(self) -> str:
        """The address without a password, for messages."""

    def put(self, name: str, content: bytes, *, fresh: bool = False) -> bool:
        """Write an object. `fresh`: only if there is none of this name. Return whether it was written."""

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Return the bytes of an object from `start` to `stop`, or to its end. Raises ObjectMissing."""

    def download(self, name: str, target: Path) -> None:
        """Write an object to a new local file. Raises ObjectMissing."""

    def exists(self, name: str) -> bool:
        """Return whether there is an object of this name."""

    def modified_at(self, name: str) -> float:
        """Return the time of the last `put` of an object, in seconds since 1970 by the storage's clock. 0.0: it has no
        clock. Raises ObjectMissing."""

    def names(self, folder: str) -> list[str]:
        """Return the full names of all objects below a folder. Empty: there is no such folder."""

    def delete(self, name: str) -> None:
        """Delete an object. Nothing happens if there is none of this name."""


def open_storage(address: str) -> ObjectStorage:
    """Return the storage at a folder or an fsspec address. Nothing is connected. Raises BadInput if no driver for the
    address is installed."""
    return FolderStorage(Path(address)) if is_folder(address) else RemoteStorage(address)


def is_folder(address: str) -> bool:
    """Return whether an address is a path of this machine."""
    return "://" not in address


class FolderStorage:
    """Objects as files below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    @property
    def address(self) -> str:
        return str(self._folder)

    def put(self, name: str, content: bytes, *, fresh: bool = False) -> bool:
        # Without this check, files for a shared folder that is not mounted would fill the disk below it.
        if name != MARKER and not self.exists(MARKER):
            raise StorageUnavailable(f"{self._folder}: the file {MARKER} is missing. Is the shared folder mounted?")
        for left in reversed(range(_PUT_ATTEMPTS)):
            try:
                make_folder((self._folder / name).parent)
                write_whole(self._folder / name, content, fresh=fresh)
                return True
            except FileExistsError:
                return False
            except OSError as error:
                # `delete` of another process removes a folder that was empty for a moment.
                if left == 0 or not isinstance(error, FileNotFoundError):
                    raise StorageUnavailable(f"{self._folder}: {error.strerror or error}") from None
        raise AssertionError("the last attempt returns or raises")

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        with self._translated(), (self._folder / name).open("rb") as file:
            file.seek(start)
            return file.read(-1 if stop is None else stop - start)

    def download(self, name: str, target: Path) -> None:
        with self._translated():
            shutil.copyfile(self._folder / name, target)

    def exists(self, name: str) -> bool:
        return (self._folder / name).is_file()

    def modified_at(self, name: str) -> float:
        with self._translated():
            return (self._folder / name).stat().st_mtime

    def names(self, folder: str) -> list[str]:
        with self._translated():
            found = (self._folder / folder).rglob("*")
            return [path.relative_to(self._folder).as_posix() for path in found if path.is_file()]

    def delete(self, name: str) -> None:
        with self._translated():
            path = self._folder / name
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # other objects are there
                for parent in path.parents:
                    if parent == self._folder:
                        break
                    parent.rmdir()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectMissing(str(error.filename)) from None
        except OSError as error:
            raise StorageUnavailable(f"{self._folder}: {error.strerror or error}") from None


class RemoteStorage:
    """Objects at an fsspec address."""

    def __init__(self, address: str) -> None:
        """Raises BadInput if there is no driver for the address, or it cannot be read."""
        self._address = RemoteAddress(address, fault=StorageUnavailable, missing=ObjectMissing)
        self._address.require_driver("the address")
        options: dict[str, Any] = {}
        if self._address.is_s3 and not self._address.is_configured("config_kwargs"):
            limits = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": _ANSWER_SECONDS}
            options["config_kwargs"] = {**limits, "retries": {"max_attempts": _ATTEMPTS - 1}}
        try:
            with self._address.translated():
                self._system, root = self._address.connect(**options)
        except GossamerError as error:
            raise BadInput(f"the address cannot be used: {error.detail}") from None
        if self._address.is_s3:
            self._system.retries = 1  # its own ones, beside those of the connection
        self._root = root.rstrip("/")

    @property
    def address(self) -> str:
        return self._address.shown

    def put(self, name: str, content: bytes, *, fresh: bool = False) -> bool:
        try:
            with self._address.translated(name):
                path = self._path(name)
                if fresh and self._system.exists(path):
                    return False
                self._address.write(self._system, path, content)
                return True
        except ObjectMissing:
            raise StorageUnavailable(f"{self.address}: there is no such bucket or folder") from None

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        with self._address.translated(name):
            return bytes(self._system.cat_file(self._path(name), start=start, end=stop))

    def download(self, name: str, target: Path) -> None:
        with self._address.translated(name):
            self._system.get_file(self._path(name), str(target))

    def exists(self, name: str) -> bool:
        with self._address.translated(name):
            return bool(self._system.exists(self._path(name)))

    def modified_at(self, name: str) -> float:
        with self._address.translated(name):
            try:
                return float(self._system.modified(self._path(name)).timestamp())
            except NotImplementedError:  # by this driver
                return 0.0

    def names(self, folder: str) -> list[str]:
        with self._address.translated(folder):
            found = self._system.find(self._path(folder))
            return [path[len(self._root) + 1 :] for path in found if not path.endswith((PART_SUFFIX, OLD_SUFFIX))]

    def delete(self, name: str) -> None:
        with contextlib.suppress(ObjectMissing), self._address.translated(name):
            self._system.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
