"""Secrets from the environment: in a variable, or in a file that a variable with `_FILE` behind its name names.

A file is what container platforms mount for a secret. Other users of the machine see the command line, so no secret
needs to be there.
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
