"""A file at the other end of an fsspec URL: `ftp://`, `s3://` and whatever else has a driver installed."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from gossamer.errors import BadInput, SinkError

_WHOLE_OR_NOTHING = {"s3", "s3a", "gs", "gcs", "az", "abfs", "memory"}
"""Here an upload shows when it is complete; elsewhere it goes to another name first."""

_OLD = ".old"
"""Ends the name of the former file for the moment between two renames, where a server needs two."""


class Remote:
    """One remote file. Blocking. Every call makes its own connection: between them hours may pass."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.protocol = url.partition("://")[0]

    @property
    def shown(self) -> str:
        """The URL without the password."""
        return without_password(self.url)

    def require(self) -> None:
        """`BadInput` if no driver for the protocol is installed, or nobody knows it."""
        extra = "s3" if self.protocol in {"s3", "s3a"} else "fsspec"
        fsspec = _fsspec()
        if fsspec is None:
            raise BadInput(f"the output {self.shown} needs more than the core; pip install gossamer-crawl[{extra}]")
        try:
            fsspec.get_filesystem_class(self.protocol)
        except ImportError as exc:
            raise BadInput(
                f"the output {self.shown} needs a driver ({exc}); pip install gossamer-crawl[{extra}]"
            ) from exc
        except ValueError as exc:
            raise BadInput(f"the output {self.shown} has an unknown protocol") from exc

    def head(self, length: int) -> bytes | None:
        """The first bytes of the file, None if there is no file. `SinkError` if the other end cannot be asked."""
        with self._connected() as (system, path):
            if self.protocol in {"s3", "s3a"} and not system.exists(bucket := path.partition("/")[0]):
                raise SinkError(f"{self.shown}: there is no bucket {bucket}")
            return bytes(system.cat_file(path, start=0, end=length)) if system.exists(path) else None

    def fetch(self, to: Path) -> bool:
        """Copy the remote file to a local one; False if there is none."""
        with self._connected() as (system, path):
            for name in (path, path + _OLD):
                if system.exists(name):
                    system.get_file(name, str(to))
                    return True
            return False

    def put(self, local: Path) -> None:
        """Put the local file in the remote one's place, complete or not at all."""
        with self._connected() as (system, path):
            name = path if self.protocol in _WHOLE_OR_NOTHING else f"{path}.part"
            if "/" in path.strip("/") and self.protocol not in {"s3", "s3a"}:
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.put_file(str(local), name)
            system.invalidate_cache()
            if (size := system.size(name)) != local.stat().st_size:
                raise SinkError(f"{self.shown}: only {size} bytes arrived")
            if name != path:
                _replace(system, name, path)

    def _connected(self) -> AbstractContextManager[tuple[Any, str]]:
        return connected(self.url)


@contextmanager
def connected(url: str) -> Iterator[tuple[Any, str]]:
    """The file system behind an fsspec URL and the path in it; whatever goes wrong with it is a `SinkError`."""
    fsspec = _fsspec()
    if fsspec is None:
        raise SinkError(f"{without_password(url)} needs more than the core; pip install gossamer-crawl[fsspec]")
    try:
        yield fsspec.core.url_to_fs(url, skip_instance_cache=True)
    except SinkError:
        raise
    # Every driver has its own tree of errors, and none is a reason to lose what was to be written.
    except Exception as exc:
        raise SinkError(f"{without_password(url)}: {str(exc) or type(exc).__name__}") from exc


def _fsspec() -> Any:
    """None where it is not installed. Imported when somebody names such an address: few do."""
    try:
        import fsspec
    except ImportError:
        return None
    return fsspec


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", url)


def _replace(system: Any, name: str, path: str) -> None:
    """Rename onto `path`, also on a server that refuses to rename onto a file; `path` or `path.old` is always there."""
    try:
        system.mv(name, path)
    except Exception:  # again every driver's own; what is really wrong shows in the second attempt
        if system.exists(path):
            system.mv(path, path + _OLD)
        system.mv(name, path)
    if system.exists(path + _OLD):
        system.rm_file(path + _OLD)
