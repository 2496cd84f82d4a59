"""The history of the settings: where it is, and what is said where it cannot be."""

import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer.settings import Settings
from gossamer.settings.service import HistorySettings
from gossamer.wiring.history import has_history, history_address, open_history

SHARED = "redis://frontier.example:6379"


def settings(tmp_path: Path, database: str = "", frontier: str = "") -> Settings:
    return Settings(data_dir=tmp_path, frontier=frontier, history=HistorySettings(database=database))


def test_a_private_frontier_has_a_history_beside_it_and_a_shared_one_only_a_named_one(tmp_path: Path) -> None:
    assert history_address(settings(tmp_path)) == f"sqlite:///{tmp_path}/history.db"
    assert history_address(settings(tmp_path, frontier=SHARED)) == ""
    for frontier in ("", SHARED):
        assert history_address(settings(tmp_path, "postgresql+psycopg://a/b", frontier)) == "postgresql+psycopg://a/b"
        assert history_address(settings(tmp_path, "none", frontier)) == ""
        assert open_history(settings(tmp_path, "none", frontier)) is None


def test_commands_read_a_history_that_a_service_has_kept(tmp_path: Path) -> None:
    assert not has_history(settings(tmp_path))
    (tmp_path / "history.db").touch()
    assert has_history(settings(tmp_path))
    assert not has_history(settings(tmp_path, "none"))
    assert not has_history(settings(tmp_path, frontier=SHARED))


@pytest.mark.parametrize("address", ["mysql://me:secret@db/x", "nonsense", "postgresql://a/b"])
def test_an_address_that_cannot_be_used_is_named_with_its_setting(address: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"history\.database: .*write for example") as caught:
        open_history(settings(tmp_path, address))
    assert "secret" not in str(caught.value)


def test_the_extra_is_named_where_a_package_is_missing(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from gossamer.settings import Settings\n"
        "from gossamer.wiring.history import open_history\n"
        "open_history(Settings())"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "a history needs sqlalchemy" in ran.stderr
    assert "[service]" in ran.stderr
