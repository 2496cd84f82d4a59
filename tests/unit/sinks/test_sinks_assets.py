"""The folder of assets: what could not be written leaves nothing behind."""

import resource
from pathlib import Path

import pytest

from gossamer.errors import SinkError
from gossamer.model.assets import Asset
from gossamer.sinks.open import open_asset_folder
from tests.unit.sinks.conftest import MakePage


def files_with_content(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]


async def test_attempts_on_a_full_disk_leave_no_files(tmp_path: Path, page: MakePage) -> None:
    """A limit of the size of files stands in place of the disk."""
    folder = open_asset_folder(str(tmp_path / "assets"), spool_dir=tmp_path / "spool", run="", on_missing=None)
    output = page()
    output.asset, output.body = Asset(kind="image", referrer="https://a.test/"), b"x" * 100_000
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        for _ in range(2):
            with pytest.raises(SinkError, match="too large"):
                await folder.write([output])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not files_with_content(tmp_path)
    await folder.write([output])
    await folder.close()
    assert len(files_with_content(tmp_path)) == 2  # the asset and the manifest
