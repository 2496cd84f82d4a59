"""Local files that are there whole or not at all."""

import errno
import fcntl
import io
import os
from pathlib import Path

import pytest

from gossamer.storage import files
from gossamer.storage.files import FileInUse, unfinished, write_whole


def test_a_file_is_written_and_replaced_whole(tmp_path: Path) -> None:
    for content in (b"first", io.BytesIO(b"second")):
        write_whole(tmp_path / "a", content, mode=0o600)
    assert (tmp_path / "a").read_bytes() == b"second"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_is_to_be_new_replaces_none(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"first", fresh=True)
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "a", b"second", fresh=True)
    assert (tmp_path / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


def test_a_fault_leaves_the_former_file_and_nothing_else(tmp_path: Path) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError("the source is away")
            return super().read(1)

    write_whole(tmp_path / "a", b"first")
    with pytest.raises(OSError, match="away"):
        write_whole(tmp_path / "a", Breaking(b"second"))
    assert (tmp_path / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


def test_contents_are_on_the_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of system calls, which only a power cut would show else."""
    calls: list[str] = []
    for name in ("fdatasync", "fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, name=name, real=real: (calls.append(name), real(*given)))
    monkeypatch.setattr(files.sys, "platform", "linux")
    write_whole(tmp_path / "a", b"x")
    assert calls == ["fdatasync", "replace", "fsync"]


# --- unfinished files -------------------------------------------------------------------------------------------------


def finish(target: Path) -> None:
    with unfinished(target) as part:
        part.write_text("whole")
        part.replace(target)


def test_a_file_that_has_the_name_of_the_folder_of_parts_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.part").write_bytes(b"x")
    finish(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_a_killed_process_left_among_the_parts_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".a.part" / ".a.part"
    left.mkdir(parents=True)
    (left / "a").write_bytes(b"x")
    finish(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_that_is_being_written_is_in_use(tmp_path: Path) -> None:
    with unfinished(tmp_path / "a") as part:
        part.write_text("half")
        with pytest.raises(FileInUse):
            finish(tmp_path / "a")
        assert part.read_text() == "half"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_on_a_file_system_without_locks_each_process_has_a_part_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with unfinished(tmp_path / "a") as part:
        part.write_text("half")
        finish(tmp_path / "a")
        assert part.read_text() == "half"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
