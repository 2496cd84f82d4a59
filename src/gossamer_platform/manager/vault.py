"""Encrypts the secrets of projects with keys of the operator's, and decrypts them for the node that runs a job.

A key is one of Fernet's (AES-128 and HMAC-SHA-256). There may be several: the first one encrypts, each of them
decrypts. So a new key can be put before the old one, and all secrets be encrypted anew (`rotate` in `variables.py`). A
token contains the names of its project and its variable, so one that is copied to another row of the database is
refused.

Fixed: the form of a token's content, and the names of the environment variables. No message here has a value in it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from gossamer.errors import BadInput, GossamerError

KEYS_VARIABLE: Final = "GOSSAMER_SECRET_KEYS"
"""Environment variable with the keys themselves, separated by commas or spaces. Fixed."""
KEYS_FILE_VARIABLE: Final = "GOSSAMER_SECRET_KEYS_FILE"
"""Environment variable with the name of a file that has one key a line. Fixed."""
_HINT: Final = f"Name the file with the key in {KEYS_FILE_VARIABLE}"
_NEW_KEY: Final = "python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'"
"""Command that prints a new key."""


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
        try:
            self._keys = MultiFernet([Fernet(key) for key in keys]) if keys else None
        except ValueError:
            raise BadInput(
                "a key for secrets is not valid: it must be 32 random bytes in URL-safe base64 (44 characters). Make "
                f"one with: {_NEW_KEY}"
            ) from None

    def encrypt(self, project: str, name: str, value: str) -> str:
        """Return the token of a secret. Raises NoSecretKey."""
        return self._key().encrypt(json.dumps([project, name, value]).encode()).decode()

    def check_key(self) -> None:
        """Raise NoSecretKey if secrets cannot be encrypted."""
        self._key()

    def _key(self) -> MultiFernet:
        if self._keys is None:
            raise NoSecretKey(f"the manager has no key for secrets. {_HINT}. Make one with: {_NEW_KEY}")
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
    """Return the vault by the operator's variables, and by a file. Raises BadInput.

    Keys of the variables come before those of the file. `file`: name of a file as in KEYS_FILE_VARIABLE, which is read
    only if that variable is not set. Empty: none.
    """
    keys = re.split(r"[\s,]+", environment.get(KEYS_VARIABLE, ""))
    path = environment.get(KEYS_FILE_VARIABLE, "") or file
    if path:
        try:
            keys += Path(path).read_text().split()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise BadInput(f"the file {path} with keys for secrets cannot be read: {reason}") from None
        if not any(keys):
            raise BadInput(f"the file {path} has no key for secrets. Make one with: {_NEW_KEY}")
    return SecretVault([key for key in keys if key])
