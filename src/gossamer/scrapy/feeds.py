"""Feeds of a Scrapy project that appear under their names only when they are complete.

    ADDONS = {"gossamer.scrapy.WholeFeeds": 0}

The feed is written under a hidden name beside its target (`.NAME.WORD.part`) and renamed at its end. In S3, an object
appears when its upload has ended. A feed of which a part could not be written (the disk was full) gets no name.

`%(batch)s` in the address of a feed is the spider's argument `batch`, or else the job's id, so
`%(batch)s_%(name)s_%(time)s` works in every run.

Fixed: the names of the classes, which projects write into their settings.
"""

import contextlib
import fcntl
import ftplib
import io
import logging
import os
import posixpath
import secrets
import shutil
import ssl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

from scrapy import Spider
from scrapy.extensions import feedexport
from scrapy.extensions.feedexport import FileFeedStorage, FTPFeedStorage, S3FeedStorage
from scrapy.settings import BaseSettings
from scrapy.utils.ftp import ftp_makedirs_cwd

from gossamer.net.credentials import hide_secrets_in
from gossamer.storage.files import flush

log = logging.getLogger(__name__)

_PAUSES: Final = (3.0, 15.0)
"""Pauses in seconds before a failed upload by FTP is tried a second and a third time."""

_FTP_SECONDS: Final = 60.0
"""Longest time without an answer of an FTP server: one that hangs must not keep the crawl from its end."""


class WholeFeeds:
    """Scrapy's add-on interface: sets `FEED_STORAGES` and `FEED_URI_PARAMS`, unless the project does."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Change the settings."""
        hide_feed_passwords()
        settings.set("FEED_STORAGES", {**whole_storages(), **settings.getdict("FEED_STORAGES")}, "cmdline")
        settings.set("FEED_URI_PARAMS", feed_parameters, "addon")


class _PasswordFilter(logging.Filter):
    """Hides the passwords in addresses of feeds, which Scrapy writes to its log as they are."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the text of the record. Every record passes."""
        record.msg, record.args = hide_secrets_in(record.getMessage()), None
        return True


_PASSWORD_FILTER = _PasswordFilter()


def hide_feed_passwords() -> None:
    """Let no password of a feed be in the log of this process. May be repeated."""
    logging.getLogger(feedexport.__name__).addFilter(_PASSWORD_FILTER)


def whole_storages() -> dict[str, type]:
    """Return the storages of whole feeds by the scheme of their address."""
    return {
        "": WholeFileStorage,
        "file": WholeFileStorage,
        "ftp": WholeFTPStorage,
        "ftps": WholeFTPStorage,
        "s3": WholeS3Storage,
    }


def feed_parameters(parameters: dict[str, Any], spider: Spider) -> dict[str, Any]:
    """Return the names that the address of a feed may contain: Scrapy's, and `batch`."""
    batch = getattr(spider, "batch", None) or os.environ.get("SCRAPY_JOB") or "all"
    return {**parameters, "batch": batch}


class FeedFile(io.BufferedWriter):
    """File of a feed that remembers failures. Scrapy logs an item that could not be written, and goes on: the feed
    would lack it, or have a part of it."""

    def __init__(self, path: str | Path, mode: str) -> None:
        self._bytes = _File(path, mode)
        super().__init__(self._bytes)
        self.former: tuple[int, ...] | None = None
        """Identity of the target that the file begins with a copy of."""
        self.copied = 0
        """Bytes of that copy."""

    def forget_failure(self) -> None:
        """Forget failures so far, because what could not be written has been written since."""
        self._bytes.failure = None

    def finish(self, feed: str) -> None:
        """Write to disk and close. Raises OSError if anything could not be written since the file was opened."""
        error: OSError | None = None
        try:
            self.flush()
            flush(self.fileno())
        except OSError as failed:
            error = failed
        with contextlib.suppress(OSError):  # of bytes that `flush` could not write either
            self.close()
        error = self._bytes.failure or error
        if error is not None:
            log.error("the feed %s is not complete: %s. The items that were written are in %s", feed, error, self.name)
            raise error


