"""Serves the folders of logs and items: listings of folders, and files with byte ranges.

Logs grow while they are read, so a file is sent up to the length that it had at the start, and browsers are told to ask
again each time. Files are sent as plain text, because a job may write whatever it likes into its folder. Fixed: the
heading and the rows of a listing, which ScrapydWeb reads with regular expressions.
"""

import errno
import mimetypes
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import HTMLResponse, Response, StreamingResponse

from gossamer.storage.local_file import LocalFile
from gossamer_platform.manager.files import OpenJobFile
from gossamer_platform.scrapyd.frame import PageFrame
from gossamer_platform.v1.reading import file_pieces, pieces

_ENCODINGS: Final = {".gz": "gzip", ".bz2": "bzip2"}
"""Content encodings by the ending of a name. Scrapyd's: fixed."""
_MOVED: Final = Markup('<a href="{}">{}/</a>\n')
"""Body of a redirect to a folder, for clients that do not follow it."""
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})$", re.ASCII)


class PageRequest(NamedTuple):
    """A request for a file or a folder."""

    shown: str
    """Its path, for the heading."""
    method: str
    headers: Mapping[str, str]
    frame: PageFrame
    """Frame of a listing."""


class ListedEntry(NamedTuple):
    """A file or a folder in a listing."""

    name: str
    is_folder: bool
    size: int
    modified_at: float


class _ByteRange(NamedTuple):
    """Bytes of a file."""

    first: int
    length: int


def serve(root: Path, path: str, request: PageRequest) -> Response | None:
    """Return the file or folder `path` below `root`. None: there is none. Waits for the disk: call it in a thread."""
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") or "\0" in part for part in parts):
        return None
    target = root.joinpath(*parts)
    try:
        is_folder = target.is_dir()
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
            raise
        return None
    if is_folder:
        return folder_response(_entries(target), request)
    if not target.is_file() or path.endswith("/"):
        return None
    return _file(target, request)


def _entries(folder: Path) -> Iterator[ListedEntry]:
    for entry in os.scandir(folder):
        try:
            found = entry.stat()
            yield ListedEntry(entry.name, entry.is_dir(), found.st_size, found.st_mtime)
        except OSError:  # deleted since, or a link to itself
            continue


def folder_response(entries: Iterable[ListedEntry], request: PageRequest) -> Response:
    """Return the listing of a folder."""
    shown = request.shown
    if not shown.endswith("/"):  # links in a listing are relative
        link = quote(f"{shown}/")
        return HTMLResponse(_MOVED.format(link, shown), 302, {"Location": link})
    return HTMLResponse(_folder(entries, shown, request.frame))


def _folder(found: Iterable[ListedEntry], shown: str, frame: PageFrame) -> str:
    in_order = sorted(found, key=lambda entry: (not entry.is_folder, entry.name))
    root, *below = (part for part in shown.split("/") if part)
    return frame.page(
        "folder.html.j2",
        f"Directory listing for {shown}",
        here=f"/{root}/",
        entries=[_row(entry) for entry in in_order],
        is_below=bool(below),
    )


def _row(entry: ListedEntry) -> dict[str, str]:
    name = os.fsencode(entry.name)  # the bytes on the disk, which may not be UTF-8
    slash = "/" if entry.is_folder else ""
    media, encoding = ("Directory", "") if slash else _types(entry.name)
    return {
        "link": quote(name) + slash,
        "name": name.decode(errors="backslashreplace") + slash,
        "size": "" if slash else _size(entry.size),
        "modified": datetime.fromtimestamp(entry.modified_at).strftime("%Y-%m-%d %H:%M"),
        "media": media,
        "encoding": encoding,
    }


def _size(count: int) -> str:
    for unit, factor in (("B", 1), ("K", 1024), ("M", 1024**2)):
        if count < factor * 1024:
            return f"{count // factor}{unit}"
    return f"{count // 1024**3}G"


def _types(name: str) -> tuple[str, str]:
    """Return media type and content encoding of a file."""
    stem, ending = os.path.splitext(name)
    encoding = _ENCODINGS.get(ending.lower(), "")
    media = mimetypes.guess_type(stem if encoding else name)[0]
    return (media if media == "application/json" else "text/plain"), encoding


def _file(path: Path, request: PageRequest) -> Response | None:
    try:
        return file_response(path.name, LocalFile(path), request)
    except FileNotFoundError:
        return None


def file_response(name: str, file: OpenJobFile, request: PageRequest) -> Response:
    """Return the content of a file as it is now, and close it at the end."""
    size, modified_at = file.length(), file.modified_at()
    media, encoding = _types(name)
    headers = {
        "Accept-Ranges": "bytes",
        "Cache-Control": "no-cache",
        "Last-Modified": formatdate(modified_at, usegmt=True),
        "X-Content-Type-Options": "nosniff",
    }
    if encoding:
        headers["Content-Encoding"] = encoding
    if _is_known(request.headers.get("if-modified-since", ""), modified_at):
        file.close()
        return Response(status_code=304, headers=headers)
    part, status = _ByteRange(0, size), 200
    # Only GET knows ranges.
    asked = _part(request.headers.get("range", ""), size) if request.method == "GET" else None
    if asked is not None and not asked.length:
        file.close()
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"}, media_type=media)
    if asked is not None:
        part, status = asked, 206
        headers["Content-Range"] = f"bytes {part.first}-{part.first + part.length - 1}/{size}"
    headers["Content-Length"] = str(part.length)
    content = pieces(file_pieces(file, part.first, part.first + part.length))
    return StreamingResponse(content, status, headers, media_type=media)


def _is_known(since: str, modified_at: float) -> bool:
    """Return whether a file has not changed since this time of the header If-Modified-Since."""
    try:
        return bool(since) and int(modified_at) <= parsedate_to_datetime(since).timestamp()
    except (ValueError, OverflowError):
        return False


def _part(byte_range: str, size: int) -> _ByteRange | None:
    """Return the bytes that the header Range asks for; a length of 0: there are none of them. None: the whole file is
    to be sent, because the header is not understood."""
    found = _RANGE.match(byte_range.strip())
    if found is None or found[0] == "bytes=-":
        return None  # several ranges, or not in bytes
    first, last = found[1], found[2]
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    return _ByteRange(start, max(0, end - start))
