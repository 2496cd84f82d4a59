"""Keys of the operator's, by which secrets and cookies are encrypted: from the environment, or from a file.

A key is one of Fernet's (AES-128 and HMAC-SHA-256). There may be several: the first one encrypts, each of them
decrypts, so that a new key can be put before the old one.

Fixed: the names of the environment variables. No message here has a key in it.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gossamer.errors import BadInput
from gossamer.extras import install_advice

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

KEYS_VARIABLE: Final = "GOSSAMER_SECRET_KEYS"
"""Environment variable with the keys themselves, separated by commas or spaces. Fixed."""
KEYS_FILE_VARIABLE: Final = "GOSSAMER_SECRET_KEYS_FILE"
"""Environment variable with the name of a file that has one key a line. Fixed."""
NEW_KEY: Final = "python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'"
"""Command that prints a new key. It needs the package cryptography."""


def new_key_advice() -> str:
    """Return how to make a key, after the installation of the extra where its package is missing."""
    if find_spec("cryptography") is None:
        return f"Install the extra session: {install_advice('session')}. Then make a key with: {NEW_KEY}"
    return f"Make one with: {NEW_KEY}"


def open_keys(keys: Sequence[str]) -> "MultiFernet | None":
    """Return what encrypts and decrypts with these keys; None: there are none. Raises BadInput for what is no key."""
    if not keys:
        return None
    from cryptography.fernet import Fernet, MultiFernet  # imported late: most crawls encrypt nothing

    try:
        return MultiFernet([Fernet(key) for key in keys])
    except ValueError:
        raise BadInput(
            "a key for secrets is not valid: it must be 32 random bytes in URL-safe base64 (44 characters). Make one "
            f"with: {NEW_KEY}"
        ) from None


def read_keys(environment: Mapping[str, str], file: str = "") -> list[str]:
    """Return the operator's keys: those of the variables before those of the file. Raises BadInput.

    `file`: name of a file as in KEYS_FILE_VARIABLE, which is read only if that variable is not set. Empty: none.
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
            raise BadInput(f"the file {path} has no key for secrets. {new_key_advice()}")
    return [key for key in keys if key]
