"""Code of versions on a node: copies of eggs and wheels, unpacked where Python cannot import from a zip.

    ARTEFACTS/UID/                 copies for a project whose user has this number; without users they are in ARTEFACTS
    ARTEFACTS/DIGEST.egg           copy of the artefact, be it an egg or a wheel
    ARTEFACTS/DIGEST-files.egg/    the same, unpacked and read-only; the name ends so for importlib.metadata, which
                                   looks for an egg's metadata only in such folders

Copies, because a deployment may replace the original while a job imports from it. Fixed: that nothing writes to a copy
under its final name.
"""

import hashlib
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gossamer_platform.link import Artefact
from gossamer_platform.node.build import sync
from gossamer_platform.node.users import ProjectUser
from gossamer_platform.packages import PackageFile, remove_folder

_COPY_SECONDS: Final = 3600.0
"""Age from which a copy of an artefact that is not needed is deleted."""
_UNUSED_SECONDS: Final = 30 * 86400.0
"""Time since its last use after which a copy is deleted if no manager says which are needed."""
_FOLDER_END: Final = "-files.egg"


class CodeStore:
    """Copies of artefacts below one folder. The methods wait for the disk: call them in a thread."""

    def __init__(self, folder: Path, fetch: Callable[[Artefact, Path], None]) -> None:
        """`fetch` writes a copy of an artefact to a new file."""
        self._folder = folder
        self._fetch = fetch
        self._whole: set[Path] = set()
        """Copies that this process has fetched, or compared with their digests."""

    def file(self, artefact: Artefact, user: ProjectUser | None = None) -> Path | None:
        """Return the node's own copy of the artefact, which only `user` can read. None: there is no artefact. Raises
        what `fetch` does."""
        if not artefact.digest:
            return None
        folder = self._folder if user is None else self._folder / str(user.uid)
        if user is not None:
            folder.mkdir(parents=True, exist_ok=True)
            user.let_in(folder)
        kept = folder / f"{artefact.digest}.egg"
        if not self._is_whole(kept, artefact.digest):
            folder.mkdir(parents=True, exist_ok=True)
            new = kept.with_name(f".{uuid.uuid4().hex}")
            self._fetch(artefact, new)
            new.chmod(0o644)
            os.replace(new, kept)
            self._whole.add(kept)
        os.utime(kept)
        return kept

    def _is_whole(self, kept: Path, digest: str) -> bool:
        """Return whether a copy is there. One from before a power cut may be there without its content."""
        try:
            with kept.open("rb") as file:
                if kept not in self._whole and hashlib.file_digest(file, "sha256").hexdigest() == digest:
                    self._whole.add(kept)
        except FileNotFoundError:
            return False
        return kept in self._whole

    def importable(self, file: Path | None) -> str:
        """Return the file or folder from which Python imports the code. Empty: there is no artefact. Raises
        NotAnArtefact."""
        if file is None:
            return ""
        folder = file.with_name(f"{file.stem}{_FOLDER_END}")
        if folder.exists():
            return str(folder)
        package = PackageFile(file)
        if not package.needs_folder:
            return str(file)
        new = folder.with_name(f".new-{uuid.uuid4().hex}")
        try:
            package.unpack(new)
            sync(str(new))  # otherwise a power cut may leave the folder, and not what is in its files
            os.rename(new, folder)
        except FileExistsError:  # another job of the version has just unpacked it
            pass
        finally:
            remove_folder(new)
        return str(folder)

    def forget(self, wanted: set[str] | None, used: set[str]) -> None:
        """Delete old copies of artefacts with other digests than those `wanted` and `used`. `wanted`: None: nothing is
        known of that; then those go that were not used for weeks."""
        limit = _UNUSED_SECONDS if wanted is None else _COPY_SECONDS
        own = [folder for folder in self._folder.glob("*") if folder.name.isdigit()]
        paths = [path for folder in (self._folder, *own) for path in folder.glob("*") if path not in own]
        for path in sorted(paths, key=Path.is_file):  # the time of a folder's last use is that of its file
            digest = path.name.removesuffix(_FOLDER_END).removesuffix(".egg")
            if digest in used or digest in (wanted or ()):
                continue
            last_use = path.with_name(f"{digest}.egg")
            # A new one may belong to a version that was deployed after `wanted` was asked for.
            if time.time() - (last_use if last_use.exists() else path).stat().st_mtime > limit:
                if path.is_dir():
                    remove_folder(path)
                else:
                    path.unlink(missing_ok=True)