class _File(io.FileIO):
    failure: OSError | None = None
    """The first failure to write."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            self.failure = self.failure or error
            raise


class WholeFileStorage(FileFeedStorage):
    """Feed in a file that appears under its name when it is complete.

    A feed that is appended to (`-o`, `overwrite` False) is a copy of the file until then. If another process has
    changed the file since, both parts are kept. A crawl that is killed leaves the file as it was, and the hidden one.
    """

    def open(self, spider: Spider) -> IO[bytes]:
        """Open a hidden file beside the target. A target that is no regular file, such as a pipe, is opened itself."""
        path = self._target()
        if path.exists() and not path.is_file():
            return super().open(spider)
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = FeedFile(path.with_name(_hidden(path.name)), "xb")
        if self.write_mode == "ab":
            with contextlib.suppress(FileNotFoundError), path.open("rb") as former:
                hidden.former = _identity(former.fileno())
                shutil.copyfileobj(former, hidden)
                hidden.copied = hidden.tell()
        return cast("IO[bytes]", hidden)

    def store(self, file: IO[bytes]) -> None:
        """Give the file its name."""
        if not isinstance(file, FeedFile):
            file.close()
            return
        path, hidden = self._target(), Path(file.name)
        file.finish(str(path))
        with _locked(path.parent):
            if self.write_mode == "ab" and (_identity(path) if path.exists() else None) != file.former:
                hidden = _appended(path, hidden, file.copied)
            hidden.replace(path)

    def _target(self) -> Path:
        """Return the path of the feed; of a link, the path to which it leads."""
        return Path(os.path.realpath(self.path))


def _identity(file: int | Path) -> tuple[int, ...]:
    """Return numbers that change when the file is replaced or written."""
    found = os.stat(file)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time replace feeds in a folder. Some network file systems have no such locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _appended(path: Path, hidden: Path, begin: int) -> Path:
    """Return a new hidden file with the content of the target and, after it, that of `hidden` from `begin`."""
    merged = path.with_name(_hidden(path.name))
    with merged.open("xb") as file:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as present:
            shutil.copyfileobj(present, file)
        with hidden.open("rb") as own:
            own.seek(begin)
            shutil.copyfileobj(own, file)
        file.flush()
        flush(file.fileno())
    hidden.unlink()
    return merged


def _temporary(spider: Spider) -> FeedFile:
    """Return a local file for a feed that is uploaded."""
    descriptor, path = tempfile.mkstemp(prefix="feed-", dir=spider.crawler.settings["FEED_TEMPDIR"])
    os.close(descriptor)
    return FeedFile(path, "wb")


class WholeFTPStorage(FTPFeedStorage):
    """Feed on an FTP server that appears under its name when it is complete.

    An upload that fails is tried again. If all tries fail, the local file stays, and the log names it. With `overwrite`
    False, FTP can append only to the file itself; that is tried once, because a part may have been appended.
    """

    def open(self, spider: Spider) -> IO[bytes]:
        """Open a local file, which is deleted when it has been uploaded."""
        return cast("IO[bytes]", _temporary(spider))

    def _store_in_thread(self, file: IO[bytes]) -> None:
        local, target = Path(file.name), f"ftp://{self.host}:{self.port}{self.path}"
        assert isinstance(file, FeedFile)
        file.finish(target)
        hidden = _hidden(posixpath.basename(self.path))
        for pause in (*(_PAUSES if self.overwrite else ()), None):
            try:
                self._upload(local, hidden)
            except ftplib.all_errors as error:
                if pause is None:
                    log.error("the feed %s was not uploaded: %s. Its items are in %s", target, error, local)
                    raise
                log.warning("the upload of the feed %s failed: %s. It is tried again in %g s", target, error, pause)
                time.sleep(pause)
            else:
                local.unlink()
                return

    def _upload(self, local: Path, hidden: str) -> None:
        """Upload a file under a hidden name, and rename it. May be repeated."""
        folder, name = posixpath.split(self.path)
        with self._connection() as ftp, local.open("rb") as file:
            ftp_makedirs_cwd(ftp, folder)
            if not self.overwrite:
                ftp.storbinary(f"APPE {name}", file)
                return
            ftp.storbinary(f"STOR {hidden}", file)
            try:
                ftp.rename(hidden, name)
            except ftplib.error_perm:  # some servers do not replace a file
                ftp.delete(name)
                ftp.rename(hidden, name)

    def _connection(self) -> ftplib.FTP:
        """Return a connection to the server, with the user logged in."""
        # Releases of Scrapy that do not know ftps have no attribute `tls`.
        if getattr(self, "tls", False):
            ftp: ftplib.FTP = ftplib.FTP_TLS(context=ssl.create_default_context(), timeout=_FTP_SECONDS)  # noqa: S321
        else:
            ftp = ftplib.FTP(timeout=_FTP_SECONDS)  # noqa: S321 (the address says so)
        try:
            ftp.connect(self.host, self.port)
            ftp.login(self.username, self.password)
            if isinstance(ftp, ftplib.FTP_TLS):
                ftp.prot_p()
            ftp.set_pasv(not self.use_active_mode)
        except BaseException:
            ftp.close()
            raise
        return ftp


class WholeS3Storage(S3FeedStorage):
    """Feed in S3. Scrapy uploads it; it is not uploaded if the local file is not complete."""

    def open(self, spider: Spider) -> IO[bytes]:
        """Open a local file, which is deleted when it has been uploaded."""
        return cast("IO[bytes]", _temporary(spider))

    def _store_in_thread(self, file: IO[bytes]) -> None:
        assert isinstance(file, FeedFile)
        file.finish(f"s3://{self.bucketname}/{self.keyname}")
        local = Path(file.name)
        try:
            super()._store_in_thread(cast("IO[bytes]", local.open("rb")))  # which closes the file
        except Exception:
            log.error("the feed s3://%s/%s was not uploaded. Its items are in %s", self.bucketname, self.keyname, local)
            raise
        local.unlink()


def _hidden(name: str) -> str:
    """Return a name that no other process has. Long names are cut, because a file system takes 255 bytes."""
    return f".{name.encode()[:200].decode(errors='ignore')}.{secrets.token_hex(4)}.part"
