"""Operations on environment variables and secrets of projects: set, list, delete, encrypt anew, give to a job.

A secret's value leaves this module in `values` only, for the node that runs a process of the project, and in `masked`,
for the mask of logs. Fixed: that no message and no log line has a value in it.
"""

import logging
import re
from typing import Final, NamedTuple

from sqlalchemy import Connection

from gossamer.errors import BadInput
from gossamer.storage.secret_keys import KEYS_FILE_VARIABLE, KEYS_VARIABLE
from gossamer_platform.manager.vault import SecretUnreadable, SecretVault
from gossamer_platform.names import check_file_name
from gossamer_platform.state import variables, webhooks
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.tables import Variable

log = logging.getLogger("gossamer.platform.manager")

MAX_VALUE_BYTES: Final = 16 * 1024
"""Length of a value. See MAX_VARIABLES."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
_RESERVED: Final = frozenset(
    {"GOSSAMER_ATTEMPT", "GOSSAMER_GROUP_START", "SCRAPY_PROJECT", "SCRAPYD_EGG_VERSION", KEYS_VARIABLE}
    | {KEYS_FILE_VARIABLE}
)
"""Names that the platform itself gives to processes of a project, or keeps from them."""


class Rotation(NamedTuple):
    """Result of encrypting all secrets anew."""

    rotated: int
    """Secrets that only the first key is needed for now."""
    unreadable: list[str]
    """Those that could not be decrypted, as PROJECT/NAME."""


class ProjectVariables:
    """Environment variables of all projects."""

    def __init__(self, database: StateDatabase, vault: SecretVault) -> None:
        self._database = database
        self._vault = vault

    def check_key(self) -> None:
        """Raise NoSecretKey if the manager can keep no secrets."""
        self._vault.check_key()

    async def set(self, project: str, name: str, value: str, *, is_secret: bool) -> Variable:
        """Set a variable, and return its row. The project is created if it does not exist.

        Raises BadInput, UnsafeName for the project, and NoSecretKey.
        """
        check_file_name(project, project)
        check_variable(name, value)
        stored = self._vault.encrypt(project, name, value) if is_secret else value

        def change(connection: Connection) -> Variable:
            if not variables.set_variable(connection, project, name, stored, is_secret=is_secret):
                raise BadInput(f"project '{project}' has {variables.MAX_VARIABLES} variables; delete some first")
            found = variables.list_variables(connection, project)
            return next(row for row in found if row.name == name)

        return await self._database.write(change)

    async def list(self, project: str) -> list[Variable]:
        """Return the rows of a project's variables."""
        return list(await self._database.read(lambda connection: variables.list_variables(connection, project)))

    async def delete(self, project: str, name: str) -> bool:
        """Delete a variable. Return False if there is none of this name."""
        return await self._database.write(lambda connection: variables.delete_variable(connection, project, name))

    async def values(self, project: str) -> dict[str, str]:
        """Return the variables of a process of the project, secrets included. Raises SecretUnreadable."""
        return {
            row.name: self._vault.decrypt(project, row.name, row.value) if row.is_secret else row.value
            for row in await self.list(project)
        }

    async def rotate(self) -> Rotation:
        """Encrypt all secrets with the first key. May be repeated, also after a kill in the middle."""
        count, unreadable = 0, []
        for row in await self._database.read(variables.list_secrets):
            try:
                new = self._vault.rotate(row.project, row.name, row.value)
            except SecretUnreadable:
                unreadable.append(f"{row.project}/{row.name}")
                continue

            def change(connection: Connection, row: variables.Secret = row, new: str = new) -> bool:
                return variables.replace_token(connection, row.id, old=row.value, new=new)

            # One that was changed meanwhile has been encrypted with the first key already.
            await self._database.write(change)
            count += 1
        for hook in await self._database.read(lambda connection: webhooks.list_webhooks(connection, "")):
            try:
                token = self._vault.rotate(hook.project or "", hook.secret_name, hook.secret)
            except SecretUnreadable:
                unreadable.append(f"{hook.project or 'all projects'}/webhook {hook.id}")
                continue

            def replace(connection: Connection, hook: webhooks.Webhook = hook, token: str = token) -> bool:
                return webhooks.replace_secret(connection, hook.id, old=hook.secret, new=token)

            await self._database.write(replace)
            count += 1
        return Rotation(count, unreadable)

    async def warn_of_unreadable(self) -> None:
        """Log the secrets that cannot be decrypted, so that an operator learns of a wrong key before a job fails."""
        for row in await self._database.read(variables.list_secrets):
            try:
                self._vault.decrypt(row.project, row.name, row.value)
            except SecretUnreadable as error:
                log.warning("jobs of project %s will fail: secret %s", row.project, error)
        for hook in await self._database.read(lambda connection: webhooks.list_webhooks(connection, "")):
            try:
                self._vault.decrypt(hook.project or "", hook.secret_name, hook.secret)
            except SecretUnreadable as error:
                log.warning("webhook %d will get no events: secret %s", hook.id, error)


def check_variable(name: str, value: str) -> None:
    """Raise BadInput unless a process can have this environment variable, and a project may set it."""
    if _NAME.fullmatch(name) is None:
        raise BadInput(f"{name} is no name of an environment variable: write letters, digits and _, no digit first")
    if name in _RESERVED:
        raise BadInput(f"{name} is set by the platform itself; choose another name")
    if "\0" in value:
        raise BadInput(f"the value of {name} contains the character NUL, which environment variables cannot have")
    try:
        length = len(value.encode())
    except UnicodeEncodeError:
        raise BadInput(f"the value of {name} contains half of a surrogate pair, which is no character") from None
    if length > MAX_VALUE_BYTES:
        raise BadInput(f"the value of {name} is longer than {MAX_VALUE_BYTES} bytes")
