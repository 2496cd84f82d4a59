"""Files at addresses that fsspec reaches: `ftp://`, `s3://`, and any protocol with an installed driver.

Environment variables configure the drivers: AWS_ENDPOINT_URL and the other ones of the AWS tools for S3;
FSSPEC_PROTOCOL, with options as JSON, for each protocol. All functions wait for the network.

Fixed: a reader of a remote file must never see a part of it, and the former contents must survive a kill at any moment.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gossamer.errors import BadInput, GossamerError
from gossamer.extras import install_advice
from gossamer.net.credentials import ENCODE, has_password, hide_secrets, hide_secrets_of

_ATOMIC: Final = {"s3", "s3a", "gs", "gcs", "az", "abfs", "memory"}
"""Protocols on which an upload becomes visible when it is complete. On others, the upload goes to another name first,
which is always right; so a protocol may be added only when its uploads are known to be atomic."""
_S3: Final = {"s3", "s3a"}
"""Protocols on which no folders are made: that would make a bucket."""
PART_SUFFIX: Final = ".part"
"""Suffix of a file while it is uploaded."""
OLD_SUFFIX: Final = ".old"
"""Suffix of the former file between two renames, on servers that need two. Fixed: a reader looks for a file that a
killed process left under this name."""


class RemoteAddress:
    """An fsspec address. What a driver raises becomes an error of the given class."""

    def __init__(self, address: str, *, fault: type[GossamerError], missing: type[GossamerError] | None = None) -> None:
        """`missing`: class of the error for a file that does not exist. None: that is a fault like any other."""
        self.given = address
        self.shown = hide_secrets(address)
        """The address with its password hidden."""
        self.protocol = address.partition("://")[0]
        self.is_s3 = self.protocol in _S3
        self._fault = fault
        self._missing = missing

    def require_driver(self, what: str) -> None:
        """Raise BadInput if the protocol is unknown, no driver for it is installed, or the address has a password that
        the driver does not read. `what`: what the address is for, such as `the output`."""
        extra = "s3" if self.is_s3 else "fsspec"
        fsspec = _fsspec()
        if fsspec is None:
            raise BadInput(f"{what} {self.shown} needs the package fsspec (extra {extra}): {install_advice(extra)}")
        try:
            fsspec.get_filesystem_class(self.protocol)
        except ImportError as error:
            raise BadInput(f"{what} {self.shown} needs a driver ({error}): {install_advice(extra)}") from error
        except ValueError as error:
            raise BadInput(f"{what} {self.shown} has an unknown protocol: {self.protocol}") from error
        if self.is_s3 and has_password(self.given):
            raise BadInput(
                f"{what} {self.shown} has a password, which an address of S3 cannot have. Set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY instead, and write s3://BUCKET/PATH"
            )

    @contextlib.contextmanager
    def connected(self) -> Iterator[tuple[Any, str]]:
        """Context with a new connection (a file system of fsspec) and the path of the address in it."""
        with self.translated():
            yield self.connect()

    def connect(self, **options: Any) -> tuple[Any, str]:
        """Return a new connection and the path of the address in it. `options`: those of the driver."""
        fsspec = _fsspec()
        if fsspec is None:
            raise self._fault(f"{self.shown} needs the package fsspec: {install_advice('fsspec')}")
        system, path = fsspec.core.url_to_fs(self.given, skip_instance_cache=True, use_listings_cache=False, **options)
        return system, str(path)

    def is_configured(self, option: str) -> bool:
        """Return whether an environment variable sets an option of the driver."""
        return option in _fsspec().config.conf.get(self.protocol, {})

    @contextlib.contextmanager
    def translated(self, name: str = "") -> Iterator[None]:
        """Context in which every error of the driver becomes an error of this address. `name`: the file in use."""
        try:
            yield
        except GossamerError:
            raise
        # Every driver has its own error classes, and none is a reason to lose what was to be written.
        except Exception as error:
            if self._missing is not None and isinstance(error, FileNotFoundError):
                raise self._missing(f"{self.shown}/{name}") from None
            reason = hide_secrets_of(self.given, str(error)) or type(error).__name__
            advice = f". {ENCODE}" if isinstance(error, ValueError) and has_password(self.given) else ""
            raise self._fault(f"{self.shown}: {reason}{advice}") from error

    def write(self, system: Any, path: str, content: bytes | Path) -> None:
        """Write a file, or replace it, whole or not at all. A path names a local file with the content."""
        is_atomic = self.protocol in _ATOMIC
        name = path if is_atomic else path + PART_SUFFIX
        if "/" in path.strip("/") and not self.is_s3:
            with contextlib.suppress(NotImplementedError):
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
        if isinstance(content, bytes):
            system.pipe_file(name, content)
            size = len(content)
        else:
            system.put_file(str(content), name)
            size = content.stat().st_size
        # A store with atomic uploads has compared the length of what it was sent in one request.
        if not (is_atomic and isinstance(content, bytes)):
            system.invalidate_cache()
            if (arrived := system.size(name)) != size:
                raise self._fault(f"{self.shown}: only {arrived} bytes arrived")
        if name != path:
            _replace(system, name, path)


def _fsspec() -> Any:
    """Return the fsspec module; None where it is not installed. It is imported here because few crawls need it."""
    try:
        import fsspec
    except ImportError:
        return None
    return fsspec


def _replace(system: Any, name: str, path: str) -> None:
    """Rename a file to `path`, also on a server that refuses to rename onto an existing file.

    The order must stay: at every moment `path` or `path.old` exists, also when this process is killed.
    """
    old = path + OLD_SUFFIX
    try:
        system.mv(name, path)
    except Exception:  # every driver has its own error classes; the second attempt raises the real error
        if system.exists(path):
            if system.exists(old):  # left by a killed process, and older than `path`
                system.rm_file(old)
            system.mv(path, old)
        system.mv(name, path)
    if system.exists(old):
        system.rm_file(old)
