"""Keys for secrets, and what they encrypt."""

from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from gossamer.errors import BadInput
from gossamer_platform.manager.vault import NoSecretKey, SecretUnreadable, SecretVault, load_vault


def new_key() -> str:
    """A key as an operator makes it."""
    return Fernet.generate_key().decode()


def test_the_first_key_encrypts_and_every_key_decrypts() -> None:
    old, new = new_key(), new_key()
    token = SecretVault([old]).encrypt("shop", "KEY", "value")
    both = SecretVault([new, old])
    assert both.decrypt("shop", "KEY", token) == "value"
    assert SecretVault([new]).decrypt("shop", "KEY", both.rotate("shop", "KEY", token)) == "value"
    assert SecretVault([new]).decrypt("shop", "KEY", both.encrypt("shop", "KEY", "value")) == "value"


@pytest.mark.parametrize(("project", "name"), [("other", "KEY"), ("shop", "OTHER")])
def test_a_token_that_was_moved_to_another_row_is_refused(project: str, name: str) -> None:
    vault = SecretVault([new_key()])
    token = vault.encrypt("shop", "KEY", "value")
    with pytest.raises(SecretUnreadable, match=f"{name}: what is stored was encrypted for another name or project"):
        vault.decrypt(project, name, token)


def test_a_wrong_and_a_missing_key_are_told_apart_and_the_value_is_not_shown() -> None:
    token = SecretVault([new_key()]).encrypt("shop", "KEY", "value")
    with pytest.raises(SecretUnreadable, match=r"^KEY: none of the manager's keys decrypts it") as wrong:
        SecretVault([new_key()]).decrypt("shop", "KEY", token)
    with pytest.raises(SecretUnreadable, match=r"^KEY: the manager has no key for secrets"):
        SecretVault().decrypt("shop", "KEY", token)
    with pytest.raises(NoSecretKey, match="GOSSAMER_SECRET_KEYS_FILE"):
        SecretVault().encrypt("shop", "KEY", "value")
    assert token not in str(wrong.value)


def test_keys_come_from_the_variable_then_from_the_file(tmp_path: Path) -> None:
    one, two, three = new_key(), new_key(), new_key()
    file = tmp_path / "keys"
    file.write_text(f"{three}\n")
    vault = load_vault({"GOSSAMER_SECRET_KEYS": f"{one},{two}"}, str(file))
    assert SecretVault([one]).decrypt("p", "N", vault.encrypt("p", "N", "v")) == "v"
    for key in (two, three):
        assert vault.decrypt("p", "N", SecretVault([key]).encrypt("p", "N", "v")) == "v"
    with pytest.raises(NoSecretKey):
        load_vault({}).check_key()


def test_a_key_that_is_none_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a key for secrets is not valid") as refused:
        load_vault({"GOSSAMER_SECRET_KEYS": "nonsense"})
    assert "nonsense" not in str(refused.value)
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        load_vault({"GOSSAMER_SECRET_KEYS_FILE": str(tmp_path / "none")})
    (tmp_path / "empty").touch()
    with pytest.raises(BadInput, match="has no key for secrets"):
        load_vault({}, str(tmp_path / "empty"))
