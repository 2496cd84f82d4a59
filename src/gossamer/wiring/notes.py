"""What a crawl from the command line leaves in the data directory, so that `why` can answer for it later."""

import os
from pathlib import Path
from tempfile import mkstemp

import msgspec

from gossamer.errors import BadInput
from gossamer.model.crawl import Run, Terms

_FOLDER = "crawls"


class CrawlNote(msgspec.Struct, kw_only=True):
    """One crawl as it was last begun here."""

    run: Run
    terms: Terms
    spider: str
    outputs: tuple[str, ...]
    resolve: dict[str, str] = {}
    """Overrides of DNS it was begun with."""
    ca_file: str = ""
    """Its authorities, as an absolute path. Empty: the system's only."""


def write_note(data_dir: Path, note: CrawlNote) -> None:
    """Keep it, for its owner only: it may hold a cookie. Raises BadInput for a directory that cannot be written."""
    path = _path(data_dir, note.run.crawl.id.crawlid)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A name of its own: commands that share a crawl may begin at the same moment.
        descriptor, fresh = mkstemp(dir=path.parent, suffix=".new")
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(note))
        os.replace(fresh, path)
    except OSError as error:
        raise BadInput(f"data directory {data_dir}: {error.strerror}") from None


def read_note(data_dir: Path, crawl_id: str) -> CrawlNote | None:
    """None: no crawl of that name was begun with this data directory."""
    try:
        return msgspec.json.decode(_path(data_dir, crawl_id).read_bytes(), type=CrawlNote)
    except (OSError, msgspec.DecodeError):
        return None


def known_crawls(data_dir: Path) -> list[str]:
    """The names of the crawls begun with this data directory, the latest last."""
    try:
        paths = sorted((data_dir / _FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime)
    except OSError:
        return []
    return [path.stem for path in paths]


def _path(data_dir: Path, crawl_id: str) -> Path:
    return data_dir / _FOLDER / f"{crawl_id.replace('/', '%2F')}.json"
