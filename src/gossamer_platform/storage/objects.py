"""Objects at an address: a folder, or any address that fsspec reaches, such as s3://bucket/prefix.

An object is written once under a name that nothing else uses, and is then read in parts, or deleted. There is no
append: object stores rewrite or cut off a file that is appended to. All methods wait for the disk or the network: call
them in a thread.

Fixed: an object whose `put` has returned survives a power cut; and whatever a driver raises becomes StorageUnavailable
or ObjectMissing, so that callers know whether to try again.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from gossamer.errors import BadInput, GossamerError
from gossamer.extras import install_advice
from gossamer.net.credentials import has_password, hide_secrets, hide_secrets_of

_CONNECT_SECONDS: Final = 5
"""Time limit for a connection to S3."""
_ANSWER_SECONDS: Final = 8
"""Longest silence of S3 within a call. Nodes repeat what is refused meanwhile."""
_ATTEMPTS: Final = 2
"""Times that a call of S3 is made before it counts as failed."""
_S3: Final = ("s3", "s3a")
"""Protocols of S3."""


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
                return self._put(self._folder / name, content, fresh=fresh)
            except FileExistsError:
                return False
            except OSError as error:
                # `delete` of another process removes a folder that was empty for a moment.
                if left == 0 or not isinstance(error, FileNotFoundError):
                    raise StorageUnavailable(f"{self._folder}: {error.strerror or error}") from None
        raise AssertionError("the last attempt returns or raises")

    def _put(self, target: Path, content: bytes, *, fresh: bool) -> bool:
        _make_folders(target.parent)
        new = target.with_name(f".{uuid.uuid4().hex}")
        try:
            with new.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if fresh:
                os.link(new, target)
            else:
                os.replace(new, target)
        finally:
            new.unlink(missing_ok=True)
        _flush(target.parent)
        return True

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


def _make_folders(folder: Path) -> None:
    """Create a folder and its parents so that they survive a power cut."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        _flush(folder.parent)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RemoteStorage:
    """Objects at an fsspec address. Environment variables configure the driver: AWS_ENDPOINT_URL and the other ones of
    the AWS tools for S3; FSSPEC_PROTOCOL, with options as JSON, for each protocol."""

    def __init__(self, address: str) -> None:
        """Raises BadInput if there is no driver for the address, or it cannot be read."""
        options: dict[str, Any] = {}
        self._given, self._shown = address, hide_secrets(address)
        protocol = address.partition("://")[0]
        extra = "s3" if protocol in _S3 else "fsspec"
        try:
            import fsspec  # here, because a folder needs none of it

            fsspec.get_filesystem_class(protocol)
        except ImportError as error:
            raise BadInput(f"the address {self._shown} needs a driver ({error}): {install_advice(extra)}") from None
        except ValueError:
            raise BadInput(f"the address {self._shown} has an unknown protocol: {protocol}") from None
        if protocol in _S3 and has_password(address):
            raise BadInput(
                f"the address {self._shown} has a password, which an address of S3 cannot have. Set AWS_ACCESS_KEY_ID "
                "and AWS_SECRET_ACCESS_KEY instead, and write s3://BUCKET/PREFIX"
            )
        if protocol in _S3 and "config_kwargs" not in fsspec.config.conf.get(protocol, {}):
            limits = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": _ANSWER_SECONDS}
            options["config_kwargs"] = {**limits, "retries": {"max_attempts": _ATTEMPTS - 1}}
        try:
            self._system, root = fsspec.core.url_to_fs(
                address, skip_instance_cache=True, use_listings_cache=False, **options
            )
        except Exception as error:  # every driver has its own error classes
            reason = hide_secrets_of(address, str(error))
            raise BadInput(f"the address {self._shown} cannot be used: {reason}") from None
        if protocol in _S3:
            self._system.retries = 1  # its own ones, beside those of the connection
        self._root = root.rstrip("/")
        self._has_folders = protocol not in _S3
        """True: a folder must be made before a file in it. Stores with buckets make none."""

    @property
    def address(self) -> str:
        return self._shown

    def put(self, name: str, content: bytes, *, fresh: bool = False) -> bool:
        try:
            with self._translated(name):
                path = self._path(name)
                if fresh and self._system.exists(path):
                    return False
                if self._has_folders:
                    self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._system.pipe_file(path, content)
                return True
        except ObjectMissing:
            raise StorageUnavailable(f"{self._shown}: there is no such bucket or folder") from None

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        with self._translated(name):
            return bytes(self._system.cat_file(self._path(name), start=start, end=stop))

    def download(self, name: str, target: Path) -> None:
        with self._translated(name):
            self._system.get_file(self._path(name), str(target))

    def exists(self, name: str) -> bool:
        with self._translated(name):
            return bool(self._system.exists(self._path(name)))

    def modified_at(self, name: str) -> float:
        with self._translated(name):
            try:
                return float(self._system.modified(self._path(name)).timestamp())
            except NotImplementedError:  # by this driver
                return 0.0

    def names(self, folder: str) -> list[str]:
        with self._translated(folder):
            found = self._system.find(self._path(folder))
            return [path[len(self._root) + 1 :] for path in found]

    def delete(self, name: str) -> None:
        with contextlib.suppress(ObjectMissing), self._translated(name):
            self._system.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextlib.contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise ObjectMissing(f"{self._shown}/{name}") from None
        except Exception as error:  # every driver has its own error classes
            reason = hide_secrets_of(self._given, str(error)) or type(error).__name__
            raise StorageUnavailable(f"{self._shown}: {reason}") from None
