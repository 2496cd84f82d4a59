"""Eggs and wheels: what is refused where it enters, and what is read from one."""

import contextlib
import io
import os
import random
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gossamer.cli.app import parse_and_run
from gossamer.errors import BadInput
from gossamer_platform import packages
from gossamer_platform.link import Artefact
from gossamer_platform.node.code import CodeStore
from gossamer_platform.node.requirements import BadRequirements, requirements_of, scrapy_requirement
from gossamer_platform.packages import NotAnArtefact, PackageFile, check_package
from tests.servers.scrapyd import egg, project_wheel, spider, wheel


def _zip(write: Callable[[zipfile.ZipFile], None], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO(egg(spider("good")))
    with zipfile.ZipFile(content, "a", compression) as packed:
        write(packed)
    return content.getvalue()


def _named(name: str, mode: int = 0) -> bytes:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    return _zip(lambda packed: packed.writestr(entry, "/etc/passwd"))


def _bomb() -> bytes:
    return _zip(lambda packed: packed.writestr("zeros", bytes(80 * 1024 * 1024)))


def _announcing(length: int) -> bytes:
    """A file that says that it is so long."""
    content = bytearray(_zip(lambda packed: packed.writestr("shop/lies", b"x" * 100)))
    place = content.rfind(b"PK\1\2")
    content[place + 24 : place + 28] = struct.pack("<L", length)
    return bytes(content)


def _overlapping() -> bytes:
    """Many files that share their bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr("shared", os.urandom(100_000))
        [first] = packed.infolist()
        for number in range(20):
            entry = zipfile.ZipInfo(f"copy{number}")
            for name in ("header_offset", "CRC", "compress_size", "file_size"):
                setattr(entry, name, getattr(first, name))
            packed.filelist.append(entry)
    return content.getvalue()


def _encrypted() -> bytes:
    content = bytearray(_zip(lambda packed: packed.writestr("shop/secret", b"x")))
    content[content.rfind(b"PK\1\2") + 8] |= 1
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a ZIP file"),
        (b"PK\3\4 and nothing else", "not a ZIP file"),
        (egg(spider("good"))[:-40], "not a ZIP file"),
        (_named("../outside"), "leads out of its folder"),
        (_named("shop/../../outside"), "leads out of its folder"),
        (_named("/etc/cron.d/outside"), "leads out of its folder"),
        (_named("C:/outside"), "leads out of its folder"),
        (_named("..\\outside"), "leads out of its folder"),
        (_named("shop//outside"), "leads out of its folder"),
        (_named("x.data/purelib//etc/cron.d/outside"), "leads out of its folder"),
        (_named("x.data/platlib//etc/cron.d/outside"), "leads out of its folder"),
        (_named("x.data/purelib/C:/outside"), "leads out of its folder"),
        (_named("x" * 300), "too long"),
        (_named("shop/link", stat.S_IFLNK | 0o777), "a link or a device"),
        (_named("shop/pipe", stat.S_IFIFO | 0o644), "a link or a device"),
        (_encrypted(), "encrypted"),
        (_zip(lambda packed: packed.writestr("a", "a"), zipfile.ZIP_LZMA), "cannot import"),
        (_bomb(), "zip bomb"),
        (_announcing(2_000_000_000), "when unpacked"),
        (_overlapping(), "zip bomb"),
    ],
)
def test_what_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(NotAnArtefact, match=reason):
        check_package(io.BytesIO(content))


def test_a_long_table_of_contents_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for number in range(packages._MAX_FILES + 1):
            packed.writestr(str(number), b"")
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(NotAnArtefact, match="more than 50000 files"):
        check_package(content)


def test_a_zip_that_lies_about_a_length_is_not_unpacked_beyond_it(tmp_path: Path) -> None:
    """What is announced is checked, and more than that is never written."""
    content = bytearray(_zip(lambda packed: packed.writestr("shop/lies", bytes(10 * 1024 * 1024))))
    place = content.rfind(b"PK\1\2")
    content[place + 24 : place + 28] = struct.pack("<L", 10)
    (tmp_path / "a.egg").write_bytes(content)
    with pytest.raises(NotAnArtefact, match="cannot be unpacked"):
        PackageFile(tmp_path / "a.egg").unpack(tmp_path / "out")
    assert sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file()) < 10_000


def test_one_name_for_a_file_and_a_folder_is_refused(tmp_path: Path) -> None:
    def write(packed: zipfile.ZipFile) -> None:
        packed.writestr("twice", "")
        packed.writestr("twice/below", "")

    (tmp_path / "a.egg").write_bytes(_zip(write))
    with pytest.raises(NotAnArtefact, match="cannot be unpacked"):
        PackageFile(tmp_path / "a.egg").unpack(tmp_path / "out")


def _package(folder: Path, content: bytes) -> PackageFile:
    (folder / "digest.egg").write_bytes(content)
    return PackageFile(folder / "digest.egg")


def _fetch(artefact: Artefact, target: Path) -> None:
    assert artefact.path is not None
    shutil.copyfile(artefact.path, target)


def test_a_wheel_is_unpacked_read_only_and_an_egg_is_not(tmp_path: Path) -> None:
    code = CodeStore(tmp_path / "node", _fetch)
    (tmp_path / "a.egg").write_bytes(egg(spider("good")))
    more = {"shop-1.0.data/purelib/": "", "shop-1.0.data/purelib/extra.py": "x = 1"}
    (tmp_path / "a.whl").write_bytes(project_wheel(spider("good"), more=more))
    found = [code.file(Artefact("shop", "1", name, tmp_path / f"a.{name}", "")) for name in ("egg", "whl")]
    assert code.importable(found[0]) == str(tmp_path / "node/egg.egg")
    folder = Path(code.importable(found[1]))
    assert (folder / "extra.py").read_text() == "x = 1"
    assert {stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]} == {0o444, 0o555}
    for path in folder.parent.iterdir():
        os.utime(path, (1, 1))
    for wanted, used in (({"egg"}, {"whl"}), (None, {"egg", "whl"})):
        code.forget(wanted, used)
        assert len(list(folder.parent.iterdir())) == 3
    code.forget({"egg"}, set())
    assert sorted(path.name for path in folder.parent.iterdir()) == ["egg.egg"]
    code.forget(None, set())
    assert not list(folder.parent.iterdir())


def test_requirements_of_a_wheel(tmp_path: Path) -> None:
    requires = [
        "requests>=2",
        "old; python_version < '3'",
        "tool; extra == 'dev'",
        "named[a] == 1 ; sys_platform != 'x'",
    ]
    package = _package(tmp_path, project_wheel(spider("good"), requires=requires))
    assert requirements_of(package, "") == ["named[a]==1", "requests>=2"]


def test_requirements_of_an_egg_and_of_a_file(tmp_path: Path) -> None:
    def write(packed: zipfile.ZipFile) -> None:
        packed.writestr("EGG-INFO/requires.txt", "requests>=2\n\n[:python_version < '3']\nold\n\n[dev]\ntool\n")
        packed.writestr("requirements.txt", "# ours\nScrapy>=2.14  # why\nhashed==1 \\\n  --hash=sha256:00\n")

    package = _package(tmp_path, _zip(write))
    expected = ["Scrapy>=2.14", "given", "hashed==1 --hash=sha256:00", "requests>=2"]
    assert requirements_of(package, "given\nold; python_version < '3'") == expected


@pytest.mark.parametrize(
    "line",
    [
        "-e .",
        "-r other.txt",
        "./local.whl",
        "file:///etc/passwd",
        "x @ file:///x.whl",
        "--index-url /x",
        "--extra-index-url https://x/simple -r /etc/hostname",
        "--pre -r /etc/hostname",
        "--no-index=-r /etc/hostname",
        "https://x/a.whl -r /etc/hostname",
        "-c x",
        "a b",
        "../x",
    ],
)
def test_lines_that_lead_to_files_of_the_node_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadRequirements):
        requirements_of(_package(tmp_path, egg(spider("good"))), line)


def test_metadata_that_lead_to_files_of_the_node_are_refused(tmp_path: Path) -> None:
    for line in ("x @ file:///etc/hostname", "x @ /etc/hostname"):
        with pytest.raises(BadRequirements, match="leads to a file"):
            requirements_of(_package(tmp_path, project_wheel(spider("good"), requires=[line])), "")


def test_options_with_addresses_are_kept(tmp_path: Path) -> None:
    lines = ["--extra-index-url https://x/simple", "--find-links https://x/?a=b", "-i=https://x/?a=b", "--pre"]
    lines += ["git+https://x/a.git@main#egg=a", "x @ https://x/a.whl --hash=sha256:00"]
    assert requirements_of(_package(tmp_path, egg(spider("good"))), "\n".join(lines)) == sorted(lines)


def test_another_python_or_platform_is_refused(tmp_path: Path) -> None:
    metadata = project_wheel(spider("good"), requires=["a\nRequires-Python: <3"])
    with pytest.raises(BadRequirements, match="needs Python <3"):
        requirements_of(_package(tmp_path, metadata), "")
    for tag in ("cp27-cp27m-win32", "py2-none-any"):
        with pytest.raises(BadRequirements, match="the wheel is for"):
            requirements_of(_package(tmp_path, wheel("shop", {}, tag=tag)), "")
    assert requirements_of(_package(tmp_path, wheel("shop", {}, tag="py2.py3-none-any")), "") == []


def test_scrapy_is_named_in_the_version_of_the_node() -> None:
    assert scrapy_requirement().startswith("scrapy==")


def test_damaged_and_forged_files_end_in_a_refusal(tmp_path: Path) -> None:
    """Whatever bytes are changed: it is read, or refused with a message, never with an error of Python's."""
    chance = random.Random(3)
    more = {"requirements.txt": "a==1", "shop-1.0.data/purelib/x.py": "x"}
    good = project_wheel(spider("good"), requires=["a; python_version > '3'", "b"], more=more)
    for number in range(400):
        content = bytearray(good)
        first = content.find(b"PK\1\2") if chance.random() < 0.7 else 0
        for _ in range(chance.randrange(1, 4)):
            content[chance.randrange(first, len(content))] = chance.randrange(256)
        with contextlib.suppress(NotAnArtefact, BadRequirements):
            package = _package(tmp_path, bytes(content))
            requirements_of(package, "")
            package.unpack(tmp_path / str(number))
    assert not (tmp_path.parent / "outside").exists()


def test_a_condition_that_cannot_be_evaluated_is_refused(tmp_path: Path) -> None:
    for condition in ("python_version ~= 'x'", "implementation_name ~= 'cpython'"):
        with pytest.raises(BadRequirements, match=r"condition|no requirement"):
            requirements_of(_package(tmp_path, project_wheel(spider("good"), requires=[f"a; {condition}"])), "")


def test_an_artefact_that_cannot_be_built_or_written_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/settings.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"--build: nowhere/x.egg cannot be written: No such file or directory"):
        parse_and_run(["deploy", "--build", "nowhere/x.egg"])
    (tmp_path / "setup.py").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match=r"cannot be built: .*is a named pipe"):
        parse_and_run(["deploy", "--build", "x.egg"])
