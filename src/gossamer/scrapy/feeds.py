"""Feeds of a Scrapy project that appear under their names only when they are complete.

    ADDONS = {"gossamer.scrapy.WholeFeeds": 0}

The feed is written under a hidden name beside its target (`.NAME.WORD.part`) and renamed at its end. S3 needs nothing:
an object appears when its upload has ended. `%(batch)s` in the address of a feed is the spider's argument `batch`, or
else the job's id, so `%(batch)s_%(name)s_%(time)s` works in every run.

Fixed: the names of the classes, which projects write into their settings. Safe to change: the hidden names, numbers.
"""

import contextlib
import ftplib
import logging
import os
import posixpath
import secrets
import shutil
import ssl
import tempfile
import time
from pathlib import Path
from typing import IO, Any, Final, cast

from scrapy import Spider
from scrapy.extensions.feedexport import FileFeedStorage, FTPFeedStorage
from scrapy.settings import BaseSettings
from scrapy.utils.ftp import ftp_makedirs_cwd

log = logging.getLogger(__name__)

_PAUSES: Final = (3.0, 15.0)
"""Pauses in seconds before a failed upload by FTP is tried a second and a third time. May be changed."""


class WholeFeeds:
    """Scrapy's add-on interface: sets `FEED_STORAGES` and `FEED_URI_PARAMS`, unless the project does."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Change the settings."""
        settings.set("FEED_STORAGES", {**whole_storages(), **settings.getdict("FEED_STORAGES")}, "cmdline")
        settings.set("FEED_URI_PARAMS", feed_parameters, "addon")


def whole_storages() -> dict[str, type]:
    """Return the storages of whole feeds by the scheme of their address."""
    return {"": WholeFileStorage, "file": WholeFileStorage, "ftp": WholeFTPStorage, "ftps": WholeFTPStorage}


def feed_parameters(parameters: dict[str, Any], spider: Spider) -> dict[str, Any]:
    """Return the names that the address of a feed may contain: Scrapy's, and `batch`."""
    batch = getattr(spider, "batch", None) or os.environ.get("SCRAPY_JOB") or "all"
    return {**parameters, "batch": batch}


class WholeFileStorage(FileFeedStorage):
    """Feed in a file that appears under its name when it is complete.

    A feed that is appended to (`-o`, `overwrite` False) is a copy of the file until then. A crawl that is killed leaves
    the file as it was, and the hidden one.
    """

    def open(self, spider: Spider) -> IO[bytes]:
        """Open a hidden file beside the target. A target that is no regular file, such as a pipe, is opened itself."""
        path = Path(self.path)
        if path.exists() and not path.is_file():
            return super().open(spider)
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(_hidden(path.name)).open("xb")
        if self.write_mode == "ab":
            with contextlib.suppress(FileNotFoundError), path.open("rb") as former:
                shutil.copyfileobj(former, hidden)
        return cast("IO[bytes]", hidden)

    def store(self, file: IO[bytes]) -> None:
        """Give the file its name."""
        if Path(file.name).name == Path(self.path).name:
            file.close()
            return
        file.flush()
        os.fsync(file.fileno())
        file.close()
        Path(file.name).replace(self.path)


class WholeFTPStorage(FTPFeedStorage):
    """Feed on an FTP server that appears under its name when it is complete.

    An upload that fails is tried again. If all tries fail, the local file stays, and the log names it. With `overwrite`
    False, FTP can append only to the file itself; that is tried once, because a part may have been appended.
    """

    def open(self, spider: Spider) -> IO[bytes]:
        """Open a local file, which is deleted when it has been uploaded."""
        folder = spider.crawler.settings["FEED_TEMPDIR"]
        return cast("IO[bytes]", tempfile.NamedTemporaryFile(prefix="feed-", dir=folder, delete=False))

    def _store_in_thread(self, file: IO[bytes]) -> None:
        local, target = Path(file.name), f"ftp://{self.host}:{self.port}{self.path}"
        file.close()
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
        if not self.overwrite:
            super()._store_in_thread(local.open("rb"))
            return
        folder, name = posixpath.split(self.path)
        path, self.path = self.path, posixpath.join(folder, hidden)
        try:
            super()._store_in_thread(local.open("rb"))  # which closes the file
        finally:
            self.path = path
        # Releases of Scrapy that do not know ftps have no attribute `tls`.
        ftp = ftplib.FTP_TLS(context=ssl.create_default_context()) if getattr(self, "tls", False) else ftplib.FTP()  # noqa: S321 (the address says so)
        with ftp:
            ftp.connect(self.host, self.port)
            ftp.login(self.username, self.password)
            if isinstance(ftp, ftplib.FTP_TLS):
                ftp.prot_p()
            if self.use_active_mode:
                ftp.set_pasv(False)
            ftp_makedirs_cwd(ftp, folder)
            try:
                ftp.rename(hidden, name)
            except ftplib.error_perm:  # some servers do not replace a file
                ftp.delete(name)
                ftp.rename(hidden, name)


def _hidden(name: str) -> str:
    """Return a name that no other process has. Long names are cut, because a file system takes 255 bytes."""
    return f".{name.encode()[:200].decode(errors='ignore')}.{secrets.token_hex(4)}.part"
