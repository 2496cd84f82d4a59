"""Encrypts the secrets of projects with keys of the operator's, and decrypts them for the node that runs a job.

There may be several keys (`storage/secret_keys.py`): a new one can be put before the old one, and all secrets be
encrypted anew (`rotate` in `variables.py`). A token contains the names of its project and its variable, so one that is
copied to another row of the database is refused.

Fixed: the form of a token's content. No message here has a value in it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.fernet import InvalidToken, MultiFernet

from gossamer.errors import GossamerError
from gossamer.storage.secret_keys import KEYS_FILE_VARIABLE, NEW_KEY, open_keys, read_keys

_HINT: Final = f"Name the file with the key in {KEYS_FILE_VARIABLE}"


class SecretUnreadable(GossamerError):
    """The secret cannot be decrypted."""

    only_detail = True


class NoSecretKey(GossamerError):
    """The manager has no key for secrets."""

    only_detail = True


class SecretVault:
    """Keys of the operator's. Without any, nothing can be encrypted or decrypted."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        """Raises BadInput for what is no key; the message does not contain it."""
        self._keys = open_keys(keys)

    def encrypt(self, project: str, name: str, value: str) -> str:
        """Return the token of a secret. Raises NoSecretKey."""
        return self._key().encrypt(json.dumps([project, name, value]).encode()).decode()

    def check_key(self) -> None:
        """Raise NoSecretKey if secrets cannot be encrypted."""
        self._key()

    def _key(self) -> MultiFernet:
        if self._keys is None:
            raise NoSecretKey(f"the manager has no key for secrets. {_HINT}. Make one with: {NEW_KEY}")
        return self._keys

    def decrypt(self, project: str, name: str, token: str) -> str:
        """Return the value of a secret. Raises SecretUnreadable."""
        if self._keys is None:
            raise SecretUnreadable(f"{name}: the manager has no key for secrets. {_HINT}")
        try:
            found = json.loads(self._keys.decrypt(token))
        except InvalidToken:
            raise SecretUnreadable(
                f"{name}: none of the manager's keys decrypts it. Add the key that it was encrypted with, or set the "
                "secret again"
            ) from None
        if found[:2] != [project, name]:
            raise SecretUnreadable(f"{name}: what is stored was encrypted for another name or project. Set it again")
        return str(found[2])

    def rotate(self, project: str, name: str, token: str) -> str:
        """Return a token of the same secret by the first key. Raises SecretUnreadable."""
        return self.encrypt(project, name, self.decrypt(project, name, token))


def load_vault(environment: Mapping[str, str], file: str = "") -> SecretVault:
    """Return the vault by the operator's variables, and by a file (see `read_keys`). Raises BadInput."""
    return SecretVault(read_keys(environment, file))
