"""Secrets from the environment: the variable NAME has the secret, or NAME_FILE has the path of a file with it.

Container platforms mount secrets as files. No secret needs to be on the command line, which other users can read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gossamer.errors import BadInput

NODE_TOKEN: Final = "GOSSAMER_NODE_TOKEN"  # noqa: S105 (a variable's name, as are the next)
PLATFORM_TOKEN: Final = "GOSSAMER_PLATFORM_TOKEN"  # noqa: S105
PLATFORM_USERNAME: Final = "GOSSAMER_PLATFORM_USERNAME"
PLATFORM_PASSWORD: Final = "GOSSAMER_PLATFORM_PASSWORD"  # noqa: S105
SCRAPYD_SECRETS: Final = ("SCRAPYD_PASSWORD", "SCRAPYD_DATABASE_URL", "SCRAPYD_CRAWL_SERVICE_TOKEN")
_SECRETS: Final = (NODE_TOKEN, PLATFORM_TOKEN, PLATFORM_PASSWORD, *SCRAPYD_SECRETS, "GOSSAMER_SECRET_KEYS")
SECRET_VARIABLES: Final = frozenset((*_SECRETS, *(f"{name}_FILE" for name in _SECRETS)))
"""Variables that processes of projects must not get."""


def read_secret(environment: Mapping[str, str], name: str) -> str:
    """Return the secret of this variable or of its file, without white space around it. Empty: neither is set.

    Raises BadInput if both are set, or if the file cannot be read.
    """
    value, path = environment.get(name, "").strip(), environment.get(f"{name}_FILE", "")
    if not path:
        return value
    if value:
        raise BadInput(f"{name} and {name}_FILE are both set. Unset one of them")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInput(f"{name}_FILE: cannot read {path}: {reason}") from None
